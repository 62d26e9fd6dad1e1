//! How often the collector looks, reads and rests.
//!
//! The collector's loop asks here. Every call that reads a device makes the calls that launch on it wait, so while the program launches it is
//! read as seldom as the rings allow, and while nothing comes the collector is hardly there. Nothing here waits for a device.

use std::time::{Duration, Instant};

/// Between two looks at the rings: short while zones complete, longer while they do not, twice as long each time while there
/// is none. Every few hundred zones wake the collector, and so does the first one after a long rest.
pub(super) const SHORTEST: Duration = Duration::from_micros(100);
const LAUNCHING: Duration = Duration::from_millis(2);
pub(super) const LONG: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(50);

/// A program that launches without a pause is read so often at least, and as soon as a stream runs short.
const BUSY: Duration = Duration::from_millis(10);

/// How fast the collector goes by now.
pub(super) struct Pace {
    /// Between the last two looks.
    pause: Duration,
    /// When the streams were read last.
    read: Instant,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { pause: SHORTEST, read: Instant::now() }
    }
}

impl Pace {
    /// The streams are read now.
    pub(super) fn has_read(&mut self) {
        self.read = Instant::now();
    }

    /// Whether a program that launches without a pause is read now.
    pub(super) fn is_due(&self) -> bool {
        self.read.elapsed() >= BUSY
    }

    /// The pause after a look.
    pub(super) fn next(&mut self, look: Look) -> Duration {
        let twice = self.pause * 2;
        self.pause = match look {
            Look { is_launching: true, .. } => LAUNCHING,
            Look { is_waiting: true, has_collected: true, .. } => SHORTEST,
            Look { is_waiting: true, .. } => twice.clamp(SHORTEST, LAUNCHING),
            Look { has_collected: true, .. } => LAUNCHING,
            Look { is_settling: true, .. } => LONG,
            Look { .. } => twice.clamp(LAUNCHING, LONGEST),
        };
        self.pause
    }
}

/// What a look at the streams found.
pub(super) struct Look {
    /// The program launches GPU zones.
    pub(super) is_launching: bool,
    /// Something waits for a device.
    pub(super) is_waiting: bool,
    pub(super) has_collected: bool,
    /// It is still to be seen how many streams there are.
    pub(super) is_settling: bool,
}
