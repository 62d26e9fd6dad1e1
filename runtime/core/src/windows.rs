//! The windows of a session with a budget. They select the zones to record, so that each step is recorded completely or not at
//! all.
//!
//! The session's time is a sequence of cycles. In a *gap* the switch is asleep, and a zone costs as much as without a session.
//! Then roots are *counted*: a root is a zone that nests and begins while no other such zone is open on its thread. A root that
//! begins now is followed to its end, so that the window knows which threads are between roots; nothing is recorded. Then the
//! window is *open*: roots that begin are recorded, with everything inside them. The window is *closing* until the last of them
//! ends. The collector (`budget.rs`) starts each phase. Zones call `admit` out of line, and only while the switch is awake.
//!
//! A gap leaves no trace of the zones that began in it, so a zone may look like a root although it is inside one that was not
//! followed. A range that has been seen inside a root is therefore not a root on a thread that has not been seen between roots in
//! this cycle. If a thread runs more such zones than any root contains, they are roots. A zone that lasts longer than
//! [`LONGEST_ROOT`] is not a root but a frame around roots.
//!
//! A window ends at its planned time even if the collector is late, which on a busy host may be by the length of many windows.
//!
//! Nothing that a zone calls here allocates, locks or waits. Only zones in a counting or open window reach it. The collector's calls name its
//! session, because a collector that was given up may outlive it.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::catalog::RangeSpec;
use crate::clock::now_ns;
use crate::fork::{Home, PerProcess};
use crate::lock::lock;
use crate::sample::Sampled;
use crate::switch;

/// The maximum length of a root. A longer zone is not a step; the zones inside it are.
pub const LONGEST_ROOT: Duration = Duration::from_millis(250);

/// The expected maximum number of zones in a root, until a root with more zones is seen.
const FEW_CHILDREN: u32 = 16;

/// The current phase of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is recorded or counted.
    Closed,
    /// Roots are counted and followed.
    Counting,
    /// Roots that begin are recorded.
    Open,
    /// Roots that began while the window was open are recorded to their end.
    Closing,
}

/// The phase in the lowest bits, and the number of the cycle above it.
static STATE: AtomicU32 = AtomicU32::new(0);
const PHASE_BITS: u32 = 2;

/// The probability with which a root is recorded in the cycle, in parts of 2³² − 1.
static SHARE: AtomicU32 = AtomicU32::new(0);

/// The time at which the window ends, even if the collector is late.
static UNTIL_NS: AtomicI64 = AtomicI64::new(0);

/// Whether zones on streams that are being captured are recorded outside of windows, too.
static CAPTURES: AtomicBool = AtomicBool::new(false);

/// The number of roots of the open window that have not ended, and of zones that were admitted as roots and have not started.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);
static COUNTED: AtomicU64 = AtomicU64::new(0);
static RECORDED: AtomicU64 = AtomicU64::new(0);

/// The number of calls of [`suspend`].
static SUSPENSIONS: AtomicU32 = AtomicU32::new(0);

/// The number of zones in the root that contained the most.
static MOST_CHILDREN: AtomicU32 = AtomicU32::new(FEW_CHILDREN);

/// The version of the knowledge about which ranges nest in others. It increases when that knowledge becomes invalid, and starts
/// above [`Nesting`]'s zero.
static LESSON: AtomicU32 = AtomicU32::new(1);

/// The knowledge about where zones of a range begin.
#[derive(Debug, Default)]
pub(crate) struct Nesting(AtomicU32);

/// The value for a range whose zones last so long that roots begin inside them.
const FRAME: u32 = u32::MAX;

impl Nesting {
    fn is_inside_roots(&self) -> bool {
        self.0.load(Ordering::Relaxed) == LESSON.load(Ordering::Relaxed)
    }

    fn is_frame(&self) -> bool {
        self.0.load(Ordering::Relaxed) == FRAME
    }

    /// Records that a zone of the range has begun inside a root. Returns whether this is new.
    fn see_inside_root(&self) -> bool {
        let lesson = LESSON.load(Ordering::Relaxed);
        let known = self.0.load(Ordering::Relaxed);
        let is_news = known != lesson && known != FRAME;
        if is_news {
            self.0.store(lesson, Ordering::Relaxed);
            NEWS.fetch_add(1, Ordering::Relaxed);
        }
        is_news
    }

