//! `hang` against generated progress files.

use warpline_ranks::generate::{Hang as Made, Plan, progress};
use warpline_ranks::hang::Hang;

fn plan() -> Plan {
    Plan { ranks: 12, hosts: 3, ..Plan::default() }
}

fn hang(made: Made) -> Hang {
    let folder = tempfile::tempdir().unwrap();
    progress(folder.path(), &plan(), made).unwrap();
    Hang::new(folder.path(), None).unwrap()
}

#[test]
fn a_stuck_rank_is_named_with_its_source_line() {
    for rank in 0..12 {
        let hang = hang(Made::Stuck { rank, step: 17 });
        assert_eq!(hang.culprits.len(), 1, "{:#?}", hang.verdict);
        let culprit = &hang.culprits[0];
        assert_eq!((culprit.rank, culprit.step, culprit.waiting), (rank, Some(17), 11));
        let open = culprit.open.as_ref().unwrap();
        assert_eq!((open.name.as_str(), open.file.as_str(), open.line), ("demo.load", "src/train.rs", 12));
        assert!(hang.cycles.is_empty() && hang.differences.is_empty(), "{hang:#?}");
        // Ranks of other hosts wait in their group for its neighbours, who wait for it.
        assert_eq!(culprit.chain.len(), 2, "{:#?}", culprit.chain);
        assert!(hang.to_text().contains("src/train.rs:12"), "{}", hang.to_text());
        assert!(hang.to_text().contains("n=4"), "{}", hang.to_text());
    }
}

#[test]
fn a_call_that_differs_is_named_with_its_number() {
    for rank in 0..12 {
        let hang = hang(Made::Mismatch { rank, step: 9 });
        assert_eq!(hang.differences.len(), 1, "{:#?}", hang.verdict);
        let different = &hang.differences[0];
        assert_eq!((different.seq, different.is_first), (9, true));
        assert_eq!(different.most_called, "all_reduce of 1024 f32");
        assert_eq!(different.others, [(rank, "all_gather of 2048 f32".to_owned())]);
    }
}

#[test]
fn a_cycle_is_a_different_order() {
    for rank in 0..12 {
        let hang = hang(Made::Cycle { rank, step: 5 });
        assert_eq!(hang.cycles.len(), 1, "{:#?}", hang.verdict);
        assert!(hang.cycles[0].waits.iter().any(|wait| wait.rank == rank), "{:#?}", hang.cycles);
        assert!(hang.verdict[0].contains("different orders"), "{:?}", hang.verdict);
    }
}

#[test]
fn a_job_that_runs_does_not_hang() {
    let hang = hang(Made::Nothing { step: 30 });
    assert!(!hang.is_one(), "{:#?}", hang);
}

#[test]
fn a_rank_without_a_file_is_the_one_that_others_wait_for() {
    let folder = tempfile::tempdir().unwrap();
    progress(folder.path(), &plan(), Made::Stuck { rank: 6, step: 3 }).unwrap();
    std::fs::remove_file(folder.path().join("progress/run=generated/rank-00006.json")).unwrap();
    let hang = Hang::new(folder.path(), None).unwrap();
    assert_eq!((hang.culprits[0].rank, hang.culprits[0].is_dead), (6, true), "{:#?}", hang.verdict);
    assert_eq!(hang.missing, [6]);
}

#[test]
fn damaged_files_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Hang::new(folder.path(), None).unwrap_err().to_string().contains("no progress files"));
    progress(folder.path(), &plan(), Made::Stuck { rank: 6, step: 3 }).unwrap();
    let of_run = folder.path().join("progress/run=generated");
    std::fs::write(of_run.join("rank-00001.json"), "{\"rank\":").unwrap();
    std::fs::write(of_run.join("rank-00002.json"), "[1,2]").unwrap();
    std::fs::write(of_run.join("rank-00003.json"), vec![b' '; 100_000]).unwrap();
    let hang = Hang::new(folder.path(), None).unwrap();
    assert_eq!((hang.left_out.len(), hang.missing.as_slice()), (3, &[1, 2, 3][..]), "{:#?}", hang.left_out);
    assert!(Hang::new(folder.path(), Some("other")).unwrap_err().to_string().contains("no run `other`"));
}

#[test]
fn a_job_that_goes_on_between_two_looks_does_not_hang() {
    let folder = tempfile::tempdir().unwrap();
    let write = |step| progress(folder.path(), &plan(), Made::Stuck { rank: 6, step }).unwrap();
    write(3);
    let watched = || Hang::watched(folder.path(), None, std::time::Duration::from_millis(300)).unwrap();
    let still = watched();
    assert_eq!((still.culprits[0].rank, still.moved), (6, 0), "{:#?}", still.verdict);
    let hang = std::thread::scope(|scope| {
        let looking = scope.spawn(watched);
        std::thread::sleep(std::time::Duration::from_millis(150));
        write(4);
        looking.join().unwrap()
    });
    assert!(!hang.is_one() && hang.moved == 12, "{hang:#?}");
    assert!(hang.to_text().contains("12 ranks made progress between two reads of the files"), "{}", hang.to_text());
}
