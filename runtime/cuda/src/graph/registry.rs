//! All registered graphs of the process, and the graphs to which executable graphs belong.
//!
//! A graph whose last [`GraphZones`](super::GraphZones) is dropped is kept for a while, because records of its last
//! replays may still be on their way. The oldest of those make room for newer ones.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::captured_zone::{Capture, CapturedZone};
use super::execs::Execs;
use super::ids::Ids;
use super::plan::Plan;
use super::registered::{Exec, Read, Registered};
use crate::driver::{CudaError, Driver};
use crate::graph_api::Handle;
use warpline_core::plural::counted_as;

/// The maximum number of graphs that are no longer held, and of their nodes.
const MOST_RETIRED: usize = 256;
const MOST_RETIRED_NODES: usize = 1 << 18;

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

#[derive(Default)]
struct Registry {
    last_number: u32,
    /// The last graph that [`note_of_ids`] has looked at.
    last_noted: u32,
    /// Oldest first.
    live: Vec<(Arc<Registered>, Weak<RegistrationGuard>)>,
    retired: VecDeque<Arc<Registered>>,
    execs: Execs<Registered>,
    /// The graph that each stamp was captured into, or the first of its clones that is still held.
    stamps: HashMap<u32, Arc<Registered>>,
}

/// The part that the handles on one graph share. Its drop retires the graph.
#[derive(Debug)]
pub(super) struct RegistrationGuard(pub(super) Arc<Registered>);

impl Drop for RegistrationGuard {
    fn drop(&mut self) {
        with(|registry| registry.retire(&self.0));
    }
}

/// The zones of a graph's nodes.
pub(super) struct Taken {
    pub(super) capture: Option<Capture>,
    /// Those that were given to nodes without a capture.
    pub(super) labels: Vec<CapturedZone>,
}

/// Registers a graph that the caller holds, or finds its registration. `take` returns the zones of its capture, and its
/// labels.
pub(super) fn register(
    driver: &'static Driver,
    graph: Handle,
    exec: Handle,
    take: impl FnOnce(&Read) -> Taken,
) -> Result<Arc<RegistrationGuard>, CudaError> {
    let read = Read::graph(driver, graph)?;
    let Taken { capture, labels } = take(&read);
    let exec = exec_of(driver, exec);
    Ok(with(|registry| {
        // The driver reuses handles, so a graph with a new capture is not one that is known.
        let is_known = |known: &Registered| capture.is_none() && known.is_of(&read);
        let known = registry.live.iter().rev().find(|(known, _)| is_known(known));
        let stamps: Vec<u32> = read.stamps().collect();
        let held = match known.and_then(|(_, held)| held.upgrade()) {
            Some(held) => {
                held.0.renew(read, None, labels);
                held
            }
            None => registry.hold(|number| Registered::new(number, read, capture, labels)),
        };
        registry.add_stamps(stamps, &held.0);
        exec.into_iter().for_each(|exec| registry.add_exec(exec, &held.0));
        held
    }))
}

/// Adds what was captured into a graph since it was registered.
pub(super) fn extend(
    driver: &'static Driver,
    known: &Arc<Registered>,
    graph: Handle,
    take: impl FnOnce(&Read) -> Taken,
) -> Result<(), CudaError> {
    let read = Read::graph(driver, graph)?;
    let Taken { capture, labels } = take(&read);
    let stamps: Vec<u32> = read.stamps().collect();
    known.renew(read, capture, labels);
    with(|registry| registry.add_stamps(stamps, known));
    Ok(())
}

/// Registers a clone, with the zones of its original.
pub(super) fn register_clone(
    driver: &'static Driver,
    of: &Registered,
    clone: Handle,
    exec: Handle,
    original: &[Handle],
) -> Result<Arc<RegistrationGuard>, CudaError> {
    let read = Read::graph(driver, clone)?;
    let twins: HashMap<Handle, Handle> =
        original.iter().filter_map(|node| Some((*node, driver.node_in_clone(*node, clone)?))).collect();
    let exec = exec_of(driver, exec);
    let stamps: Vec<u32> = read.stamps().collect();
    Ok(with(|registry| {
        let held = registry.hold(|number| of.clone_as(number, read, |node| twins.get(&node).copied()));
        registry.add_stamps(stamps, &held.0);
        exec.into_iter().for_each(|exec| registry.add_exec(exec, &held.0));
        held
    }))
}

/// Assigns an executable graph to a graph.
pub(super) fn add_exec(driver: &'static Driver, exec: Handle, to: &Arc<Registered>) {
    if let Some(exec) = exec_of(driver, exec) {
        with(|registry| registry.add_exec(exec, to));
    }
}

/// Returns the graph to which an executable graph belongs.
pub(super) fn of_exec(exec: Handle) -> Option<Arc<Registered>> {
    with(|registry| registry.execs.get(exec).cloned())
}

/// Returns the graph to which an executable graph belongs, by its id.
pub(super) fn of_exec_id(id: u32) -> Option<Arc<Registered>> {
    with(|registry| registry.execs.of_id(id).cloned())
}

/// Returns the plan of the graph that a stamp was captured into; none if it is not registered.
pub fn plan_of_stamp(id: u32) -> Option<Arc<Plan>> {
    let graph = with(|registry| registry.stamps.get(&id).cloned())?;
    Some(graph.plan()).filter(|plan| plan.place(id).is_some())
}