    /// Records that zones of the range contain roots. This invalidates the knowledge about the zones inside them.
    fn see_frame(&self) {
        self.0.store(FRAME, Ordering::Relaxed);
        LESSON.fetch_add(1, Ordering::Relaxed);
        NEWS.fetch_add(1, Ordering::Relaxed);
    }
}

/// The number of times that something new was learned: threads that took a zone for a root may have been wrong.
static NEWS: AtomicU32 = AtomicU32::new(0);

/// The treatment of a zone by a session with windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Refused,
    /// The zone is a root that is followed to its end and not recorded.
    Followed,
    Recorded,
}

/// The role of a zone in the windows. Its slot keeps it until the zone's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RootKind {
    /// Not a root, or no session with windows.
    #[default]
    None,
    /// Admitted and not started, so not known to be a root yet: one that is to be recorded.
    ToRecord,
    /// The same, of a zone that is to be followed.
    ToFollow,
    Followed,
    Recorded,
}

/// A thread's knowledge of the cycle.
#[derive(Clone, Copy)]
struct ThreadState {
    cycle: u32,
    /// The root that is open on the thread; `begin_ns` is its begin.
    root: Option<&'static RangeSpec>,
    begin_ns: i64,
    is_recorded: bool,
    /// Whether the thread was seen between two roots in this cycle.
    is_between: bool,
    news: u32,
    /// The number of zones inside the root; without a root, of zones that may be inside one.
    zones: u32,
    /// Whether a zone was admitted as a root and has not started. It counts as under way.
    is_starting: bool,
    /// Whether the root counts as under way: it was admitted as a root.
    is_counted: bool,
    /// The process in which this is known; none before the first zone.
    home: Option<Home>,
}

impl ThreadState {
    const NEW: ThreadState = ThreadState {
        cycle: 0,
        root: None,
        begin_ns: 0,
        is_recorded: false,
        is_between: false,
        news: 0,
        zones: 0,
        is_starting: false,
        is_counted: false,
        home: None,
    };
}

thread_local! {
    static THREAD: Cell<ThreadState> = const { Cell::new(ThreadState::NEW) };
}

fn change<T: Default>(change: impl FnOnce(&mut ThreadState) -> T) -> T {
    let change = |cell: &Cell<ThreadState>| {
        let mut state = cell.get();
        if !state.home.is_some_and(Home::is_here) {
            // The root of a forked process is the parent's, and does not end here.
            state = ThreadState { home: Some(Home::here()), ..ThreadState::NEW };
        }
        let result = change(&mut state);
        cell.set(state);
        result
    };
    THREAD.try_with(change).unwrap_or_default()
}

impl Default for Admission {
    /// Returns the value for a thread whose locals are destroyed.
    fn default() -> Admission {
        Admission::Refused
    }
}

fn unpack(state: u32) -> (u32, Phase) {
    let phase = [Phase::Closed, Phase::Counting, Phase::Open, Phase::Closing][(state & 3) as usize];
    (state >> PHASE_BITS, phase)
}

/// Decides whether a zone that begins now is recorded.
#[cold]
pub(crate) fn admit(range: &'static RangeSpec) -> Admission {
    let (cycle, phase) = unpack(STATE.load(Ordering::Relaxed));
    let nesting = range.nesting();
    change(|thread| {
        if thread.cycle != cycle {
            thread.enter(cycle);
        }
        if thread.root.is_some() {
            thread.zones = thread.zones.saturating_add(1);
            nesting.see_inside_root();
            return if thread.is_recorded { Admission::Recorded } else { Admission::Refused };
        }
        thread.give_up_start();
        let is_over = || phase == Phase::Open && now_ns() >= UNTIL_NS.load(Ordering::Relaxed);
        if matches!(phase, Phase::Closed | Phase::Closing) || is_over() {
            return Admission::Refused;
        }
        if nesting.is_frame() {
            return if phase == Phase::Open { Admission::Recorded } else { Admission::Refused };
        }
        let news = NEWS.load(Ordering::Relaxed);
        if thread.news != news {
            (thread.news, thread.is_between) = (news, false);
        }
        if !thread.is_between && nesting.is_inside_roots() {
            thread.zones = thread.zones.saturating_add(1);
            if thread.zones <= MOST_CHILDREN.load(Ordering::Relaxed) {
                return Admission::Refused;
            }
        }
        match phase {
            Phase::Counting => Admission::Followed,
            _ if thread.begin_start() => Admission::Recorded,
            _ => Admission::Refused,
        }
    })
}

