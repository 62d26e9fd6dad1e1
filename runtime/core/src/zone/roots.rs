//! The roots of a session with windows: admission at the begin of a zone, and the begin and end of the root that it turns out to be.
//!
//! `windows` decides, by what the thread knows.

use std::num::NonZeroU32;

use crate::catalog::RangeSpec;
use crate::stream::slot::Slot;
use crate::stream::thread;
use crate::windows::{Admission, RootKind, ThreadRoots};

/// Calls `f` with what this thread knows of the last session with windows.
fn with<R: Default>(f: impl Fn(&mut ThreadRoots) -> R) -> R {
    thread::with(|thread| thread.roots().map(|mut roots| f(&mut roots))).unwrap_or_default()
}

/// Decides whether the session of this epoch records a zone that begins now.
#[cold]
pub(super) fn admit(range: &'static RangeSpec, epoch: NonZeroU32) -> Admission {
    thread::with(|thread| thread.roots_of(epoch).map(|mut roots| roots.admit(range))).unwrap_or_default()
}

/// Handles an admitted zone that is not recorded.
#[cold]
pub(super) fn lose() {
    with(ThreadRoots::lose);
}

/// Marks a slot of a zone that is recorded in a window.
#[cold]
pub(super) fn place(slot: &mut Slot) {
    slot.sampled = thread::with(|thread| match thread.roots() {
        Some(mut roots) => roots.sampled(slot.sampled),
        None => slot.sampled,
    });
    slot.root = RootKind::ToRecord;
}

impl Slot {
    /// Starts a root in a session with windows. The zone is a root if it nests and no root is open on this thread.
    #[cold]
    pub(super) fn start_root(&mut self) {
        let is_followed = self.root == RootKind::ToFollow;
        self.root = match self.range.filter(|_| self.nests) {
            Some(range) => with(|roots| roots.start(range, is_followed)),
            None => {
                with(ThreadRoots::pass_over);
                RootKind::None
            }
        };
    }

    #[cold]
    pub(super) fn end_root(&mut self) {
        match (self.root, self.range) {
            // It never started, because one of its fields panicked: the root that it would be in goes on.
            (RootKind::ToRecord | RootKind::ToFollow, _) | (_, None) => with(ThreadRoots::pass_over),
            (root, Some(range)) => with(|roots| roots.end(range, root, self.sampled.window())),
        }
    }
}
