//! The switch: the word that every zone reads first.
//!
//! Zero means off. Otherwise the word holds the epoch of the session that is on, by which a thread checks whether its cached
//! contexts belong to this session, and flags: what the session says to every zone (`SessionFlags`); whether single zones are
//! requested; whether zones are mirrored to an NVTX tool; and whether no tool has been looked for yet, which the first zone does.
//! The recorder behind it (`stream::recorder`) is looked up only when a thread first uses a stream in an epoch.
//!
//! Between the windows of a session with a budget (`windows`), the word keeps all of this and its highest bit is set. For a
//! zone, this is the same as off. `zone::slots::Purpose` says what one zone is for.

use std::num::NonZeroU32;

use crate::fork;
use crate::sync::{AtomicU32, Ordering, fence, static_of_atomics};

static_of_atomics!(
    static SWITCH: Switch = Switch(AtomicU32::new(UNKNOWN));
);

/// The epoch of the recorder for individually requested zones. It is no session's epoch.
pub const REQUESTS_EPOCH: NonZeroU32 = NonZeroU32::MAX;

/// Returns the state of the switch; none if everything is off, and between the windows of a session with a budget.
#[inline(always)]
pub(crate) fn word() -> Option<SwitchState> {
    SWITCH.word()
}

/// Returns whether anything records, also between the windows of a session with a budget.
#[cfg(feature = "enable")]
#[inline(always)]
pub(crate) fn is_set() -> bool {
    SWITCH.whole().is_some()
}

/// Returns the epoch of the session that is on. Without the feature `enable` there is none, and a caller's code for one is left
/// out of the program.
#[inline]
pub fn epoch() -> Option<NonZeroU32> {
    if cfg!(feature = "enable") { SWITCH.whole().and_then(SwitchState::epoch) } else { None }
}

/// Returns whether zones are mirrored to an NVTX tool.
#[inline]
pub(crate) fn is_mirrored() -> bool {
    SWITCH.word().is_some_and(SwitchState::is_mirrored)
}

/// Returns whether future zones are requested.
pub(crate) fn is_armed() -> bool {
    SWITCH.word().is_some_and(SwitchState::is_armed)
}

/// Sets whether zones are requested.
pub(crate) fn arm(on: bool) {
    follow_forks();
    SWITCH.arm(on);
}

/// Sets whether zones are mirrored from now on. A tool has been looked for.
pub(crate) fn mirror(on: bool) {
    follow_forks();
    SWITCH.mirror(on);
}

/// Turns recording on. Only the session's `windows` call it, which know its flags.
pub(crate) fn turn_on(epoch: NonZeroU32, flags: SessionFlags) {
    follow_forks();
    SWITCH.set(epoch.get(), flags);
}

/// Changes what a session says to every zone, if that session is on.
pub(crate) fn set_flags(epoch: NonZeroU32, flags: SessionFlags) {
    SWITCH.set_flags(epoch.get(), flags);
}

/// Turns recording off; the recorder stays until `remove`.
pub fn turn_off(epoch: NonZeroU32) {
    SWITCH.clear(epoch.get());
}

/// Makes forked children turn everything off. Called before anything is turned on.
fn follow_forks() {
    fork::in_children(leave_to_parent);
}

/// Turns recording and requests off in a forked child, until the child starts its own. A tool that zones were mirrored to belongs
/// to the parent. This function only stores.
fn leave_to_parent() {
    SWITCH.0.store(SWITCH.0.load(Ordering::Relaxed) & UNKNOWN, Ordering::Relaxed);
}

/// Returns whether no tool has been looked for yet, in this process or in one that it was forked from.
pub fn is_unknown() -> bool {
    SWITCH.word().is_some_and(SwitchState::is_unknown)
}

