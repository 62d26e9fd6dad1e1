//! The recorder's file: where it lies, what becomes of it, and what is in its way.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::Instant;

use warpline::recovery::recover;
use warpline::{Error, HostStream, Session};
use warpline_tests::{alone, this_test};

use super::{LOAD, LONG, beside, recovered, steps};
use crate::child::{self, Child, scratch, when_killed};

#[test]
fn the_file_of_no_place_goes_with_the_session_and_that_of_a_killed_one_is_put_aside() {
    let _turn = alone();
    let session = Session::builder().budget(1.0).flight(256 << 10).start().expect("no other session");
    let own = PathBuf::from(format!("warpline-{}.flight", std::process::id()));
    assert!(own.exists());
    drop(LOAD.host());
    session.finish();
    assert!(!own.exists(), "it goes with the session");
    let file = scratch("the_file_of_a_killed_one");
    for run in 1..=3_u64 {
        let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("no other session");
        (0..run).for_each(|_| drop(LOAD.host()));
        session.finish();
        assert_eq!(recovered(&file).0.zones, run);
        if run > 1 {
            assert_eq!(recovered(&beside(&file, "previous")).0.zones, run - 1, "the last one before is there");
        }
    }
}

#[test]
fn what_is_in_the_way_is_told_with_the_remedy_and_nothing_starts() {
    let _turn = alone();
    let folder = scratch("what_is_in_the_way");
    let _ = fs::remove_file(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let foreign = folder.join("notes.txt");
    fs::write(&foreign, "what somebody wrote").expect("written");
    let start = |settings: String| Session::builder().settings(&settings)?.start().map(Session::finish);
    let told = |settings: String, says: &[&str]| {
        let error = start(settings).expect_err("it cannot start").to_string();
        assert!(says.iter().all(|says| error.contains(says)), "{error}");
    };
    told(format!("flight=256KiB:{}", foreign.display()), &["notes.txt", "not a flight recorder's; name another one"]);
    assert_eq!(fs::read_to_string(&foreign).expect("it is there"), "what somebody wrote");
    told(format!("flight=256KiB:{}", folder.display()), &["name a file"]);
    told(format!("flight=256KiB:{}/no/file", folder.display()), &["name a file in a folder that can be written"]);
    told("flight=256KiB:/dev/null".to_owned(), &["it is not a file; name one"]);
    told("flight=12".to_owned(), &["`flight=12`", "as in `flight=64MiB`"]);
    told("rotate=1MiB".to_owned(), &["`rotate`: needs a Perfetto trace to rotate"]);
    told("stall=10s".to_owned(), &["`stall`: needs a flight recorder"]);
    // Nor is what stands where the file of an earlier run would go.
    let (mine, others) = (folder.join("my.flight"), folder.join("my.flight.previous"));
    let settings = format!("flight=256KiB:{}", mine.display());
    fs::write(&others, "what somebody wrote").expect("written");
    start(settings.clone()).expect("there is no earlier run");
    told(
        settings.clone(),
        &["cannot be renamed", "my.flight.previous` is not a flight recorder's file; move one of the two"],
    );
    assert_eq!(fs::read_to_string(&others).expect("it is there"), "what somebody wrote");
    fs::remove_file(&others).expect("it is the test's");
    std::os::unix::fs::symlink(&foreign, &others).expect("a link");
    told(settings, &["move one of the two"]);
    // A link that leads nowhere is somebody's who says where a file would be made.
    let (link, target) = (folder.join("link.flight"), folder.join("elsewhere"));
    std::os::unix::fs::symlink(&target, &link).expect("a link");
    told(format!("flight=256KiB:{}", link.display()), &["a link to a file that does not exist; remove the link"]);
    assert!(!target.exists());
    // What the disk has no room for is told at the start, and nothing of it is taken.
    let large = folder.join("large.flight");
    if child::free_bytes(&folder) < 60 << 30 {
        told(
            format!("flight=64GiB:{}", large.display()),
            &["no room for its 65537 MiB", "make it smaller, or name another"],
        );
        assert!(!large.exists());
        fs::write(&large, "").expect("written");
        told(format!("flight=64GiB:{}", large.display()), &["no room"]);
        assert_eq!(fs::metadata(&large).expect("an empty file that was there stays").len(), 0);
    }
    assert!(matches!(
        Session::builder().start().expect("it starts").dump(folder.join("t.pftrace")),
        Err(Error::NoFlight)
    ));
}

#[test]
fn a_file_that_may_not_grow_so_large_is_an_error_and_ends_no_program() {
    let test = this_test!();
    if let Some(file) = when_killed(test) {
        child::limit_files(100 << 10);
        let error = Session::builder()
            .budget(1.0)
            .flight_at(256 << 10, &file)
            .start()
            .expect_err("it is too large")
            .to_string();
        assert!(error.contains("there is no room for its") && error.contains("make it smaller"), "{error}");
        assert!(!Path::new(&file).exists());
        child::kill_me();
    }
    let file = scratch(test);
    Child::start(test, &file).wait_until_killed();
}

#[test]
fn a_forked_process_ends_at_once_and_takes_nothing_away() {
    let test = this_test!();
    if let Some(file) = when_killed(test) {
        std::env::set_current_dir(Path::new(&file).parent().expect("a folder")).expect("it is there");
        let builder = Session::builder().budget(1.0).flight(1 << 20).finish_timeout(LONG);
        let session = builder.start().expect("no other session");
        let stream = HostStream::new("compute");
        steps(&stream, 0..10);
        let recorder = format!("warpline-{}.flight", std::process::id());
        let begin = Instant::now();
        let session = child::forked(session, |session| {
            let report = session.finish();
            // It may have one of its own.
            let own = Session::builder().start().is_ok();
            report.begun == 0 && report.notes.iter().any(|note| note.contains("was forked")) && own
        });
        assert!(begin.elapsed() < LONG / 2 && Path::new(&recorder).exists(), "{:?}", begin.elapsed());
        let session = child::forked(session, |session| {
            drop(session);
            true
        });
        assert!(begin.elapsed() < LONG / 2 && Path::new(&recorder).exists(), "{:?}", begin.elapsed());
        steps(&stream, 10..20);
        let report = session.finish();
        assert_eq!((report.begun, report.recorded), (20, 20), "{report}");
        assert!(!Path::new(&recorder).exists(), "it is the parent's to remove");
        child::kill_me();
    }
    let file = scratch(test);
    Child::start(test, &file).wait_until_killed();
}

#[test]
fn a_second_process_records_beside_the_first() {
    let test = this_test!();
    if let Some(file) = when_killed(test) {
        let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("another name is free");
        drop(LOAD.host());
        drop(LOAD.host());
        let report = session.finish();
        let notice = format!("another trace is being written to `{file}`; this one is written to `");
        assert!(report.notes[0].starts_with(&notice), "{report}");
        child::kill_me();
    }
    let _turn = alone();
    let file = scratch(test);
    let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("no other session");
    drop(LOAD.host());
    let child = Child::start(test, &file);
    let beside = file.with_extension(format!("{}.flight", child.id()));
    child.wait_until_killed();
    session.finish();
    assert_eq!(recovered(&file).0.zones, 1, "the other has changed nothing");
    assert_eq!(recovered(&beside).0.zones, 2);
}

#[test]
fn somebody_who_cuts_or_removes_the_file_ends_no_program() {
    let _turn = alone();
    let file = scratch("somebody_who_cuts_the_file");
    let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("no other session");
    let stream = HostStream::new("compute");
    steps(&stream, 0..4_000);
    fs::OpenOptions::new().write(true).open(&file).expect("it is there").set_len(0).expect("it is cut");
    steps(&stream, 4_000..4_010);
    let report = session.finish();
    assert_eq!(report.recorded, report.begun, "{report}");
    assert!(
        report.notes.iter().any(|note| note.contains("another program truncated the flight recorder's file")),
        "{report}"
    );
    let error = recover(&mut Cursor::new(fs::read(&file).expect("it is there")), &mut Vec::new()).expect_err("cut");
    assert!(!error.to_string().is_empty());
    fs::remove_file(&file).expect("it is ours");
    let session = Session::builder().budget(1.0).flight_at(256 << 10, &file).start().expect("no other session");
    fs::remove_file(&file).expect("it is there");
    steps(&stream, 0..100);
    let trace = beside(&file, "dump.pftrace");
    let found = session.dump(&trace).expect("what is written is still known");
    let gone = |problem: &String| problem.contains("was removed while it was written");
    assert!(found.zones == 100 && found.problems.iter().any(gone), "{found:?}");
    let report = session.finish();
    assert!(report.recorded == 100 && report.notes.iter().any(gone), "{report}");
    assert!(!file.exists());
}
