//! The steps of a program: where each begins and ends, and which of them a session records.
//!
//! A training loop calls [`step`], or a mark with `step` does. A process has one sequence of steps. A boundary takes a lock that only threads
//! of the application take, and puts the step that it ends into a bounded queue, which the collector reads. Without a session that takes
//! steps, a boundary costs one relaxed load. Nothing here allocates.
//!
//! With a schedule ([`Schedule`]), the boundary also turns recording on and off, so that whole steps are recorded.

mod queue;
mod schedule;

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub use queue::Ended;
use queue::Queue;
pub use schedule::{NotRecorded, Schedule};
use schedule::{Phase, Warmups};

use crate::clock::now_ns;
use crate::collective::IntoCount;
use crate::fork::{self, PerProcess};
use crate::lock::lock;
use crate::record::Span;
use crate::stream::thread;
use crate::switch;

/// Whether a session takes steps.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The number of the step that runs now plus one; 0 for none.
static CURRENT: AtomicU64 = AtomicU64::new(0);
/// Of each process: another thread of the parent may hold the lock in a fork.
static SEQUENCE: PerProcess<Mutex<Sequence>> = PerProcess::new(|| Mutex::new(Sequence::NEW));
static QUEUE: Queue = Queue::new();
/// The session whose collector takes the steps from the queue.
static READER: PerProcess<Mutex<Option<NonZeroU32>>> = PerProcess::new(Mutex::default);
static WARMUPS: Warmups = Warmups::new();
/// The last id of a step. Ids go on from one session to the next and into forked processes, so that a guard never ends another session's step.
static IDS: AtomicU32 = AtomicU32::new(0);
/// Steps that the schedule left out.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
/// Steps that a stop or the end of the session cut.
static CUT: AtomicU64 = AtomicU64::new(0);

/// The steps of a session.
struct Sequence {
    epoch: Option<NonZeroU32>,
    schedule: Option<Schedule>,
    /// The number of steps that have begun.
    begun: u64,
    open: Option<Open>,
    /// Whether the program has stopped the session.
    is_stopped: bool,
}

#[derive(Clone, Copy)]
struct Open {
    number: u64,
    begin_ns: i64,
    thread: u64,
    phase: Phase,
    /// Tells steps of the program from one another, whatever their numbers are.
    id: u32,
}

/// Begins step `number` of the program on this thread, and ends the step before it.
///
/// Call it once at the begin of each iteration, on one thread. Steps are in the report, in traces, and in the tables of many ranks
/// (`ranks=DIR`); the settings `wait`, `warmup`, `active` and `repeat` choose the steps that are recorded. The last step ends when the session
/// finishes or stops; it is counted and has no record. Without a session, the call is one relaxed load.
///
/// ```
/// for step in 0..3_u64 {
///     warpline::step(step);
///     // … forward, backward, optimizer …
/// }
/// ```
#[inline]
pub fn step(number: impl IntoCount) {
    if IS_ON.load(Ordering::Relaxed) {
        begin(Some(number.into_count()));
    }
}

/// The step of a zone whose mark has `step`. Dropping it ends the step.
#[doc(hidden)]
#[derive(Debug)]
#[must_use]
pub struct StepGuard(Option<NonZeroU32>);

impl StepGuard {
    /// Begins a step with the next number.
    #[inline(always)]
    pub fn next() -> StepGuard {
        StepGuard::with(|| None)
    }

    /// Begins a step with this number, which is computed only if a session takes steps.
    #[inline(always)]
    pub fn numbered<N: IntoCount>(number: impl FnOnce() -> N) -> StepGuard {
        StepGuard::with(|| Some(number().into_count()))
    }

    #[inline(always)]
    fn with(number: impl FnOnce() -> Option<u64>) -> StepGuard {
        let begins = IS_ON.load(Ordering::Relaxed);
        StepGuard(if begins { begin(crate::caught::caught(number).flatten()) } else { None })
    }
}

impl Drop for StepGuard {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(id) = self.0 {
            end(id);
        }
    }
}

