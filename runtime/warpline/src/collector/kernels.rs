//! Takes CUPTI's records of kernels, hands them to the sinks, and times zones by them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::context::Context;
use super::held::HeldZone;
use super::stage::{GivesKernels, Stage};
use super::stream::Stream;
use super::{BATCH, SessionStats};
use crate::settings::Config;
use warpline_core::clock::now_ns;
use warpline_core::kernel::KernelRecord;
use warpline_core::lock::lock;
use warpline_core::plural::counted_are;
use warpline_core::record::{DeviceInfo, DeviceKind, EndSource, Span, StreamInfo, ThreadInfo};
use warpline_core::stream::recorder::Recorder;
use warpline_core::timing::Timing;
use warpline_cuda::cupti::{Kernels, Names, Replays, TimedZone, Wanted, ZoneWork};
use warpline_report::sink::Batch;

/// The maximum number of zones that wait for their work. Beyond it, the oldest are delivered without a time. A thread that never rests
/// ends about ten thousand zones between two deliveries of CUPTI.
const MOST_WAITING: usize = 1 << 17;

pub(super) struct KernelStage {
    /// The source of kernels; none after its end.
    kernels: Option<Kernels>,
    /// Whether sinks receive kernels.
    gives: bool,
    /// The number of reads of CUPTI's buffers when zones were last timed.
    read: u64,
    /// The end of the oldest zone whose work was not known then.
    oldest_ns: Option<i64>,
    /// The number of zones given up because too many waited and CUPTI had not delivered their work.
    given_up: u64,
    replays: Replays,
    /// Devices on which no zone has begun.
    devices: HashMap<u32, DeviceInfo>,
}

impl KernelStage {
    /// Starts CUPTI if the settings need it. If it does not start, the report says why, and zones are recorded without it.
    pub(super) fn start(
        config: &Config,
        recorder: &Recorder,
        stats: &SessionStats,
    ) -> (Option<Box<dyn Stage>>, GivesKernels) {
        let times = config.timing == Timing::Kernels;
        let wanted = Wanted { records: config.kernels, times, syncs: config.synchronizations, submissions: false };
        if !wanted.records && !wanted.times && !wanted.syncs {
            return (None, None);
        }
        match Kernels::start(wanted) {
            Ok(kernels) => {
                if wanted.times {
                    recorder.time_by_kernels();
                }
                if wanted.records {
                    recorder.memory().follow_tool();
                }
                let (replays, devices) = (Replays::default(), HashMap::new());
                let stage = KernelStage {
                    kernels: Some(kernels),
                    gives: wanted.records,
                    read: 0,
                    oldest_ns: None,
                    given_up: 0,
                    replays,
                    devices,
                };
                (Some(Box::new(stage)), wanted.records.then_some(Ok(())))
            }
            Err(why) => {
                let mut notes = lock(&stats.notes);
                if wanted.times {
                    notes.push(format!("zones are timed by events instead of kernels: {why}"));
                }
                if wanted.records {
                    notes.push(format!("no kernels are recorded: {why}"));
                }
                if wanted.syncs {
                    notes.push(format!("no synchronisations are recorded: {why}"));
                }
                (None, wanted.records.then_some(Err(why)))
            }
        }
    }

