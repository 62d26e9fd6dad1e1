//! The timelines in a session's report: the time of each stream, the names of semaphores, and the critical path.
//!
//! The collector adds its records, and the report reads the figures. The memory is bounded.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

#[cfg(feature = "cupti")]
use warpline_core::kernel::KernelRecord;
use warpline_core::record::{DeviceInfo, DeviceKind, Span, StreamInfo, ZoneRecord};
use warpline_core::wait::WaitRecord;
use warpline_report::Report;
use warpline_report::figures::{SemaphoreStats, StreamStats, WaitedFor, tell_devices_apart};
use warpline_report::path::PathLog;
use warpline_report::stream_time::{StreamSums, StreamTime};

/// The number of latest zones in which the critical path is found.
const ZONES: usize = 1 << 15;

/// The maximum number of streams reported separately. Of more, those that have been idle longest are reported together.
const STREAMS: usize = 1024;

/// The maximum number of semaphores reported by name, and of signallers that each stream waited for.
const NAMES: usize = 256;

pub(crate) struct Timelines {
    streams: BTreeMap<u32, Usage>,
    folded: Folded,
    semaphores: HashMap<Arc<str>, WaitSum>,
    path: PathLog,
    window: Option<Span>,
    /// The devices whose kernels are recorded.
    with_kernels: BTreeSet<(DeviceKind, u32)>,
}

/// The use of one stream's time.
struct Usage {
    name: String,
    device: DeviceInfo,
    time: StreamTime,
    waited_for: HashMap<String, WaitSum>,
}

/// Waits that are counted together: their number, their time, and by how much that may be shorter.
#[derive(Clone, Copy, Default)]
struct WaitSum {
    count: u64,
    ns: i64,
    early_ns: i64,
}

/// The sums of the streams that are reported together.
#[derive(Default)]
struct Folded {
    /// A bit for each stream that was ever added here, by its number: a stream that comes back is not counted again.
    ids: Vec<u64>,
    streams: u64,
    sums: StreamSums,
    waited_for: HashMap<String, WaitSum>,
}

impl Default for Timelines {
    fn default() -> Timelines {
        Timelines {
            streams: BTreeMap::new(),
            folded: Folded::default(),
            semaphores: HashMap::new(),
            path: PathLog::new(ZONES),
            window: None,
            with_kernels: BTreeSet::new(),
        }
    }
}

impl Timelines {
    pub(super) fn add_zones(&mut self, batch: &[ZoneRecord]) {
        batch.iter().for_each(|zone| self.path.zone(zone));
        for zones in batch.chunk_by(is_same_stream) {
            let Some(stream) = zones.first().and_then(|zone| zone.stream.as_ref()) else { continue };
            let spans = || zones.iter().filter_map(|zone| Some((zone.gpu?, zone.end_early_by_ns)));
            let all = spans().map(|(span, _)| span).reduce(|all, span| Span {
                begin_ns: all.begin_ns.min(span.begin_ns),
                end_ns: all.end_ns.max(span.end_ns),
            });
            if let Some(all) = all {
                let usage = self.stream(stream, all);
                spans().for_each(|(span, early_by_ns)| usage.time.add_zone(span, early_by_ns));
            }
        }
    }

    /// Adds kernels, copies and memory sets: the work of their streams.
    #[cfg(feature = "cupti")]
    pub(super) fn add_kernels(&mut self, batch: &[KernelRecord]) {
        for record in batch {
            self.stream(&record.stream, record.gpu).time.add_work(record.gpu);
            self.with_kernels.insert((record.stream.device.kind, record.stream.device.ordinal));
        }
    }

