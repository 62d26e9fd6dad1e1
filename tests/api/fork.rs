//! Processes that are forked while other threads record: a child ends what it inherits and begins what it likes without waiting
//! for a thread that it does not have, and the parent's files are the parent's alone.
//!
//! Where threads of the parent start or end all the time, children start none: the standard library itself takes a lock for that,
//! and a child in which it was held never gets it.
//!
//! Every child has an alarm: one that hangs is ended by it, and counts as such.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use warpline::sink::MemorySink;
use warpline::timeline::{Queue, Semaphore};
use warpline::{HostStream, Session};
use warpline_tests::{again, alone, empty_folder, in_a_process_of_its_own, this_test};

warpline::range! {
    STEP = "api.fork.step": "A step.";
    LOAD = "api.fork.load": "Work of a thread.", kind = host;
}

/// A child that takes longer hangs: it has next to nothing to do.
const ALARM_S: u32 = 20;

/// Says to a test that runs itself again what it is there for.
const AGAIN: &str = "WARPLINE_TEST_FORK";

/// Forks; the child does `work` and says whether all was well.
fn fork(work: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child uses what warpline makes safe to use after a fork, and ends without a look back.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: the call takes a number.
            unsafe { libc::alarm(ALARM_S) };
            let is_well = work();
            // SAFETY: the call takes a number.
            unsafe { libc::_exit(i32::from(!is_well)) }
        }
        child => child,
    }
}

/// Forks, and says how the child ended: well, or how not.
fn forked(work: impl FnOnce() -> bool) -> Result<(), String> {
    let child = fork(work);
    let mut status = 0;
    // SAFETY: the place is valid for the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    let status = std::process::ExitStatus::from_raw(status);
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

/// Calls `work` again and again on a thread of its own until `until` returns.
fn meanwhile<T>(mut work: impl FnMut() + Send, until: impl FnOnce() -> T) -> T {
    struct EndMode<'a>(&'a AtomicBool);
    impl Drop for EndMode<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        // Also where `until` panics.
        let _ends = EndMode(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                work();
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        while rounds.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        until()
    })
}

fn storm(forks: usize, mut child: impl FnMut() -> Result<(), String>) {
    // Each child that hangs takes as long as its alarm: three say enough.
    let ends: Vec<_> = (0..forks).filter_map(|n| Some((n, child().err()?))).take(3).collect();
    assert!(ends.is_empty(), "of {forks} children, these did not end well: {ends:?}");
}

#[test]
fn children_begin_and_end_zones_while_another_thread_makes_streams() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    let session = Session::builder().sink(MemorySink::new(1 << 16)).start().expect("no other session");
    let known = HostStream::new("known");
    let makes_streams = || {
        let stream = HostStream::new("new");
        drop(STEP.zone(&stream).field("n", 1));
        drop(LOAD.host());
        drop(STEP.zone(&known));
    };
    meanwhile(makes_streams, || {
        storm(300, || {
            let mut host = Some(LOAD.host().field("n", 1));
            let mut step = Some(STEP.zone(&known).field("n", 1));
            let ended = forked(|| {
                step = step.take().map(|zone| zone.field("more", 2));
                drop((host.take(), step.take()));
                drop((LOAD.host(), STEP.zone(&known)));
                !session.is_recording()
            });
            // They are the parent's as well.
            drop((host, step));
            ended
        });
    });
    drop(known);
    let report = session.finish();
    assert_eq!(report.begun, report.recorded, "{report}");
    assert!(report.recorded > 600, "{report}");
}

#[test]
fn children_take_steps_of_their_own_while_another_thread_takes_steps() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    let records = MemorySink::new(1 << 20);
    let session = Session::builder().sink(records.clone()).start().expect("no other session");
    let mut number = 0_u64;
    let steps = || {
        number += 1;
        warpline::step(number);
    };
    meanwhile(steps, || {
        storm(200, || {
            forked(|| {
                // No step of the parent, and then a session that has its own.
                warpline::step(u64::MAX);
                let records = MemorySink::new(100);
                let Ok(session) = Session::builder().sink(records.clone()).start() else { return false };
                (7..9_u64).for_each(warpline::step);
                drop(session);
                records.take_steps().iter().map(|step| step.number).eq([7])
            })
        });
    });
    let report = session.finish();
    assert!(records.take_steps().iter().all(|step| step.number < u64::MAX));
    assert_eq!((report.steps.count + report.steps.dropped, report.steps.cut), (number - 1, 1));
}

