//! What tests of the command share.

pub mod binaries;
#[cfg(target_os = "linux")]
pub mod fake;
#[cfg(target_os = "linux")]
pub mod lacks;
pub mod opened;
#[cfg(target_os = "linux")]
pub mod peak;
pub mod readers;
#[cfg(target_os = "linux")]
pub mod stubs;
#[cfg(target_os = "linux")]
pub mod target;
#[cfg(target_os = "linux")]
pub mod terminal;
pub mod texts;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The right to start a session and to begin zones in this process, until it is dropped.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
