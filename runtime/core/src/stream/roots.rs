//! The roots of a session with windows: admission at the begin of a zone, and the begin and end of the root that it turns out to be.
//!
//! `windows` decides, by what the thread knows.

use std::num::NonZeroU32;

use super::thread;
use crate::catalog::RangeSpec;
use crate::sample::Sampled;
use crate::windows::{Admission, RootKind, ThreadRoots};

/// Calls `f` with what this thread knows of the last session with windows.
fn with<R: Default>(f: impl Fn(&mut ThreadRoots) -> R) -> R {
    thread::with(|thread| thread.roots().map(|mut roots| f(&mut roots))).unwrap_or_default()
}

/// Decides whether the session of this epoch records a zone that begins now.
#[cold]
pub(crate) fn admit(range: &'static RangeSpec, epoch: NonZeroU32) -> Admission {
    thread::with(|thread| thread.roots_of(epoch).map(|mut roots| roots.admit(range))).unwrap_or_default()
}

/// Handles an admitted zone that is not recorded.
#[cold]
pub(crate) fn lose() {
    with(ThreadRoots::lose);
}

/// Returns the share and the window of a zone that is recorded now and has the chance `sampled` in its window.
#[cold]
pub(crate) fn sampled(sampled: Sampled) -> Sampled {
    thread::with(|thread| thread.roots().map(|mut roots| roots.sampled(sampled))).unwrap_or(sampled)
}

/// Starts the root of a zone that was admitted. The zone is a root if it nests and no root is open on this thread.
#[cold]
pub(crate) fn start(range: &'static RangeSpec, nests: bool, is_followed: bool) -> RootKind {
    match nests {
        true => with(|roots| roots.start(range, is_followed)),
        false => {
            with(ThreadRoots::pass_over);
            RootKind::None
        }
    }
}

/// Ends the root of a zone; without a range, the zone never started.
#[cold]
pub(crate) fn end(range: Option<&'static RangeSpec>, kind: RootKind, cycle: u32) {
    match range {
        None => with(ThreadRoots::pass_over),
        Some(range) => with(|roots| roots.end(range, kind, cycle)),
    }
}
