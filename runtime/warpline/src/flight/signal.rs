//! Requests a trace on SIGUSR2, if the settings enable it.
//!
//! A handler that the program installed earlier is called, too. The handler stays installed after the session and then does nothing,
//! because the default action would end the program.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::SIGUSR2;

pub(super) struct Handler {
    has_come: Arc<AtomicBool>,
    id: SigId,
}

impl Handler {
    pub(super) fn install() -> io::Result<Handler> {
        let has_come = Arc::new(AtomicBool::new(false));
        let id = signal_hook::flag::register(SIGUSR2, Arc::clone(&has_come))?;
        Ok(Handler { has_come, id })
    }

    /// Returns whether the signal has arrived since the last call.
    pub(super) fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Relaxed) && self.has_come.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.id);
    }
}
