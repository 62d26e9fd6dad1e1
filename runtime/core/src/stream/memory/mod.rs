//! The device memory of a session: what is allocated now, who holds it, and the changes on their way to the collector.
//!
//! Queues and applications add to it, on any thread, under one lock, so that the sums of the records follow one order. Where a tool reports the
//! allocations of CUDA devices, they come from `tool` instead. Everything is bounded, and what does not fit is counted. The report reads the
//! figures.

mod holders;
mod tool;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::catalog::RangeSpec;
use crate::clock::now_ns;
use crate::counts::MemoryCounts;
use crate::lock::lock;
use crate::memory::MemoryStats;
use crate::memory::{MemoryChange, MemoryRecord, MemoryTiming};
use crate::record::{DeviceInfo, DeviceKind, StreamInfo, ThreadInfo};
use holders::{DeviceAccount, Holder};
use tool::{Told, Tool};
pub use tool::{ToolChange, ToolEvent};

/// The most records that wait for the collector, which takes them many times a second.
const MOST_WAITING: usize = 1 << 16;

/// The most allocations that are known at once.
const MOST_LIVE: usize = 1 << 16;

/// The most failed allocations that are kept until somebody takes them.
const MOST_REFUSED: usize = 16;

/// The memory of one session.
#[derive(Debug, Default)]
pub struct MemoryLog(Mutex<MemoryLogState>);

#[derive(Debug, Default)]
struct MemoryLogState {
    waiting: Vec<NotedChange>,
    /// The allocations by address, each with the holder that it counts for.
    live: HashMap<u64, (Allocation, Holder)>,
    devices: Vec<DeviceAccount>,
    counts: MemoryCounts,
    /// What a tool reports; none if no tool does.
    tool: Option<Tool>,
    /// Allocations that failed, until somebody takes them.
    refused: Vec<RefusedAllocation>,
    is_closed: bool,
}

/// An allocation that failed for lack of memory.
#[derive(Clone, Debug)]
pub struct RefusedAllocation {
    /// The call, as in `cuMemAlloc_v2`, or the queue.
    pub what: String,
    /// The size, in bytes, if it is known.
    pub bytes: Option<u64>,
    /// The id of the thread that asked for it.
    pub thread: u64,
    pub range: Option<&'static RangeSpec>,
    pub at_ns: i64,
}

/// An allocation, as its source reports it.
#[derive(Clone, Debug)]
pub struct Allocation {
    pub stream: Arc<StreamInfo>,
    /// The id of the thread that asked for it.
    pub thread: u64,
    pub queue: Option<Arc<str>>,
    pub range: Option<&'static RangeSpec>,
    pub name: Option<Arc<str>>,
    pub bytes: u64,
    pub address: u64,
}

/// A change that waits for the collector.
#[derive(Debug)]
pub struct NotedChange {
    change: MemoryChange,
    of: Allocation,
    at_ns: i64,
    timing: MemoryTiming,
    device_bytes: u64,
    owner_bytes: u64,
}

impl MemoryLog {
    /// Adds an allocation that was just made.
    pub fn allocated(&self, of: Allocation, timing: MemoryTiming) {
        let mut state = lock(&self.0);
        if state.is_closed {
            return;
        }
        let at_ns = now_ns();
        if of.stream.device.kind == DeviceKind::Cuda && state.tool.is_some() {
            return state.tell(at_ns, Told::Allocated(of, timing));
        }
        state.add(of, timing, at_ns);
    }

    /// Adds the free of an allocation. Returns the allocation; none if the session does not know it, or if a tool reports it.
    pub fn freed(&self, address: u64, thread: u64, timing: MemoryTiming) -> Option<Allocation> {
        let mut state = lock(&self.0);
        if state.is_closed {
            return None;
        }
        let at_ns = now_ns();
        let is_cuda = |(of, _): &(Allocation, Holder)| of.stream.device.kind == DeviceKind::Cuda;
        if state.tool.is_some() && state.live.get(&address).is_none_or(is_cuda) {
            state.tell(at_ns, Told::Freed { address, thread, timing });
            return None;
        }
        let freed = state.remove(address, thread, timing, at_ns);
        state.counts.unknown += u64::from(freed.is_none());
        freed
    }

    /// Notes an allocation that failed for lack of memory.
    pub fn refused(&self, refused: RefusedAllocation) {
        let mut state = lock(&self.0);
        if state.is_closed {
            return;
        }
        if let Some(tool) = &mut state.tool {
            tool.refused = Some((refused.thread, refused.at_ns));
        }
        state.refuse(refused);
    }

    /// Takes the allocations that failed since the last call, of which the first are kept.
    pub fn take_refused(&self) -> Vec<RefusedAllocation> {
        std::mem::take(&mut lock(&self.0).refused)
    }

