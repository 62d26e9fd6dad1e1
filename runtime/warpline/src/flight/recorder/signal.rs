//! SIGUSR2 asks for a trace, where the settings say so.
//!
//! A handler that the program has installed before is called, too. The handler stays when the session ends, and does
//! nothing then: what it replaces would end the program.

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

    /// Whether it has come since the last call.
    pub(super) fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Relaxed) && self.has_come.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.id);
    }
}
