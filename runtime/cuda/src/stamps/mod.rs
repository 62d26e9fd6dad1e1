//! Stamps: kernels with one thread that are captured at the borders of zones and write the device's time in each replay.
//!
//! Zones in a capture call `border` for a stamp. The collector calls [`prepare`], and reads the stamps through [`Source`]s. `contexts`
//! prepares contexts, `device` has the state for one context, `clock` relates the device's time to the host's, `ring` is the memory that the device writes, and `abi` has the driver calls.
//!
//! A stamp is one kernel launch on the stream of its zone, and nothing else is added to a capture. If the driver refuses the launch, the
//! capture is unchanged, and the zone has no time.
//!
//! A context needs a module, a ring and a stream before its first stamp. The collector creates them for contexts that the session uses
//! outside of captures. If a program's first use of a context is a capture, the capturing thread creates them once, in the relaxed capture
//! mode (`stamper_of`). Nothing here synchronises, but the driver may wait for work in the context when it loads a module.
//!
//! A stream that was forked from another one may be joined before its zone ends. Nothing would then join the stamp at the zone's end, and
//! the capture would fail as unjoined. No driver reports on which stream a capture began. After each stamp of an end, the stream is
//! therefore moved back to its position before the stamp (`Driver::stand`). The same is done after the stamp of a begin if the zone ends
//! without any work.
//!
//! A program may update an executable graph with a second capture of the same work, which needs the same nodes. So the first border of a
//! capture decides whether the capture has stamps, and all its other borders follow (`Choice`). A context that is not ready in time has no
//! stamps for the rest of the session (`contexts`). Only if the driver refuses a later stamp, that border alone has none.
//!
//! Adjacent zones share a stamp: if the stream is directly after a stamp, or was moved back from one and nothing was captured since, no new
//! stamp is needed. A zone that begins at such a position moves its stream after the stamp again, so that its work follows the stamp.

mod abi;
mod clock;
mod contexts;
mod device;
mod ring;
mod source;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::driver::{ContextPtr, CudaError, Driver, StreamPtr};
use super::graph_api::{CapturePosition, Function, Handle};
use super::owner::Keeper;
use warpline_core::fork::PerProcess;

pub(crate) use clock::place_read;
pub(crate) use contexts::ready_in;
pub use contexts::want;
use contexts::{Readiness, hold, home, stamper_of};
pub use contexts::{is_wanted, prepare, ready, want_current};
pub(crate) use device::{NAME, Stamper};
pub(crate) use device::{PTX, SPIN};
pub use source::{Source, Stamped};

/// The number of captures whose stamps are known. A capture that is gone on with after as many others decides anew, and shares no stamp with
/// its zones before.
const MOST_CAPTURES: usize = 256;

/// Whether the recording session times its captures.
static ON: AtomicBool = AtomicBool::new(false);

/// Whether the kernel after a begin's stamp waits only for the stamp's launch, if the driver and the device support that.
static BY_LAUNCH: AtomicBool = AtomicBool::new(false);

/// The number of sessions that have timed captures.
static SESSION: AtomicU64 = AtomicU64::new(0);

static STATE: PerProcess<Mutex<StampState>> = PerProcess::new(Mutex::default);

/// The message for the user if a zone is captured without a stamp.
const REFUSED_ONE: &str = "captured zones are not timed in replays: the driver refused a stamp; make the stream's context current \
                           on the thread that captures, and look at the capture's own errors";

/// The counts of the current session's captures.
static CAPTURED: AtomicU64 = AtomicU64::new(0);
static SHARED: AtomicU64 = AtomicU64::new(0);
static NOT_READY: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static SPANNING: AtomicU64 = AtomicU64::new(0);

#[derive(Default)]
struct StampState {
    contexts: HashMap<u64, Readiness>,
    /// The contexts in which this session captures no stamps, because one of its captures could not wait until the context was ready.
    left_out: HashSet<u64>,
    /// The owners of contexts, by context id. A primary context needs none.
    keepers: HashMap<u64, Keeper>,
    /// Contexts that the session uses and that the collector has yet to prepare.
    wanted: Vec<(usize, u64)>,
    /// Reasons why captured zones are not timed, for the report and standard error. Each is given once per session.
    problems: Vec<String>,
    /// The reasons that were already given in this session.
    told: Vec<&'static str>,
    /// The stamps of the latest captures.
    captures: VecDeque<(u64, Stamps)>,
    last_id: u32,
}

