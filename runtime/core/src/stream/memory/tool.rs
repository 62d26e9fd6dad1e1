//! Allocations of CUDA devices that a tool (CUPTI) reports, merged with those that the program and its queues report.
//!
//! The tool reports every allocation, some time later, so its records alone decide which memory exists. A report of the program gives such an
//! allocation its name: the first report with the same address and size that comes within a second. A report of the program about a part of an
//! allocation, such as a block that a pool hands out, is counted and adds nothing. Memory in no allocation that the tool knows counts as without a tool.

use std::collections::{BTreeMap, VecDeque};

use super::{Allocation, MOST_LIVE, MemoryLog, MemoryLogState, RefusedAllocation};
use crate::lock::lock;
use crate::memory::MemoryTiming;

/// The most events of the program that wait for the tool's records.
const MOST_TOLD: usize = 1 << 16;

/// How much later than the call the program tells of memory, at most.
const LATER_NS: i64 = 1_000_000_000;

/// How far apart the two clocks may be.
const SLACK_NS: i64 = 100_000;

/// What a tool reports.
#[derive(Debug)]
pub struct ToolChange {
    /// When the call began, by the host's clock.
    pub at_ns: i64,
    pub event: ToolEvent,
}

#[derive(Debug)]
pub enum ToolEvent {
    Allocated(Allocation),
    Freed {
        address: u64,
        /// The id of the thread that called.
        thread: u64,
    },
}

/// The state of a log that follows a tool.
#[derive(Debug, Default)]
pub(super) struct Tool {
    /// What the program told and what the tool's records have not reached, in the order of times.
    told: VecDeque<(i64, Told)>,
    /// The ends of the tool's allocations, by address.
    blocks: BTreeMap<u64, u64>,
    /// The thread and the time of the last failure that a queue noted. The tool reports it, too.
    pub(super) refused: Option<(u64, i64)>,
}

/// What the program or a queue tells.
#[derive(Debug)]
pub(super) enum Told {
    Allocated(Allocation, MemoryTiming),
    Freed { address: u64, thread: u64, timing: MemoryTiming },
}

impl MemoryLog {
    /// From now on, a tool reports the allocations of CUDA devices.
    pub fn follow_tool(&self) {
        lock(&self.0).tool.get_or_insert_default();
    }

    /// Adds the changes that a tool reports, in the order of their times. All changes before `until_ns` are among them or were added before. The
    /// tool's last records come when the session is over, so the log takes them even if it is closed.
    pub fn add_of_tool(&self, changes: Vec<ToolChange>, until_ns: i64) {
        let mut state = lock(&self.0);
        for ToolChange { at_ns, event } in changes {
            state.listen_until(at_ns);
            match event {
                ToolEvent::Allocated(of) => state.allocated_by_tool(of, at_ns),
                ToolEvent::Freed { address, thread } => state.freed_by_tool(address, thread, at_ns),
            }
        }
        state.listen_until(until_ns);
    }

    /// Notes an allocation that failed for lack of memory, as a tool reports it.
    pub fn refused_of_tool(&self, refused: RefusedAllocation) {
        let mut state = lock(&self.0);
        if !state.tool.as_ref().is_some_and(|tool| tool.is_noted(&refused)) {
            state.refuse(refused);
        }
    }
}

impl Tool {
    /// Whether a queue has noted this failure.
    fn is_noted(&self, refused: &RefusedAllocation) -> bool {
        self.refused.is_some_and(|(thread, at_ns)| {
            let later_ns = at_ns - refused.at_ns;
            thread == refused.thread && (-SLACK_NS..LATER_NS).contains(&later_ns)
        })
    }

    /// Takes what the program told of this memory when it had allocated it.
    fn take_label(&mut self, address: u64, bytes: u64, at_ns: i64) -> Option<Allocation> {
        let near = self.told.iter().position(|(told_ns, told)| match told {
            Told::Allocated(of, _) => {
                let is_near = *told_ns >= at_ns - SLACK_NS && *told_ns <= at_ns.saturating_add(LATER_NS);
                is_near && (of.address, of.bytes) == (address, bytes)
            }
            Told::Freed { .. } => false,
        })?;
        match self.told.remove(near)? {
            (_, Told::Allocated(of, _)) => Some(of),
            _ => None,
        }
    }

    fn has(&self, address: u64) -> bool {
        self.blocks.range(..=address).next_back().is_some_and(|(_, end)| address < *end)
    }
}

impl MemoryLogState {
    /// Keeps what the program tells until the tool's records are known.
    pub(super) fn tell(&mut self, at_ns: i64, told: Told) {
        let Some(tool) = &mut self.tool else { return };
        if tool.told.len() < MOST_TOLD {
            tool.told.push_back((at_ns, told));
        } else {
            self.counts.untracked += u64::from(matches!(told, Told::Allocated(..)));
        }
    }

