//! The reader of CUPTI's buffers, which connects each kernel with its launch and its zone.
//!
//! A launch has two small records, the zone's number and the call, before or after the kernels that it led to. They are kept by correlation
//! for some time, because one launch of a graph leads to many kernels. Only the collector's thread uses this.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{CStr, c_char};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::abi::*;
use super::allocations::Allocations;
use super::buffers::Full;
use super::clock::Clock;
use super::launch::Launch;
use super::library::Cupti;
use super::selection::Wanted;
use super::syncs::Syncs;
use super::times::{Times, Work};
use crate::demangle::readable_name;
use crate::stamps;
use warpline_core::kernel::{GraphNodeId, KernelWork};

/// The kernels that a session launches itself, for stamps and for measurements.
const OWN_KERNELS: [&str; 3] = [stamps::NAME, "warpline_anchor", OWN_GRAPH];

/// The kernel of these whose only graph is the one that a session measures with.
const OWN_GRAPH: &str = "warpline_spin";

/// The number of launches that are remembered.
const LAUNCHES: usize = 1 << 17;

/// The number of graph launches from which a median is taken.
const GRAPH_LAUNCHES: usize = 1 << 16;

/// The maximum number of names that wait for the next read.
const STREAM_NAMES: usize = 1 << 14;

/// The number of texts that records share; a program has fewer kernels.
const NAMES: usize = 1 << 15;

/// Whether requests wait for work, so that it is kept even where it is only timed.
pub(super) static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// The work of the device, with CUPTI's numbers and times.
pub(super) struct Raw {
    pub(super) name: Arc<str>,
    pub(super) work: KernelWork,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
    pub(super) correlation: u32,
    pub(super) graph: Option<GraphNodeId>,
}

/// A hasher of correlations, which are consecutive numbers: a product spreads them well enough.
#[derive(Default)]
struct CorrelationHasher(u64);

impl Hasher for CorrelationHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(self.0 as u32 ^ u32::from(byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_right(32);
    }
}

/// The contents of buffers that are not yet handed on.
#[derive(Default)]
pub(super) struct Records {
    /// Whether work is only timed, and not handed on.
    is_for_times: bool,
    /// The launches by which zones are timed, if they are.
    pub(super) times: Option<Times>,
    work: Vec<Raw>,
    launches: HashMap<u32, Launch, BuildHasherDefault<CorrelationHasher>>,
    /// The correlations of launches, in the order in which they came.
    order: VecDeque<u32>,
    /// CUPTI's texts, and their readable forms.
    names: HashMap<Box<str>, Arc<str>>,
    pub(super) syncs: Syncs,
    pub(super) allocations: Allocations,
    /// Names that the program gave streams through NVTX since the last read, by context and stream.
    pub(super) stream_names: Vec<((u32, u32), String)>,
    /// The devices of contexts whose work was read.
    devices: HashMap<u32, u32>,
    /// Records without times: the device had no room for them, or was still working at the end.
    pub(super) untimed: u64,
    /// Records with invalid contents.
    pub(super) unsound: u64,
    /// Launches that were forgotten before their work was reported.
    forgotten: u64,
    /// The number of calls that launched graphs; the begin and end of the first ones on CUPTI's clock, by correlation.
    graph_launches: u64,
    of_graphs: HashMap<u32, (u64, u64)>,
    /// Whether the device has executed a node of a graph. Its launch may be missing if the session began or ended within the call.
    has_nodes: bool,
    /// Work in bodies of conditional nodes.
    pub(super) in_bodies: u64,
    /// Launches of the session's own graphs, with which it measures what stamps add.
    own_graphs: HashSet<u32>,
}

impl Records {
    /// Creates the records of one session.
    pub(super) fn new(wanted: Wanted) -> Records {
        let times = wanted.times.then(Times::default);
        Records { is_for_times: !wanted.records, times, ..Records::default() }
    }