/// Begins a step, and ends the one before it. Returns an id of the step.
#[cold]
#[inline(never)]
fn begin(number: Option<u64>) -> Option<NonZeroU32> {
    let mut sequence = lock(&SEQUENCE);
    let now_ns = now_ns();
    let next = sequence.open.map_or(sequence.begun, |open| open.number.saturating_add(1));
    sequence.end(now_ns);
    // A child of a fork, or the end of the session.
    if !IS_ON.load(Ordering::Relaxed) {
        return None;
    }
    let number = number.unwrap_or(next);
    let phase = sequence.schedule.map_or(Phase::Active, |schedule| schedule.phase(sequence.begun));
    sequence.begun += 1;
    let id = IDS.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
    let thread = thread::with(thread::Thread::id);
    sequence.open = Some(Open { number, begin_ns: now_ns, thread, phase, id });
    sequence.enter(phase, now_ns);
    CURRENT.store(number.saturating_add(1), Ordering::Relaxed);
    NonZeroU32::new(id)
}

/// Ends the step with this id, if it still runs.
#[cold]
#[inline(never)]
fn end(id: NonZeroU32) {
    // A child of a fork ends no step of its parent.
    if !IS_ON.load(Ordering::Relaxed) {
        return;
    }
    let mut sequence = lock(&SEQUENCE);
    if sequence.open.is_some_and(|open| open.id == id.get()) {
        let now_ns = now_ns();
        sequence.end(now_ns);
        // What runs between two steps belongs to neither, so a step that is not recorded begins here.
        if let Some(schedule) = sequence.schedule {
            let next = schedule.phase(sequence.begun);
            if next != Phase::Active {
                sequence.enter(next, now_ns);
            }
        }
    }
}

impl Sequence {
    const NEW: Sequence = Sequence { epoch: None, schedule: None, begun: 0, open: None, is_stopped: false };

