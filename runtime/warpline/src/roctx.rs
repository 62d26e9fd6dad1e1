//! The roctx mirror: each zone is also a roctx range on the launching thread, for `rocprofv3 --marker-trace` and other tools of ROCm. It
//! needs no session.
//!
//! A tool makes the program load the marker library, so [`look`] uses the library if it is loaded when the first zone begins or a session
//! starts, and opens it only if the setting asks for it. `warpline_hip::roctx` calls it.

use std::sync::{Mutex, OnceLock, PoisonError};

use crate::settings;
use warpline_core::catalog::RangeSpec;
use warpline_core::stderr;
use warpline_hip::roctx::Roctx;

static LIBRARY: OnceLock<&'static Roctx> = OnceLock::new();

/// A sentence for the user, with the remedy.
static PROBLEM: Mutex<Option<String>> = Mutex::new(None);

/// Returns whether zones are mirrored: there is a library, and the settings do not forbid it.
#[cold]
pub(crate) fn look(setting: Option<bool>) -> bool {
    let wishes = [settings::roctx_of_environment(), setting];
    if wishes.contains(&Some(false)) {
        return false;
    }
    let found = if wishes.contains(&Some(true)) { Roctx::open().map(Some) } else { Ok(Roctx::loaded()) };
    match found {
        Ok(Some(library)) => {
            let _ = LIBRARY.set(library);
        }
        Ok(None) => {}
        Err(why) => {
            let problem = format!("no zone reaches roctx: {why}");
            let mut said = PROBLEM.lock().unwrap_or_else(PoisonError::into_inner);
            if said.as_ref() != Some(&problem) {
                stderr::line(&problem);
                *said = Some(problem);
            }
        }
    }
    LIBRARY.get().is_some()
}

/// Returns a sentence about the mirror for the user, which was also printed to standard error.
pub(crate) fn problem() -> Option<String> {
    PROBLEM.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Begins a range that nests on this thread. Returns false if there is none to end.
pub(crate) fn push(range: &RangeSpec) -> bool {
    LIBRARY.get().is_some_and(|library| library.push(range.label()))
}

/// Ends the innermost range of this thread.
pub(crate) fn pop() {
    if let Some(library) = LIBRARY.get() {
        library.pop();
    }
}

/// Begins a range that may end on another thread.
pub(crate) fn start(range: &RangeSpec) -> Option<u64> {
    LIBRARY.get()?.start(range.label())
}

pub(crate) fn stop(range: u64) {
    if let Some(library) = LIBRARY.get() {
        library.stop(range);
    }
}

/// Adds a mark: an entry of a batch.
pub(crate) fn mark(range: &RangeSpec) {
    if let Some(library) = LIBRARY.get() {
        library.mark(range.label());
    }
}
