//! `generate` refuses what no job is, with the remedy, before it writes anything.

use crate::command::{command, text};

#[test]
fn what_no_job_is_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("a/made");
    for (args, why) in [
        (&["--ranks", "1000000000"][..], "at most 131072 ranks"),
        (&["--ranks", "131072", "--hosts", "1024", "--steps", "4000000000"], "rows"),
        (&["--run", "../../esc"], "is not the id of a run"),
        (&["--run", "a/b"], "is not the id of a run"),
        (&["--run", ".."], "is not the id of a run"),
        (&["--run", ""], "is not the id of a run"),
        (&["--run", "a\nb"], "is not the id of a run"),
        (&["--late", "1:5:10-2"], "its first step is after its last one"),
        (&["--late", "1:-5:1-2"], "RANK:MILLISECONDS:FROM-TO"),
        (&["--late", "1:5:1-2:3"], "RANK:MILLISECONDS:FROM-TO"),
        (&["--late", "1:9000000000000:1-2"], "RANK:MILLISECONDS:FROM-TO"),
        (&["--late", "1:86400001:1-2"], "more than a day"),
        (&["--slow", "1:-100:0"], "write 0 to 1000"),
        (&["--slow", "1:1e30:0"], "write 0 to 1000"),
        (&["--slow", "1:nan:0"], "write 0 to 1000"),
        (&["--slow", "1:5:0:7"], "RANK:PERCENT:FROM"),
        (&["--late", "1:5:100-200"], "the last step is 9"),
        (&["--slow", "1:5:100"], "the last step is 9"),
    ] {
        let small = ["--ranks", "4", "--hosts", "2", "--steps", "10"];
        let mut all = vec!["generate", made.to_str().unwrap()];
        all.extend(small.chunks(2).filter(|two| !args.contains(&two[0])).flatten());
        all.extend(args);
        // A job of a billion ranks must not be begun.
        let output = command(&all).output().unwrap();
        let said = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}: {output:?}");
        assert!(said.contains(why), "{args:?}: no “{why}” in {said}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{args:?}");
    }
    let fine = ["generate", made.to_str().unwrap(), "--ranks", "4", "--hosts", "2", "--steps", "10"];
    let faults = ["--run", "1234.0", "--late", "1:5:2-9", "--slow", "1:5.5:0"];
    assert!(command(&[&fine[..], &faults].concat()).status().unwrap().success());
    assert!(made.join("steps/run=1234.0").is_dir());
}