    /// Counts an allocation that cannot be added, because its device is not known.
    pub fn untracked(&self) {
        let mut state = lock(&self.0);
        if !state.is_closed {
            state.counts.untracked += 1;
        }
    }

    /// Takes the changes that were added since the last call.
    pub fn take(&self) -> Vec<NotedChange> {
        std::mem::take(&mut lock(&self.0).waiting)
    }

    /// Counts records that were delivered to the sinks.
    pub fn add_recorded(&self, count: usize) {
        lock(&self.0).counts.recorded += count as u64;
    }

    pub(crate) fn close(&self) {
        lock(&self.0).is_closed = true;
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> MemoryCounts {
        lock(&self.0).counts
    }

    /// Returns the figures of each device so far.
    pub fn stats(&self) -> Vec<MemoryStats> {
        lock(&self.0).devices.iter().map(DeviceAccount::stats).collect()
    }
}

impl MemoryLogState {
    fn refuse(&mut self, refused: RefusedAllocation) {
        self.counts.refused += 1;
        if self.refused.len() < MOST_REFUSED {
            self.refused.push(refused);
        }
    }

    /// Adds an allocation. The time was taken under the lock, so that the times follow the order of the sums.
    fn add(&mut self, of: Allocation, timing: MemoryTiming, at_ns: i64) {
        // Its end was not told, or the threads that freed and allocated it came here in another order.
        self.remove(of.address, of.thread, timing, at_ns);
        if self.live.len() >= MOST_LIVE {
            self.counts.untracked += 1;
        } else {
            self.allocate(of, timing, at_ns);
        }
    }

    /// Removes an allocation; none if it is not known.
    fn remove(&mut self, address: u64, thread: u64, timing: MemoryTiming, at_ns: i64) -> Option<Allocation> {
        let known = self.live.remove(&address)?;
        Some(self.free(known, thread, timing, at_ns))
    }

    fn allocate(&mut self, of: Allocation, timing: MemoryTiming, at_ns: i64) {
        let holder = Holder::new(of.name.as_ref(), of.range);
        let (sums, holder) = self.device(&of.stream.device).allocate(holder, of.bytes, at_ns);
        self.live.insert(of.address, (of.clone(), holder));
        self.note(MemoryChange::Allocated, of, (at_ns, timing), sums);
    }

    fn free(
        &mut self,
        (of, holder): (Allocation, Holder),
        thread: u64,
        timing: MemoryTiming,
        at_ns: i64,
    ) -> Allocation {
        let sums = self.device(&of.stream.device).free(&holder, of.bytes);
        self.note(MemoryChange::Freed, Allocation { thread, ..of.clone() }, (at_ns, timing), sums);
        of
    }

    fn device(&mut self, device: &DeviceInfo) -> &mut DeviceAccount {
        let place = self.devices.iter().position(|known| known.is_of(device)).unwrap_or_else(|| {
            self.devices.push(DeviceAccount::new(device));
            self.devices.len() - 1
        });
        &mut self.devices[place]
    }

    fn note(
        &mut self,
        change: MemoryChange,
        of: Allocation,
        (at_ns, timing): (i64, MemoryTiming),
        (device_bytes, owner_bytes): (u64, u64),
    ) {
        self.counts.begun += 1;
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push(NotedChange { change, of, at_ns, timing, device_bytes, owner_bytes });
        } else {
            self.counts.dropped += 1;
        }
    }
}

impl NotedChange {
    /// Returns the id of the thread that asked for it.
    pub fn thread(&self) -> u64 {
        self.of.thread
    }

    /// Converts the change to plain data.
    pub fn into_record(self, thread: Arc<ThreadInfo>) -> MemoryRecord {
        let NotedChange { change, of, at_ns, timing, device_bytes, owner_bytes } = self;
        let Allocation { stream, queue, range, name, bytes, address, .. } = of;
        MemoryRecord {
            change,
            stream,
            thread,
            queue,
            range,
            name,
            bytes,
            address,
            at_ns,
            timing,
            device_bytes,
            owner_bytes,
        }
    }
}

#[cfg(all(test, feature = "fixture"))]
mod tests {
    use super::*;
    use crate::fixture::{COPY, STEP, stream};

    fn allocation(address: u64, bytes: u64, range: Option<&'static RangeSpec>) -> Allocation {
        let stream = stream(1, "compute");
        Allocation { stream, thread: 1, queue: None, range, name: None, bytes, address }
    }

    fn allocate(log: &MemoryLog, of: Allocation) {
        log.allocated(of, MemoryTiming::Call);
    }

    fn free(log: &MemoryLog, address: u64) -> bool {
        log.freed(address, 1, MemoryTiming::Call).is_some()
    }

