//! Records each replay of a graph once where both CUPTI and stamps time it, with the times of its kernels, which are exact and identify
//! the launch.
//!
//! The two sources deliver at different times. A replay timed by stamps is held until CUPTI's record of it arrives, and is delivered
//! alone if none does. Two records are of one replay if they are of one graph and their midpoints are closest to each other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use warpline_core::replay::ReplayRecord;
use warpline_core::sorting;

/// The time within which CUPTI delivers a replay's kernels, unless a long-running kernel holds them back.
const HOLD: Duration = Duration::from_secs(3);

/// The time between two checks for replays that were held too long.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The maximum number of held replays, and of replays remembered to match their other record.
const MOST: usize = 4096;

/// The bound on the difference of CUPTI's and the stamps' host times, for the midpoint of a replay that is not longer than this.
const APART_NS: i64 = 50_000;

/// A graph's number, and the midpoint of a replay in ns of the host's clock.
type Place = (u32, i64);

/// The replays of one session.
#[derive(Default)]
pub(crate) struct ReplaysOnce {
    /// Whether CUPTI records replays, too.
    has_kernels: bool,
    /// The replays timed by stamps where CUPTI records none.
    ready: Vec<ReplayRecord>,
    /// The replays timed by stamps, with the time since which each is held.
    held: BTreeMap<Place, (Instant, ReplayRecord)>,
    /// The time since which the oldest of them was held, at the last look.
    pub(super) held_since: Option<Instant>,
    looked: Option<Instant>,
    /// The lengths of the delivered replays, by stamps and by kernels, whose other record has not arrived.
    by_stamps: BTreeMap<Place, i64>,
    by_kernels: BTreeMap<Place, i64>,
    /// The number of replays that had both records.
    pub(super) merged: u64,
}

impl ReplaysOnce {
    /// Makes replays timed by stamps wait for CUPTI's records of them, if there will be some.
    pub(super) fn expect_kernels(&mut self, has_kernels: bool) {
        self.has_kernels = has_kernels;
    }

    /// Adds replays that CUPTI has recorded, and returns those to deliver.
    pub(super) fn add_by_kernels(&mut self, replays: Vec<ReplayRecord>) -> Vec<ReplayRecord> {
        if !self.has_kernels {
            return replays;
        }
        let is_new = |replay: &ReplayRecord| {
            let (place, length_ns) = place(replay);
            if take_nearest(&mut self.held, place, length_ns, |(_, held)| held.gpu.duration_ns()).is_some() {
                self.merged += 1;
                return true;
            }
            let is_known = take_nearest(&mut self.by_stamps, place, length_ns, |ns| *ns).is_some();
            self.merged += u64::from(is_known);
            if !is_known {
                put(&mut self.by_kernels, place, length_ns);
            }
            !is_known
        };
        replays.into_iter().filter(is_new).collect()
    }

    /// Adds replays timed by stamps. [`take`](Self::take) returns those to deliver.
    pub(super) fn add_by_stamps(&mut self, replays: Vec<ReplayRecord>) {
        if !self.has_kernels {
            self.ready.extend(replays);
            return;
        }
        let now = Instant::now();
        for replay in replays {
            let (place, length_ns) = place(&replay);
            if take_nearest(&mut self.by_kernels, place, length_ns, |ns| *ns).is_some() {
                self.merged += 1;
            } else {
                self.held_since.get_or_insert(now);
                put(&mut self.held, place, (now, replay));
            }
        }
    }

    /// Returns the replays for which no record of CUPTI arrives any more; all of them if this is the `last` call.
    pub(super) fn take(&mut self, last: bool) -> Vec<ReplayRecord> {
        let now = Instant::now();
        let mut taken = std::mem::take(&mut self.ready);
        let is_early = self.looked.is_some_and(|looked| now.duration_since(looked) < LOOK_EVERY);
        if !last && is_early && self.held.len() < 2 * MOST {
            return taken;
        }
        self.looked = Some(now);
        let excess = self.held.len().saturating_sub(MOST);
        let mut held: Vec<_> = self.held.iter().map(|(place, (since, _))| (*since, place.1, *place)).collect();
        sorting::sort(&mut held);
        for (at, (since, _, place)) in held.into_iter().enumerate() {
            let is_over = last || at < excess || now.duration_since(since) >= HOLD;
            if is_over && let Some((_, replay)) = self.held.remove(&place) {
                put(&mut self.by_stamps, place, replay.gpu.duration_ns());
                taken.push(replay);
            }
        }
        forget_oldest(&mut self.by_stamps);
        forget_oldest(&mut self.by_kernels);
        self.held_since = self.held.values().map(|(since, _)| *since).min();
        taken
    }
}

fn place(replay: &ReplayRecord) -> (Place, i64) {
    let length_ns = replay.gpu.duration_ns();
    ((replay.graph, replay.gpu.begin_ns + length_ns / 2), length_ns)
}

