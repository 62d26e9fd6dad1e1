//! A panic of the program writes the flight recorder out, before the program's own hook runs.
//!
//! The hook is set by the first session that has a recorder, and stays: taking it away would wait for every hook that
//! runs at that moment, and such a hook may wait for the thread that finishes the session. Without a session it does
//! nothing but call the one that was there before. A later session uses it again, and sets another one only where the
//! program has dropped it.

use std::panic::{self, PanicHookInfo};
use std::sync::{Arc, Mutex, Weak};

use super::Flight;
use warpline_core::fork::PerProcess;
use warpline_core::lock::lock;
use warpline_core::stream::thread;

/// Whom the hook tells.
static CURRENT: PerProcess<Mutex<Weak<Flight>>> = PerProcess::new(Mutex::default);

/// There as long as our hook is, wherever the program keeps it. The hook itself never takes this lock.
static HOOK: Mutex<Weak<Hook>> = Mutex::new(Weak::new());

struct Hook;

/// Tells this recorder of panics from now on.
pub(super) fn listen(flight: &Arc<Flight>) {
    *lock(&CURRENT) = Arc::downgrade(flight);
    let mut hook = lock(&HOOK);
    // A thread that panics may not touch hooks.
    if hook.strong_count() > 0 || std::thread::panicking() {
        return;
    }
    let (ours, earlier) = (Arc::new(Hook), panic::take_hook());
    *hook = Arc::downgrade(&ours);
    panic::set_hook(Box::new(move |info| {
        let _here = &ours;
        let current = lock(&CURRENT).upgrade();
        if let Some(flight) = current {
            report_panic(&flight, info);
        }
        earlier(info);
    }));
}

fn report_panic(flight: &Flight, info: &PanicHookInfo<'_>) {
    let (id, name) = thread::with(|thread| (thread.id(), thread.name()));
    let name = name.unwrap_or_else(|| format!("thread {id}"));
    let mut args = vec![("thread", name.clone()), ("thread_id", id.to_string())];
    args.extend(info.location().map(|at| ("at", at.to_string())));
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied().or_else(|| Some(payload.downcast_ref::<String>()?.as_str()));
    args.extend(text.map(|text| ("message", text.chars().take(1024).collect())));
    flight.panicked(format!("`{name}` panicked"), args);
}
