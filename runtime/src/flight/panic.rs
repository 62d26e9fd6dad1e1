//! A panic of the program writes the flight recorder out, before the program's own hook runs.
//!
//! The hook is there while the session is. It calls the one that was there before; when the session ends, that one is put
//! back, unless the program has set another hook meanwhile: that one stays, and ours does nothing any more.

use std::panic::{self, PanicHookInfo};
use std::sync::{Arc, Weak};

use super::recorder::Flight;
use crate::stream::thread;

type Chained = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send + 'static>;

pub(super) struct Hook {
    /// Where ours lies, to know it again.
    ours: usize,
    earlier: Arc<Chained>,
}

impl Hook {
    /// None on a thread that panics, which may not touch hooks.
    pub(super) fn install(flight: &Arc<Flight>) -> Option<Hook> {
        if std::thread::panicking() {
            return None;
        }
        let (flight, earlier): (Weak<Flight>, Arc<Chained>) = (Arc::downgrade(flight), Arc::new(panic::take_hook()));
        let chained = Arc::clone(&earlier);
        let ours: Chained = Box::new(move |info| {
            if let Some(flight) = flight.upgrade() {
                tell(&flight, info);
            }
            chained(info);
        });
        let address = address(&ours);
        panic::set_hook(ours);
        Some(Hook { ours: address, earlier })
    }

    pub(super) fn remove(self) {
        if std::thread::panicking() {
            return;
        }
        let current = panic::take_hook();
        if address(&current) != self.ours {
            return panic::set_hook(current);
        }
        drop(current);
        match Arc::try_unwrap(self.earlier) {
            Ok(earlier) => panic::set_hook(earlier),
            // It runs on another thread at this moment.
            Err(earlier) => panic::set_hook(Box::new(move |info| earlier(info))),
        }
    }
}

fn address(hook: &Chained) -> usize {
    std::ptr::from_ref(hook.as_ref()).cast::<()>() as usize
}

fn tell(flight: &Flight, info: &PanicHookInfo<'_>) {
    let (id, name) = thread::with(|thread| (thread.id, thread.name()));
    let name = name.unwrap_or_else(|| format!("thread {id}"));
    let mut args = vec![("thread", name.clone()), ("thread_id", id.to_string())];
    args.extend(info.location().map(|at| ("at", at.to_string())));
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied().or_else(|| Some(payload.downcast_ref::<String>()?.as_str()));
    args.extend(text.map(|text| ("message", text.chars().take(1024).collect())));
    flight.panicked(format!("`{name}` panicked"), args);
}