    pub(super) fn add_waits(&mut self, batch: &[WaitRecord]) {
        for wait in batch {
            self.path.wait(wait);
            let one = WaitSum { count: 1, ns: wait.duration_ns(), early_ns: early_ns(wait) };
            let is_known = self.semaphores.contains_key(&wait.semaphore) || self.semaphores.len() < NAMES;
            let name = if is_known { Arc::clone(&wait.semaphore) } else { "…".into() };
            self.semaphores.entry(name).or_default().add(one);
            if let (Some(stream), Some(gpu)) = (&wait.stream, wait.gpu) {
                let by = wait.signal.as_ref().map_or_else(String::new, |signal| signal.by());
                let usage = self.stream(stream, gpu);
                usage.time.add_wait(gpu, wait.end_early_by_ns);
                count_for(&mut usage.waited_for, by, one);
            }
        }
    }

    fn stream(&mut self, stream: &Arc<StreamInfo>, span: Span) -> &mut Usage {
        let window = self.window.get_or_insert(span);
        window.begin_ns = window.begin_ns.min(span.begin_ns);
        window.end_ns = window.end_ns.max(span.end_ns);
        if self.streams.len() >= STREAMS && !self.streams.contains_key(&stream.id) {
            self.fold();
        }
        self.streams.entry(stream.id).or_insert_with(|| Usage {
            name: stream.name.clone(),
            device: stream.device.clone(),
            time: StreamTime::default(),
            waited_for: HashMap::new(),
        })
    }

    /// Folds the half of the streams that has been idle longest.
    fn fold(&mut self) {
        let mut ids: Vec<_> = self.streams.iter().map(|(id, usage)| (usage.time.until_ns(), *id)).collect();
        ids.sort_unstable();
        for (_, id) in ids.into_iter().take(STREAMS / 2) {
            let Some(usage) = self.streams.remove(&id) else { continue };
            let has_kernels = self.with_kernels.contains(&(usage.device.kind, usage.device.ordinal));
            self.folded.add(id, usage, has_kernels);
        }
    }

    /// Adds the timelines to the report.
    pub(super) fn add_to(&self, report: &mut Report) {
        let all_ns = self.window.map_or(0, |window| window.duration_ns());
        let (zones, kernels) = (report.is_complete(), report.kernels.lost() == 0);
        let stats = |usage: &Usage| {
            let has_kernels = self.with_kernels.contains(&(usage.device.kind, usage.device.ordinal));
            usage.stats(all_ns, has_kernels, if has_kernels { kernels } else { zones })
        };
        let folded = (self.folded.streams > 0).then(|| self.folded.stats());
        let mut streams: Vec<_> = self.streams.values().map(|usage| (usage.device.ordinal, stats(usage))).collect();
        tell_devices_apart(&mut streams);
        report.streams = streams.into_iter().map(|(_, stats)| stats).chain(folded).collect();
        report.semaphores = self
            .semaphores
            .iter()
            .map(|(name, sum)| SemaphoreStats {
                name: name.to_string(),
                waits: sum.count,
                waited_ns: sum.ns,
                waited_early_ns: sum.early_ns,
            })
            .collect();
        report.semaphores.sort_by(|a, b| (b.waited_ns, &a.name).cmp(&(a.waited_ns, &b.name)));
        report.critical_path = self.path.path(None);
    }
}

/// Returns whether two records are of one stream, which is nearly always true within a batch.
pub(super) fn is_same_stream(one: &ZoneRecord, other: &ZoneRecord) -> bool {
    one.stream.as_ref().map(|stream| stream.id) == other.stream.as_ref().map(|stream| stream.id)
}

impl WaitSum {
    fn add(&mut self, more: WaitSum) {
        self.count += more.count;
        self.ns += more.ns;
        self.early_ns += more.early_ns;
    }
}

/// Returns the time by which a wait may be shorter; never more than it is.
fn early_ns(wait: &WaitRecord) -> i64 {
    wait.early_by_ns().clamp(0, wait.duration_ns().max(0))
}

/// Counts waits for a signaller; only a limited number of them is kept by name.
fn count_for(waited_for: &mut HashMap<String, WaitSum>, by: String, waits: WaitSum) {
    let is_known = waited_for.len() < NAMES || waited_for.contains_key(&by);
    waited_for.entry(if is_known { by } else { "…".to_owned() }).or_default().add(waits);
}

