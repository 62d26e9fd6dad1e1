//! The timing of zones by CUPTI's records: the work that was launched while a zone was open on its thread.
//!
//! `records` adds each launch and its work, and the collector requests a zone's span after its end ([`Times::work`]). Launches are in one
//! list for each thread, ordered by time, so a zone needs a binary search and a scan, and no hashing. Nothing here calls CUPTI.
//!
//! The middle of a launch's call decides on its zones: the call is within the zone, and the clocks differ by less than half of a call.

use std::collections::VecDeque;

use super::clock::Clock;
use warpline_core::record::Span;

/// The number of launches of one thread that are remembered. Zones that began earlier cannot be timed.
const LAUNCHES: usize = 1 << 18;

/// The number of records of a graph launch is unknown: its work is complete when none has come in this many flushes.
const QUIET_FLUSHES: u32 = 2;

/// A zone on a GPU stream that has ended.
pub struct TimedZone {
    /// The thread that began it.
    pub thread: u64,
    pub host: Span,
    /// CUPTI's numbers of the context and the stream of a zone that can end on another thread: the stream's work counts, whichever thread
    /// launched it. None for a zone that nests on its thread: all work counts that the thread launched.
    pub on_stream: Option<(u32, u32)>,
}

/// The work of a zone, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneWork {
    /// CUPTI has not delivered all of it.
    Pending,
    /// The zone launched nothing.
    Nothing,
    /// Records of it are missing.
    Lost,
    /// From the begin of the first work to the end of the last.
    Span(Span),
}

/// The position of a launch in the list of its thread.
#[derive(Clone, Copy)]
pub(super) struct Listed {
    thread: usize,
    /// Counted from the thread's first launch.
    at: u64,
}

/// Work of one launch, on CUPTI's clock.
#[derive(Clone, Copy, Default)]
pub(super) struct Work {
    /// The begin of the program's own work; 0 while there is none.
    pub(super) start: u64,
    pub(super) end: u64,
    /// CUPTI's numbers of context and stream.
    pub(super) stream: (u32, u32),
    /// Whether a record has come, even if only one of the session's own kernels.
    pub(super) has_come: bool,
}

impl Work {
    pub(super) fn add(&mut self, start: u64, end: u64) {
        self.start = if self.start == 0 { start } else { self.start.min(start) };
        self.end = self.end.max(end);
    }
}

struct Launched {
    /// The middle of the call, on the host's clock.
    called_ns: i64,
    correlation: u32,
    is_of_graph: bool,
    /// The number of flushes before its last record came.
    flush: u32,
    work: Work,
}

#[derive(Default)]
struct ThreadLaunches {
    thread: u32,
    launches: VecDeque<Launched>,
    /// The number of launches that were forgotten, and the time of the last of them.
    forgotten: u64,
    forgotten_ns: Option<i64>,
}

/// The launches of a session, by thread.
#[derive(Default)]
pub(super) struct Times {
    threads: Vec<ThreadLaunches>,
    /// The thread of the last launch.
    last: usize,
    /// Calls that were read and are not in a list yet: thread, correlation, times on CUPTI's clock, and whether it launched a graph.
    pub(super) calls: Vec<(u32, u32, (u64, u64), bool)>,
    /// Spans in which CUPTI did not record, on the host's clock; the last one may be open.
    gaps: Vec<Span>,
    flush: u32,
    /// Every call before this time has been read.
    delivered_ns: i64,
    /// Whether work has come.
    pub(super) has_work: bool,
}

impl Times {
    /// Counts a flush of CUPTI.
    pub(super) fn flushed(&mut self) {
        self.flush += 1;
    }

    /// Notes that all buffers that CUPTI was lent before this time have been read.
    pub(super) fn delivered(&mut self, ns: i64) {
        self.delivered_ns = self.delivered_ns.max(ns);
    }

    /// Begins a gap, in which CUPTI does not record.
    pub(super) fn pause(&mut self, now_ns: i64) {
        self.gaps.push(Span { begin_ns: now_ns, end_ns: i64::MAX });
    }

    /// Ends the gap.
    pub(super) fn resume(&mut self, now_ns: i64) {
        if let Some(gap) = self.gaps.last_mut().filter(|gap| gap.end_ns == i64::MAX) {
            gap.end_ns = now_ns;
        }
    }