impl ThreadState {
    /// Enters a new cycle. Zones that began in the gap are unknown.
    fn enter(&mut self, cycle: u32) {
        (self.cycle, self.is_between, self.is_starting) = (cycle, false, false);
        match self.root {
            None => self.zones = 0,
            Some(root) if now_ns() - self.begin_ns > LONGEST_ROOT.as_nanos() as i64 => {
                root.nesting().see_frame();
                (self.root, self.zones) = (None, 0);
            }
            // The root's window is over; the rest of the root was not recorded.
            Some(_) => self.is_recorded = false,
        }
    }

    /// Lets a root begin in the open window, which then waits for it. Returns false if the window has closed by then.
    fn begin_start(&mut self) -> bool {
        // This store precedes the load below, and the collector's store of the phase precedes its load of the count, so one sees
        // the other.
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        self.is_starting = true;
        let is_open = unpack(STATE.load(Ordering::SeqCst)) == (self.cycle, Phase::Open);
        if !is_open {
            self.give_up_start();
        }
        is_open
    }

    /// Gives up the start of an admitted zone that is not a root of the window.
    fn give_up_start(&mut self) {
        if std::mem::take(&mut self.is_starting) {
            leave(self.cycle);
        }
    }
}

/// Removes a root of the cycle from those under way.
fn leave(cycle: u32) {
    // A root that was given up with its window is no longer counted.
    if unpack(STATE.load(Ordering::Relaxed)).0 == cycle {
        let _ = UNDER_WAY.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |count| count.checked_sub(1));
    }
}

/// Starts a zone that nests. With `is_followed`, it is not recorded. Returns its kind.
#[cold]
pub(crate) fn start(range: &'static RangeSpec, is_followed: bool) -> RootKind {
    if range.nesting().is_frame() {
        pass_over();
        return RootKind::None;
    }
    let begins = change(|thread| {
        if thread.root.is_some() {
            return false;
        }
        (thread.root, thread.begin_ns, thread.is_recorded, thread.zones) = (Some(range), now_ns(), !is_followed, 0);
        // The count for its start now counts for the root. It was given up if another root ran while its fields were evaluated.
        thread.is_counted = std::mem::take(&mut thread.is_starting);
        true
    });
    match (begins, is_followed) {
        (false, _) => RootKind::None,
        (true, true) => {
            COUNTED.fetch_add(1, Ordering::Relaxed);
            RootKind::Followed
        }
        (true, false) => {
            RECORDED.fetch_add(1, Ordering::Relaxed);
            RootKind::Recorded
        }
    }
}

/// Ends a root on the thread that began it. `cycle` is the cycle of a recorded root.
#[cold]
pub(crate) fn end(range: &'static RangeSpec, kind: RootKind, cycle: u32) {
    let (now, _) = unpack(STATE.load(Ordering::Relaxed));
    change(|thread| {
        // A frame is no longer the thread's root.
        if !thread.root.is_some_and(|root| std::ptr::eq(root, range)) {
            return;
        }
        if kind == RootKind::Recorded && std::mem::take(&mut thread.is_counted) {
            leave(cycle);
        }
        MOST_CHILDREN.fetch_max(thread.zones, Ordering::Relaxed);
        (thread.root, thread.zones) = (None, 0);
        thread.is_between = thread.cycle == now;
    });
}

/// Handles an admitted zone that is not recorded: if it is a root, it is not followed.
#[cold]
pub(crate) fn lose() {
    change(|thread| {
        if thread.root.is_none() {
            (thread.is_between, thread.zones) = (false, 0);
        }
        thread.give_up_start();
    });
}

/// Handles an admitted zone that is not a root, or that never starts.
#[cold]
pub(crate) fn pass_over() {
    change(ThreadState::give_up_start);
}

/// Returns the share and the window of a zone that is recorded now and has the chance `sampled` in its window.
#[cold]
pub(crate) fn sampled(sampled: Sampled) -> Sampled {
    let (cycle, _) = unpack(STATE.load(Ordering::Relaxed));
    sampled.in_window(SHARE.load(Ordering::Relaxed), cycle)
}

