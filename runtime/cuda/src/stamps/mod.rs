//! Stamps: one-thread kernels that are captured at the borders of zones and write the device's time in each replay.
//!
//! Zones in a capture ask `border` for one; the collector calls [`prepare`], and reads what came through [`Source`]s. `contexts`
//! prepares contexts for it, `device` is what one needs, `ring` what the device writes to, `abi` the driver's calls.
//!
//! A stamp is one kernel launch on the stream that the zone was asked to time, and that is all that is added to a capture. A
//! launch that the driver refuses leaves the capture as it was, and its zone without a time.
//!
//! A context needs a module, a ring and a stream before its first stamp. The collector makes them for contexts that the session
//! meets outside of captures. Where the first thing that a program does in a context is a capture, the capturing thread makes them
//! there, once, in the relaxed capture mode (`stamper_of`). Nothing here synchronises, but the driver may let the loading of a module
//! wait for the work in the context.
//!
//! A stream that was forked off another one may have been joined before its zone ends, and then nobody waits for what comes: the
//! capture would fail as unjoined. No driver tells which stream a capture began on. So a stream is led back from each end's
//! stamp to where it stood before (`Driver::stand`), and from the stamp of a begin, too, if the zone ends with nothing behind it.
//!
//! Zones whose borders touch share a stamp: if the stream stands right behind one, or where it was led back to from one, nothing has
//! been captured since. A zone that begins there leads its stream behind the stamp again, so that its work comes after.

mod abi;
mod contexts;
mod device;
mod ring;
mod source;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::driver::{ContextPtr, CudaError, Driver, StreamPtr};
use super::graphs::{CapturePosition, Function, Handle};
use super::owner::Keeper;
use warpline_core::fork::PerProcess;

pub use contexts::want;
use contexts::{Readiness, hold, stamper_of};
pub use contexts::{is_wanted, prepare, ready, want_current};
pub(crate) use device::NAME;
#[cfg(feature = "cupti")]
pub(crate) use device::{OWN_GRAPH, OWN_KERNELS};
pub use source::{Source, Stamped};

/// Captures of which it is known which nodes are stamps. Of older ones stamps are not shared any more.
const MOST_CAPTURES: usize = 64;

/// Whether the session that records times its captures.
static ON: AtomicBool = AtomicBool::new(false);

/// Counts the sessions that time captures.
static SESSION: AtomicU64 = AtomicU64::new(0);

static STATE: PerProcess<Mutex<State>> = PerProcess::new(Mutex::default);

/// What the user has to know where a zone is captured without a stamp.
const REFUSED_ONE: &str = "captured zones are not timed in replays: the driver refused a stamp; make the stream's context current \
                           on the thread that captures, and look at the capture's own errors";

/// What the captures of one session came to.
static CAPTURED: AtomicU64 = AtomicU64::new(0);
static SHARED: AtomicU64 = AtomicU64::new(0);
static NOT_READY: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static SPANNING: AtomicU64 = AtomicU64::new(0);

#[derive(Default)]
struct State {
    contexts: HashMap<u64, Readiness>,
    /// What keeps contexts alive, by their ids. A primary context needs none.
    keepers: HashMap<u64, Keeper>,
    /// Contexts that the session has met and that the collector prepares.
    wanted: Vec<(usize, u64)>,
    /// Why captured zones are not timed, in words, for the report and standard error; each reason once a session.
    problems: Vec<String>,
    /// The reasons that were given in this session.
    told: Vec<&'static str>,
    /// The stamps of each capture; the latest captures.
    captures: VecDeque<(u64, Stamps)>,
    last_id: u32,
}

/// The stamps of one capture.
#[derive(Default)]
struct Stamps {
    /// The context of the first one: clocks of several are not compared within a replay.
    context_id: Option<u64>,
    /// By their nodes.
    nodes: HashMap<Handle, u32>,
    /// By stream, the last one that it was led back from, and where to.
    beside: HashMap<usize, Beside>,
}

#[derive(Clone)]
struct Beside {
    id: u32,
    node: Handle,
    frontier: Box<[Handle]>,
}

/// A stamp at a border of a zone.
#[derive(Clone, Debug)]
pub(super) struct Border {
    pub(super) id: u32,
    /// Where the stream stands with a stamp that it was led behind for this border; none where it stood there already.
    pub(super) place: Option<CapturePosition>,
}

/// A zone's begin or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZoneEdge {
    Begin,
    End,
}

/// Borders of a session's captured zones, and zones without a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub captured: u64,
    pub shared: u64,
    pub not_ready: u64,
    pub refused: u64,
    pub spanning: u64,
}