    /// Reads one buffer.
    pub(super) fn read(&mut self, cupti: &Cupti, full: &Full) {
        let (buffer, valid) = full.records();
        let mut record: *mut u8 = std::ptr::null_mut();
        loop {
            // SAFETY: CUPTI returned the buffer with this many bytes of records.
            let code = unsafe { (cupti.symbols.next_record)(buffer, valid, &raw mut record) };
            if code != SUCCESS || record.is_null() {
                return;
            }
            // SAFETY: CUPTI returned a complete record, and every record begins with its kind.
            unsafe { self.one(record) };
        }
    }

    /// # Safety
    /// `record` must point to a complete record of CUPTI.
    unsafe fn one(&mut self, record: *const u8) {
        // SAFETY: each kind of record begins with the fields of its type, at the offsets that `abi` states.
        unsafe {
            match record.cast::<u32>().read_unaligned() {
                kind::CONCURRENT_KERNEL => self.kernel(record.cast::<CUpti_ActivityKernel>().read_unaligned()),
                kind::MEMCPY => {
                    let copy = record.cast::<CUpti_ActivityMemcpy>().read_unaligned();
                    let CUpti_ActivityMemcpy { copy_kind, from, to, bytes, start, end, device, .. } = copy;
                    let CUpti_ActivityMemcpy { context, stream, correlation, graph, graph_node, .. } = copy;
                    let place = WorkOrigin { device, context, stream, correlation, graph, graph_node };
                    self.copy((copy_kind, from, to), bytes, (start, end), place);
                }
                kind::MEMCPY2 => {
                    let copy = record.cast::<CUpti_ActivityMemcpyPtoP>().read_unaligned();
                    let CUpti_ActivityMemcpyPtoP { copy_kind, from, to, bytes, start, end, device, .. } = copy;
                    let CUpti_ActivityMemcpyPtoP { context, stream, correlation, graph, graph_node, .. } = copy;
                    let place = WorkOrigin { device, context, stream, correlation, graph, graph_node };
                    self.copy((copy_kind, from, to), bytes, (start, end), place);
                }
                kind::MEMSET => self.set(record.cast::<CUpti_ActivityMemset>().read_unaligned()),
                kind::DRIVER | kind::RUNTIME => self.call(record.cast::<CUpti_ActivityAPI>().read_unaligned()),
                kind::SYNCHRONIZATION => {
                    self.syncs.add(record.cast::<CUpti_ActivitySynchronization>().read_unaligned());
                }
                kind::MEMORY2 => {
                    self.allocations.add(record.cast::<CUpti_ActivityMemory>().read_unaligned());
                }
                kind::NAME => {
                    let named = record.cast::<CUpti_ActivityName>().read_unaligned();
                    let CUpti_ActivityName { object_kind, context, stream, name, .. } = named;
                    if object_kind == OBJECT_STREAM && !name.is_null() && self.stream_names.len() < STREAM_NAMES {
                        let name = CStr::from_ptr(name).to_string_lossy().into_owned();
                        self.stream_names.push(((context, stream), name));
                    }
                }
                kind::EXTERNAL_CORRELATION => {
                    let said = record.cast::<CUpti_ActivityExternalCorrelation>().read_unaligned();
                    if said.external_kind == OURS {
                        self.launch(said.correlation).zone = Some(said.external_id);
                    }
                }
                _ => {}
            }
        }
    }

