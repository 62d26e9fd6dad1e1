//! How often the collector looks, and how long it rests in between.
//!
//! The collector's loop calls this after each pass. Without zones the collector rests almost all of the time: a zone that begins during
//! a long rest wakes it. Nothing here waits for a device.

use std::time::{Duration, Instant};

/// The shortest time between two looks at the rings. Every few hundred zones wake the collector, and so does the first one after a long
/// rest.
pub(super) const SHORTEST: Duration = Duration::from_micros(100);
const SHORT: Duration = Duration::from_millis(2);
/// The pause while the program launches: each look has a fixed cost, which many zones share.
const LAUNCHING: Duration = Duration::from_millis(5);
pub(super) const LONG: Duration = Duration::from_millis(10);
/// The longest pause while something can arrive that does not wake the collector: the end of an open zone, a kernel, a replay.
const LONGEST: Duration = Duration::from_millis(50);
/// The longest pause while only the begin of a zone can arrive.
const IDLE: Duration = Duration::from_millis(250);

/// A pause is this part of the time for which the collector has waited for the device. A look bounds the end of a lazy zone, so the bound
/// is a small part of the zone's length.
const PART: u32 = 32;

/// The current pace of the collector.
pub(super) struct Pace {
    /// The pause between the last two looks.
    pause: Duration,
    /// When the collector last collected something, or had nothing to wait for.
    moved: Instant,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { pause: SHORTEST, moved: Instant::now() }
    }
}

impl Pace {
    /// Returns the pause after a look.
    pub(super) fn next(&mut self, look: Look, now: Instant) -> Duration {
        let twice = self.pause * 2;
        if look.has_collected || !look.is_waiting {
            self.moved = now;
        }
        let waited = now.saturating_duration_since(self.moved);
        self.pause = match look {
            Look { is_launching: true, is_short: false, is_sparse: false, .. } => LAUNCHING,
            Look { is_launching: true, is_sparse: false, .. } => SHORT,
            Look { is_waiting: true, .. } => (waited / PART).clamp(SHORTEST, SHORT),
            Look { is_launching: true, .. } | Look { has_collected: true, .. } => SHORT,
            Look { is_idle: true, .. } => twice.clamp(SHORT, IDLE),
            Look { .. } => twice.clamp(SHORT, LONGEST),
        };
        self.pause
    }
}

/// The findings of a look at the streams.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// Whether the program launches GPU zones.
    pub(super) is_launching: bool,
    /// Whether it launches few of them, with ends that only a look bounds.
    pub(super) is_sparse: bool,
    /// Whether a stream has more than a quarter of its slots in use.
    pub(super) is_short: bool,
    /// Whether something waits for a device.
    pub(super) is_waiting: bool,
    pub(super) has_collected: bool,
    /// Whether no zone is open, everything is flushed, and no stage has a source that does not wake the collector.
    pub(super) is_idle: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Look = Look {
        is_launching: false,
        is_sparse: false,
        is_short: false,
        is_waiting: false,
        has_collected: false,
        is_idle: false,
    };

    #[test]
    fn while_the_collector_waits_for_the_device_a_pause_is_a_small_part_of_the_wait() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let waiting = Look { is_waiting: true, ..NOTHING };
        pace.next(Look { has_collected: true, ..waiting }, begin);
        let mut at = begin;
        while at - begin < Duration::from_millis(500) {
            let pause = pace.next(waiting, at);
            let most = ((at - begin) / 20).clamp(SHORTEST, SHORT);
            assert!((SHORTEST..=most).contains(&pause), "{pause:?} after {:?}", at - begin);
            at += pause;
        }
        assert_eq!(pace.next(waiting, at), SHORT, "a device that hangs costs little");
        assert_eq!(pace.next(Look { has_collected: true, ..waiting }, at), SHORTEST);
    }

    #[test]
    fn many_zones_share_a_look_and_few_whose_ends_a_look_bounds_do_not() {
        let mut pace = Pace::default();
        let launching = Look { is_launching: true, is_waiting: true, ..NOTHING };
        let mut next = |look| pace.next(look, Instant::now());
        assert_eq!(next(launching), LAUNCHING);
        assert_eq!(next(Look { is_short: true, ..launching }), SHORT);
        assert_eq!(next(Look { is_sparse: true, has_collected: true, ..launching }), SHORTEST);
    }

    #[test]
    fn a_program_that_rests_is_left_alone() {
        let mut pace = Pace::default();
        assert_eq!((0..20).map(|_| pace.next(Look { is_idle: true, ..NOTHING }, Instant::now())).last(), Some(IDLE));
        assert_eq!((0..20).map(|_| pace.next(NOTHING, Instant::now())).last(), Some(LONGEST));
    }
}
