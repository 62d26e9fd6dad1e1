//! Takes what CUPTI records of kernels, and hands it to the sinks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::context::Context;
use super::stage::Stage;
use super::stream::Stream;
use super::{BATCH, SessionStats};
use warpline_core::kernel::KernelRecord;
use warpline_core::lock::lock;
use warpline_core::record::{DeviceInfo, DeviceKind, StreamInfo, ThreadInfo};
use warpline_core::sink::Batch;
use warpline_core::stream::recorder::Recorder;
use warpline_cuda::cupti::{Kernels, Names, Replays};

pub(crate) struct KernelStage {
    /// None once it is over.
    kernels: Option<Kernels>,
    replays: Replays,
    /// Devices on which no zone has begun.
    devices: HashMap<u32, DeviceInfo>,
}

impl KernelStage {
    /// Takes what CUPTI records. Where it has not started, the report says why, and zones are recorded without it.
    pub(crate) fn new(started: Result<Kernels, String>, tally: &SessionStats) -> Option<KernelStage> {
        let kernels =
            started.map_err(|why| lock(&tally.notes).push(format!("no kernels are recorded: {why}"))).ok().map(Some)?;
        Some(KernelStage { kernels, replays: Replays::default(), devices: HashMap::new() })
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
        let counts = kernels.counts();
        for batch in records.chunks(BATCH) {
            cx.hand_out(Batch::Kernels(batch));
        }
        self.replays.add(&records);
        for batch in self.replays.take(is_last).chunks(BATCH) {
            cx.hand_out(Batch::Replays(batch));
        }
        *lock(&cx.tally.kernels) = counts;
        records.len()
    }
}

impl Stage for KernelStage {
    fn polls(&self, _cx: &Context) -> bool {
        true
    }

    fn pass(&mut self, cx: &mut Context) -> usize {
        // A stopped session asks nothing of CUPTI, once what was open is read.
        let is_on = !cx.recorder.is_stopped.load(Ordering::Acquire) || cx.streams.are_waiting();
        self.take(cx, false, |kernels, names| kernels.collect(is_on, names))
    }

    /// Stops CUPTI and hands on what is left.
    fn finish(&mut self, cx: &mut Context) {
        self.take(cx, true, |kernels, names| kernels.finish(names));
        if let Some(kernels) = self.kernels.take() {
            lock(&cx.tally.notes).extend(kernels.notes().into_iter().chain(self.replays.note()));
        }
    }

    fn has_pending(&self, since: Instant) -> bool {
        let is_behind = |kernels: &Kernels| kernels.flushed().is_some_and(|flushed| flushed <= since);
        self.kernels.as_ref().is_some_and(|kernels| is_behind(kernels) || self.replays.are_open())
    }

    fn gives_kernels(&self) -> bool {
        self.kernels.is_some()
    }
}

/// What the session knows of streams and threads.
struct SessionNames<'a> {
    recorder: &'a Recorder,
    streams: &'a [Stream],
    devices: &'a mut HashMap<u32, DeviceInfo>,
    /// Zones that have begun on each stream.
    begun: HashMap<u32, u64>,
}

impl Names for SessionNames<'_> {
    fn stream(&mut self, device: u32, context: u32, stream: u32) -> Arc<StreamInfo> {
        self.recorder.stream_of_tool((context, stream), || {
            let of_zones = self.streams.iter().filter_map(|stream| stream.context.info.as_ref());
            let mut devices = of_zones.map(|info| &info.device);
            let known = devices.find(|known| known.kind == DeviceKind::Cuda && known.ordinal == device).cloned();
            known.unwrap_or_else(|| {
                let name = || warpline_cuda::cupti::device_name(device).unwrap_or_else(|| "CUDA device".to_owned());
                let fresh = || DeviceInfo { ordinal: device, name: name(), kind: DeviceKind::Cuda };
                self.devices.entry(device).or_insert_with(fresh).clone()
            })
        })
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
}