    fn kernel(&mut self, kernel: CUpti_ActivityKernel) {
        let CUpti_ActivityKernel { grid, block, start, end, name, registers_per_thread, .. } = kernel;
        let CUpti_ActivityKernel { device, context, stream, correlation, graph, graph_node, .. } = kernel;
        let positive = |number: i32| u32::try_from(number).ok();
        let each = |of: [i32; 3]| Some([positive(of[0])?, positive(of[1])?, positive(of[2])?]);
        let work = || {
            Some(KernelWork::Kernel {
                grid: each(grid)?,
                block: each(block)?,
                registers_per_thread: u32::from(registers_per_thread),
                static_shared_bytes: positive(kernel.static_shared)?,
                dynamic_shared_bytes: positive(kernel.dynamic_shared)?,
            })
        };
        let Some(work) = work() else {
            self.unsound += 1;
            return;
        };
        let place = WorkOrigin { device, context, stream, correlation, graph, graph_node };
        // SAFETY: CUPTI's name is null or a text that lives as long as CUPTI does.
        let own = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }).and_then(own_kernel);
        // SAFETY: as above.
        self.add(own, work, (start, end), place, |records| unsafe { records.name(name) });
    }

    fn copy(&mut self, (kind, from, to): (u8, u8, u8), bytes: u64, times: (u64, u64), place: WorkOrigin) {
        let (kind, from, to) = (copy_kind(kind), memory_kind(from.into()), memory_kind(to.into()));
        let name = |records: &mut Records| records.shared(&format!("Memcpy {kind} ({from} -> {to})"));
        self.add(None, KernelWork::Memcpy { bytes, kind, from, to }, times, place, name);
    }

    fn set(&mut self, set: CUpti_ActivityMemset) {
        let CUpti_ActivityMemset { value, bytes, start, end, memory, .. } = set;
        let CUpti_ActivityMemset { device, context, stream, correlation, graph, graph_node, .. } = set;
        let place = WorkOrigin { device, context, stream, correlation, graph, graph_node };
        let memory = memory_kind(memory);
        let name = |records: &mut Records| records.shared(&format!("Memset ({memory})"));
        self.add(None, KernelWork::Memset { bytes, value, memory }, (start, end), place, name);
    }

    /// Adds work, and keeps it if somebody wants more than its times.
    fn add(
        &mut self,
        own: Option<&str>,
        work: KernelWork,
        (start, end): (u64, u64),
        place: WorkOrigin,
        name: impl FnOnce(&mut Records) -> Arc<str>,
    ) {
        if !self.arrived(own, (start, end), &place) || !self.keeps_work() {
            return;
        }
        let WorkOrigin { device, context, stream, correlation, graph, graph_node } = place;
        let graph = (graph_node != 0).then_some(GraphNodeId { graph, node: graph_node });
        let name = name(self);
        self.work.push(Raw { name, work, start, end, device, context, stream, correlation, graph });
    }

    /// Adds work to its launch. Returns whether it is the program's own and has sound times.
    fn arrived(&mut self, own: Option<&str>, (start, end): (u64, u64), place: &WorkOrigin) -> bool {
        let &WorkOrigin { device, correlation, graph_node, context, stream, .. } = place;
        self.devices.insert(context, device);
        let is_timed = start != 0 && end != 0;
        let is_sound = is_timed && start <= end;
        self.has_nodes |= graph_node != 0;
        // The body of a conditional node runs without a launch of its own.
        let is_in_body = graph_node != 0 && correlation == 0;
        let is_used = self.times.is_some() && !is_in_body;
        self.in_bodies += u64::from(is_in_body && own.is_none());
        if !is_in_body && (graph_node == 0 || is_used || IS_ASKED.load(Ordering::Acquire)) {
            let launch = self.launch(correlation);
            launch.has_work |= is_timed && graph_node == 0;
            launch.work.has_come |= is_sound;
            launch.work.stream = (context, stream);
            if is_sound && own.is_none() {
                launch.work.add(start, end);
            }
            let (listed, work) = (launch.listed, launch.work);
            if let Some(times) = &mut self.times {
                times.has_work |= is_sound && own.is_none();
                if let Some(listed) = listed {
                    times.update(listed, work);
                }
            }
        }
        // The session's own kernels are not work of the program.
        if let Some(own) = own {
            if graph_node != 0 && own == OWN_GRAPH {
                self.own_graphs.insert(correlation);
            }
            return false;
        }
        self.untimed += u64::from(!is_timed);
        self.unsound += u64::from(is_timed && !is_sound);
        is_sound
    }

    /// Adds the calls that were read to the lists by which zones are timed.
    pub(super) fn list_calls(&mut self, clock: &Clock) {
        let Records { times: Some(times), launches, .. } = self else { return };
        for call in std::mem::take(&mut times.calls) {
            let correlation = call.1;
            let work = launches.get(&correlation).map_or(Work::default(), |launch| launch.work);
            let (listed, moved) = times.insert(call, work, clock);
            for (correlation, listed) in std::iter::once((correlation, listed)).chain(moved) {
                if let Some(launch) = launches.get_mut(&correlation) {
                    launch.listed = Some(listed);
                }
            }
        }
    }

    fn call(&mut self, call: CUpti_ActivityAPI) {
        self.allocations.add_call(call);
        let CUpti_ActivityAPI { kind, callback, thread, start, end, correlation, returned, .. } = call;
        let (calls, graphs, syncs) = match kind {
            kind::DRIVER => (DRIVER_CALLS, DRIVER_GRAPH_LAUNCHES, DRIVER_SYNCS),
            _ => (RUNTIME_CALLS, RUNTIME_GRAPH_LAUNCHES, RUNTIME_SYNCS),
        };
        let is_of_graph = graphs.contains(&callback);
        if is_of_graph {
            let has_room = self.of_graphs.len() < GRAPH_LAUNCHES;
            // The runtime's call and the driver's within it have one correlation; the outer one is the program's.
            match self.of_graphs.entry(correlation) {
                Entry::Occupied(mut known) if start < known.get().0 => _ = known.insert((start, end)),
                Entry::Occupied(_) => {}
                Entry::Vacant(place) if has_room => {
                    place.insert((start, end));
                    self.graph_launches += 1;
                }
                Entry::Vacant(_) => self.graph_launches += u64::from(kind == kind::DRIVER),
            }
        }
        let puts_work = returned == 0 && calls.iter().any(|calls| calls.contains(&callback));
        let launch = self.launch(correlation);
        launch.is_sync |= syncs.iter().any(|calls| calls.contains(&callback));
        let is_new = puts_work && !launch.is_called;
        launch.is_called |= puts_work;
        launch.wants_work |= puts_work && !is_of_graph;
        // The runtime's call and the driver's within it have one correlation; the outer one is the program's.
        if launch.call.is_none_or(|(_, begun, _)| start < begun) {
            launch.call = Some((thread, start, end));
        }
        // The runtime's call and the driver's within it are one launch.
        if let (true, Some(times)) = (is_new, &mut self.times) {
            times.calls.push((thread, correlation, (start, end), is_of_graph));
        }
    }

    fn launch(&mut self, correlation: u32) -> &mut Launch {
        if !self.launches.contains_key(&correlation) {
            self.order.push_back(correlation);
            if self.order.len() > LAUNCHES
                && let Some(oldest) = self.order.pop_front()
                && let Some(oldest) = self.launches.remove(&oldest)
            {
                self.forgotten += u64::from(oldest.is_at_work());
            }
        }
        self.launches.entry(correlation).or_default()
    }

    /// Returns the launch of this correlation, which is empty if CUPTI has not reported it.
    pub(super) fn launch_of(&self, correlation: u32) -> Launch {
        self.launches.get(&correlation).copied().unwrap_or_default()
    }

    /// Returns the calls that put work on a device that has not been reported: thread, begin and end.
    pub(super) fn calls_at_work(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        let is_at_work = |launch: &&Launch| launch.is_called && !launch.has_work && !launch.work.has_come;
        self.launches.values().filter(is_at_work).filter_map(|launch| launch.call)
    }

    /// Returns whether work is kept when it is read.
    fn keeps_work(&self) -> bool {
        !self.is_for_times || IS_ASKED.load(Ordering::Acquire)
    }

    /// Returns the device of a context; none if no work of it was read.
    pub(super) fn device_of(&self, context: u32) -> Option<u32> {
        self.devices.get(&context).copied()
    }

    /// Returns whether all work of all calls has been reported, with its times.
    pub(super) fn are_complete(&self) -> bool {
        let are_sound = self.untimed + self.unsound + self.forgotten == 0;
        are_sound && !self.launches.values().any(Launch::is_at_work)
    }

    /// Returns whether any graph was launched.
    pub(super) fn has_graph_launches(&self) -> bool {
        self.graph_launches > 0 || self.has_nodes
    }

    /// Returns how many graphs the program launched.
    pub(super) fn graph_launches(&self) -> u64 {
        let own = self.own_graphs.iter().filter(|own| self.of_graphs.contains_key(own));
        self.graph_launches - own.count() as u64
    }

    /// Returns the duration of the program's calls that launched graphs, in ns: the median of the first [`GRAPH_LAUNCHES`].
    pub(super) fn graph_launch_ns(&self) -> Option<u64> {
        let of_program = self.of_graphs.iter().filter(|(correlation, _)| !self.own_graphs.contains(correlation));
        let mut taken: Vec<u64> = of_program.map(|(_, (start, end))| end.saturating_sub(*start)).collect();
        taken.sort_unstable();
        taken.get(taken.len() / 2).copied()
    }

    /// Returns all work that can be handed on, by begin. Work that was read since the last call and whose launch is unknown waits for the
    /// next call, unless this is the `last`.
    pub(super) fn take(&mut self, waited: &mut Vec<Raw>, last: bool) -> Vec<Raw> {
        let mut taken = std::mem::take(waited);
        let launches = &self.launches;
        let is_known = |raw: &Raw| last || launches.get(&raw.correlation).is_some_and(Launch::is_known);
        let (known, unknown): (Vec<_>, Vec<_>) = std::mem::take(&mut self.work).into_iter().partition(is_known);
        *waited = unknown;
        taken.extend(known);
        taken.sort_by_key(|raw| raw.start);
        taken
    }

    /// # Safety
    /// The pointer must be null or point to a NUL-terminated text.
    unsafe fn name(&mut self, name: *const c_char) -> Arc<str> {
        if name.is_null() {
            return self.shared("kernel without a name");
        }
        // SAFETY: the caller guarantees it.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        self.shared(&name)
    }

    /// Returns a text that all records with it share.
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let shown: Arc<str> = readable_name(name).into();
        if self.names.len() < NAMES {
            self.names.insert(name.into(), Arc::clone(&shown));
        }
        shown
    }
}

