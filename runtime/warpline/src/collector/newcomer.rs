//! A device on which the first zones of a session begin. Its clock is measured when the launching threads pause.
//!
//! Measuring a clock calls the driver, and a launch at that time waits for some 100 µs. On an idle stream, the first zone has already begun, so its
//! length would contain that wait. Complete zones are held until the clock is measured. If the program never pauses, it is measured after 20 ms.

use std::time::{Duration, Instant};

/// The time without a new zone after which launching threads count as pausing.
const PAUSE: Duration = Duration::from_millis(1);

/// The longest time for which zones wait for a pause.
const LONGEST: Duration = Duration::from_millis(20);

/// The first zones on a device.
#[derive(Debug)]
pub(super) struct Newcomer {
    since: Instant,
    /// When a zone last began, as far as looks can tell, and the number of zones then.
    moved: (Instant, u64),
}

impl Newcomer {
    pub(super) fn new(begun: u64, now: Instant) -> Newcomer {
        Newcomer { since: now, moved: (now, begun) }
    }

    /// Looks again, when so many zones have begun. Returns whether the device can be measured.
    pub(super) fn is_ready(&mut self, begun: u64, now: Instant) -> bool {
        if begun != self.moved.1 {
            self.moved = (now, begun);
        }
        now.duration_since(self.moved.0) >= PAUSE || now.duration_since(self.since) >= LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_measured_in_the_first_pause_or_after_twenty_milliseconds() {
        let begin = Instant::now();
        let ms = |ms: f64| begin + Duration::from_secs_f64(ms / 1e3);
        let mut pauses = Newcomer::new(1, begin);
        let ready = [(0.5, 1), (0.9, 2), (1.5, 2), (1.8, 3), (2.7, 3), (2.9, 3)]
            .map(|(at, begun)| pauses.is_ready(begun, ms(at)));
        assert_eq!(ready, [false, false, false, false, false, true]);
        let mut never = Newcomer::new(1, begin);
        let first = (0..100).find(|&look| never.is_ready(look + 2, ms(look as f64 / 2.0)));
        assert_eq!(first, Some(40));
    }
}
