//! Writes the flight recorder out when the program panics, before the program's own hook runs.
//!
//! The first session with a recorder installs the hook, and it stays installed: removing it would wait for every running hook, and such a
//! hook may wait for the thread that finishes the session. Without a session, the hook only calls the previous one. A later session reuses
//! it, and installs another one only if the program has dropped it.

use std::panic::{self, PanicHookInfo};
use std::sync::{Arc, Mutex, Weak};

use super::Flight;
use warpline_core::lock::lock;
use warpline_core::stream::thread;

/// A reference that is alive as long as warpline's hook, wherever the program keeps the hook. The hook never takes this lock.
static HOOK: Mutex<Weak<Hook>> = Mutex::new(Weak::new());

struct Hook;

/// Installs the hook if it is not installed. It reports each panic to the recorder that `current` returns then.
pub(super) fn listen(current: fn() -> Option<Arc<Flight>>) {
    let mut hook = lock(&HOOK);
    // Changing hooks on a panicking thread would panic.
    if hook.strong_count() > 0 || std::thread::panicking() {
        return;
    }
    let (ours, earlier) = (Arc::new(Hook), panic::take_hook());
    *hook = Arc::downgrade(&ours);
    panic::set_hook(Box::new(move |info| {
        let _here = &ours;
        if let Some(flight) = current() {
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
