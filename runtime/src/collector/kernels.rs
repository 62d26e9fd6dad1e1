//! Takes what CUPTI says of kernels, and hands it to the sinks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{BATCH, Collector, Stream};
use crate::cupti::{Kernels, Names, Replays};
use crate::kernel::KernelRecord;
use crate::lock::lock;
use crate::record::{DeviceInfo, DeviceKind, StreamInfo, ThreadInfo};
use crate::sink::Batch;
use crate::stream::recorder::Recorder;

/// What the collector has of CUPTI.
pub(super) struct Side {
    kernels: Kernels,
    replays: Replays,
    /// Devices on which no zone has begun.
    devices: HashMap<u32, DeviceInfo>,
}

impl Collector {
    /// Takes what CUPTI records; where it has not started, the report says why, and zones are recorded all the same.
    pub(crate) fn take_kernels_from(&mut self, started: Result<Kernels, String>) {
        match started {
            Ok(kernels) => self.kernels = Some(Side { kernels, replays: Replays::default(), devices: HashMap::new() }),
            Err(why) => lock(&self.tally.notes).push(format!("no kernels are recorded: {why}")),
        }
    }

    /// Says how many kernels and copies were handed on.
    pub(super) fn pass_kernels(&mut self) -> usize {
        // A stopped session asks nothing of CUPTI, once what was open is read.
        let is_on = !self.recorder.is_stopped.load(Ordering::Acquire)
            || self.streams.iter().any(|stream| !stream.pending.is_empty());
        self.take_kernels(false, |kernels, names| kernels.collect(is_on, names))
    }

    /// Stops CUPTI and hands on what is left.
    pub(super) fn end_kernels(&mut self) {
        self.take_kernels(true, |kernels, names| kernels.finish(names));
        if let Some(side) = self.kernels.take() {
            lock(&self.tally.notes).extend(side.kernels.notes().into_iter().chain(side.replays.note()));
        }
    }

    fn take_kernels(
        &mut self,
        last: bool,
        take: impl FnOnce(&mut Kernels, &mut dyn Names) -> Vec<KernelRecord>,
    ) -> usize {
        let Some(mut side) = self.kernels.take() else { return 0 };
        let mut known = Known {
            recorder: &self.recorder,
            streams: &self.streams,
            devices: &mut side.devices,
            begun: HashMap::new(),
        };
        let records = take(&mut side.kernels, &mut known);
        for batch in records.chunks(BATCH) {
            self.hand_out(Batch::Kernels(batch));
        }
        side.replays.add(&records);
        for batch in side.replays.take(last).chunks(BATCH) {
            self.hand_out(Batch::Replays(batch));
        }
        *lock(&self.tally.kernels) = side.kernels.counts();
        self.kernels = Some(side);
        records.len()
    }

    /// Whether what CUPTI had at this time has been handed on, as far as that can be known.
    pub(super) fn has_kernels_of(&self, since: Instant) -> bool {
        let is_behind = |side: &Side| side.kernels.flushed().is_some_and(|flushed| flushed <= since);
        self.kernels.as_ref().is_none_or(|side| !is_behind(side) && !side.replays.are_open())
    }
}

/// What the session knows of streams and threads.
struct Known<'a> {
    recorder: &'a Recorder,
    streams: &'a [Stream],
    devices: &'a mut HashMap<u32, DeviceInfo>,
    /// Zones that have begun on each stream.
    begun: HashMap<u32, u64>,
}

impl Names for Known<'_> {
    fn stream(&mut self, device: u32, context: u32, stream: u32) -> Arc<StreamInfo> {
        self.recorder.stream_of_tool((context, stream), || {
            let of_zones = self.streams.iter().filter_map(|stream| stream.context.info.as_ref());
            let mut devices = of_zones.map(|info| &info.device);
            let known = devices.find(|known| known.kind == DeviceKind::Cuda && known.ordinal == device).cloned();
            known.unwrap_or_else(|| {
                let name = || crate::backend::cuda::device_name(device).unwrap_or_else(|| "CUDA device".to_owned());
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