/// The counts of the process's roots. Like what is known of how ranges nest, they outlive a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roots {
    /// The number of roots that began while roots were counted and nothing was recorded.
    pub counted: u64,
    /// The number of roots that are recorded.
    pub recorded: u64,
    /// The number of the window's roots that have not ended.
    pub under_way: u32,
}

pub fn roots() -> Roots {
    Roots {
        counted: COUNTED.load(Ordering::Relaxed),
        recorded: RECORDED.load(Ordering::Relaxed),
        under_way: UNDER_WAY.load(Ordering::SeqCst),
    }
}

/// The session that began last, and whether it has windows.
static OWNER: PerProcess<Mutex<Option<(NonZeroU32, bool)>>> = PerProcess::new(Mutex::default);

/// Begins a session, with windows or without. From now on, a collector that an earlier session gave up changes no window.
pub fn begin_session(epoch: NonZeroU32, has_windows: bool) {
    let mut owner = lock(&OWNER);
    *owner = Some((epoch, has_windows));
    CAPTURES.store(false, Ordering::Relaxed);
    switch::set_windows(false, false);
}

/// Does something to the windows of this session, unless they are another one's by now.
fn as_owner(epoch: NonZeroU32, change: impl FnOnce()) {
    let owner = lock(&OWNER);
    if *owner == Some((epoch, true)) {
        change();
    }
}

/// Closes the window, before a session with windows is turned on or after it was stopped. With `stays_awake`, zones call `admit` even
/// in gaps.
pub fn suspend(epoch: NonZeroU32, stays_awake: bool) {
    as_owner(epoch, || {
        SUSPENSIONS.fetch_add(1, Ordering::SeqCst);
        change_phase(Phase::Closed, stays_awake);
    });
}

/// Returns the number of calls of [`suspend`]: the collector may see a stop only when it is over.
pub fn suspensions() -> u32 {
    SUSPENSIONS.load(Ordering::SeqCst)
}

/// Makes the session record every zone that is captured into a graph, outside of its windows and of its sample, too. A graph is captured
/// once, and its zones label all its replays. Stamps are nodes of the graph, and a second capture of the same work must have the same ones.
pub fn take_captures() {
    CAPTURES.store(true, Ordering::Relaxed);
}

/// Ends what [`take_captures`] began in this session.
pub fn leave_captures(epoch: NonZeroU32) {
    let owner = lock(&OWNER);
    if owner.is_some_and(|(owner, _)| owner == epoch) {
        CAPTURES.store(false, Ordering::Relaxed);
    }
}

#[inline]
pub fn takes_captures() -> bool {
    CAPTURES.load(Ordering::Relaxed)
}

/// Ends the session's windows: zones no longer consult `windows`.
pub fn finish(epoch: NonZeroU32) {
    leave_captures(epoch);
    as_owner(epoch, || {
        change_phase(Phase::Closed, true);
        switch::set_windows(false, false);
    });
}

/// Enters a phase; [`Phase::Counting`] begins a cycle. Only the collector calls it.
pub fn set(epoch: NonZeroU32, phase: Phase, stays_awake: bool) {
    as_owner(epoch, || change_phase(phase, stays_awake));
}

fn change_phase(phase: Phase, stays_awake: bool) {
    let (cycle, _) = unpack(STATE.load(Ordering::Relaxed));
    let cycle = if phase == Phase::Counting {
        UNDER_WAY.store(0, Ordering::Relaxed);
        // Zero means no window.
        ((cycle + 1) & (u32::MAX >> PHASE_BITS)).max(1)
    } else {
        cycle
    };
    STATE.store(cycle << PHASE_BITS | phase as u32, Ordering::SeqCst);
    switch::set_windows(true, phase == Phase::Closed && !stays_awake);
}

/// Returns whether a window is open, or its last root has not ended.
pub fn is_open() -> bool {
    matches!(unpack(STATE.load(Ordering::Relaxed)).1, Phase::Open | Phase::Closing)
}

/// Plans the window that opens next: the probability with which a root is recorded in it, and its end.
pub fn plan(epoch: NonZeroU32, share: f64, until_ns: i64) {
    as_owner(epoch, || {
        SHARE.store(crate::sample::parts(share), Ordering::Relaxed);
        UNTIL_NS.store(until_ns, Ordering::Relaxed);
    });
}

#[cfg(all(test, unix, feature = "enable", not(any(loom, miri))))]
mod tests;