    /// Times the zones whose work CUPTI has delivered.
    fn time_zones(&mut self, cx: &mut Context) {
        self.oldest_ns = None;
        let Some(kernels) = self.kernels.as_ref().filter(|_| !cx.held.waiting.is_empty()) else { return };
        let mut counts = lock(&cx.stats.kernel_timing);
        for mut held in std::mem::take(&mut cx.held.waiting) {
            let stream = || held.context.backend.as_ref().and_then(|backend| backend.tool_numbers());
            let on_stream = if held.zone.nests { None } else { stream() };
            let is_known = held.zone.nests || on_stream.is_some();
            let zone = TimedZone { thread: held.zone.record.thread.id, host: held.zone.record.host, on_stream };
            let (gpu, end) = match kernels.work(&zone) {
                ZoneWork::Pending => {
                    let end_ns = held.zone.record.host.end_ns;
                    self.oldest_ns = Some(self.oldest_ns.map_or(end_ns, |oldest_ns| oldest_ns.min(end_ns)));
                    cx.held.waiting.push(held);
                    continue;
                }
                _ if !is_known => (None, EndSource::Lost),
                ZoneWork::Nothing => (None, EndSource::NoWork),
                ZoneWork::Lost => (None, EndSource::Lost),
                ZoneWork::Span(span) => (Some(span), EndSource::Kernels),
            };
            counts.timed += u64::from(gpu.is_some());
            counts.without_work += u64::from(end == EndSource::NoWork);
            counts.lost += u64::from(end == EndSource::Lost);
            set_times(&mut held, gpu, end);
            cx.held.timed.push(held);
        }
        let excess = cx.held.waiting.len().saturating_sub(MOST_WAITING);
        counts.lost += excess as u64;
        self.given_up += excess as u64;
        for mut held in cx.held.waiting.drain(..excess) {
            set_times(&mut held, None, EndSource::Lost);
            cx.held.timed.push(held);
        }
    }

    fn take(
        &mut self,
        cx: &mut Context,
        is_last: bool,
        take: impl FnOnce(&mut Kernels, &mut dyn Names) -> Vec<KernelRecord>,
    ) -> usize {
        let Some(kernels) = &mut self.kernels else { return 0 };
        let mut names = SessionNames {
            recorder: &cx.recorder,
            streams: &cx.streams.all,
            devices: &mut self.devices,
            begun: HashMap::new(),
        };
        let records = take(kernels, &mut names);
        let (counts, read) = (kernels.counts(), kernels.read_count());
        let syncs = kernels.take_syncs();
        if self.gives && (read != self.read || is_last) {
            let (changes, until_ns) = kernels.take_memory(&mut names);
            cx.recorder.memory().add_of_tool(changes, until_ns);
            kernels
                .take_refused(&mut names)
                .into_iter()
                .for_each(|refused| cx.recorder.memory().refused_of_tool(refused));
        }
        *lock(&cx.stats.synchronizations) = kernels.sync_counts();
        for batch in syncs.chunks(BATCH) {
            cx.hand_out(Batch::Synchronizations(batch));
        }
        for batch in records.chunks(BATCH) {
            cx.hand_out(Batch::Kernels(batch));
        }
        self.replays.add(&records);
        for batch in cx.replays.add_by_kernels(self.replays.take(is_last)).chunks(BATCH) {
            cx.hand_out(Batch::Replays(batch));
        }
        *lock(&cx.stats.kernels) = counts;
        if read != self.read || is_last {
            self.read = read;
            self.time_zones(cx);
        }
        records.len() + syncs.len()
    }
}

impl Stage for KernelStage {
    fn polls(&self, _cx: &Context) -> bool {
        true
    }

    fn pass(&mut self, cx: &mut Context) -> usize {
        let is_stopped = cx.recorder.is_stopped.load(Ordering::Acquire);
        if is_stopped {
            // Zones that were open while CUPTI did not record are not waited for.
            self.time_zones(cx);
        }
        // A stopped session does not query CUPTI after the open zones are read.
        let is_on =
            !cx.recorder.is_stopped.load(Ordering::Acquire) || cx.streams.are_waiting() || !cx.held.waiting.is_empty();
        self.take(cx, false, |kernels, names| kernels.collect(is_on, names))
    }

    /// Collects the work that zones timed by CUPTI wait for, as zones timed by events wait for their events.
    fn drain(&mut self, cx: &mut Context) {
        if !cx.held.waiting.is_empty() {
            self.take(cx, false, |kernels, names| kernels.collect(true, names));
        }
    }

