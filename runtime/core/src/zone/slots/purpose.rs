//! What a zone that begins is for: the session that records it, a request for it, a tool that sees it.
//!
//! A mark asks the switch, which says what is on in the process, and the answer for its zone is a [`Purpose`].

use std::num::NonZeroU32;

use crate::switch::{ARMED, EPOCH, EPOCH_SHIFT, MIRRORED, SwitchState};

/// The session records the zone only if it is captured.
const IF_CAPTURED: u32 = 1;
/// A tool sees the zone. The same bit as in the switch, as is the next.
const OBSERVED: u32 = MIRRORED;
/// The zone was requested.
const REQUESTED: u32 = ARMED;
/// The session records the zone in a window.
const IN_WINDOW: u32 = 8;
/// The zone is a root that is followed to its end and not recorded.
const FOLLOWED: u32 = 16;

/// What a zone is for. It is never for nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purpose(NonZeroU32);

impl Purpose {
    /// Returns the purpose of a zone, by whether a session takes it and whether it was requested; none if nothing needs it.
    #[inline]
    pub(super) fn new(switch: SwitchState, is_taken: bool, is_requested: bool) -> Option<Purpose> {
        let epoch = if is_taken { EPOCH } else { 0 };
        let requested = if is_requested { REQUESTED } else { 0 };
        NonZeroU32::new(switch.bits() & (OBSERVED | epoch) | requested).map(Purpose)
    }

    /// Returns the purpose of a root that is followed to its end and not recorded.
    #[cold]
    pub(super) fn followed(switch: SwitchState, is_requested: bool) -> Option<Purpose> {
        let other = Purpose::new(switch, false, is_requested).map_or(0, Purpose::bits);
        NonZeroU32::new(other | FOLLOWED).map(Purpose)
    }

    /// Returns the purpose of a zone that the session records only if it is captured. `otherwise` applies if it is not.
    #[cold]
    pub(super) fn if_captured(switch: SwitchState, otherwise: Option<Purpose>) -> Option<Purpose> {
        NonZeroU32::new(switch.bits() & EPOCH | IF_CAPTURED | otherwise.map_or(0, Purpose::bits)).map(Purpose)
    }

    /// Adds that the session records the zone in a window.
    pub(super) fn in_window(self) -> Purpose {
        Purpose(self.0 | IN_WINDOW)
    }

    /// Returns the purpose without the request; none if there is no other.
    pub(super) fn without_request(self) -> Option<Purpose> {
        NonZeroU32::new(self.bits() & !REQUESTED).map(Purpose)
    }

    #[inline]
    pub(super) fn bits(self) -> u32 {
        self.0.get()
    }

    /// Returns the purpose that had these bits.
    #[inline]
    pub(super) fn of_bits(bits: u32) -> Purpose {
        Purpose(NonZeroU32::new(bits).unwrap_or(NonZeroU32::MIN))
    }

    /// Returns the epoch of the session that records the zone.
    #[inline]
    pub(super) fn epoch(self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.bits() >> EPOCH_SHIFT)
    }

    #[inline]
    pub(super) fn is_if_captured(self) -> bool {
        self.bits() & IF_CAPTURED != 0
    }

    #[inline]
    pub(super) fn is_requested(self) -> bool {
        self.bits() & REQUESTED != 0
    }

    #[inline]
    pub(super) fn is_in_window(self) -> bool {
        self.bits() & IN_WINDOW != 0
    }

    #[inline]
    pub(super) fn is_followed(self) -> bool {
        self.bits() & FOLLOWED != 0
    }

    /// Returns whether a tool is all that gets the zone.
    #[inline]
    pub(super) fn is_only_observed(self) -> bool {
        self.bits() == OBSERVED
    }
}
