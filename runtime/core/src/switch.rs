//! On or off: the one word that every zone reads first.
//!
//! Zero means off. Otherwise it says up to four things: the epoch of the session that is on, so that a thread can tell
//! whether the contexts it remembers are of this session; that somebody has asked for single zones; that zones are mirrored
//! to an NVTX tool; and that nobody has looked for a tool yet, which the first zone does. The recorder behind it (`stream::current`) is only
//! looked up when a thread meets a stream for the first time in an epoch.

use std::num::NonZeroU32;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(not(loom))]
use crate::fork;

#[cfg(not(loom))]
static SWITCH: Switch = Switch::new();
#[cfg(loom)]
static SWITCH: std::sync::LazyLock<Switch> = std::sync::LazyLock::new(Switch::new);

/// The epoch of the recorder for zones that are asked for one by one: no session's.
pub const REQUESTS_EPOCH: NonZeroU32 = NonZeroU32::MAX;

/// What there is to do for a zone; none when all is off.
#[inline(always)]
pub(crate) fn word() -> Option<SwitchState> {
    SWITCH.word()
}

/// The epoch of the session that is on.
#[inline]
pub fn epoch() -> Option<NonZeroU32> {
    SWITCH.word().and_then(SwitchState::epoch)
}

/// Whether zones are mirrored to an NVTX tool.
#[inline]
pub(crate) fn is_mirrored() -> bool {
    SWITCH.word().is_some_and(SwitchState::is_mirrored)
}

/// Whether somebody has asked for zones that are to begin.
pub(crate) fn is_armed() -> bool {
    SWITCH.word().is_some_and(SwitchState::is_armed)
}

/// Somebody has asked for zones; or nobody does any more.
pub(crate) fn arm(on: bool) {
    follow_forks();
    SWITCH.arm(on);
}

/// Somebody has looked for a tool: zones are mirrored from now on, or not.
pub(crate) fn mirror(on: bool) {
    follow_forks();
    SWITCH.mirror(on);
}

/// Lets zones begin.
pub fn turn_on(epoch: NonZeroU32) {
    follow_forks();
    SWITCH.set(epoch.get());
}

/// Turns recording off; the recorder stays until `remove`.
pub fn turn_off(epoch: NonZeroU32) {
    SWITCH.clear(epoch.get());
}

/// Before anything is turned on: a forked child has it off.
fn follow_forks() {
    #[cfg(not(loom))]
    fork::in_children(leave_to_parent);
}

/// In a forked child: nobody records and nobody asks, as long as it does not start that itself. A tool that zones were mirrored to
/// is the parent's. It only stores. The model checker has no forks.
#[cfg(not(loom))]
fn leave_to_parent() {
    SWITCH.0.store(SWITCH.0.load(Ordering::Relaxed) & UNKNOWN, Ordering::Relaxed);
}

/// Whether nobody has looked for a tool yet, in this process or in one that it was forked from.
pub fn is_unknown() -> bool {
    SWITCH.word().is_some_and(SwitchState::is_unknown)
}

/// Nobody has looked for a tool yet.
const UNKNOWN: u32 = 1;
/// Zones are mirrored.
const MIRRORED: u32 = 2;
/// Somebody has asked for single zones.
const ARMED: u32 = 4;
const FLAGS: u32 = UNKNOWN | MIRRORED | ARMED;
/// Above the flags: the epoch, or zero.
const EPOCH_SHIFT: u32 = 3;
/// The greatest epoch.
pub(crate) const MAX_EPOCH: u32 = u32::MAX >> EPOCH_SHIFT;

/// What the word said when it was not zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchState(NonZeroU32);

impl SwitchState {
    /// The epoch of the session that is on.
    #[inline]
    pub(crate) fn epoch(self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.0.get() >> EPOCH_SHIFT)
    }

    /// Whether zones are mirrored to an NVTX tool.
    #[inline]
    pub(crate) fn is_mirrored(self) -> bool {
        self.0.get() & MIRRORED != 0
    }

    /// Whether somebody has asked for single zones.
    #[inline]
    pub(crate) fn is_armed(self) -> bool {
        self.0.get() & ARMED != 0
    }

    /// Whether a zone has nothing to do but to tell a tool.
    #[inline]
    pub(crate) fn is_only_mirrored(self) -> bool {
        self.0.get() == MIRRORED
    }

    /// What there is to do for a zone that a session takes or leaves, and that was asked for or not; none if nothing.
    #[inline]
    pub(crate) fn of_zone(self, is_taken: bool, is_asked: bool) -> Option<SwitchState> {
        let epoch = if is_taken { !FLAGS } else { 0 };
        let armed = if is_asked { ARMED } else { 0 };
        NonZeroU32::new(self.0.get() & (MIRRORED | epoch | armed)).map(SwitchState)
    }

    /// Whether nobody has looked for a tool yet.
    #[inline]
    pub(crate) fn is_unknown(self) -> bool {
        self.0.get() & UNKNOWN != 0
    }
}

/// The word itself. Relaxed for zones: whatever one finds through it is published by a lock or by the ring.
pub(crate) struct Switch(AtomicU32);

impl Switch {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Switch {
        Switch(AtomicU32::new(UNKNOWN))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Switch {
        Switch(AtomicU32::new(UNKNOWN))
    }

    #[inline(always)]
    pub(crate) fn word(&self) -> Option<SwitchState> {
        NonZeroU32::new(self.0.load(Ordering::Relaxed)).map(SwitchState)
    }

    pub(crate) fn set(&self, epoch: u32) {
        self.change(|word| (word & FLAGS) | (epoch << EPOCH_SHIFT));
    }

    /// Off, unless another epoch is on by now.
    pub(crate) fn clear(&self, epoch: u32) {
        self.change(|word| if word >> EPOCH_SHIFT == epoch { word & FLAGS } else { word });
    }

    pub(crate) fn mirror(&self, on: bool) {
        self.change(|word| (word & !(UNKNOWN | MIRRORED)) | if on { MIRRORED } else { 0 });
    }

    pub(crate) fn arm(&self, on: bool) {
        self.change(|word| (word & !ARMED) | if on { ARMED } else { 0 });
    }

    /// A release, so that who finds zones mirrored and then fences sees what the tool has written.
    fn change(&self, change: impl Fn(u32) -> u32) {
        let _ = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, |word| Some(change(word)));
    }
}
