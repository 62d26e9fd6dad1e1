//! The records of a session: takes what CUPTI has delivered, waits for the calls of each record, and connects it with its stream, thread
//! and zone. Called by the collector ([`Kernels::collect`]).

use super::activity::{compare, dropped};
use super::records::Raw;
use super::submissions::Submissions;
use super::syncs::RawSync;
use super::{Kernels, Names, buffers, zone_of};
use warpline_core::kernel::{KernelLaunch, KernelRecord};
use warpline_core::synchronization::SyncRecord;

impl Kernels {
    /// Reads what CUPTI has delivered, and hands on the kernels and copies whose calls are known; with `last`, all of them.
    pub(super) fn read(&mut self, names: &mut dyn Names, last: bool) -> Vec<KernelRecord> {
        while let Some(full) = buffers::take() {
            self.records.read(self.cupti, &full);
            buffers::give_back(full);
        }
        if self.clock.is_torn()
            && let Ok(compared) = compare(self.cupti, 1)
        {
            self.clock.compare(compared);
        }
        for ((context, stream), name) in std::mem::take(&mut self.records.stream_names) {
            names.name_stream(context, stream, name);
        }
        if !last {
            self.counts.dropped += dropped(self.cupti);
        }
        self.reads += 1;
        self.records.allocations.age();
        self.records.list_calls(&self.clock);
        if let (Some(times), Some(ns)) = (&mut self.records.times, buffers::delivered_ns()) {
            times.delivered(ns);
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut raw = self.records.take(&mut waiting, last);
        self.waiting = waiting;
        let syncs = self.take_raw_syncs();
        let (records, clock, flush) = (&self.records, &self.clock, self.flushes);
        let read = Submissions { records, clock, flush, delivered_ns: buffers::delivered_ns() };
        read.offer(&raw, &syncs, last);
        if !self.wanted.records {
            raw.clear();
        }
        self.counts.untimed = self.records.untimed + self.records.unsound;
        self.counts.buffers_refused = buffers::refused();
        self.counts.recorded += raw.len() as u64;
        self.add_syncs(syncs, names);
        raw.into_iter().map(|raw| self.record(raw, names)).collect()
    }

    fn take_raw_syncs(&mut self) -> Vec<RawSync> {
        let mut syncs = std::mem::take(&mut self.records.syncs);
        let raw = syncs.take(|correlation| self.records.launch_of(correlation).waits());
        self.records.syncs = syncs;
        raw
    }

    fn add_syncs(&mut self, raw: Vec<RawSync>, names: &mut dyn Names) {
        if !self.wanted.syncs {
            return;
        }
        let read: Vec<_> = raw.into_iter().filter_map(|raw| self.sync(raw, names)).collect();
        self.sync_counts.untimed = self.records.syncs.untimed;
        self.sync_counts.recorded += read.len() as u64;
        self.syncs.extend(read);
        if !self.wanted.work() {
            self.sync_counts.dropped += std::mem::take(&mut self.counts.dropped);
        }
    }

    fn sync(&self, raw: RawSync, names: &mut dyn Names) -> Option<SyncRecord> {
        let RawSync { kind, start, end, correlation, context, stream, event } = raw;
        let launch = self.records.launch_of(correlation);
        let (thread, ..) = launch.call?;
        let known = |stream| match self.records.device_of(context) {
            Some(device) => Some(names.stream(device, context, stream)),
            None => names.known_stream(context, stream),
        };
        Some(SyncRecord {
            kind,
            stream: stream.and_then(known),
            thread: names.thread(u64::from(thread)),
            host: self.clock.span(start, end),
            cuda_stream: stream,
            context,
            event,
            correlation,
            zone: zone_of(&launch, names),
        })
    }

    fn record(&self, raw: Raw, names: &mut dyn Names) -> KernelRecord {
        let Raw { name, work, start, end, device, context, stream, correlation, graph } = raw;
        let launch = self.records.launch_of(correlation);
        let zone = zone_of(&launch, names);
        KernelRecord {
            name,
            work,
            stream: names.stream(device, context, stream),
            gpu: self.clock.span(start, end),
            correlation,
            context,
            cuda_stream: stream,
            graph,
            zone,
            launch: launch.call.map(|(thread, start, end)| KernelLaunch {
                thread: names.thread(u64::from(thread)),
                host: self.clock.span(start, end.max(start)),
            }),
        }
    }
}