    /// Stops CUPTI and hands on the remaining records.
    fn finish(&mut self, cx: &mut Context) {
        self.take(cx, true, |kernels, names| kernels.finish(names));
        // The stage of memory has finished by then.
        super::memory::hand_out(cx);
        cx.has_kernels = false;
        if let Some(kernels) = self.kernels.take() {
            let given_up = (self.given_up > 0).then(|| {
                format!(
                    "{} without a GPU time, because CUPTI had not delivered their work when more than {MOST_WAITING} zones waited: a kernel that runs \
                     for long holds back the records of later ones",
                    counted_are(self.given_up, "zone")
                )
            });
            lock(&cx.stats.notes).extend(kernels.notes().into_iter().chain(self.replays.notes()).chain(given_up));
        }
    }

    fn has_pending(&self, since: Instant) -> bool {
        let is_behind = |kernels: &Kernels| kernels.flushed().is_some_and(|flushed| flushed <= since);
        let since_ns = now_ns() - since.elapsed().as_nanos() as i64;
        let is_waiting = self.oldest_ns.is_some_and(|oldest_ns| oldest_ns <= since_ns);
        self.kernels.as_ref().is_some_and(|kernels| is_behind(kernels) || self.replays.are_open() || is_waiting)
    }
}

/// Sets the times of a zone and of its entries.
fn set_times(held: &mut HeldZone, gpu: Option<Span>, end: EndSource) {
    for record in held.zone.entries.iter_mut().chain([&mut held.zone.record]) {
        (record.gpu, record.end, record.begin_late_by_ns) = (gpu, end, 0);
    }
}

/// The session's streams, threads and devices.
struct SessionNames<'a> {
    recorder: &'a Recorder,
    streams: &'a [Stream],
    devices: &'a mut HashMap<u32, DeviceInfo>,
    /// The number of zones that have begun on each stream.
    begun: HashMap<u32, u64>,
}

impl Names for SessionNames<'_> {
    fn stream(&mut self, device: u32, context: u32, stream: u32) -> Arc<StreamInfo> {
        let recorder = self.recorder;
        recorder.stream_of_tool((context, stream), || self.device(device))
    }

    fn known_stream(&self, context: u32, stream: u32) -> Option<Arc<StreamInfo>> {
        self.recorder.known_stream_of_tool((context, stream))
    }

    fn name_stream(&mut self, context: u32, stream: u32, name: String) {
        self.recorder.name_stream_of_tool((context, stream), name);
    }

    fn begun(&mut self, stream: u32) -> u64 {
        let (streams, recorder) = (self.streams, self.recorder);
        *self.begun.entry(stream).or_insert_with(|| match stream {
            0 => recorder.host().begun(),
            _ => {
                let is_it = |known: &&Stream| known.context.info.as_ref().is_some_and(|info| info.id == stream);
                streams.iter().filter(is_it).map(|stream| stream.context.begun()).max().unwrap_or(0)
            }
        })
    }

    fn thread(&mut self, id: u64) -> Arc<ThreadInfo> {
        self.recorder.thread(id)
    }

    fn no_stream(&mut self, device: u32) -> Arc<StreamInfo> {
        let device = self.device(device);
        Arc::new(StreamInfo { id: 0, name: String::new(), device })
    }
}

impl SessionNames<'_> {
    /// Returns the device with this ordinal, as zones on it have it.
    fn device(&mut self, ordinal: u32) -> DeviceInfo {
        let of_zones = self.streams.iter().filter_map(|stream| stream.context.info.as_ref());
        let mut devices = of_zones.map(|info| &info.device);
        let known = devices.find(|known| known.kind == DeviceKind::Cuda && known.ordinal == ordinal).cloned();
        known.unwrap_or_else(|| {
            let name = || warpline_cuda::cupti::device_name(ordinal).unwrap_or_else(|| "CUDA device".to_owned());
            let fresh = || DeviceInfo { ordinal, name: name(), kind: DeviceKind::Cuda };
            self.devices.entry(ordinal).or_insert_with(fresh).clone()
        })
    }
}