/// The flag that no tool has been looked for yet.
pub(crate) const UNKNOWN: u32 = 1;
/// The flag that zones are mirrored.
pub(crate) const MIRRORED: u32 = 2;
/// The flag that single zones are requested.
pub(crate) const ARMED: u32 = 4;
/// The flag that the session records only windows of its time.
const WINDOWED: u32 = 8;
/// The flag that no window is open.
const CLOSED: u32 = 16;
/// The flag that the session records every zone that is captured.
const CAPTURES: u32 = 32;
const OF_SESSION: u32 = WINDOWED | CLOSED | CAPTURES;
const FLAGS: u32 = UNKNOWN | MIRRORED | ARMED | OF_SESSION;
/// The position of the epoch, or zero, above the flags.
pub(crate) const EPOCH_SHIFT: u32 = 6;
/// The bits of the epoch.
pub(crate) const EPOCH: u32 = !(ASLEEP | FLAGS);
/// The flag that there is nothing to do for any zone: no window is open, no single zones are requested, and no tool gets zones.
/// The bit makes the word negative, so that one comparison detects both this state and off.
const ASLEEP: u32 = 1 << 31;
/// The maximum epoch.
pub(crate) const MAX_EPOCH: u32 = !ASLEEP >> EPOCH_SHIFT;

/// What a session says to every zone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionFlags {
    /// The session records only windows of its time, so that each zone consults `windows`.
    pub(crate) is_windowed: bool,
    /// No window is open, and no zone is recorded.
    pub(crate) is_closed: bool,
    /// Zones on streams that are being captured are recorded outside of windows and of the sample, too.
    pub(crate) takes_captures: bool,
}

impl SessionFlags {
    fn bits(self) -> u32 {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        bit(self.is_windowed, WINDOWED) | bit(self.is_closed, CLOSED) | bit(self.takes_captures, CAPTURES)
    }
}

/// A value of the word other than zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchState(NonZeroU32);

impl SwitchState {
    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0.get()
    }

    /// Makes what was stored before the switch got this state visible to this thread.
    #[inline]
    pub(crate) fn acquire(self) -> SwitchState {
        fence(Ordering::Acquire);
        self
    }

    /// Returns the epoch of the session that is on.
    #[inline]
    pub(crate) fn epoch(self) -> Option<NonZeroU32> {
        NonZeroU32::new((self.0.get() & !ASLEEP) >> EPOCH_SHIFT)
    }

    /// Returns whether the session records only windows of its time.
    #[inline]
    pub(crate) fn is_windowed(self) -> bool {
        self.0.get() & WINDOWED != 0
    }

    /// Returns whether the session records every zone that is captured.
    #[inline]
    pub(crate) fn takes_captures(self) -> bool {
        self.0.get() & CAPTURES != 0
    }

    /// Returns whether zones are mirrored to an NVTX tool.
    #[inline]
    pub(crate) fn is_mirrored(self) -> bool {
        self.0.get() & MIRRORED != 0
    }

    /// Returns whether single zones are requested.
    #[inline]
    pub(crate) fn is_armed(self) -> bool {
        self.0.get() & ARMED != 0
    }

    /// Returns whether no tool has been looked for yet.
    #[inline]
    pub(crate) fn is_unknown(self) -> bool {
        self.0.get() & UNKNOWN != 0
    }
}

/// The word itself.
///
/// What is ordered by what: each change of the word is a release. A zone loads the word relaxed, so that nothing is paid while it is off, and
/// one that finds something to do fences ([`SwitchState::acquire`]). From there it sees what was stored before that change, by relaxed loads: the
/// chances of the ranges (`sample`), the state of the windows (`windows`) and which observers are on (`observer`). The recorder is found under a
/// lock, and slots by the ring. What a running session changes later without the word, as its chances, holds from some zone on.
pub(crate) struct Switch(pub(crate) AtomicU32);

impl Switch {
    #[inline(always)]
    pub(crate) fn word(&self) -> Option<SwitchState> {
        let word = self.0.load(Ordering::Relaxed);
        // One comparison covers both states: off is zero, and asleep is negative.
        if word.cast_signed() > 0 { NonZeroU32::new(word).map(SwitchState) } else { None }
    }