#[test]
fn children_begin_and_end_zones_while_sessions_start_and_end() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    let known = HostStream::new("known");
    let sessions = || {
        let session = Session::builder().sink(MemorySink::new(1 << 16)).control().start().expect("no other session");
        drop((STEP.zone(&known), LOAD.host()));
        session.stop();
        session.start();
        drop(warpline::profile::range("api.fork.load", 1));
        drop(session);
    };
    meanwhile(sessions, || {
        storm(300, || {
            let mut zones = Some((LOAD.host(), STEP.zone(&known)));
            let ended = forked(|| {
                drop(zones.take());
                drop((LOAD.host(), STEP.zone(&known), warpline::profile::range("no.such", 1)));
                true
            });
            drop(zones);
            ended
        });
    });
}

#[test]
fn children_have_sessions_of_their_own_while_another_thread_changes_the_parents() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    let session = Session::builder().sink(MemorySink::new(1 << 16)).start().expect("no other session");
    let known = HostStream::new("known");
    let changes = || {
        session.stop();
        session.start();
        session.set_sample(0.5).expect("a share");
        session.set_sample(1.0).expect("a share");
        drop((STEP.zone(&known), LOAD.host(), warpline::profile::range("api.fork.load", 1)));
    };
    meanwhile(changes, || {
        storm(300, || {
            forked(|| {
                let sink = MemorySink::new(64);
                let Ok(session) = Session::builder().sink(sink.clone()).start() else { return false };
                let stream = HostStream::new("of the child");
                for _ in 0..3 {
                    drop((STEP.zone(&stream), LOAD.host()));
                }
                let report = session.finish();
                let records = sink.take();
                // The thread that forked is the child's first one.
                let id = u64::from(std::process::id());
                let is_here = !cfg!(target_os = "linux") || records.iter().all(|record| record.thread.id == id);
                (report.begun, report.recorded, records.len()) == (6, 6, 6) && is_here
            })
        });
    });
    session.finish();
}

type Inherited = (HostStream, Queue<HostStream>, warpline::profile::PendingZone);

