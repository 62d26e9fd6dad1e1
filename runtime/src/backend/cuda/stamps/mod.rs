//! Stamps: one-thread kernels that are captured at the borders of zones and write the device's time in each replay. A session that
//! asks for `events` has event-record nodes there instead (`events`).
//!
//! Zones in a capture ask [`border`] for one; the collector calls [`prepare`], and reads what came through [`Source`]s. `device`
//! is what a context needs for it, `ring` what the device writes to, `abi` the driver's calls.
//!
//! A stamp is one kernel launch on the stream that the zone was asked to time, and that is all that is added to a capture. A
//! launch that the driver refuses leaves the capture as it was, and its zone without a time. Kernels are compiled before:
//! where that is not done yet, nothing is captured, and it is counted.
//!
//! Zones whose borders touch share a stamp: if the stream stands right behind one, nothing has been captured since.

mod abi;
mod device;
mod events;
mod ring;
mod source;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::driver::{ContextPtr, Driver, StreamPtr};
use super::graphs::{Function, Handle, Place};

use device::NAME;
pub(crate) use device::Stamper;
pub(crate) use events::{Done, EventClock, Ring, id_of as id_of_event};
pub(crate) use source::{Source, Stamped};

/// Captures of which it is known which nodes are stamps. Of older ones stamps are not shared any more.
const MOST_CAPTURES: usize = 64;

/// How the session that records times its captures: a number of [`By`], or [`OFF`].
static ON: AtomicU8 = AtomicU8::new(OFF);
const OFF: u8 = 0;

/// Counts the sessions that time captures.
static SESSION: AtomicU64 = AtomicU64::new(0);

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

/// What the captures of one session came to.
static CAPTURED: AtomicU64 = AtomicU64::new(0);
static SHARED: AtomicU64 = AtomicU64::new(0);
static NOT_READY: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static SPANNING: AtomicU64 = AtomicU64::new(0);
static LAUNCHES_LOST: AtomicU64 = AtomicU64::new(0);

/// What captured zones are timed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum By {
    Stamps = 1,
    Events = 2,
}

#[derive(Default)]
struct State {
    contexts: HashMap<u64, Known>,
    /// Contexts in which something was captured that could not be timed yet.
    wanted: Vec<(usize, u64)>,
    /// The stamps of each capture, by their nodes; the latest captures.
    captures: VecDeque<(u64, HashMap<Handle, u32>)>,
    last_id: u32,
}

enum Known {
    Wanted,
    Ready(Arc<Stamper>),
    Failed,
}

/// A stamp at a border of a zone.
#[derive(Clone, Debug)]
pub(super) struct Border {
    pub(super) id: u32,
    /// Where the stream stands with a stamp that was captured for this border; none where one was there already.
    pub(super) place: Option<Place>,
}

/// Borders of a session's captured zones, and zones without a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) captured: u64,
    pub(crate) shared: u64,
    pub(crate) not_ready: u64,
    pub(crate) refused: u64,
    pub(crate) spanning: u64,
    pub(crate) launches_lost: u64,
}

/// From now on zones that are captured are timed.
pub(crate) fn turn_on(by: By) {
    [&CAPTURED, &SHARED, &NOT_READY, &REFUSED, &SPANNING, &LAUNCHES_LOST]
        .into_iter()
        .for_each(|count| count.store(0, Ordering::Relaxed));
    // What could not be had is asked for again, and said again.
    lock().contexts.retain(|_, known| !matches!(known, Known::Failed));
    SESSION.fetch_add(1, Ordering::Relaxed);
    ON.store(by as u8, Ordering::Release);
}

/// From now on they are not.
pub(crate) fn turn_off() {
    ON.store(OFF, Ordering::Release);
}

pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed) != OFF
}

fn is_by_events() -> bool {
    ON.load(Ordering::Acquire) == By::Events as u8
}

/// The number of the session, if it is one that wants to be told of launches.
pub(crate) fn session_by_events() -> Option<u64> {
    is_by_events().then(session)
}

/// The number of the session that is on, or was on last.
pub(crate) fn session() -> u64 {
    SESSION.load(Ordering::Relaxed)
}