    /// Returns the state of the switch, even while it is asleep.
    #[inline]
    pub(crate) fn whole(&self) -> Option<SwitchState> {
        NonZeroU32::new(self.0.load(Ordering::Relaxed)).map(SwitchState)
    }

    pub(crate) fn set(&self, epoch: u32, flags: SessionFlags) {
        self.change(|word| (word & FLAGS & !OF_SESSION) | flags.bits() | (epoch << EPOCH_SHIFT));
    }

    /// Changes the flags of a session, unless another epoch is on, or none.
    pub(crate) fn set_flags(&self, epoch: u32, flags: SessionFlags) {
        self.change(|word| if word >> EPOCH_SHIFT == epoch { (word & !OF_SESSION) | flags.bits() } else { word });
    }

    /// Turns the switch off, unless another epoch is on by now.
    pub(crate) fn clear(&self, epoch: u32) {
        self.change(|word| if word >> EPOCH_SHIFT == epoch { word & FLAGS & !OF_SESSION } else { word });
    }

    pub(crate) fn mirror(&self, on: bool) {
        self.change(|word| (word & !(UNKNOWN | MIRRORED)) | if on { MIRRORED } else { 0 });
    }

    pub(crate) fn arm(&self, on: bool) {
        self.change(|word| (word & !ARMED) | if on { ARMED } else { 0 });
    }

    /// Changes the word with release ordering: see [`Switch`].
    fn change(&self, change: impl Fn(u32) -> u32) {
        let change = |word| {
            let word = change(word & !ASLEEP);
            let is_asleep = word & (CLOSED | UNKNOWN | MIRRORED | ARMED) == CLOSED;
            Some(if is_asleep { word | ASLEEP } else { word })
        };
        let _ = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, change);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_closed_window_is_off_to_zones_unless_a_request_or_a_tool_wants_them() {
        let open = SessionFlags { is_windowed: true, ..SessionFlags::default() };
        let closed = SessionFlags { is_closed: true, ..open };
        let switch = Switch(AtomicU32::new(0));
        switch.set(7, closed);
        assert!(switch.word().is_none(), "a zone has nothing to do");
        assert_eq!(switch.whole().and_then(SwitchState::epoch), NonZeroU32::new(7), "the session is on");
        switch.arm(true);
        assert!(switch.word().is_some_and(|word| word.is_armed() && word.is_windowed()));
        switch.arm(false);
        assert!(switch.word().is_none());
        switch.mirror(true);
        assert!(switch.word().is_some_and(SwitchState::is_mirrored));
        switch.mirror(false);
        switch.set_flags(7, open);
        assert!(switch.word().is_some_and(|word| word.is_windowed() && word.epoch() == NonZeroU32::new(7)));
        switch.set_flags(7, closed);
        switch.clear(7);
        assert_eq!(switch.0.load(Ordering::Relaxed), 0, "nothing is left of the session");
        switch.set(MAX_EPOCH, SessionFlags::default());
        assert_eq!(switch.word().and_then(SwitchState::epoch), NonZeroU32::new(MAX_EPOCH));
    }

    #[test]
    fn the_flags_are_those_of_the_session_that_is_on() {
        let switch = Switch(AtomicU32::new(0));
        let windows = SessionFlags { is_windowed: true, is_closed: true, takes_captures: true };
        switch.set_flags(7, windows);
        assert_eq!(switch.0.load(Ordering::Relaxed), 0, "no session is on");
        switch.set(8, SessionFlags::default());
        switch.set_flags(7, windows);
        assert!(switch.word().is_some_and(|word| !word.is_windowed() && !word.takes_captures()), "another one is");
        switch.set_flags(8, windows);
        switch.set(9, SessionFlags::default());
        assert!(switch.word().is_some_and(|word| !word.is_windowed() && !word.takes_captures()), "it says nothing");
    }
}
