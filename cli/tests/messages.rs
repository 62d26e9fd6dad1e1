//! Errors name what was asked for and what to do about it, whichever command says them.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The one line with which a command ends, and that its status is 2.
fn complaint(dir: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_warpline")).args(args).current_dir(dir).output().expect("it runs");
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{args:?}: {text}");
    text.trim_end().to_owned()
}

#[test]
fn a_file_that_is_not_there_or_is_none_is_named_with_the_remedy() {
    let dir = tempfile::tempdir().expect("a folder");
    let binary = "; name an executable, a shared library or an `.rlib`";
    let trace = "; name the `.pftrace` of a rank, as `WARPLINE=perfetto=FILE` writes it";
    for (args, begin, remedy) in [
        (&["catalog", "nofile"][..], "error: nofile: ", binary),
        (&["check", "nofile"], "error: nofile: ", binary),
        (&["stragglers", "nofile"], "error: nofile: ", trace),
        (&["stragglers", "."], "error: .: ", "; name the folder in which they are"),
    ] {
        let said = complaint(dir.path(), args);
        assert!(said.starts_with(begin) && said.ends_with(remedy), "{said}");
    }
}

#[test]
fn what_annotate_cannot_read_is_named_with_the_remedy() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("a file");
    let saved = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../annotate/tests/data/torch_graph.annotations.json"),
    );
    write("a.json", &saved.expect("annotations"));
    write(
        "t.json",
        r#"{"traceEvents": [{"ph": "X", "name": "k", "ts": 1, "dur": 1, "pid": 0, "tid": 7, "cat": "kernel"}]}"#,
    );
    write("garbage", "garbage");
    let annotate = |annotations: &str, trace: &str, by: &str| {
        complaint(dir.path(), &["annotate", "--annotations", annotations, "--trace", trace, "-o", "o.json", "--by", by])
    };
    let said = annotate("a.json", "nofile", "id");
    assert!(said.starts_with("error: nofile: No such file"), "{said}");
    assert!(said.ends_with("; name what `warpline::graph::save` or the profiler has written"), "{said}");
    let said = annotate("garbage", "t.json", "id");
    assert!(said.starts_with("error: garbage: not a file of graph annotations: "), "{said}");
    assert!(said.ends_with("; save them with `warpline::graph::save`"), "{said}");
    let said = annotate("a.json", "t.json", "order");
    assert!(said.starts_with("error: t.json: it contains no graph launch; profile with "), "{said}");
}

/// Where the kernel shows this user the files of the first process there is nothing to see.
#[cfg(target_os = "linux")]
#[test]
fn a_container_that_this_user_may_not_look_into_has_the_right_remedy() {
    use std::io::ErrorKind;
    use std::os::unix::fs::MetadataExt;

    let me = fs::metadata("/proc/self").expect("/proc is mounted").uid();
    let is_hidden =
        fs::symlink_metadata("/proc/1/root/tmp").is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    if !is_hidden || fs::metadata("/proc/1").expect("the first process").uid() != me {
        println!("skipped: this user may look there, or it is another user's");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let said = complaint(dir.path(), &["status", "1"]);
    assert!(said.starts_with("error: process 1 cannot be reached: /proc/1/root/"), "{said}");
    assert!(said.ends_with("; run `warpline` as the same user in the same container"), "{said}");
}