/// Returns the signallers that were waited for, the longest waits first.
fn longest_first(waited_for: &HashMap<String, WaitSum>) -> Vec<WaitedFor> {
    let whom = |(by, sum): (&String, &WaitSum)| {
        let WaitSum { count, ns, early_ns } = *sum;
        WaitedFor { by: by.clone(), count, ns, early_ns }
    };
    let mut waited_for: Vec<_> = waited_for.iter().map(whom).collect();
    waited_for.sort_by(|a, b| (Reverse(a.ns), &a.by).cmp(&(Reverse(b.ns), &b.by)));
    waited_for
}

impl Folded {
    fn add(&mut self, id: u32, usage: Usage, has_kernels: bool) {
        let (word, bit) = (id as usize / 64, 1 << (id % 64));
        if self.ids.len() <= word {
            self.ids.resize(word + 1, 0);
        }
        self.streams += u64::from(self.ids[word] & bit == 0);
        self.ids[word] |= bit;
        let (all, more) = (&mut self.sums, usage.time.sums(has_kernels));
        all.busy_ns += more.busy_ns;
        all.busy_early_ns += more.busy_early_ns;
        all.waiting_ns += more.waiting_ns;
        all.waiting_early_ns += more.waiting_early_ns;
        for (by, waits) in usage.waited_for {
            count_for(&mut self.waited_for, by, waits);
        }
    }

    /// Returns the sums. Streams may have come back since, so their idle time is not known.
    fn stats(&self) -> StreamStats {
        StreamStats {
            name: "…".to_owned(),
            device: String::new(),
            streams: self.streams,
            busy_ns: self.sums.busy_ns,
            uncertain_ns: self.sums.busy_early_ns,
            waiting_ns: self.sums.waiting_ns,
            waiting_early_ns: self.sums.waiting_early_ns,
            idle_ns: None,
            not_recorded_ns: 0,
            waited_for: longest_first(&self.waited_for),
        }
    }
}