/// Adds a replay. Two replays of a graph have the same midpoint only if a clock is off; then the later one moves by a nanosecond.
fn put<T>(places: &mut BTreeMap<Place, T>, (graph, mut at_ns): Place, value: T) {
    while places.contains_key(&(graph, at_ns)) {
        at_ns += 1;
    }
    places.insert((graph, at_ns), value);
}

/// Removes the entry of the graph with the nearest midpoint, if it can be the same replay.
fn take_nearest<T>(
    places: &mut BTreeMap<Place, T>,
    (graph, at_ns): Place,
    length_ns: i64,
    length_of: impl Fn(&T) -> i64,
) -> Option<T> {
    let before = places.range((graph, i64::MIN)..=(graph, at_ns)).next_back();
    let behind = places.range((graph, at_ns)..=(graph, i64::MAX)).next();
    let apart_ns = |(_, of): &Place| (of - at_ns).abs();
    let (place, value) = before.into_iter().chain(behind).min_by_key(|(place, _)| apart_ns(place))?;
    let limit_ns = APART_NS.max(length_ns.min(length_of(value)) / 2);
    let place = *place;
    if apart_ns(&place) > limit_ns { None } else { places.remove(&place) }
}

/// Keeps the latest entries.
fn forget_oldest(places: &mut BTreeMap<Place, i64>) {
    if places.len() > MOST {
        let mut order: Vec<Place> = places.keys().copied().collect();
        sorting::sort_by_key(&mut order, |(_, at_ns)| *at_ns);
        for place in &order[..order.len() - MOST / 2] {
            places.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use warpline_core::record::Span;
    use warpline_core::replay::ReplayTiming;
    use warpline_report::fixture::{span, stream};

    fn replay(graph: u32, gpu: Span, timed_by: ReplayTiming) -> ReplayRecord {
        ReplayRecord {
            graph,
            name: None,
            exec: 0,
            correlation: 0,
            stream: Arc::clone(&stream(1, "graphs")),
            gpu,
            kernels: 0,
            unplaced: 0,
            zone: None,
            launch: None,
            timed_by,
            zones: Vec::new(),
        }
    }

    fn by_kernels(at: i64) -> Vec<ReplayRecord> {
        vec![replay(1, span(at + 1_000, at + 9_000), ReplayTiming::Kernels)]
    }

    fn by_stamps(at: i64) -> Vec<ReplayRecord> {
        vec![replay(1, span(at, at + 10_000), ReplayTiming::Stamps)]
    }

    fn once() -> ReplaysOnce {
        let mut once = ReplaysOnce::default();
        once.expect_kernels(true);
        once
    }

    #[test]
    fn each_replay_is_given_out_once_whichever_record_comes_first() {
        let mut once = once();
        let mut given = 0;
        for n in 0..100 {
            let at = n * 12_000;
            if n % 2 == 0 {
                given += once.add_by_kernels(by_kernels(at)).len();
                once.add_by_stamps(by_stamps(at));
            } else {
                once.add_by_stamps(by_stamps(at));
                given += once.add_by_kernels(by_kernels(at)).len();
            }
        }
        assert_eq!((given, once.merged, once.take(true).len()), (100, 100, 0));
    }

    #[test]
    fn a_replay_with_one_record_alone_is_given_out_with_that_one() {
        let mut once = once();
        once.add_by_stamps(by_stamps(0));
        once.add_by_stamps(by_stamps(10_000_000));
        assert!(once.take(false).is_empty() && once.held_since.is_some(), "they are held");
        assert_eq!(once.add_by_kernels(by_kernels(10_000_000)).len(), 1);
        assert_eq!(
            once.add_by_kernels(vec![replay(2, span(0, 10_000), ReplayTiming::Kernels)]).len(),
            1,
            "another graph"
        );
        let left = once.take(true);
        assert_eq!((left.len(), left[0].timed_by, left[0].gpu), (1, ReplayTiming::Stamps, span(0, 10_000)));
        // CUPTI's record comes late.
        assert_eq!((once.add_by_kernels(by_kernels(0)).len(), once.merged), (0, 2));
    }

    #[test]
    fn without_kernels_nothing_is_held_and_the_order_stays() {
        let mut once = ReplaysOnce::default();
        let graphs = [2, 1, 3, 1];
        once.add_by_stamps(graphs.map(|graph| replay(graph, span(0, 10), ReplayTiming::Stamps)).into());
        assert_eq!(once.take(false).iter().map(|replay| replay.graph).collect::<Vec<_>>(), graphs);
        assert!(once.held_since.is_none());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut once = once();
        for n in 0..3 * MOST as i64 {
            once.add_by_kernels(by_kernels(n * 1_000_000));
            once.add_by_stamps(vec![replay(2, span(n * 1_000_000, n * 1_000_000 + 5), ReplayTiming::Stamps)]);
        }
        assert_eq!(once.take(false).len(), 2 * MOST, "the oldest are given out");
        assert!(once.held.len() <= MOST && once.by_stamps.len() <= MOST && once.by_kernels.len() <= MOST);
    }
}