/// From now on zones that are captured are timed.
pub fn turn_on() {
    [&CAPTURED, &SHARED, &NOT_READY, &REFUSED, &SPANNING]
        .into_iter()
        .for_each(|count| count.store(0, Ordering::Relaxed));
    SESSION.fetch_add(1, Ordering::Relaxed);
    // What could not be had is asked for again, and said again.
    {
        let mut state = lock();
        state.contexts.retain(|_, known| !matches!(known, Readiness::Failed | Readiness::Wanted));
        state.wanted.clear();
        state.keepers.retain(|_, keeper| keeper.is_alive(session()));
        state.problems.clear();
        state.told.clear();
    }
    ON.store(true, Ordering::Release);
}

/// From now on they are not.
pub fn turn_off() {
    ON.store(false, Ordering::Release);
}

pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The number of the session that is on, or was on last.
fn session() -> u64 {
    SESSION.load(Ordering::Relaxed)
}

pub fn counts() -> Counts {
    let [captured, shared, not_ready, refused, spanning] =
        [&CAPTURED, &SHARED, &NOT_READY, &REFUSED, &SPANNING].map(|count| count.load(Ordering::Relaxed));
    Counts { captured, shared, not_ready, refused, spanning }
}

/// A captured zone began before its capture, or ended after it.
pub(crate) fn spans() {
    if is_on() {
        SPANNING.fetch_add(1, Ordering::Relaxed);
    }
}

/// The stamp at the border of a zone where its stream stands now; none where there can be none, which is counted. The
/// stream's context is the one given, or the calling thread's.
pub(super) fn border(
    driver: &'static Driver,
    stream: StreamPtr,
    context: Option<ContextPtr>,
    keeper: Option<&Keeper>,
    place: &CapturePosition,
    of: ZoneEdge,
) -> Option<Border> {
    let (stamped, is_shared) = match stamp_at(stream, place) {
        Some(At::Behind(id)) => (Ok(Border { id, place: None }), true),
        Some(At::Beside(beside)) if of == ZoneEdge::End => (Ok(Border { id: beside.id, place: None }), true),
        Some(At::Beside(beside)) => {
            let behind = place.behind(beside.node);
            let led = in_context(driver, context, || driver.stand(stream, &behind));
            let border = Border { id: beside.id, place: Some(behind) };
            (led.map(|()| border).map_err(|_| Untimed::Refused), true)
        }
        None => (capture(driver, stream, context, keeper, place, of), false),
    };
    match &stamped {
        Ok(_) if is_shared => &SHARED,
        Ok(_) => &CAPTURED,
        Err(Untimed::NotReady) => &NOT_READY,
        Err(Untimed::Refused) => &REFUSED,
        Err(Untimed::Elsewhere) => &SPANNING,
    }
    .fetch_add(1, Ordering::Relaxed);
    if matches!(stamped, Err(Untimed::Refused)) {
        lock().tell_once(REFUSED_ONE);
    }
    stamped.ok()
}

/// Why a border has no stamp.
enum Untimed {
    NotReady,
    Refused,
    /// The capture has stamps of another context.
    Elsewhere,
}

fn capture(
    driver: &'static Driver,
    stream: StreamPtr,
    context: Option<ContextPtr>,
    keeper: Option<&Keeper>,
    before: &CapturePosition,
    of: ZoneEdge,
) -> Result<Border, Untimed> {
    let refused = |_| Untimed::Refused;
    if !driver.can_stand() {
        return Err(Untimed::Refused);
    }
    let current = driver.current_context().map_err(refused)?;
    let context = context.unwrap_or(current);
    if context.is_null() {
        return Err(Untimed::NotReady);
    }
    let context_id = driver.context_id(context).map_err(refused)?;
    // Ahead of the collector, which works in the context as soon as it is ready.
    lock().keep(context_id, keeper);
    let stamper = stamper_of(driver, context, context_id).ok_or(Untimed::NotReady)?;
    let id = {
        let mut state = lock();
        state.last_id += 1;
        let id = state.last_id;
        if *state.stamps_of(before.capture).context_id.get_or_insert(context_id) != context_id {
            return Err(Untimed::Elsewhere);
        }
        id
    };
    let work = || {
        stamper.capture(stream, id)?;
        driver.capture(stream)
    };
    let place = if context == current { work() } else { driver.with_context(context, work) };
    // Another thread may have ended the capture meanwhile, and begun one anew.
    let is_same = |place: &CapturePosition| place.capture == before.capture;
    let place = place.map_err(refused)?.filter(is_same).ok_or(Untimed::Refused)?;
    if let [node] = &*place.frontier {
        lock().stamps_of(place.capture).nodes.insert(*node, id);
        if of == ZoneEdge::End {
            lead_back(driver, stream, Some(context), before, *node, id);
        }
    }
    Ok(Border { id, place: Some(place) })
}