impl Usage {
    /// Returns the figures. `is_complete`: all kernels were recorded, or, on a device without kernels, all zones.
    fn stats(&self, all_ns: i64, has_kernels: bool, is_complete: bool) -> StreamStats {
        let StreamSums { used_ns, busy_ns, busy_early_ns, waiting_ns, waiting_early_ns } = self.time.sums(has_kernels);
        let rest_ns = (all_ns - used_ns).max(0);
        StreamStats {
            name: self.name.clone(),
            device: self.device.name.clone(),
            streams: 1,
            busy_ns,
            uncertain_ns: busy_early_ns,
            waiting_ns,
            waiting_early_ns,
            idle_ns: is_complete.then_some(rest_ns),
            not_recorded_ns: if is_complete { 0 } else { rest_ns },
            waited_for: longest_first(&self.waited_for),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_core::record::EndSource;
    use warpline_report::fixture::{STEP, span, stream, thread, waits, zone};

    #[test]
    fn streams_that_are_gone_are_counted_together_and_those_in_use_stay_by_themselves() {
        let (mut timelines, main) = (Timelines::default(), thread(1, None));
        let mut zones = 0;
        let mut pass = |timelines: &mut Timelines, id: u32| {
            let (stream, at) = (stream(id, &format!("stream {id}")), 100 * zones);
            timelines.add_zones(&[zone(&STEP, Some(&stream), &main, span(0, 1), Some(span(at, at + 10)))]);
            zones += 1;
        };
        for id in 2..10_002 {
            pass(&mut timelines, id);
            // One stream that is always in use, and one that comes back.
            pass(&mut timelines, 1);
        }
        pass(&mut timelines, 2);
        let mut report = Report::default();
        timelines.add_to(&mut report);
        let [main, rest @ .., folded] = &report.streams[..] else { panic!("{} streams", report.streams.len()) };
        assert_eq!((main.name.as_str(), main.busy_ns), ("stream 1", 10 * 10_000));
        assert!(report.streams.len() <= STREAMS + 1 && rest.iter().all(|stream| stream.streams == 1));
        assert!(
            rest.iter().any(|stream| stream.name == "stream 2")
                && rest.iter().any(|stream| stream.name == "stream 10001")
        );
        // The stream that came back is in both.
        assert_eq!((folded.name.as_str(), folded.streams), ("…", 10_001 - rest.len() as u64));
        assert_eq!(report.streams.iter().map(|stream| stream.busy_ns).sum::<i64>(), 10 * zones);
    }

    #[test]
    fn time_in_which_a_zone_may_have_ended_makes_busy_and_idle_bounds() {
        let (mut timelines, main, compute) = (Timelines::default(), thread(1, None), stream(1, "compute"));
        let lazy = |begin, end, early_by_ns| {
            let mut zone = zone(&STEP, Some(&compute), &main, span(0, 1), Some(span(begin, end)));
            (zone.end, zone.end_early_by_ns) = (EndSource::Observed, early_by_ns);
            zone
        };
        // One is known within 5 %; the tails of the two others overlap.
        timelines.add_zones(&[lazy(0, 1_000, 50), lazy(1_100, 2_000, 500), lazy(1_000, 2_000, 600)]);
        timelines.add_zones(&[lazy(3_000, 4_000, 0)]);
        let mut report = Report::default();
        timelines.add_to(&mut report);
        let [stream] = &report.streams[..] else { panic!("one stream") };
        assert_eq!((stream.busy_ns, stream.uncertain_ns, stream.idle_ns), (3_000, 600, Some(1_000)));
        assert!(stream.busy_is_bound() && stream.rest_is_bound());
        assert!(report.critical_path.is_some_and(|path| path.parts.iter().any(|part| part.name == "(end not timed)")));
    }

    #[test]
    fn time_in_which_a_wait_may_have_ended_makes_waiting_and_idle_bounds() {
        let (mut timelines, main, compute) = (Timelines::default(), thread(1, None), stream(1, "compute"));
        let wait = waits().into_iter().find(|wait| wait.gpu.is_some()).expect("a wait of a stream");
        let lazy = |semaphore: &str, begin, end, end_early_by_ns| WaitRecord {
            semaphore: semaphore.into(),
            stream: Some(Arc::clone(&compute)),
            gpu: Some(span(begin, end)),
            end: EndSource::Boundary,
            end_early_by_ns,
            ..wait.clone()
        };
        timelines.add_zones(&[zone(&STEP, Some(&compute), &main, span(0, 1), Some(span(0, 1_000)))]);
        // The second one may have ended before it began, as far as its bound says.
        timelines.add_waits(&[lazy("known", 1_000, 2_000, 50), lazy("bound", 2_000, 3_000, 4_000)]);
        timelines.add_zones(&[zone(&STEP, Some(&compute), &main, span(0, 1), Some(span(3_500, 4_000)))]);
        let mut report = Report::default();
        timelines.add_to(&mut report);
        let [stream] = &report.streams[..] else { panic!("one stream") };
        let times = (stream.busy_ns, stream.uncertain_ns, stream.waiting_ns, stream.waiting_early_ns, stream.idle_ns);
        assert_eq!(times, (1_500, 0, 2_000, 1_000, Some(500)));
        assert!(!stream.busy_is_bound() && stream.waiting_is_bound() && stream.rest_is_bound());
        let waited: Vec<_> = stream.waited_for.iter().map(|on| (on.count, on.ns, on.early_ns, on.is_bound())).collect();
        assert_eq!(waited, [(2, 2_000, 1_050, true)]);
        let semaphores = report.semaphores.iter().map(|stats| (&*stats.name, stats.waited_ns, stats.is_bound()));
        assert_eq!(semaphores.collect::<Vec<_>>(), [("bound", 1_000, true), ("known", 1_000, false)]);
    }
}