    /// Ends the open step, and passes it to the collector if it is recorded.
    fn end(&mut self, now_ns: i64) {
        CURRENT.store(0, Ordering::Relaxed);
        let Some(open) = self.open.take() else { return };
        let Open { number, begin_ns, thread, phase, .. } = open;
        match phase {
            Phase::Active if self.is_stopped => drop(CUT.fetch_add(1, Ordering::Relaxed)),
            Phase::Active => {
                QUEUE.push(Ended { number, thread, host: Span { begin_ns, end_ns: now_ns.max(begin_ns) } })
            }
            _ => drop(LEFT_OUT.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Turns recording on or off for a phase of the schedule.
    fn enter(&mut self, phase: Phase, now_ns: i64) {
        let (Some(epoch), Some(_)) = (self.epoch, self.schedule) else { return };
        WARMUPS.set(phase == Phase::Warmup, now_ns);
        if self.is_stopped {
            return;
        }
        match (phase == Phase::Waiting, switch::epoch() == Some(epoch)) {
            (true, true) => switch::turn_off(epoch),
            (false, false) => switch::turn_on(epoch),
            _ => {}
        }
    }
}

/// Begins to take the steps of a session, which `schedule` selects. The session is not on yet.
pub fn begin_session(epoch: NonZeroU32, schedule: Option<Schedule>) {
    fork::in_children(leave_to_parent);
    let mut sequence = lock(&SEQUENCE);
    {
        // A collector that its session gave up may run on: it takes nothing of this session.
        let mut reader = lock(&READER);
        *reader = Some(epoch);
        QUEUE.clear();
    }
    WARMUPS.clear();
    LEFT_OUT.store(0, Ordering::Relaxed);
    CUT.store(0, Ordering::Relaxed);
    CURRENT.store(0, Ordering::Relaxed);
    *sequence = Sequence { epoch: Some(epoch), schedule, is_stopped: true, ..Sequence::NEW };
    IS_ON.store(true, Ordering::Release);
}

/// Turns the session on, or on again after a stop. With a schedule, a step that is recorded does so.
pub fn turn_on(epoch: NonZeroU32) {
    let mut sequence = lock(&SEQUENCE);
    if sequence.epoch != Some(epoch) {
        return switch::turn_on(epoch);
    }
    sequence.is_stopped = false;
    let phase = sequence.open.map(|open| open.phase);
    // The rest of a step that began while the session was stopped is not a step.
    if let Some(open) = &mut sequence.open {
        CUT.fetch_add(u64::from(open.phase == Phase::Active), Ordering::Relaxed);
        sequence.open = None;
    }
    if sequence.schedule.is_none() || phase.is_some_and(|phase| phase != Phase::Waiting) {
        switch::turn_on(epoch);
    }
}

/// Turns the session off, until [`turn_on`].
pub fn turn_off(epoch: NonZeroU32) {
    let mut sequence = lock(&SEQUENCE);
    if sequence.epoch == Some(epoch) {
        if !sequence.is_stopped && sequence.open.is_some_and(|open| open.phase == Phase::Active) {
            CUT.fetch_add(1, Ordering::Relaxed);
            sequence.open = None;
        }
        sequence.is_stopped = true;
    }
    switch::turn_off(epoch);
}

/// Returns whether the session is not on, whatever its schedule is.
pub fn is_stopped(epoch: NonZeroU32) -> bool {
    let sequence = lock(&SEQUENCE);
    sequence.epoch != Some(epoch) || sequence.is_stopped
}

/// Ends the steps of a session.
pub fn end_session(epoch: NonZeroU32) {
    let mut sequence = lock(&SEQUENCE);
    if sequence.epoch == Some(epoch) {
        IS_ON.store(false, Ordering::Release);
        sequence.epoch = None;
        sequence.open = None;
        CURRENT.store(0, Ordering::Relaxed);
        // What begins from now on is of no warm-up. What ran in it and is read later is.
        WARMUPS.set(false, now_ns());
    }
}

/// Runs in a forked child, which only stores: the steps are the parent's.
fn leave_to_parent() {
    IS_ON.store(false, Ordering::Relaxed);
}

/// Passes the steps of this session that have ended to `each`, oldest first. `each` must not wait: the begin of a session would wait for it.
pub fn collect(epoch: NonZeroU32, each: impl FnMut(Ended)) {
    let reader = lock(&READER);
    if *reader == Some(epoch) {
        QUEUE.collect(each);
    }
}

/// Returns whether steps have ended since the last call of [`collect`].
pub fn has_ended() -> bool {
    !QUEUE.is_empty()
}

pub fn not_recorded() -> NotRecorded {
    NotRecorded {
        left_out: LEFT_OUT.load(Ordering::Relaxed),
        cut: CUT.load(Ordering::Relaxed),
        dropped: QUEUE.dropped(),
    }
}

/// Returns whether what began on a thread at this time belongs to a step of the schedule's warm-up, which is recorded and not handed on.
#[inline]
pub fn is_warmup(begin_ns: i64) -> bool {
    WARMUPS.contain(begin_ns)
}

/// Returns the number of the step that runs now.
pub fn current() -> Option<u64> {
    CURRENT.load(Ordering::Relaxed).checked_sub(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The sequence of steps is the process's.
    static TURN: Mutex<()> = Mutex::new(());

    #[test]
    fn a_guard_ends_no_step_of_a_later_session() {
        let _turn = lock(&TURN);
        let (first, second) = (NonZeroU32::new(1_000_001), NonZeroU32::new(1_000_002));
        let (first, second) = (first.expect("not zero"), second.expect("not zero"));
        begin_session(first, None);
        let guard = StepGuard::next();
        end_session(first);
        begin_session(second, None);
        turn_on(second);
        let _its = StepGuard::next();
        drop(guard);
        assert_eq!(current(), Some(0), "the step of the second session runs");
        end_session(second);
        switch::turn_off(second);
    }

    #[test]
    fn the_collector_of_an_earlier_session_takes_no_step_of_a_later_one() {
        let _turn = lock(&TURN);
        let [first, second] = [1_000_004, 1_000_005].map(|epoch| NonZeroU32::new(epoch).expect("not zero"));
        begin_session(first, None);
        end_session(first);
        begin_session(second, None);
        turn_on(second);
        (0..3_u32).for_each(step);
        collect(first, |ended| panic!("{ended:?} is the second session's"));
        let mut numbers = Vec::new();
        collect(second, |ended| numbers.push(ended.number));
        assert_eq!(numbers, [0, 1]);
        end_session(second);
        switch::turn_off(second);
    }

    #[test]
    fn numbers_of_steps_end_at_the_greatest() {
        let _turn = lock(&TURN);
        let epoch = NonZeroU32::new(1_000_003).expect("not zero");
        begin_session(epoch, None);
        step(u64::MAX);
        let _next = StepGuard::next();
        step(1_u32);
        assert_eq!(current(), Some(1));
        end_session(epoch);
    }

    #[test]
    fn a_warm_up_ends_with_its_session() {
        let _turn = lock(&TURN);
        let epoch = NonZeroU32::MAX;
        begin_session(epoch, Some(Schedule { wait: 0, warmup: 2, active: 1, repeat: 0 }));
        step(0_u32);
        let inside = now_ns();
        end_session(epoch);
        assert!(is_warmup(inside), "what ran in it may be read later");
        assert!(!is_warmup(now_ns() + 1), "a recording from outside after the session loses nothing");
    }
}
