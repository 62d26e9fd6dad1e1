//! The zone of each launch: every thread gives CUPTI the number of its innermost zone.
//!
//! An observer of launches does this while a session records kernels. CUPTI keeps a stack of numbers for each thread and puts the topmost
//! before the record of each call that launches. Zones need not end in the reverse order of their begins, so a second stack knows which of
//! CUPTI's numbers are still open.

use std::cell::RefCell;
use std::num::NonZeroU64;

use super::abi::OURS;
use super::gate;
use super::library::Cupti;
use warpline_core::catalog::RangeSpec;
use warpline_core::dynamic;
use warpline_core::observer;
use warpline_core::observer::{LaunchObserver, Position, Token, ZoneEnd, ZoneLaunch};

thread_local! {
    static OPEN: RefCell<Vec<PushedId>> = const { RefCell::new(Vec::new()) };
}

/// A number on this thread's stack in CUPTI.
struct PushedId {
    id: NonZeroU64,
    /// The number of CUPTI's start, because its stacks are lost when it is ended.
    begun: u64,
    has_ended: bool,
}

/// Sets whether zones that begin from now on are pushed to CUPTI.
pub(super) fn turn(on: bool) {
    observer::register(Position::Begun, &OBSERVER);
    observer::turn(Position::Begun, on);
}

static OBSERVER: &dyn LaunchObserver = &Correlation;

struct Correlation;

impl LaunchObserver for Correlation {
    /// Ignores a zone that may end on another thread: others may run on this one in the meantime, so it identifies no launches.
    fn zone_begins(&self, zone: &mut ZoneLaunch<'_>) -> Option<Token> {
        if !zone.nests || !zone.is_of_session {
            return None;
        }
        push(zone.range, zone.stream, zone.sequence).map(|number| Token(number.get()))
    }

    fn zone_ends(&self, token: Token, _zone: &ZoneEnd<'_>) {
        if let Some(number) = NonZeroU64::new(token.0) {
            pop(number);
        }
    }
}

fn push(range: &'static RangeSpec, stream: u32, sequence: u64) -> Option<NonZeroU64> {
    let id = Zone { range: range.number(), stream, sequence }.number()?;
    let cupti = Cupti::get().ok()?;
    let push = |begun: u64| {
        let open = |open: &RefCell<Vec<PushedId>>| {
            let mut open = open.try_borrow_mut().ok()?;
            // SAFETY: the call takes numbers.
            let code = unsafe { (cupti.symbols.push_id)(OURS, id.get()) };
            cupti.check("cuptiActivityPushExternalCorrelationId", code).ok()?;
            open.retain(|open| open.begun == begun);
            open.push(PushedId { id, begun, has_ended: false });
            Some(id)
        };
        OPEN.try_with(open).ok().flatten()
    };
    gate::inside(push).flatten()
}

fn pop(zone: NonZeroU64) {
    let Ok(cupti) = Cupti::get() else { return };
    // A thread whose thread-local values are destroyed has no stack, and neither has any thread after CUPTI was ended.
    let pop = |begun: u64| {
        let _ = OPEN.try_with(|open| {
            let Ok(mut open) = open.try_borrow_mut() else { return };
            open.retain(|open| open.begun == begun);
            let Some(ended) = open.iter_mut().rfind(|open| open.id == zone) else { return };
            ended.has_ended = true;
            while open.pop_if(|top| top.has_ended).is_some() {
                let mut popped = 0;
                // SAFETY: a valid out-pointer.
                let _ = unsafe { (cupti.symbols.pop_id)(OURS, &raw mut popped) };
            }
        });
    };
    let _ = gate::inside(pop);
}

/// A zone, which an external id of CUPTI encodes in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zone {
    /// The range's number.
    pub(super) range: u32,
    /// The stream's number in the session; 0 for a host zone.
    pub(super) stream: u32,
    /// The low bits of the sequence number. The collector knows how many zones the stream has had, and completes it.
    pub(super) sequence: u64,
}

const SEQUENCE_BITS: u32 = 26;
const STREAM_BITS: u32 = 20;
const RANGE_BITS: u32 = 18;

impl Zone {
    /// Returns the number; none if the stream or the range has too many bits.
    fn number(self) -> Option<NonZeroU64> {
        // The addition ensures that no number is zero.
        let range = u64::from(self.range) + 1;
        if range >> RANGE_BITS != 0 || self.stream >> STREAM_BITS != 0 {
            return None;
        }
        let sequence = self.sequence & ((1 << SEQUENCE_BITS) - 1);
        NonZeroU64::new(range << (STREAM_BITS + SEQUENCE_BITS) | u64::from(self.stream) << SEQUENCE_BITS | sequence)
    }

    /// Returns the zone that an external id encodes.
    pub(super) fn from_id(number: u64) -> Option<Zone> {
        let range = (number >> (STREAM_BITS + SEQUENCE_BITS)) as u32;
        Some(Zone {
            range: range.checked_sub(1)?,
            stream: (number >> SEQUENCE_BITS) as u32 & ((1 << STREAM_BITS) - 1),
            sequence: number & ((1 << SEQUENCE_BITS) - 1),
        })
    }

    /// Returns the range.
    pub(super) fn range(self) -> Option<&'static RangeSpec> {
        dynamic::by_number(self.range)
    }

    /// Returns the complete sequence number on a stream on which `begun` zones have begun: the latest with these low bits.
    pub(super) fn sequence_of(self, begun: u64) -> u64 {
        let span = 1 << SEQUENCE_BITS;
        let newest = begun.saturating_sub(1);
        let candidate = (newest & !(span - 1)) | self.sequence;
        if candidate > newest { candidate.checked_sub(span).unwrap_or(candidate) } else { candidate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_goes_through_a_number_and_back() {
        let zone = Zone { range: 0, stream: 0, sequence: 0 };
        assert_eq!(zone.number().and_then(|number| Zone::from_id(number.get())), Some(zone));
        let zone = Zone { range: (1 << RANGE_BITS) - 2, stream: 1_048_575, sequence: (1 << SEQUENCE_BITS) - 1 };
        assert_eq!(zone.number().and_then(|number| Zone::from_id(number.get())), Some(zone));
        assert_eq!(Zone { range: (1 << RANGE_BITS) - 1, ..zone }.number(), None);
        assert_eq!(Zone { stream: 1 << 20, ..zone }.number(), None);
        assert_eq!(Zone::from_id(7), None);
    }

    #[test]
    fn a_sequence_number_is_completed_by_how_far_the_stream_has_come() {
        let zone = |sequence| Zone { range: 0, stream: 1, sequence };
        let round = 1 << SEQUENCE_BITS;
        assert_eq!(zone(5).sequence_of(6), 5);
        assert_eq!(zone(5).sequence_of(round + 6), round + 5);
        // The zone began before the bits wrapped around.
        assert_eq!(zone(round - 1).sequence_of(round + 6), round - 1);
        assert_eq!(zone(7).sequence_of(3 * round + 7), 2 * round + 7);
        // The collector's count may be older than the zone.
        assert_eq!(zone(9).sequence_of(0), 9);
    }
}
