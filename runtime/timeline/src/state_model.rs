//! Checks the core of a semaphore under every interleaving that loom finds.
//!
//! `cargo xtask test --only loom` runs the models.

use std::sync::Arc;
use std::task::{Wake, Waker};

use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::error::{Error, Failure};
use super::state::{Core, Nudge, Point, Seen, Stage, Waiter};

/// A stream's point that reports to the semaphore by itself.
#[derive(Clone)]
struct Nudged;

impl Point for Nudged {
    fn stream(&self) -> u64 {
        0
    }

    fn has_to_be_asked(&self) -> bool {
        false
    }

    fn is_reached(&self) -> Result<bool, Error> {
        Ok(false)
    }
}

/// A thread that sleeps until it is woken. A lost wake-up is a deadlock, which loom reports.
struct Sleeper {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
        self.changed.notify_one();
    }
}

impl Sleeper {
    fn new() -> Arc<Sleeper> {
        Arc::new(Sleeper { woken: Mutex::new(false), changed: Condvar::new() })
    }

    fn sleep(&self) {
        let mut woken = self.woken.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while !*woken {
            woken = self.changed.wait(woken).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        *woken = false;
    }
}

/// Waits as a host thread does, and returns the outcome.
fn wait(core: &Core<Nudged>, value: u64) -> Result<(), Error> {
    let sleeper = Sleeper::new();
    let waiter = Waiter::Waker(Waker::from(Arc::clone(&sleeper)));
    loop {
        let stage = match core.see(value)? {
            Seen::Reached => return Ok(()),
            Seen::Submitted(_) => Stage::Reached,
            Seen::Waiting => Stage::Submitted,
        };
        if core.enlist(value, stage, &waiter).is_some() {
            sleeper.sleep();
        }
    }
}

fn core() -> Arc<Core<Nudged>> {
    Arc::new(Core::new("model".into(), 0))
}

#[test]
fn model_a_waiter_is_woken_by_a_stream_that_submits_and_then_reaches() {
    loom::model(|| {
        let core = core();
        let stream = {
            let core = Arc::clone(&core);
            thread::spawn(move || {
                core.submit(1, Nudged, || {}).expect("it goes forward");
                core.reach(1);
            })
        };
        wait(&core, 1).expect("it is reached");
        stream.join().expect("no panic");
        assert_eq!(core.values().expect("it did not fail"), (1, 1));
    });
}

#[test]
fn model_of_two_signals_of_one_value_one_goes_through() {
    loom::model(|| {
        let core = core();
        let signal = {
            let core = Arc::clone(&core);
            thread::spawn(move || core.signal(1).is_ok())
        };
        let mine = core.submit(1, Nudged, || {}).is_ok();
        assert!(mine ^ signal.join().expect("no panic"), "exactly one");
        if mine {
            core.reach(1);
        }
        wait(&core, 1).expect("it is reached");
    });
}

#[test]
fn model_a_failure_reaches_whoever_waits_and_the_first_one_stays() {
    loom::model(|| {
        let core = core();
        let failures = ["red", "blue"].map(|text| {
            let core = Arc::clone(&core);
            thread::spawn(move || core.fail(Failure::new("test".into(), text)))
        });
        let told = wait(&core, 1).expect_err("it fails").to_string();
        let won = failures.map(|thread| thread.join().expect("no panic"));
        assert_eq!(won.iter().filter(|won| **won).count(), 1);
        assert_eq!(told.contains("red"), won[0], "{told}");
        assert_eq!(wait(&core, 1).expect_err("for good").to_string(), told);
    });
}

#[test]
fn model_a_waiter_that_gives_up_leaves_nothing_behind() {
    loom::model(|| {
        let core = core();
        let signal = {
            let core = Arc::clone(&core);
            thread::spawn(move || core.signal(2).expect("it goes forward"))
        };
        let sleeper = Sleeper::new();
        if let Some(place) = core.enlist(1, Stage::Reached, &Waiter::Waker(Waker::from(Arc::clone(&sleeper)))) {
            core.delist(place);
        }
        signal.join().expect("no panic");
        assert_eq!(Arc::strong_count(&sleeper), 1, "nobody holds the waker any more");
    });
}

/// A queue that records whether it was notified.
struct Listed(Mutex<bool>);

impl Nudge for Listed {
    fn nudge(&self) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
    }
}

#[test]
fn model_who_sees_a_value_finds_that_those_who_waited_for_it_have_been_told() {
    loom::model(|| {
        let (core, list) = (core(), Arc::new(Listed(Mutex::new(false))));
        assert!(core.enlist(1, Stage::Submitted, &Waiter::Nudge(Arc::clone(&list) as _)).is_some());
        let signal = {
            let core = Arc::clone(&core);
            thread::spawn(move || core.signal(1).expect("it goes forward"))
        };
        let is_there = matches!(core.see(1), Ok(Seen::Reached));
        let is_told = *list.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        assert!(is_told || !is_there, "a later submission could go before the earlier one");
        signal.join().expect("no panic");
    });
}