/// The stamps of one capture.
#[derive(Default)]
struct Stamps {
    /// None before the first border.
    choice: Option<Choice>,
    /// The number of stamps that were captured or are being captured.
    count: usize,
    /// The ids of stamps, by node.
    nodes: HashMap<Handle, u32>,
    /// For each stream, the last stamp from which it was moved back, and the position to which it was moved.
    beside: HashMap<usize, Beside>,
}

/// Whether a capture has stamps.
#[derive(Clone, Copy)]
enum Choice {
    /// It has those of this context. Clocks of different contexts are not compared within a replay.
    Stamps(u64),
    None(Untimed),
}

#[derive(Clone)]
struct Beside {
    id: u32,
    /// The position directly after the stamp.
    behind: CapturePosition,
    frontier: Box<[Handle]>,
}

/// The stamp at a border of a zone.
#[derive(Clone, Debug)]
pub(super) struct Border {
    pub(super) id: u32,
    /// The position after the stamp, if the stream was moved there for this border; none if it was not moved.
    pub(super) place: Option<CapturePosition>,
}

/// The begin or the end of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZoneEdge {
    Begin,
    End,
}

/// The numbers of borders of captured zones in a session, by outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub captured: u64,
    pub shared: u64,
    pub not_ready: u64,
    pub refused: u64,
    pub spanning: u64,
}

/// Turns on stamps for captured zones. `by_launch`: the kernel after a begin's stamp waits only for the stamp's launch, if the driver and
/// the device support that.
pub fn turn_on(by_launch: bool) {
    BY_LAUNCH.store(by_launch, Ordering::Relaxed);
    [&CAPTURED, &SHARED, &NOT_READY, &REFUSED, &SPANNING]
        .into_iter()
        .for_each(|count| count.store(0, Ordering::Relaxed));
    SESSION.fetch_add(1, Ordering::Relaxed);
    // A new session retries contexts that failed, and reports the reasons again.
    {
        let mut state = lock();
        state.contexts.retain(|_, known| !matches!(known, Readiness::Failed | Readiness::Wanted));
        state.wanted.clear();
        state.left_out.clear();
        state.keepers.retain(|_, keeper| keeper.is_alive(session()));
        state.problems.clear();
        state.told.clear();
    }
    ON.store(true, Ordering::Release);
}

/// Turns off stamps.
pub fn turn_off() {
    ON.store(false, Ordering::Release);
}

pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Returns the number of the current session with stamps, or of the last one.
fn session() -> u64 {
    SESSION.load(Ordering::Relaxed)
}

pub fn counts() -> Counts {
    let [captured, shared, not_ready, refused, spanning] =
        [&CAPTURED, &SHARED, &NOT_READY, &REFUSED, &SPANNING].map(|count| count.load(Ordering::Relaxed));
    Counts { captured, shared, not_ready, refused, spanning }
}

