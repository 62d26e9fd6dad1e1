//! The file of a flight recorder beside what a killed process has left, and what is no file: nothing of somebody else is written over,
//! and nothing that a killed process leaves keeps a later one from starting.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use warpline::Session;
use warpline::recovery::recover;
use warpline_tests::{alone, this_test};

use crate::child::{Child, scratch, when_killed};

warpline::range! {
    LOAD = "api.flight_file.load": "Work with no stream.", kind = host;
}

/// Zones in a recorder's file.
#[track_caller]
fn zones_in(path: &Path) -> u64 {
    let mut file = fs::File::open(path).expect("it is there");
    recover(&mut file, &mut Vec::new()).expect("it has zones").zones
}

fn beside(path: &Path, what: &str) -> PathBuf {
    PathBuf::from(format!("{}.{what}", path.display()))
}

/// Waits until there is such a file.
fn appears(path: &Path) {
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "no `{}`", path.display());
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_dump_does_not_replace_a_pipe_or_a_device() {
    let _turn = alone();
    let file = scratch("does_not_replace");
    let session = Session::builder().flight_at(256 << 10, &file).start().expect("no other session");
    let pipe = beside(&file, "pipe");
    let path = std::ffi::CString::new(pipe.to_str().expect("UTF-8")).expect("no NUL");
    // SAFETY: the path ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let error = session.dump(&pipe).expect_err("it is a pipe").to_string();
    assert!(
        error.contains("it is a device or a pipe, and a dump needs a regular file; choose another place"),
        "{error}"
    );
    let there = fs::symlink_metadata(&pipe).expect("it is there").file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&there));
    session.finish();
}

#[test]
fn a_file_that_was_never_recorded_into_is_taken_over_and_costs_no_earlier_one() {
    let _turn = alone();
    let file = scratch("never_recorded_into");
    let start = || Session::builder().budget(1.0).flight_at(256 << 10, &file).start();
    for zones in [3, 5] {
        let session = start().expect("no other session");
        (0..zones).for_each(|_| drop(LOAD.host()));
        session.finish();
    }
    let previous = beside(&file, "previous");
    let whole = fs::read(&file).expect("it is there");
    let header = &whole[..4096];
    let zeros = |len: usize| vec![0; len];
    // What a process may leave that is killed, or whose machine loses power, while it makes the file.
    let states = [
        ("empty", Vec::new()),
        ("a header", header[..header.iter().rposition(|byte| *byte != 0).expect("some") + 1].to_vec()),
        ("a page", header.to_vec()),
        ("a header and room", [header, &zeros(whole.len() - header.len())].concat()),
        ("room without a header", zeros(whole.len())),
    ];
    for (what, bytes) in states {
        fs::write(&file, bytes).expect("it is ours");
        let session = start().unwrap_or_else(|error| panic!("{what}: {error}"));
        drop(LOAD.host());
        session.finish();
        assert_eq!((zones_in(&file), zones_in(&previous)), (1, 3), "{what}");
    }
    // Zeros of another length are somebody's, and so is what has one byte that is none.
    let mut almost = zeros(whole.len());
    *almost.last_mut().expect("it has bytes") = 1;
    for bytes in [zeros(1), zeros(4096), zeros(whole.len() - 1), zeros(1 << 20), almost] {
        fs::write(&file, &bytes).expect("it is ours");
        let error = start().expect_err("it is somebody's").to_string();
        assert!(error.contains("not a flight recorder's; name another one"), "{error}");
        assert!(fs::read(&file).expect("it is there") == bytes, "nothing is written over");
    }
}

#[test]
fn a_process_that_is_killed_while_it_starts_keeps_no_other_from_starting() {
    let test = this_test!();
    if let Some(file) = when_killed(test) {
        loop {
            let session = Session::builder().flight_at(64 << 20, &file).start().expect("what is there is taken over");
            drop(session);
            fs::remove_file(&file).expect("it is there");
        }
    }
    let _turn = alone();
    let file = scratch(test);
    for round in 0..20_u64 {
        let child = Child::start(test, &file);
        appears(&file);
        // Another moment each time.
        std::thread::sleep(Duration::from_micros(round * 137));
        child.kill();
        let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start();
        let session = session.unwrap_or_else(|error| panic!("round {round}: {error}"));
        drop(LOAD.host());
        session.finish();
        assert_eq!(zones_in(&file), 1, "round {round}");
        fs::remove_file(&file).expect("it is there");
    }
}