/// A zone ends: where nothing was captured behind the stamp that its stream was led behind when it began, the stream is led back.
pub(super) fn leave(
    driver: &'static Driver,
    stream: StreamPtr,
    context: Option<ContextPtr>,
    before: &CapturePosition,
    behind: &CapturePosition,
    id: u32,
) {
    if let [node] = &*behind.frontier {
        lead_back(driver, stream, context, before, *node, id);
    }
}

fn lead_back(
    driver: &'static Driver,
    stream: StreamPtr,
    context: Option<ContextPtr>,
    to: &CapturePosition,
    node: Handle,
    id: u32,
) {
    if in_context(driver, context, || driver.stand(stream, to)).is_ok() {
        let beside = Beside { id, node, frontier: to.frontier.clone() };
        lock().stamps_of(to.capture).beside.insert(stream as usize, beside);
    }
}

fn in_context<T>(
    driver: &'static Driver,
    context: Option<ContextPtr>,
    work: impl FnOnce() -> Result<T, CudaError>,
) -> Result<T, CudaError> {
    match context {
        Some(context) if driver.current_context()? != context => driver.with_context(context, work),
        _ => work(),
    }
}

/// How a stream stands to a stamp.
enum At {
    Behind(u32),
    Beside(Beside),
}

fn stamp_at(stream: StreamPtr, place: &CapturePosition) -> Option<At> {
    let state = lock();
    let (_, stamps) = state.captures.iter().rev().find(|(known, _)| *known == place.capture)?;
    if let [node] = &*place.frontier
        && let Some(id) = stamps.nodes.get(node)
    {
        return Some(At::Behind(*id));
    }
    let beside = stamps.beside.get(&(stream as usize))?;
    (beside.frontier == place.frontier).then(|| At::Beside(beside.clone()))
}

impl State {
    /// Gives a reason, unless it was given in this session.
    fn tell_once(&mut self, problem: &'static str) {
        if !self.told.contains(&problem) {
            self.told.push(problem);
            self.problems.push(problem.to_owned());
        }
    }

    /// Has the collector prepare a context, unless somebody has.
    fn want(&mut self, context: ContextPtr, id: u64) {
        let State { contexts, wanted, .. } = self;
        contexts.entry(id).or_insert_with(|| {
            wanted.push((context as usize, id));
            Readiness::Wanted
        });
    }

    /// Remembers what keeps a context alive; none for the caller of [`RawStream::from_ptr`](super::RawStream::from_ptr).
    fn keep(&mut self, id: u64, keeper: Option<&Keeper>) {
        let session = session();
        if !self.keepers.get(&id).is_some_and(|known| known.is_alive(session)) {
            self.keepers.insert(id, keeper.cloned().unwrap_or(Keeper::Caller { session }));
        }
    }

    fn stamps_of(&mut self, capture: u64) -> &mut Stamps {
        if !self.captures.iter().any(|(known, _)| *known == capture) {
            self.captures.push_back((capture, Stamps::default()));
            if self.captures.len() > MOST_CAPTURES {
                self.captures.pop_front();
            }
        }
        let at = self.captures.iter().position(|(known, _)| *known == capture).unwrap_or(0);
        &mut self.captures[at].1
    }
}

/// Why captured zones are not timed, since the last call.
pub fn problems() -> Vec<String> {
    std::mem::take(&mut lock().problems)
}

/// The kernels that are stamps, as graphs name them.
pub(crate) fn functions() -> Vec<Handle> {
    ready().iter().filter(|stamper| stamper.is_there()).map(|stamper| stamper.function()).collect()
}

/// The id of a stamp, if that is what a node of a graph is.
pub(crate) fn id_of(
    driver: &Driver,
    node: Handle,
    function: Function,
    name: Option<&str>,
    functions: &[Handle],
) -> Option<u32> {
    // A handle may be another kernel's by now, where its context has gone.
    let is_stamp = match (name, function) {
        (Some(name), _) => name == NAME,
        (None, Function::Function(function)) => functions.contains(&function),
        (None, Function::Kernel(_)) => false,
    };
    is_stamp.then(|| driver.second_parameter(node)).flatten().map(|id| id as u32)
}

/// No driver is called under this lock.
fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}
