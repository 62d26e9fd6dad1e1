//! How often the collector looks, and how long it rests in between.
//!
//! The collector's loop asks here after each pass. While nothing comes the collector is hardly there: a zone that begins during a long
//! rest wakes it. Nothing here waits for a device.

use std::time::Duration;

/// Between two looks at the rings: short while zones complete, longer while they do not, twice as long each time while there
/// is none. Every few hundred zones wake the collector, and so does the first one after a long rest.
pub(super) const SHORTEST: Duration = Duration::from_micros(100);
const SHORT: Duration = Duration::from_millis(2);
/// While the program launches: each look has a cost of its own, which many zones share.
const LAUNCHING: Duration = Duration::from_millis(5);
pub(super) const LONG: Duration = Duration::from_millis(10);
/// While something can come that does not wake the collector: the end of an open zone, a kernel, a replay.
const LONGEST: Duration = Duration::from_millis(50);
/// While nothing can come but a zone's begin.
const IDLE: Duration = Duration::from_millis(250);

/// How fast the collector goes by now.
pub(super) struct Pace {
    /// Between the last two looks.
    pause: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { pause: SHORTEST }
    }
}

impl Pace {
    /// The pause after a look.
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

/// What a look at the streams found.
pub(super) struct Look {
    /// The program launches GPU zones.
    pub(super) is_launching: bool,
    /// A stream has a quarter of its slots in use.
    pub(super) is_short: bool,
    /// Something waits for a device.
    pub(super) is_waiting: bool,
    pub(super) has_collected: bool,
    /// It is still to be seen how many streams there are.
    pub(super) is_settling: bool,
    /// No zone is open, everything is flushed, and no stage has a source that does not wake the collector.
    pub(super) is_idle: bool,
}