#[test]
fn what_a_child_inherits_does_nothing_there() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    let folder = empty_folder("fork-inherits");
    let session = Session::builder().perfetto(folder.join("t.pftrace")).flight_at(1 << 20, folder.join("t.flight"));
    let mut session = Some(session.start().expect("no other session"));
    let (busy, go_on) = (HostStream::new("busy"), Arc::new(AtomicBool::new(false)));
    let until = Arc::clone(&go_on);
    busy.launch(move || {
        while !until.load(Ordering::Acquire) {
            thread::yield_now();
        }
    });
    let queue = Queue::new("queue", HostStream::new("of the queue")).expect("a thread");
    let semaphore = Semaphore::named("never", 0);
    queue.submit(&[(&semaphore, 1)], &[(&semaphore, 2)], |_| Ok(())).expect("there is room");
    let pending = warpline::profile::next(&busy);
    let mut all = Some((busy, queue, pending));
    let child = |name: &str, work: &mut dyn FnMut(&Session, &Inherited) -> bool| {
        let ended = forked(|| {
            let (Some(session), Some(all)) = (&session, &all) else { return false };
            work(session, all)
        });
        assert_eq!(ended, Ok(()), "{name}");
    };
    child("synchronize", &mut |_, (busy, ..)| busy.synchronize().is_ok() && busy.is_idle());
    child("launch", &mut |_, (busy, ..)| {
        let ran = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&ran);
        busy.launch(move || its.store(true, Ordering::Release));
        busy.launch(|| std::panic::resume_unwind(Box::new("not here")));
        ran.load(Ordering::Acquire) && busy.synchronize().is_err() && busy.synchronize().is_ok()
    });
    child("queue", &mut |_, (_, queue, _)| {
        let refused = queue.submit(&[], &[], |_| Ok(())).is_err() && queue.barrier(&[], &[]).is_err();
        refused && queue.flush() == 0
    });
    child("semaphore", &mut |_, (busy, ..)| {
        let long = Duration::MAX;
        semaphore.signal(5).is_err()
            && semaphore.value().is_err()
            && semaphore.wait(3, long).is_err()
            && semaphore.signal_on(busy, 7).is_err()
            && semaphore.wait_on(busy, 7).is_err()
            && semaphore.failure().is_none()
            && !semaphore.fail("not here")
    });
    child("pending", &mut |_, (.., pending)| {
        pending.try_get().is_some_and(|answer| answer.is_err()) && pending.wait(Duration::MAX).is_err()
    });
    child("session", &mut |session, _| {
        session.stop();
        session.start();
        session.set_level(warpline::catalog::Level::Fine);
        let set = session.set_filter("nothing.*").is_ok() && session.set_sample(0.5).is_ok();
        set && !session.is_recording() && session.dump(folder.join("dumped.pftrace")).is_err()
    });
    let ended = forked(|| {
        drop(all.take());
        drop(session.take());
        true
    });
    assert_eq!(ended, Ok(()), "dropped");
    let ended = forked(|| {
        let report = session.take().map(Session::finish).unwrap_or_default();
        report.notes.iter().any(|note| note.contains("was forked"))
    });
    assert_eq!(ended, Ok(()), "finished");
    let ended = forked(|| std::panic::catch_unwind(|| panic!("of a child")).is_err());
    assert_eq!(ended, Ok(()), "panicked");
    // All of it is as it was in the parent.
    let (busy, queue, pending) = all.take().expect("only children took it");
    drop(STEP.zone(&busy));
    go_on.store(true, Ordering::Release);
    assert_eq!(busy.synchronize(), Ok(()));
    pending.wait(Duration::from_secs(60)).expect("it was asked for here");
    semaphore.signal(1).expect("nobody signalled it");
    semaphore.wait(2, Duration::from_secs(60)).expect("the queue goes on");
    drop(queue);
    let report = session.take().expect("only children took it").finish();
    assert!(report.recorded == 1 && report.sinks.iter().all(|sink| sink.errors == 0), "{report}");
    assert!(!folder.join("t.flight.panic.pftrace").exists() && !folder.join("dumped.pftrace").exists());
    fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn files_and_sockets_of_a_parent_that_is_killed_are_free_although_a_child_lives() {
    let test = this_test!();
    if let Some(folder) = env::var_os(AGAIN) {
        env::set_current_dir(folder).expect("it is there");
        let settings = "flight=1MiB:t.flight,perfetto=t.pftrace,chrome=t.json,control";
        let _session = Session::from_env_or(settings);
        drop(LOAD.host());
        let child = fork(|| {
            // Until it is killed, or the alarm comes.
            loop {
                thread::park();
            }
        });
        writeln!(io::stdout(), "\nchild {child}").expect("somebody listens");
        // SAFETY: the call takes numbers.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        return;
    }
    let _turn = alone();
    let folder = empty_folder("fork-lives");
    let mut command = again(test, AGAIN, folder.to_str().expect("UTF-8"));
    command.env("XDG_RUNTIME_DIR", &folder).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut parent = command.spawn().expect("the test can run itself");
    let said = BufReader::new(parent.stdout.take().expect("piped"));
    let line = said.lines().map_while(Result::ok).find(|line| line.starts_with("child ")).expect("it forks");
    let child: libc::pid_t = line["child ".len()..].parse().expect("a number");
    assert_eq!(parent.wait().expect("it ends").signal(), Some(libc::SIGKILL));
    // SAFETY: the call takes numbers.
    assert_eq!(unsafe { libc::kill(child, 0) }, 0, "the child lives");
    #[cfg(target_os = "linux")]
    {
        let sockets: Vec<_> = fs::read_dir(folder.join("warpline")).expect("it listened").flatten().collect();
        assert_eq!(sockets.len(), 1, "the socket's name stays");
        // The system may close a killed process's sockets a moment later.
        let since = Instant::now();
        while std::os::unix::net::UnixStream::connect(sockets[0].path()).is_ok() {
            assert!(since.elapsed() < Duration::from_secs(10), "nobody listens any more");
            thread::sleep(Duration::from_millis(10));
        }
    }
    let at = |name: &str| folder.join(name);
    let session = Session::builder().flight_at(1 << 20, at("t.flight")).perfetto(at("t.pftrace")).chrome(at("t.json"));
    let report = session.start().expect("no other session").finish();
    // SAFETY: the call takes numbers.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0, "the child lived until now");
    let moved: Vec<_> = report.notes.iter().filter(|note| note.contains("another trace")).collect();
    assert!(moved.is_empty(), "{moved:?}");
    fs::remove_dir_all(&folder).expect("it is ours");
}

/// Children that go on as the program does, with grandchildren.
#[test]
fn children_of_children_are_like_children() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    let begin = Instant::now();
    let session = Session::builder().sink(MemorySink::new(1 << 16)).start().expect("no other session");
    let mut zone = Some(LOAD.host());
    let mut stream = Some(HostStream::new("of the parent"));
    let ended = forked(|| {
        let Ok(own) = Session::builder().sink(MemorySink::new(1 << 16)).start() else { return false };
        let own_stream = HostStream::new("of the child");
        let mut own_zone = Some(STEP.zone(&own_stream));
        let ended = forked(|| {
            drop((own_zone.take(), zone.take(), stream.take()));
            !own.is_recording() && own_stream.synchronize().is_ok() && own.finish().begun == 0
        });
        drop((own_zone, zone.take(), stream.take()));
        own_stream.synchronize().is_ok() && ended.is_ok()
    });
    assert_eq!(ended, Ok(()));
    drop((zone, stream));
    assert_eq!(session.finish().recorded, 1);
    assert!(begin.elapsed() < Duration::from_secs(u64::from(ALARM_S)));
}
