//! The switch: the word that every zone reads first.
//!
//! Zero means off. Otherwise the word holds up to four facts: the epoch of the session that is on, by which a thread checks
//! whether its cached contexts belong to this session; whether single zones are requested; whether zones are mirrored to an NVTX
//! tool; and whether no tool has been looked for yet, which the first zone does. The recorder behind it (`stream::current`) is
//! looked up only when a thread first uses a stream in an epoch.
//!
//! Between the windows of a session with a budget (`windows.rs`), the word keeps all of this and its highest bit is set. For a
//! zone, this is the same as off.

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

/// Turns recording on.
pub fn turn_on(epoch: NonZeroU32) {
    follow_forks();
    SWITCH.set(epoch.get());
}

/// Sets whether the session that is on records only windows of its time, so that each zone consults `windows`. While it
/// `is_closed`, no zone is recorded.
pub(crate) fn set_windows(is_on: bool, is_closed: bool) {
    SWITCH.window(is_on, is_closed);
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

/// The flag that no tool has been looked for yet. In a [`ZoneRequest`](crate::zone::ZoneRequest): the session records the zone
/// only if it is captured.
pub(crate) const UNKNOWN: u32 = 1;
/// The flag that zones are mirrored.
const MIRRORED: u32 = 2;
/// The flag that single zones are requested.
const ARMED: u32 = 4;
/// The flag that the session records only windows of its time.
const WINDOWED: u32 = 8;
/// The flag that no window is open. In a [`ZoneRequest`](crate::zone::ZoneRequest): the zone is a root that is followed and not
/// recorded.
const CLOSED: u32 = 16;
const FLAGS: u32 = UNKNOWN | MIRRORED | ARMED | WINDOWED | CLOSED;
/// The position of the epoch, or zero, above the flags.
const EPOCH_SHIFT: u32 = 5;
/// The flag that there is nothing to do for any zone: no window is open, no single zones are requested, and no tool gets zones.
/// The bit makes the word negative, so that one comparison detects both this state and off.
const ASLEEP: u32 = 1 << 31;
/// The maximum epoch.
pub(crate) const MAX_EPOCH: u32 = !ASLEEP >> EPOCH_SHIFT;

/// A value of the word other than zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchState(NonZeroU32);

impl SwitchState {
    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0.get()
    }

    /// Returns the state that had these bits.
    #[inline]
    pub(crate) fn of_bits(bits: u32) -> SwitchState {
        SwitchState(NonZeroU32::new(bits).unwrap_or(NonZeroU32::MIN))
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

    /// Returns whether the zone of this request is a root that is followed to its end and not recorded.
    #[inline]
    pub(crate) fn is_followed(self) -> bool {
        self.0.get() & CLOSED != 0
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

    /// Returns whether the only thing to do for a zone is to notify a tool.
    #[inline]
    pub(crate) fn is_only_mirrored(self) -> bool {
        self.0.get() == MIRRORED
    }

    /// Returns the state for a zone, by whether a session takes it and whether it is requested; none if there is nothing to do.
    #[inline]
    pub(crate) fn of_zone(self, is_taken: bool, is_asked: bool) -> Option<SwitchState> {
        let epoch = if is_taken { !FLAGS } else { 0 };
        let armed = if is_asked { ARMED } else { 0 };
        NonZeroU32::new(self.0.get() & (MIRRORED | epoch | armed)).map(SwitchState)
    }

    /// Returns the state for a zone that is recorded in a window.
    pub(crate) fn in_window(self) -> SwitchState {
        SwitchState(self.0 | WINDOWED)
    }

    /// Returns the state for a zone without its request; none if there is nothing else to do.
    pub(crate) fn unasked(self) -> Option<SwitchState> {
        NonZeroU32::new(self.0.get() & !ARMED).map(SwitchState)
    }

    /// Returns the state for a root that is followed to its end and not recorded.
    #[cold]
    pub(crate) fn of_followed(self, is_asked: bool) -> Option<SwitchState> {
        let armed = if is_asked { ARMED } else { 0 };
        NonZeroU32::new(self.0.get() & (MIRRORED | armed) | CLOSED).map(SwitchState)
    }

    /// Returns the state for a zone that the session records only if it is captured. `otherwise` applies if it is not.
    #[cold]
    pub(crate) fn of_captures(self, otherwise: Option<SwitchState>) -> Option<SwitchState> {
        let otherwise = otherwise.map_or(0, |word| word.0.get());
        NonZeroU32::new(self.0.get() & !FLAGS | UNKNOWN | otherwise).map(SwitchState)
    }

    /// Returns whether the session records the zone of this request only if it is captured.
    #[inline]
    pub(crate) fn is_for_captures(self) -> bool {
        self.0.get() & UNKNOWN != 0
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

    pub(crate) fn set(&self, epoch: u32) {
        self.change(|word| (word & FLAGS) | (epoch << EPOCH_SHIFT));
    }

    pub(crate) fn window(&self, is_on: bool, is_closed: bool) {
        let flags = if is_on { WINDOWED } else { 0 } | if is_closed { CLOSED } else { 0 };
        self.change(|word| (word & !(WINDOWED | CLOSED)) | flags);
    }

    /// Turns the switch off, unless another epoch is on by now.
    pub(crate) fn clear(&self, epoch: u32) {
        self.change(|word| if word >> EPOCH_SHIFT == epoch { word & FLAGS & !(WINDOWED | CLOSED) } else { word });
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
        let switch = Switch(AtomicU32::new(0));
        switch.set(7);
        switch.window(true, true);
        assert!(switch.word().is_none(), "a zone has nothing to do");
        assert_eq!(switch.whole().and_then(SwitchState::epoch), NonZeroU32::new(7), "the session is on");
        switch.arm(true);
        assert!(switch.word().is_some_and(|word| word.is_armed() && word.is_windowed()));
        switch.arm(false);
        assert!(switch.word().is_none());
        switch.mirror(true);
        assert!(switch.word().is_some_and(SwitchState::is_mirrored));
        switch.mirror(false);
        switch.window(true, false);
        assert!(switch.word().is_some_and(|word| word.is_windowed() && word.epoch() == NonZeroU32::new(7)));
        switch.window(true, true);
        switch.clear(7);
        assert_eq!(switch.0.load(Ordering::Relaxed), 0, "nothing is left of the session");
        switch.set(MAX_EPOCH);
        assert_eq!(switch.word().and_then(SwitchState::epoch), NonZeroU32::new(MAX_EPOCH));
    }
}