/// Returns every known graph, in the order of registration.
pub(super) fn all() -> Vec<Arc<Registered>> {
    let mut all: Vec<_> =
        with(|registry| registry.retired.iter().chain(registry.live.iter().map(|(graph, _)| graph)).cloned().collect());
    all.sort_by_key(|graph| graph.number);
    all
}

/// Adds a zone to the graph of its capture, if it is registered; otherwise returns it.
pub(super) fn add(capture: u64, graph: Handle, mut zone: CapturedZone) -> Option<CapturedZone> {
    // The latest comes first, because a handle may have been another graph's before.
    for registered in all().iter().rev() {
        zone = registered.add(capture, graph, zone)?;
    }
    Some(zone)
}

/// Adds a label to the registered graph that has all its nodes; otherwise returns it.
pub(super) fn add_label(graph: Handle, graph_id: Option<u32>, mut label: CapturedZone) -> Option<CapturedZone> {
    // The latest comes first, because a handle may have been another graph's before.
    for registered in all().iter().rev() {
        label = registered.add_label(graph, graph_id, label)?;
    }
    Some(label)
}

/// Adds a zone to every graph that was captured in it.
pub(super) fn add_around(zone: &CapturedZone) {
    all().iter().for_each(|graph| graph.add_around(zone));
}

/// Returns the report's note on discarded executable graphs, with a remedy.
pub(super) fn note() -> Option<String> {
    let evicted = with(|registry| std::mem::take(&mut registry.execs.evicted));
    (evicted > 0).then(|| {
        format!(
            "{evicted} executable graphs were forgotten to make room for newer ones: for one that is still launched, call \
             `warpline::graph::GraphZones::for_graph` again, and drop the `GraphZones` of graphs that no longer exist"
        )
    })
}

/// Returns a note for the report of a session: graphs that were registered since the last call have no ids of their nodes. It names
/// the remedy.
pub(super) fn note_of_ids() -> Option<String> {
    let looked = with(|registry| std::mem::replace(&mut registry.last_noted, registry.last_number));
    let without = all().iter().filter(|graph| graph.number > looked && graph.lacks_ids()).count() as u64;
    let driver = Driver::get().ok().filter(|_| without > 0)?;
    let version = driver.version().unwrap_or_default();
    let (major, minor) = (version / 1000, version % 1000 / 10);
    let graphs = counted_as(without, "registered graph has", "registered graphs have");
    Some(format!(
        "{graphs} no ids of their nodes, because the driver for CUDA {major}.{minor} does not report them: a profiler's kernels can be joined \
         with their zones by order only (`warpline annotate --by order`); install a driver for CUDA 13.1 or newer, or record `kernels` while graphs are \
         registered, where CUPTI reports them; `warpline doctor` says what this host has"
    ))
}

fn exec_of(driver: &'static Driver, exec: Handle) -> Option<Exec> {
    (exec != 0).then(|| Exec { handle: exec, id: Ids::new(driver).exec(exec) })
}

impl Registry {
    fn hold(&mut self, make: impl FnOnce(u32) -> Registered) -> Arc<RegistrationGuard> {
        self.last_number += 1;
        let graph = Arc::new(make(self.last_number));
        let held = Arc::new(RegistrationGuard(Arc::clone(&graph)));
        self.live.push((graph, Arc::downgrade(&held)));
        held
    }

    fn add_stamps(&mut self, stamps: Vec<u32>, to: &Arc<Registered>) {
        for stamp in stamps {
            let known = self.stamps.entry(stamp).or_insert_with(|| Arc::clone(to));
            // A graph that is no longer held makes room soon.
            if self.retired.iter().any(|retired| Arc::ptr_eq(retired, known)) {
                *known = Arc::clone(to);
            }
        }
    }

    fn add_exec(&mut self, exec: Exec, to: &Arc<Registered>) {
        self.execs.add(exec, to, |handle, before| before.remove_exec(handle));
        to.add_exec(exec);
    }

    fn retire(&mut self, graph: &Arc<Registered>) {
        let Some(at) = self.live.iter().position(|(live, _)| Arc::ptr_eq(live, graph)) else { return };
        let (graph, _) = self.live.remove(at);
        self.retired.push_back(graph);
        let mut nodes: usize = self.retired.iter().map(|graph| graph.node_count()).sum();
        while self.retired.len() > MOST_RETIRED || nodes > MOST_RETIRED_NODES {
            let Some(oldest) = self.retired.pop_front() else { break };
            // A request for its plan may add nodes in the meantime.
            nodes = nodes.saturating_sub(oldest.node_count());
            self.execs.forget(&oldest);
            let live = &self.live;
            self.stamps.retain(|stamp, graph| {
                if !Arc::ptr_eq(graph, &oldest) {
                    return true;
                }
                let heir = live.iter().find(|(live, _)| live.has_stamp(*stamp));
                heir.is_some_and(|(heir, _)| {
                    *graph = Arc::clone(heir);
                    true
                })
            });
        }
    }
}

/// Calls `work` under the lock. No user code runs under it, and only a graph's lock is taken under it.
fn with<T>(work: impl FnOnce(&mut Registry) -> T) -> T {
    let mut registry: MutexGuard<'_, Option<Registry>> = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    work(registry.get_or_insert_with(Registry::default))
}