    /// Adds a call to the list of its thread, with the work that came before it. Returns its position, and the launches that it moved by
    /// one, by correlation.
    pub(super) fn insert(
        &mut self,
        (thread, correlation, (start, end), is_of_graph): (u32, u32, (u64, u64), bool),
        work: Work,
        clock: &Clock,
    ) -> (Listed, Vec<(u32, Listed)>) {
        let called_ns = clock.called_ns(start, end);
        if self.threads.get(self.last).is_none_or(|known| known.thread != thread) {
            self.last = self.threads.iter().position(|known| known.thread == thread).unwrap_or(self.threads.len());
            if self.last == self.threads.len() {
                self.threads.push(ThreadLaunches { thread, ..ThreadLaunches::default() });
            }
        }
        let (index, flush) = (self.last, self.flush);
        let of_thread = &mut self.threads[index];
        if of_thread.launches.len() == LAUNCHES
            && let Some(oldest) = of_thread.launches.pop_front()
        {
            of_thread.forgotten += 1;
            of_thread.forgotten_ns = Some(oldest.called_ns);
        }
        // Buffers can come in a different order from the calls in them.
        let later = of_thread.launches.iter().rev().take_while(|known| known.called_ns > called_ns).count();
        let at = of_thread.launches.len() - later;
        of_thread.launches.insert(at, Launched { called_ns, correlation, is_of_graph, flush, work });
        let forgotten = of_thread.forgotten;
        let listed = |at: usize| Listed { thread: index, at: forgotten + at as u64 };
        let moved = of_thread.launches.iter().enumerate().skip(at + 1);
        (listed(at), moved.map(|(at, known)| (known.correlation, listed(at))).collect())
    }

    /// Sets the work of a launch when more of it has come.
    pub(super) fn update(&mut self, listed: Listed, work: Work) {
        let Some(of_thread) = self.threads.get_mut(listed.thread) else { return };
        let at = listed.at.checked_sub(of_thread.forgotten).and_then(|at| usize::try_from(at).ok());
        if let Some(launched) = at.and_then(|at| of_thread.launches.get_mut(at)) {
            launched.work = work;
            launched.flush = self.flush;
        }
    }