    /// Counts what the program told before this time.
    fn listen_until(&mut self, until_ns: i64) {
        while let Some(tool) = &mut self.tool
            // What is told now may be of an allocation that follows.
            && tool.told.front().is_some_and(|(at_ns, _)| *at_ns < until_ns - SLACK_NS)
            && let Some((at_ns, told)) = tool.told.pop_front()
        {
            match told {
                Told::Allocated(of, _) if tool.has(of.address) => self.counts.within += 1,
                Told::Allocated(of, timing) => self.add(of, timing, at_ns),
                // The tool reports the end of its own.
                Told::Freed { address, .. } if tool.has(address) => {}
                Told::Freed { address, thread, timing } => drop(self.remove(address, thread, timing, at_ns)),
            }
        }
    }

    fn allocated_by_tool(&mut self, of: Allocation, at_ns: i64) {
        let Some(tool) = &mut self.tool else { return };
        let label = tool.take_label(of.address, of.bytes, at_ns);
        if tool.blocks.len() < MOST_LIVE {
            tool.blocks.insert(of.address, of.address.saturating_add(of.bytes));
        }
        let of = match label {
            Some(told) => Allocation { range: told.range.or(of.range), ..told },
            None => of,
        };
        self.add(of, MemoryTiming::Call, at_ns);
    }

    fn freed_by_tool(&mut self, address: u64, thread: u64, at_ns: i64) {
        let Some(tool) = &mut self.tool else { return };
        tool.blocks.remove(&address);
        let freed = self.remove(address, thread, MemoryTiming::Call, at_ns);
        self.counts.unknown += u64::from(freed.is_none());
    }
}