/// A launch has no events of its own.
pub(crate) fn loses_launch() {
    LAUNCHES_LOST.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn counts() -> Counts {
    let [captured, shared, not_ready, refused, spanning, launches_lost] =
        [&CAPTURED, &SHARED, &NOT_READY, &REFUSED, &SPANNING, &LAUNCHES_LOST]
            .map(|count| count.load(Ordering::Relaxed));
    Counts { captured, shared, not_ready, refused, spanning, launches_lost }
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
    place: &Place,
) -> Option<Border> {
    if let [node] = &*place.frontier
        && let Some(id) = stamp_at(place.capture, *node)
    {
        SHARED.fetch_add(1, Ordering::Relaxed);
        return Some(Border { id, place: None });
    }
    let stamped = capture(driver, stream, context);
    match &stamped {
        Ok(_) => &CAPTURED,
        Err(Untimed::NotReady) => &NOT_READY,
        Err(Untimed::Refused) => &REFUSED,
    }
    .fetch_add(1, Ordering::Relaxed);
    stamped.ok()
}

/// Why a border has no stamp.
enum Untimed {
    NotReady,
    Refused,
}

fn capture(driver: &'static Driver, stream: StreamPtr, context: Option<ContextPtr>) -> Result<Border, Untimed> {
    let refused = |_| Untimed::Refused;
    let current = driver.current_context().map_err(refused)?;
    let context = context.unwrap_or(current);
    if context.is_null() {
        return Err(Untimed::NotReady);
    }
    let context_id = driver.context_id(context).map_err(refused)?;
    let (stamper, id) = {
        let mut state = lock();
        let State { contexts, wanted, last_id, .. } = &mut *state;
        let stamper = if is_by_events() {
            None
        } else {
            let known = contexts.entry(context_id).or_insert_with(|| {
                wanted.push((context as usize, context_id));
                Known::Wanted
            });
            let Known::Ready(stamper) = known else { return Err(Untimed::NotReady) };
            Some(Arc::clone(stamper))
        };
        *last_id += 1;
        (stamper, *last_id)
    };
    let work = || {
        match stamper {
            Some(stamper) => stamper.capture(stream, id)?,
            None => events::capture(driver, stream, context, context_id, id)?,
        }
        driver.capture(stream)
    };
    let place = if context == current { work() } else { driver.with_context(context, work) };
    let place = place.map_err(refused)?.ok_or(Untimed::Refused)?;
    if let [node] = &*place.frontier {
        let mut state = lock();
        match state.captures.iter_mut().find(|(capture, _)| *capture == place.capture) {
            Some((_, stamps)) => drop(stamps.insert(*node, id)),
            None => {
                state.captures.push_back((place.capture, HashMap::from([(*node, id)])));
                if state.captures.len() > MOST_CAPTURES {
                    state.captures.pop_front();
                }
            }
        }
    }
    Ok(Border { id, place: Some(place) })
}

fn stamp_at(capture: u64, node: Handle) -> Option<u32> {
    let state = lock();
    let (_, stamps) = state.captures.iter().rev().find(|(known, _)| *known == capture)?;
    stamps.get(&node).copied()
}

/// A session with stamps has met this context.
pub(super) fn want(context: ContextPtr, id: u64) {
    if is_by_events() {
        return;
    }
    let mut state = lock();
    let State { contexts, wanted, .. } = &mut *state;
    contexts.entry(id).or_insert_with(|| {
        wanted.push((context as usize, id));
        Known::Wanted
    });
}

/// The same of the context that is current on this thread, if there is one.
pub(crate) fn want_current() {
    if let Ok(driver) = Driver::get()
        && let Ok(context) = driver.current_context()
        && !context.is_null()
        && let Ok(id) = driver.context_id(context)
    {
        want(context, id);
    }
}

/// Makes what the contexts need that were met since; gives what cannot be had, in words. It takes some ms for each.
pub(crate) fn prepare() -> Vec<String> {
    let wanted = {
        let mut state = lock();
        std::mem::take(&mut state.wanted)
    };
    let Ok(driver) = Driver::get() else { return Vec::new() };
    let mut problems = Vec::new();
    for (context, id) in wanted {
        let context = context as ContextPtr;
        // One that is gone already is nobody's problem.
        let is_there = driver.context_id(context) == Ok(id);
        // What breaks no capture: kernels are compiled while other threads capture.
        let made = is_there.then(|| driver.outside_captures(|| Stamper::new(driver, context, id)));
        let known = match made {
            Some(Ok(stamper)) => Known::Ready(Arc::new(stamper)),
            Some(Err(error)) => {
                problems.push(format!("replays of graphs are not timed by stamps: {error}"));
                Known::Failed
            }
            None => Known::Failed,
        };
        lock().contexts.insert(id, known);
    }
    problems
}

/// The contexts that are ready, with a reader each for what is stamped from now on.
pub(crate) fn ready() -> Vec<Arc<Stamper>> {
    let state = lock();
    let ready = state.contexts.values().filter_map(|known| match known {
        Known::Ready(stamper) => Some(Arc::clone(stamper)),
        _ => None,
    });
    ready.collect()
}

/// Whether there is something for [`prepare`], or something new in [`ready`].
pub(crate) fn is_wanted() -> bool {
    !lock().wanted.is_empty()
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