/// Returns the session's own kernel of this name.
fn own_kernel(name: &CStr) -> Option<&'static str> {
    OWN_KERNELS.into_iter().find(|own| own.as_bytes() == name.to_bytes())
}

/// The fields that all work on the device has.
struct WorkOrigin {
    device: u32,
    context: u32,
    stream: u32,
    correlation: u32,
    graph: u32,
    graph_node: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the record of a call that launched a graph.
    fn launch(kind: u32, callback: u32, correlation: u32, (start, end): (u64, u64)) -> CUpti_ActivityAPI {
        // SAFETY: the type consists of numbers.
        let mut call: CUpti_ActivityAPI = unsafe { std::mem::zeroed() };
        (call.kind, call.callback, call.correlation) = (kind, callback, correlation);
        (call.start, call.end) = (start, end);
        call
    }

    #[test]
    fn what_launches_of_graphs_cost_is_known_when_they_are_forgotten() {
        let mut records = Records::default();
        let many = 2 * LAUNCHES as u32;
        for correlation in 1..=many {
            // The driver's call, within the runtime's.
            records.call(launch(kind::DRIVER, 514, correlation, (2_000, 4_000)));
            records.call(launch(kind::RUNTIME, 311, correlation, (1_000, 4_000)));
        }
        assert_eq!((records.graph_launches(), records.graph_launch_ns()), (u64::from(many), Some(3_000)));
    }

    #[test]
    fn a_graph_was_launched_where_a_node_was_executed() {
        let mut records = Records::default();
        let work = KernelWork::Memset { bytes: 1, value: 0, memory: memory_kind(0) };
        let place = WorkOrigin { device: 0, context: 1, stream: 7, correlation: 1, graph: 9, graph_node: 9 << 32 };
        assert!(!records.has_graph_launches());
        records.add(None, work, (0, 0), place, |_| "kernel".into());
        assert!(records.has_graph_launches());
    }
}
