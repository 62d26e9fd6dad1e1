//! The hardware queues of one device in one session, and the streams on which zones begin: they decide how zones end.
//!
//! A timed event right behind its work (*eager*) blocks the hardware queue for other streams that share it. An end without a time (*lazy*)
//! costs no overlap, and gives only a bound of a zone's length. Ends are therefore eager while the streams with zones leave half of the
//! queues to streams without marks, which are not counted. Launching threads add streams; the collector removes those that it evicts, and
//! lets ends become eager again.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use warpline_core::environment;
use warpline_core::lock::lock;
use warpline_core::timing::EndMode;

/// The number of hardware queues that a device's streams share by default.
const DEFAULT_CONNECTIONS: usize = 8;

/// How long the number of streams must be low before ends become eager again. A program that replaces its streams does not change the kind
/// of ends each time.
const CALM: Duration = Duration::from_secs(1);

pub(super) struct Queues {
    ends: EndMode,
    connections: usize,
    is_lazy: AtomicBool,
    streams: Mutex<Streams>,
}

#[derive(Default)]
struct Streams {
    /// How many backends each stream has, by its id. Two threads that meet a stream at once create two.
    backends: HashMap<u64, usize>,
    /// Since when there are few enough for eager ends, while ends are lazy.
    calm: Option<Instant>,
}

impl Queues {
    pub(super) fn new(ends: EndMode) -> Queues {
        Queues::with_connections(ends, connections())
    }

    fn with_connections(ends: EndMode, connections: usize) -> Queues {
        Queues { ends, connections, is_lazy: AtomicBool::new(ends == EndMode::Lazy), streams: Mutex::default() }
    }

    /// Returns whether zones that end now have a marker instead of an event with a time.
    #[inline]
    pub(super) fn is_lazy(&self) -> bool {
        self.is_lazy.load(Ordering::Relaxed)
    }

    /// Adds a stream before the first zone on it.
    pub(super) fn add(&self, stream: u64) {
        let mut streams = lock(&self.streams);
        *streams.backends.entry(stream).or_default() += 1;
        if self.ends == EndMode::Auto && self.are_shared(&streams) {
            streams.calm = None;
            self.is_lazy.store(true, Ordering::Relaxed);
        }
    }

    /// Removes a stream on which no more zones begin.
    pub(super) fn remove(&self, stream: u64) {
        let mut streams = lock(&self.streams);
        if let Some(backends) = streams.backends.get_mut(&stream) {
            *backends -= 1;
            if *backends == 0 {
                streams.backends.remove(&stream);
            }
        }
    }

    /// Lets ends become eager again if the streams have been few for some time. The collector calls this in each pass.
    pub(super) fn review(&self, now: Instant) {
        if self.ends != EndMode::Auto || !self.is_lazy() {
            return;
        }
        let mut streams = lock(&self.streams);
        if self.are_shared(&streams) {
            streams.calm = None;
        } else if now.saturating_duration_since(*streams.calm.get_or_insert(now)) >= CALM {
            self.is_lazy.store(false, Ordering::Relaxed);
        }
    }

    /// Returns whether more than half of the queues have streams with zones.
    fn are_shared(&self, streams: &Streams) -> bool {
        streams.backends.len() * 2 > self.connections
    }
}

/// Returns `CUDA_DEVICE_MAX_CONNECTIONS` as the driver read it.
fn connections() -> usize {
    let said = environment::var("CUDA_DEVICE_MAX_CONNECTIONS").ok().and_then(|text| text.trim().parse().ok());
    said.filter(|count| (1..=32).contains(count)).unwrap_or(DEFAULT_CONNECTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_eager_until_more_than_half_of_the_queues_have_streams_with_zones() {
        let queues = Queues::with_connections(EndMode::Auto, 8);
        (1..=4).for_each(|stream| queues.add(stream));
        assert!(!queues.is_lazy());
        // Another thread meets the same stream.
        queues.add(4);
        assert!(!queues.is_lazy());
        queues.add(5);
        assert!(queues.is_lazy());
    }

    #[test]
    fn ends_become_eager_again_when_the_streams_have_been_few_for_a_second() {
        let queues = Queues::with_connections(EndMode::Auto, 2);
        let begin = Instant::now();
        let after = |ms| begin + Duration::from_millis(ms);
        queues.add(1);
        queues.add(2);
        queues.review(after(0));
        queues.remove(2);
        queues.review(after(5_000));
        assert!(queues.is_lazy(), "they were many until now");
        queues.review(after(5_900));
        assert!(queues.is_lazy());
        // A stream that takes the place of another does not count beside it.
        queues.add(3);
        queues.review(after(5_950));
        queues.remove(3);
        queues.review(after(6_100));
        assert!(queues.is_lazy(), "the second begins anew");
        queues.review(after(7_100));
        assert!(!queues.is_lazy());
    }

    #[test]
    fn with_one_queue_ends_are_lazy_and_the_user_can_choose_otherwise() {
        let lazy = |ends, connections, streams: u64| {
            let queues = Queues::with_connections(ends, connections);
            (0..streams).for_each(|stream| queues.add(stream));
            queues.review(Instant::now() + Duration::from_secs(60));
            queues.is_lazy()
        };
        assert!(lazy(EndMode::Auto, 1, 1));
        assert!(!lazy(EndMode::Eager, 1, 16) && lazy(EndMode::Lazy, 32, 1));
        assert!(!lazy(EndMode::Auto, 32, 16) && lazy(EndMode::Auto, 32, 17));
    }
}
