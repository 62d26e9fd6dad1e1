//! The use of each stream's time in a recording. The memory is bounded.

use std::collections::{BTreeMap, BTreeSet};

use warpline_core::record::{DeviceKind, Span};

use super::Complete;
use super::counted::Counted;
use crate::figures::{StreamStats, WaitedFor, tell_devices_apart};
use crate::names::{Name, Names};
use crate::stream_time::{StreamSums, StreamTime};
use warpline_core::sorting;

/// The maximum number of streams reported separately. Of more, those that have been idle longest are reported together.
const STREAMS: usize = 1024;

/// The streams of a recording.
#[derive(Default)]
pub struct Streams {
    all: BTreeMap<u32, StreamUse>,
    folded: Folded,
    /// The time from the begin of the first work, zone or wait of any stream to the end of the last.
    window: Option<Span>,
    /// The devices whose kernels are recorded.
    with_kernels: BTreeSet<(DeviceKind, u32)>,
}

/// The use of one stream's time.
pub struct StreamUse {
    name: String,
    device: String,
    on: (DeviceKind, u32),
    time: StreamTime,
    /// By who signalled.
    waited_for: Counted<Name>,
}

/// The sums of the streams that are reported together.
#[derive(Default)]
struct Folded {
    /// A bit for each stream that was ever added here, by its number: a stream that comes back is not counted again.
    ids: Vec<u64>,
    streams: u64,
    sums: StreamSums,
    waited_for: Counted<Name>,
}

impl StreamUse {
    /// Returns a stream that has done nothing so far. `device` is the device's name, and `on` which device it is.
    pub fn new(name: &str, device: &str, on: (DeviceKind, u32)) -> StreamUse {
        let (name, device) = (name.to_owned(), device.to_owned());
        StreamUse { name, device, on, time: StreamTime::default(), waited_for: Counted::default() }
    }

    /// Returns the figures. `is_complete`: all kernels were recorded, or, on a device without kernels, all zones.
    fn stats(&self, all_ns: i64, has_kernels: bool, is_complete: bool, names: &Names) -> StreamStats {
        let StreamSums { used_ns, busy_ns, busy_early_ns, waiting_ns, waiting_early_ns } = self.time.sums(has_kernels);
        let rest_ns = (all_ns - used_ns).max(0);
        StreamStats {
            name: self.name.clone(),
            device: self.device.clone(),
            streams: 1,
            busy_ns,
            uncertain_ns: busy_early_ns,
            waiting_ns,
            waiting_early_ns,
            idle_ns: is_complete.then_some(rest_ns),
            not_recorded_ns: if is_complete { 0 } else { rest_ns },
            waited_for: longest_first(&self.waited_for, names),
        }
    }
}

impl Streams {
    /// Adds a zone, whose end may be earlier by `early_by_ns`, to the stream with this number.
    pub fn zone(&mut self, id: u32, span: Span, early_by_ns: i64, stream: impl FnOnce() -> StreamUse) {
        self.stream(id, span, stream).time.add_zone(span, early_by_ns);
    }

    /// Adds a kernel, a copy or a memory set: the work of its stream.
    pub fn work(&mut self, id: u32, span: Span, stream: impl FnOnce() -> StreamUse) {
        let stream = self.stream(id, span, stream);
        stream.time.add_work(span);
        let on = stream.on;
        self.with_kernels.insert(on);
    }

    /// Adds a wait, whose end may be earlier by `early_by_ns`, for a signal of `by`.
    pub fn wait(&mut self, id: u32, (span, early_by_ns): (Span, i64), by: Name, stream: impl FnOnce() -> StreamUse) {
        let stream = self.stream(id, span, stream);
        stream.time.add_wait(span, early_by_ns);
        stream.waited_for.add(by, span.duration_ns(), early_by_ns);
    }

    fn stream(&mut self, id: u32, span: Span, stream: impl FnOnce() -> StreamUse) -> &mut StreamUse {
        let window = self.window.get_or_insert(span);
        *window = window.around(span);
        if self.all.len() >= STREAMS && !self.all.contains_key(&id) {
            self.fold();
        }
        self.all.entry(id).or_insert_with(stream)
    }

    /// Folds the half of the streams that has been idle longest.
    fn fold(&mut self) {
        let mut ids: Vec<_> = self.all.iter().map(|(id, stream)| (stream.time.until_ns(), *id)).collect();
        sorting::sort(&mut ids);
        for (_, id) in ids.into_iter().take(STREAMS / 2) {
            let Some(stream) = self.all.remove(&id) else { continue };
            let has_kernels = self.with_kernels.contains(&stream.on);
            self.folded.add(id, stream, has_kernels);
        }
    }

    /// Returns the figures of each stream, by device and name.
    pub(super) fn stats(&self, complete: Complete, names: &Names) -> Vec<StreamStats> {
        let all_ns = self.window.map_or(0, |window| window.duration_ns());
        let stats = |stream: &StreamUse| {
            let has_kernels = self.with_kernels.contains(&stream.on);
            let is_complete = if has_kernels { complete.kernels } else { complete.zones };
            (stream.on.1, stream.stats(all_ns, has_kernels, is_complete, names))
        };
        let mut streams: Vec<_> = self.all.values().map(stats).collect();
        tell_devices_apart(&mut streams);
        sorting::sort_by(&mut streams, |(_, a), (_, b)| (&a.device, &a.name).cmp(&(&b.device, &b.name)));
        let folded = (self.folded.streams > 0).then(|| self.folded.stats(names));
        streams.into_iter().map(|(_, stats)| stats).chain(folded).collect()
    }
}

/// Returns the signallers that were waited for, the longest waits first.
fn longest_first(waited_for: &Counted<Name>, names: &Names) -> Vec<WaitedFor> {
    waited_for.rows(
        |by, sum| WaitedFor {
            by: names.text(by).to_string(),
            count: sum.count,
            ns: sum.total_ns,
            early_ns: sum.early_ns,
        },
        |row| row.by.clone(),
    )
}

impl Folded {
    fn add(&mut self, id: u32, stream: StreamUse, has_kernels: bool) {
        let (word, bit) = (id as usize / 64, 1 << (id % 64));
        if self.ids.len() <= word {
            self.ids.resize(word + 1, 0);
        }
        self.streams += u64::from(self.ids[word] & bit == 0);
        self.ids[word] |= bit;
        let (all, more) = (&mut self.sums, stream.time.sums(has_kernels));
        all.busy_ns += more.busy_ns;
        all.busy_early_ns += more.busy_early_ns;
        all.waiting_ns += more.waiting_ns;
        all.waiting_early_ns += more.waiting_early_ns;
        self.waited_for.merge(stream.waited_for);
    }

    /// Returns the sums. Streams may have come back since, so their idle time is not known.
    fn stats(&self, names: &Names) -> StreamStats {
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
            waited_for: longest_first(&self.waited_for, names),
        }
    }
}