#[cfg(all(test, feature = "fixture"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::now_ns;
    use crate::fixture::{COPY, STEP};
    use crate::memory::MemoryHolder;
    use crate::record::{DeviceInfo, DeviceKind, StreamInfo};

    const MS: i64 = 1_000_000;

    fn allocation(address: u64, bytes: u64) -> Allocation {
        let device = DeviceInfo { ordinal: 0, name: "NVIDIA H100".to_owned(), kind: DeviceKind::Cuda };
        let stream = Arc::new(StreamInfo { id: 1, name: "compute".to_owned(), device });
        Allocation { stream, thread: 1, queue: None, range: Some(&STEP), name: None, bytes, address }
    }

    fn allocated(at_ns: i64, address: u64, bytes: u64) -> ToolChange {
        ToolChange { at_ns, event: ToolEvent::Allocated(allocation(address, bytes)) }
    }

    fn freed(at_ns: i64, address: u64) -> ToolChange {
        ToolChange { at_ns, event: ToolEvent::Freed { address, thread: 1 } }
    }

    fn held(holders: &[MemoryHolder]) -> Vec<(&str, u64)> {
        holders.iter().map(|holder| (holder.name.as_str(), holder.bytes)).collect()
    }

    #[test]
    fn a_failure_that_a_queue_has_noted_counts_once() {
        let log = MemoryLog::default();
        log.follow_tool();
        let failure = |thread, at_ns| RefusedAllocation {
            what: "cuMemAllocAsync".to_owned(),
            bytes: None,
            thread,
            range: None,
            at_ns,
        };
        log.refused(failure(1, 10 * MS));
        // The queue notes it after the call that the tool reports.
        log.refused_of_tool(failure(1, 9 * MS));
        assert_eq!((log.counts().refused, log.take_refused().len()), (1, 1));
        log.refused_of_tool(failure(2, 9 * MS));
        log.refused_of_tool(failure(1, 20 * MS));
        assert_eq!((log.counts().refused, log.take_refused().len()), (3, 2));
    }

    #[test]
    fn a_failure_is_the_queues_up_to_a_second_after_it_and_within_what_clocks_differ_by() {
        let refused =
            |thread, at_ns| RefusedAllocation { what: String::new(), bytes: None, thread, range: None, at_ns };
        let tool = Tool { refused: Some((1, LATER_NS)), ..Tool::default() };
        let is_noted = |at_ns| tool.is_noted(&refused(1, at_ns));
        assert_eq!([0, 1, LATER_NS].map(is_noted), [false, true, true]);
        assert_eq!([LATER_NS + SLACK_NS, LATER_NS + SLACK_NS + 1].map(is_noted), [true, false]);
        assert!(!tool.is_noted(&refused(2, LATER_NS)) && !Tool::default().is_noted(&refused(1, LATER_NS)));
    }

    #[test]
    fn a_report_names_memory_up_to_a_second_after_it_was_allocated() {
        let takes = |told_ns, address, bytes| {
            let told = Told::Allocated(allocation(0x1000, 400), MemoryTiming::Call);
            let freed = Told::Freed { address: 0x1000, thread: 1, timing: MemoryTiming::Call };
            let mut tool = Tool { told: [(told_ns, freed), (told_ns, told)].into(), ..Tool::default() };
            let label = tool.take_label(address, bytes, LATER_NS).is_some();
            assert_eq!(tool.told.len(), 2 - usize::from(label));
            label
        };
        let near = [LATER_NS - SLACK_NS - 1, LATER_NS - SLACK_NS, 2 * LATER_NS, 2 * LATER_NS + 1];
        assert_eq!(near.map(|told_ns| takes(told_ns, 0x1000, 400)), [false, true, true, false]);
        assert!(!takes(LATER_NS, 0x1001, 400) && !takes(LATER_NS, 0x1000, 401));
    }

    #[test]
    fn memory_is_in_a_block_up_to_its_last_byte() {
        let tool = Tool { blocks: [(0x1000, 0x1010), (0x2000, 0x2001)].into(), ..Tool::default() };
        let is_in = [0xfff, 0x1000, 0x100f, 0x1010, 0x1fff, 0x2000, 0x2001].map(|address| tool.has(address));
        assert_eq!(is_in, [false, true, true, false, false, true, false]);
    }

    #[test]
    fn what_the_program_tells_beyond_the_bound_is_counted() {
        let log = MemoryLog::default();
        log.follow_tool();
        for address in 0..MOST_TOLD as u64 + 3 {
            log.allocated(allocation(address * 16, 8), MemoryTiming::Call);
        }
        log.freed(0, 1, MemoryTiming::Call);
        assert_eq!(log.counts().untracked, 3);
        log.add_of_tool(Vec::new(), i64::MAX);
        assert_eq!(log.stats()[0].allocated, MOST_TOLD as u64);
    }

    #[test]
    fn the_end_of_a_tools_block_is_the_tools_to_tell() {
        let log = MemoryLog::default();
        log.follow_tool();
        let at_ns = now_ns();
        log.add_of_tool(vec![allocated(at_ns, 0x1000, 400)], at_ns);
        // The program frees it, and what it tells comes to be counted before the tool's record.
        log.freed(0x1000, 1, MemoryTiming::Call);
        log.add_of_tool(Vec::new(), now_ns() + LATER_NS);
        assert_eq!((log.stats()[0].bytes, log.stats()[0].freed), (400, 0));
        log.add_of_tool(vec![freed(now_ns(), 0x1000)], i64::MAX);
        assert_eq!((log.stats()[0].bytes, log.stats()[0].freed, log.counts().unknown), (0, 1, 0));
    }

    #[test]
    fn the_tool_counts_and_what_the_program_tells_of_the_same_memory_names_it() {
        let log = MemoryLog::default();
        log.follow_tool();
        let begin = now_ns();
        // The program tells right behind each call; the tool's records come later.
        let named = Allocation { name: Some("kv cache".into()), range: None, ..allocation(0x1000, 400) };
        log.allocated(named, MemoryTiming::Call);
        log.allocated(Allocation { range: Some(&COPY), ..allocation(0x9000, 70) }, MemoryTiming::Call);
        // A part of a pool's block.
        log.allocated(allocation(0x2010, 10), MemoryTiming::Call);
        assert!(log.stats().is_empty(), "nothing counts before the tool has reported");
        log.add_of_tool(vec![allocated(begin - 2, 0x1000, 400), allocated(begin - 1, 0x2000, 100)], begin + MS);
        // The pool's block has its zone, and what no tool knows counts as it is.
        log.add_of_tool(Vec::new(), now_ns() + MS);
        let [device] = &log.stats()[..] else { panic!("one device") };
        assert_eq!(held(&device.not_freed), [("kv cache", 400), ("demo.step", 100), ("demo.copy", 70)]);
        assert_eq!((device.allocated, log.counts().within), (3, 1));
        // The program frees, and the tool says the same: it counts once.
        assert!(log.freed(0x1000, 1, MemoryTiming::Call).is_none());
        log.add_of_tool(vec![freed(now_ns(), 0x1000), freed(now_ns(), 0x7000)], now_ns() + MS);
        let [device] = &log.stats()[..] else { panic!("one device") };
        assert_eq!((device.bytes, device.peak_bytes, device.freed), (170, 570, 1));
        assert_eq!(log.counts().unknown, 1, "an allocation from before the session");
        assert!(log.freed(0x9000, 1, MemoryTiming::Call).is_none());
        log.add_of_tool(Vec::new(), i64::MAX);
        assert_eq!(log.stats()[0].bytes, 100);
        let sums: Vec<_> = log.take().iter().map(|change| change.device_bytes).collect();
        assert_eq!(sums, [400, 500, 570, 170, 100]);
    }
}