    /// Returns a zone's work. If `is_last`, nothing is pending.
    pub(super) fn work(&self, zone: &TimedZone, clock: &Clock, is_last: bool) -> ZoneWork {
        if self.gaps.iter().any(|gap| gap.begin_ns <= zone.host.end_ns && zone.host.begin_ns <= gap.end_ns) {
            return ZoneWork::Lost;
        }
        if !is_last && zone.host.end_ns >= self.delivered_ns {
            return ZoneWork::Pending;
        }
        let counts =
            |of_thread: &&ThreadLaunches| zone.on_stream.is_some() || u64::from(of_thread.thread) == zone.thread;
        let mut all = Work::default();
        for of_thread in self.threads.iter().filter(counts) {
            if of_thread.forgotten_ns.is_some_and(|forgotten_ns| forgotten_ns >= zone.host.begin_ns) {
                return ZoneWork::Lost;
            }
            let launches = &of_thread.launches;
            let first = launches.partition_point(|launched| launched.called_ns < zone.host.begin_ns);
            for launched in launches.range(first..) {
                if launched.called_ns > zone.host.end_ns {
                    break;
                }
                let Launched { work, is_of_graph, flush, .. } = launched;
                let may_grow = *is_of_graph && self.flush < flush + QUIET_FLUSHES;
                if !is_last && (!work.has_come || may_grow) {
                    return ZoneWork::Pending;
                }
                // A graph can be empty.
                if !work.has_come && !is_of_graph {
                    return ZoneWork::Lost;
                }
                if work.start > 0 && zone.on_stream.is_none_or(|stream| stream == work.stream) {
                    all.add(work.start, work.end);
                }
            }
        }
        if all.start == 0 {
            // CUPTI delivers work but no calls, so the zone of the work is unknown.
            return if self.has_work && self.threads.is_empty() { ZoneWork::Lost } else { ZoneWork::Nothing };
        }
        ZoneWork::Span(clock.span(all.start, all.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_core::clock::Comparison;

    /// Returns a clock on which CUPTI's time is the host's.
    fn clock() -> Clock {
        Clock::new(Comparison { device_ns: 0, host_ns: 0, uncertainty_ns: 0 })
    }

    fn work(start: u64, end: u64, stream: u32) -> Work {
        Work { start, end, stream: (1, stream), has_come: true }
    }

    fn zone(begin_ns: i64, end_ns: i64) -> TimedZone {
        TimedZone { thread: 7, host: Span { begin_ns, end_ns }, on_stream: None }
    }

    /// Adds a launch by a thread at a time, with its work.
    fn launch(times: &mut Times, thread: u32, at: u64, work: Work) -> Listed {
        times.insert((thread, at as u32, (at - 10, at + 10), false), work, &clock()).0
    }

    fn span(begin_ns: i64, end_ns: i64) -> ZoneWork {
        ZoneWork::Span(Span { begin_ns, end_ns })
    }

    #[test]
    fn a_zone_has_the_work_that_its_thread_launched_in_it() {
        let mut times = Times::default();
        for (thread, at) in [(7, 100), (7, 200), (8, 250), (7, 300), (7, 400)] {
            launch(&mut times, thread, at, work(at * 10, at * 10 + 5, 1));
        }
        times.delivered(1_000);
        let of = |begin, end| times.work(&zone(begin, end), &clock(), false);
        assert_eq!(of(150, 350), span(2_000, 3_005));
        assert_eq!((of(210, 290), of(210, 300)), (ZoneWork::Nothing, span(3_000, 3_005)));
        assert_eq!(of(0, 999), span(1_000, 4_005));
        assert_eq!(of(0, 1_000), ZoneWork::Pending, "more can come of it");
    }

    #[test]
    fn launches_are_in_order_whatever_the_order_of_the_buffers() {
        let mut times = Times::default();
        let late = launch(&mut times, 7, 300, work(0, 0, 0));
        let (_, moved) = times.insert((7, 1, (90, 110), false), work(1_000, 1_001, 1), &clock());
        assert_eq!(moved.iter().map(|(correlation, _)| *correlation).collect::<Vec<_>>(), [300]);
        assert_ne!(moved[0].1.at, late.at);
        times.update(moved[0].1, work(3_000, 3_001, 1));
        times.delivered(1_000);
        let of = |begin, end| times.work(&zone(begin, end), &clock(), false);
        assert_eq!((of(50, 150), of(250, 350)), (span(1_000, 1_001), span(3_000, 3_001)));
    }

    #[test]
    fn a_zone_waits_for_its_work_and_only_a_session_that_is_over_gives_it_up() {
        let mut times = Times::default();
        let listed = launch(&mut times, 7, 100, Work::default());
        times.delivered(1_000);
        let of = |times: &Times, is_last| times.work(&zone(50, 150), &clock(), is_last);
        assert_eq!((of(&times, false), of(&times, true)), (ZoneWork::Pending, ZoneWork::Lost));
        times.update(listed, work(500, 600, 1));
        assert_eq!(of(&times, false), span(500, 600));
        times.pause(140);
        times.resume(900);
        assert_eq!(of(&times, false), ZoneWork::Lost, "CUPTI did not record all of it");
    }

    #[test]
    fn zones_that_began_before_the_oldest_launch_that_is_known_have_no_length() {
        let mut times = Times::default();
        for at in 0..=LAUNCHES as u64 {
            launch(&mut times, 7, 100 + at, work(at + 1, at + 2, 1));
        }
        times.delivered(i64::MAX);
        assert_eq!(times.work(&zone(100, 200), &clock(), false), ZoneWork::Lost);
        assert_eq!(times.work(&zone(101, 101), &clock(), false), span(2, 3));
    }

    #[test]
    fn work_without_any_call_leaves_no_zone_without_work() {
        let mut times = Times::default();
        times.delivered(1_000);
        assert_eq!(times.work(&zone(50, 150), &clock(), false), ZoneWork::Nothing);
        times.has_work = true;
        assert_eq!(times.work(&zone(50, 150), &clock(), false), ZoneWork::Lost);
        launch(&mut times, 7, 300, work(1_000, 1_100, 1));
        assert_eq!(times.work(&zone(50, 150), &clock(), false), ZoneWork::Nothing);
    }

    #[test]
    fn work_on_a_stream_counts_from_every_thread() {
        let mut times = Times::default();
        launch(&mut times, 7, 100, work(1_000, 1_100, 1));
        launch(&mut times, 8, 200, work(2_000, 2_100, 1));
        launch(&mut times, 8, 210, work(9_000, 9_100, 2));
        times.delivered(1_000);
        let zone = TimedZone { on_stream: Some((1, 1)), ..zone(50, 300) };
        assert_eq!(times.work(&zone, &clock(), false), span(1_000, 2_100));
    }

    #[test]
    fn a_graph_is_complete_when_no_more_of_it_comes() {
        let mut times = Times::default();
        let call = (7, 1, (90, 110), true);
        let (listed, _) = times.insert(call, work(1_000, 1_100, 1), &clock());
        times.delivered(1_000);
        times.flushed();
        assert_eq!(times.work(&zone(50, 150), &clock(), false), ZoneWork::Pending);
        times.update(listed, work(1_000, 1_900, 1));
        (0..QUIET_FLUSHES).for_each(|_| times.flushed());
        assert_eq!(times.work(&zone(50, 150), &clock(), false), span(1_000, 1_900));
    }
}