    #[test]
    fn the_peak_says_who_held_how_much_and_the_end_what_was_not_freed() {
        let log = MemoryLog::default();
        allocate(&log, allocation(1, 100, Some(&STEP)));
        allocate(&log, allocation(2, 300, Some(&COPY)));
        allocate(&log, allocation(3, 50, Some(&STEP)));
        assert!(free(&log, 2));
        allocate(&log, allocation(4, 200, None));
        assert!(free(&log, 1) && free(&log, 4));
        let [device] = &log.stats()[..] else { panic!("one device") };
        assert_eq!((device.peak_bytes, device.bytes, device.allocated, device.freed), (450, 50, 4, 3));
        let held = |holders: &[crate::memory::MemoryHolder]| {
            holders.iter().map(|holder| (holder.name.to_string(), holder.bytes, holder.allocations)).collect::<Vec<_>>()
        };
        assert_eq!(held(&device.at_peak), [("demo.copy".to_owned(), 300, 1), ("demo.step".to_owned(), 150, 2)]);
        assert_eq!(held(&device.not_freed), [("demo.step".to_owned(), 50, 1)]);
        let sums: Vec<_> = log.take().iter().map(|change| (change.device_bytes, change.owner_bytes)).collect();
        assert_eq!(sums, [(100, 100), (400, 300), (450, 150), (150, 0), (350, 200), (250, 50), (50, 0)]);
    }

    #[test]
    fn each_device_has_its_own_sums_and_its_first_peak() {
        let log = MemoryLog::default();
        let on = |address, bytes, ordinal| {
            let mut of = allocation(address, bytes, None);
            let stream = Arc::make_mut(&mut of.stream);
            stream.device = DeviceInfo { ordinal, ..stream.device.clone() };
            allocate(&log, of);
        };
        on(1, 100, 0);
        on(2, 70, 1);
        on(3, 50, 0);
        let peak_ns = log.stats()[0].peak_ns;
        assert!(free(&log, 3));
        // Reaching the same sum again is not a new peak.
        on(4, 50, 0);
        let stats = log.stats();
        assert_eq!(
            stats.iter().map(|device| (device.bytes, device.peak_bytes)).collect::<Vec<_>>(),
            [(150, 150), (70, 70)]
        );
        assert_eq!(stats[0].peak_ns, peak_ns);
    }

    #[test]
    fn holders_beyond_the_bound_share_one_row() {
        let log = MemoryLog::default();
        for number in 0..300 {
            allocate(&log, Allocation { name: Some(format!("block {number}").into()), ..allocation(number, 1, None) });
        }
        let held = &log.stats()[0].not_freed;
        assert_eq!((held.len(), held[0].name.as_str(), held[0].bytes), (257, "…", 44));
    }

    #[test]
    fn the_first_failures_are_kept_and_all_are_counted() {
        let log = MemoryLog::default();
        let failure = |thread| RefusedAllocation { what: String::new(), bytes: None, thread, range: None, at_ns: 0 };
        (0..20).for_each(|thread| log.refused(failure(thread)));
        let kept: Vec<_> = log.take_refused().iter().map(|refused| refused.thread).collect();
        assert_eq!((kept, log.counts().refused), ((0..16).collect(), 20));
    }

    #[test]
    fn an_address_that_is_allocated_again_counts_once_and_an_unknown_one_not_at_all() {
        let log = MemoryLog::default();
        allocate(&log, allocation(1, 100, None));
        allocate(&log, allocation(1, 30, None));
        assert!(!free(&log, 2));
        let stats = log.stats();
        assert_eq!((stats[0].bytes, stats[0].peak_bytes, stats[0].allocated, stats[0].freed), (30, 100, 2, 1));
        let counts = log.counts();
        assert_eq!((counts.begun, counts.unknown, counts.dropped), (3, 1, 0));
    }

    #[test]
    fn what_does_not_fit_is_counted_and_the_sums_stay_those_of_what_is_known() {
        let log = MemoryLog::default();
        for address in 0..MOST_LIVE as u64 + 3 {
            allocate(&log, allocation(address, 1, None));
        }
        assert_eq!(log.counts().untracked, 3);
        // The records that wait are as many, so that a free is not recorded, but it counts.
        assert!(free(&log, 0) && !free(&log, MOST_LIVE as u64 + 1));
        let counts = log.counts();
        assert_eq!((counts.begun, counts.dropped, counts.unknown), (MOST_LIVE as u64 + 1, 1, 1));
        assert_eq!(log.stats()[0].bytes, MOST_LIVE as u64 - 1);
        log.close();
        allocate(&log, allocation(0, 1, None));
        assert_eq!(log.stats()[0].bytes, MOST_LIVE as u64 - 1);
    }
}