/// Counts a captured zone that began before its capture or ended after it.
pub(crate) fn spans() {
    if is_on() {
        SPANNING.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the stamp for the border of a zone at the stream's current position. If there can be none, that is counted. The stream's context
/// is `context`, or else the calling thread's current one.
pub(super) fn border(
    driver: &'static Driver,
    stream: StreamPtr,
    context: Option<ContextPtr>,
    keeper: Option<&Keeper>,
    place: &CapturePosition,
    of: ZoneEdge,
) -> Option<Border> {
    let known = lock().known(stream, place);
    let (stamped, is_shared) = match known {
        Known::Untimed(why) => (Err(why), false),
        Known::Behind(id) => (Ok(Border { id, place: None }), true),
        Known::Beside(beside) if of == ZoneEdge::End => (Ok(Border { id: beside.id, place: None }), true),
        Known::Beside(beside) => {
            let led = driver.in_context(context, || stand_behind(driver, stream, beside.behind));
            let border = led.map(|behind| Border { id: beside.id, place: Some(behind) });
            (border.map_err(|_| Untimed::Refused), true)
        }
        Known::Nothing => {
            let stamped = capture(driver, stream, context, keeper, place, of);
            if let Err(why) = stamped {
                lock().stamps_of(place.capture).fail(why);
            }
            (stamped, false)
        }
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

/// The reason why a border has no stamp.
#[derive(Clone, Copy)]
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
    let own_id = driver.context_id(context).map_err(refused)?;
    let (context, context_id) = home(driver, stream, context, own_id).map_err(refused)?;
    // The keeper is stored first, because the collector uses the context as soon as it is ready.
    lock().keep(context_id, keeper);
    let stamper = stamper_of(driver, context, context_id).ok_or(Untimed::NotReady)?;
    let id = {
        let mut state = lock();
        state.last_id += 1;
        let id = state.last_id;
        state.stamps_of(before.capture).begin(context_id)?;
        id
    };
    // Another thread may have ended the capture in the meantime and begun a new one.
    let is_same = |place: &CapturePosition| place.capture == before.capture;
    let work = || {
        // If the stamp waited only for launches, it would read the clock too early.
        let stood = before.behind_all().map_or(Ok(()), |behind_all| driver.stand(stream, &behind_all));
        if let Err(error) = stood.and_then(|()| stamper.capture(stream, id)) {
            lock().stamps_of(before.capture).take_back();
            return Err(error);
        }
        let place = driver.capture(stream)?.filter(is_same);
        match place {
            // The first kernel of a graph would begin late with a launch-order edge.
            Some(place) if of == ZoneEdge::Begin && !before.frontier.is_empty() && stamper.orders_by_launch() => {
                stand_behind(driver, stream, stamper.behind(place)).map(Some)
            }
            place => Ok(place),
        }
    };
    let place = if context == current { work() } else { driver.with_context(context, work) };
    let place = place.map_err(refused)?.ok_or(Untimed::Refused)?;
    if let [node] = &*place.frontier {
        lock().stamps_of(place.capture).nodes.insert(*node, id);
        if of == ZoneEdge::End {
            let behind = stamper.behind(place.clone());
            lead_back(driver, stream, Some(context), before, behind, id);
        }
    }
    Ok(Border { id, place: Some(place) })
}

/// Moves a stream to the position after a stamp. Launch-order edges are used if the position has them and the driver accepts them. The
/// stream's context must be current.
fn stand_behind(driver: &Driver, stream: StreamPtr, behind: CapturePosition) -> Result<CapturePosition, CudaError> {
    match (driver.stand(stream, &behind), behind.behind_all()) {
        (Err(_), Some(behind_all)) => driver.stand(stream, &behind_all).map(|()| behind_all),
        (led, _) => led.map(|()| behind),
    }
}

/// Moves the stream back from the stamp of a zone's begin at the end of the zone. The caller has checked that nothing was captured after
/// the stamp.
pub(super) fn leave(
    driver: &'static Driver,
    stream: StreamPtr,
    context: Option<ContextPtr>,
    before: &CapturePosition,
    behind: &CapturePosition,
    id: u32,
) {
    if behind.frontier.len() == 1 {
        lead_back(driver, stream, context, before, behind.clone(), id);
    }
}

fn lead_back(
    driver: &'static Driver,
    stream: StreamPtr,
    context: Option<ContextPtr>,
    to: &CapturePosition,
    behind: CapturePosition,
    id: u32,
) {
    if driver.in_context(context, || driver.stand(stream, to)).is_ok() {
        let beside = Beside { id, behind, frontier: to.frontier.clone() };
        lock().stamps_of(to.capture).beside.insert(stream as usize, beside);
    }
}

/// What is known about a border before anything is captured for it.
enum Known {
    /// The stream is directly behind a stamp.
    Behind(u32),
    /// The stream was moved back from a stamp, and nothing was captured since.
    Beside(Beside),
    /// The capture has no stamps.
    Untimed(Untimed),
    Nothing,
}

impl Stamps {
    /// Decides, if this is the first border, that the capture has the stamps of a context. Fails if it has none, or those of another one.
    fn begin(&mut self, context_id: u64) -> Result<(), Untimed> {
        match *self.choice.get_or_insert(Choice::Stamps(context_id)) {
            Choice::Stamps(of) if of == context_id => {
                self.count += 1;
                Ok(())
            }
            Choice::Stamps(_) => Err(Untimed::Elsewhere),
            Choice::None(why) => Err(why),
        }
    }

    /// Notes that a stamp that was begun is not in the capture.
    fn take_back(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// Decides that the capture has no stamps, unless it has some.
    fn fail(&mut self, why: Untimed) {
        if self.count == 0 && !matches!(self.choice, Some(Choice::None(_))) {
            self.choice = Some(Choice::None(why));
        }
    }
}

impl StampState {
    /// Adds a reason, unless it was given in this session.
    fn tell_once(&mut self, problem: &'static str) {
        if !self.told.contains(&problem) {
            self.told.push(problem);
            self.problems.push(problem.to_owned());
        }
    }

    /// Requests that the collector prepare a context, unless it is known already.
    fn want(&mut self, context: ContextPtr, id: u64) {
        let StampState { contexts, wanted, .. } = self;
        contexts.entry(id).or_insert_with(|| {
            wanted.push((context as usize, id));
            Readiness::Wanted
        });
    }

    /// Stores the owner of a context; without a keeper, that is the caller of [`RawStream::from_ptr`](super::RawStream::from_ptr).
    fn keep(&mut self, id: u64, keeper: Option<&Keeper>) {
        let session = session();
        if !self.keepers.get(&id).is_some_and(|known| known.is_alive(session)) {
            self.keepers.insert(id, keeper.cloned().unwrap_or(Keeper::Caller { session }));
        }
    }

    /// Returns the stamps of a capture. Those of the capture that was not used for the longest time are forgotten.
    fn stamps_of(&mut self, capture: u64) -> &mut Stamps {
        let last = self.captures.len();
        let at = self.captures.iter().rposition(|(known, _)| *known == capture).unwrap_or(last);
        // The capture that goes on is the newest already, unless threads capture at the same time.
        if at + 1 != last {
            let stamps = self.captures.remove(at).unwrap_or_else(|| (capture, Stamps::default()));
            self.captures.push_back(stamps);
            if self.captures.len() > MOST_CAPTURES {
                self.captures.pop_front();
            }
        }
        let newest = self.captures.len() - 1;
        &mut self.captures[newest].1
    }

    /// Returns what is known about the border of a zone at the stream's position.
    fn known(&mut self, stream: StreamPtr, place: &CapturePosition) -> Known {
        let stamps = self.stamps_of(place.capture);
        if let Some(Choice::None(why)) = stamps.choice {
            return Known::Untimed(why);
        }
        if let [node] = &*place.frontier
            && let Some(id) = stamps.nodes.get(node)
        {
            return Known::Behind(*id);
        }
        match stamps.beside.get(&(stream as usize)) {
            Some(beside) if beside.frontier == place.frontier => Known::Beside(beside.clone()),
            _ => Known::Nothing,
        }
    }
}

/// Returns the reasons since the last call why captured zones are not timed.
pub fn problems() -> Vec<String> {
    std::mem::take(&mut lock().problems)
}

/// Returns the stamp kernels, as graph nodes refer to them.
pub(crate) fn functions() -> Vec<Handle> {
    ready().iter().filter(|stamper| stamper.is_there()).map(|stamper| stamper.function()).collect()
}

/// Returns the id of the stamp if the graph node is one.
pub(crate) fn id_of(
    driver: &Driver,
    node: Handle,
    function: Function,
    name: Option<&str>,
    functions: &[Handle],
) -> Option<u32> {
    // If the kernel's context was destroyed, the handle may belong to another kernel.
    let is_stamp = match (name, function) {
        (Some(name), _) => name == NAME,
        (None, Function::Function(function)) => functions.contains(&function),
        (None, Function::Kernel(_)) => false,
    };
    is_stamp.then(|| driver.second_parameter(node)).flatten().map(|id| id as u32)
}

/// Takes the lock, under which no driver is called.
fn lock() -> MutexGuard<'static, StampState> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}
