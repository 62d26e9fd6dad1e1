//! How often the collector looks, and how long it rests in between.
//!
//! The collector's loop calls this after each pass. Without zones the collector rests almost all of the time: a zone that begins during
//! a long rest wakes it. Nothing here waits for a device.

use std::time::Duration;

/// The time between two looks at the rings. It is short while zones complete, longer while they do not, and doubles each time while
/// there are none. Every few hundred zones wake the collector, and so does the first one after a long rest.
pub(super) const SHORTEST: Duration = Duration::from_micros(100);
const SHORT: Duration = Duration::from_millis(2);
/// The pause while the program launches: each look has a fixed cost, which many zones share.
const LAUNCHING: Duration = Duration::from_millis(5);
pub(super) const LONG: Duration = Duration::from_millis(10);
/// The longest pause while something can arrive that does not wake the collector: the end of an open zone, a kernel, a replay.
const LONGEST: Duration = Duration::from_millis(50);
/// The longest pause while only the begin of a zone can arrive.
const IDLE: Duration = Duration::from_millis(250);

/// The current pace of the collector.
pub(super) struct Pace {
    /// The pause between the last two looks.
    pause: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { pause: SHORTEST }
    }
}

impl Pace {
    /// Returns the pause after a look.
    pub(super) fn next(&mut self, look: Look) -> Duration {
        let twice = self.pause * 2;
        self.pause = match look {
            Look { is_launching: true, is_short: false, .. } => LAUNCHING,
            Look { is_launching: true, .. } => SHORT,
            Look { is_waiting: true, has_collected: true, .. } => SHORTEST,
            Look { is_waiting: true, .. } => twice.clamp(SHORTEST, SHORT),
            Look { has_collected: true, .. } => SHORT,
            Look { is_settling: true, .. } => LONG,
            Look { is_idle: true, .. } => twice.clamp(SHORT, IDLE),
            Look { .. } => twice.clamp(SHORT, LONGEST),
        };
        self.pause
    }
}

/// The findings of a look at the streams.
pub(super) struct Look {
    /// Whether the program launches GPU zones.
    pub(super) is_launching: bool,
    /// Whether a stream has more than a quarter of its slots in use.
    pub(super) is_short: bool,
    /// Whether something waits for a device.
    pub(super) is_waiting: bool,
    pub(super) has_collected: bool,
    /// Whether the number of streams is not settled yet.
    pub(super) is_settling: bool,
    /// Whether no zone is open, everything is flushed, and no stage has a source that does not wake the collector.
    pub(super) is_idle: bool,
}
