//! The steps of a session: where each begins and ends, and which of them it records.
//!
//! `zone::step` has the calls of the program, which find the steps of the session that takes them in its recorder. A boundary takes a
//! lock that only threads of the application take, and puts the step that it ends into a bounded queue, which the collector reads.
//! Without a session that takes steps, a boundary costs one relaxed load. Nothing here allocates once the session has begun.
//!
//! With a [`Schedule`], the boundary also turns recording on and off, so that whole steps are recorded.

mod queue;
mod warmups;

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub use queue::Ended;
use queue::Queue;
use warmups::Warmups;

use crate::clock::now_ns;
use crate::fork;
use crate::lock::lock;
use crate::record::Span;
use crate::step::{Phase, Schedule};
use crate::switch;
use crate::windows::Windows;

/// Whether a session takes steps.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The last id of a step. Ids go on from one session to the next and into forked processes, so that a guard never ends another
/// session's step.
static IDS: AtomicU32 = AtomicU32::new(0);

/// Returns whether a session takes steps.
#[inline(always)]
pub(crate) fn are_taken() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// The steps of one session, which its recorder owns. Launching threads write them, and the collector reads those that have ended.
pub struct Steps {
    sequence: Mutex<Sequence>,
    queue: Queue,
    warmups: Warmups,
    /// The number of the step that runs now plus one; 0 for none.
    current: AtomicU64,
    /// Steps that the schedule left out.
    left_out: AtomicU64,
    /// Steps that a stop or the end of the session cut.
    cut: AtomicU64,
}

/// The counts of a session's steps that are in no record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotRecorded {
    /// Steps that the schedule left out.
    pub left_out: u64,
    /// Steps that a stop or the end of the session cut.
    pub cut: u64,
    /// Steps for which the queue had no room.
    pub dropped: u64,
}

/// The state that boundaries, stops and starts change.
struct Sequence {
    /// Whether the session takes steps: from its begin until it finishes.
    is_on: bool,
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

impl Steps {
    pub(crate) fn new() -> Steps {
        Steps {
            sequence: Mutex::new(Sequence { is_on: false, schedule: None, begun: 0, open: None, is_stopped: true }),
            queue: Queue::default(),
            warmups: Warmups::new(),
            current: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            cut: AtomicU64::new(0),
        }
    }

    /// Begins to take steps, which `schedule` selects. The session is not on yet.
    pub fn begin_session(&self, schedule: Option<Schedule>) {
        fork::in_children(leave_to_parent);
        self.queue.open();
        let mut sequence = lock(&self.sequence);
        (sequence.is_on, sequence.schedule) = (true, schedule);
        IS_ON.store(true, Ordering::Release);
    }

    /// Begins a step on this thread, and ends the one before it. A step without a number has the next one. Returns an id of the
    /// step.
    pub(crate) fn begin(&self, number: Option<u64>, thread: u64, windows: &Windows) -> Option<NonZeroU32> {
        let mut sequence = lock(&self.sequence);
        let now_ns = now_ns();
        let next = sequence.open.map_or(sequence.begun, |open| open.number.saturating_add(1));
        self.end_open(&mut sequence, now_ns);
        // The session may have ended since.
        if !sequence.is_on {
            return None;
        }
        let number = number.unwrap_or(next);
        let phase = sequence.schedule.map_or(Phase::Active, |schedule| schedule.phase(sequence.begun));
        sequence.begun += 1;
        let id = IDS.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        sequence.open = Some(Open { number, begin_ns: now_ns, thread, phase, id });
        self.enter(&sequence, phase, now_ns, windows);
        self.current.store(number.saturating_add(1), Ordering::Relaxed);
        NonZeroU32::new(id)
    }

    /// Ends the step with this id, if it still runs.
    pub(crate) fn end(&self, id: NonZeroU32, windows: &Windows) {
        let mut sequence = lock(&self.sequence);
        if sequence.open.is_some_and(|open| open.id == id.get()) {
            let now_ns = now_ns();
            self.end_open(&mut sequence, now_ns);
            // What runs between two steps belongs to neither, so a step that is not recorded begins here.
            if let Some(schedule) = sequence.schedule {
                let next = schedule.phase(sequence.begun);
                if next != Phase::Active {
                    self.enter(&sequence, next, now_ns, windows);
                }
            }
        }
    }

    /// Ends the open step, and passes it to the collector if it is recorded.
    fn end_open(&self, sequence: &mut Sequence, now_ns: i64) {
        self.current.store(0, Ordering::Relaxed);
        let Some(open) = sequence.open.take() else { return };
        let Open { number, begin_ns, thread, phase, .. } = open;
        match phase {
            Phase::Active if sequence.is_stopped => drop(self.cut.fetch_add(1, Ordering::Relaxed)),
            Phase::Active => {
                let host = Span { begin_ns, end_ns: now_ns.max(begin_ns) };
                self.queue.push(Ended { number, thread, host });
            }
            _ => drop(self.left_out.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Turns recording on or off for a phase of the schedule.
    fn enter(&self, sequence: &Sequence, phase: Phase, now_ns: i64, windows: &Windows) {
        if sequence.schedule.is_none() {
            return;
        }
        self.warmups.set(phase == Phase::Warmup, now_ns);
        if sequence.is_stopped {
            return;
        }
        let epoch = windows.epoch();
        match (phase == Phase::Waiting, switch::epoch() == Some(epoch)) {
            (true, true) => switch::turn_off(epoch),
            (false, false) => windows.turn_on(),
            _ => {}
        }
    }

    /// Turns the session on, or on again after a stop. With a schedule, a step that is recorded does so.
    pub(crate) fn turn_on(&self, windows: &Windows) {
        let mut sequence = lock(&self.sequence);
        sequence.is_stopped = false;
        let phase = sequence.open.map(|open| open.phase);
        // The rest of a step that began while the session was stopped is not a step.
        if let Some(open) = sequence.open.take() {
            self.cut.fetch_add(u64::from(open.phase == Phase::Active), Ordering::Relaxed);
        }
        if sequence.schedule.is_none() || phase.is_some_and(|phase| phase != Phase::Waiting) {
            windows.turn_on();
        }
    }

    /// Turns the session off, until [`turn_on`](Self::turn_on).
    pub(crate) fn turn_off(&self, epoch: NonZeroU32) {
        let mut sequence = lock(&self.sequence);
        if !sequence.is_stopped && sequence.open.is_some_and(|open| open.phase == Phase::Active) {
            self.cut.fetch_add(1, Ordering::Relaxed);
            sequence.open = None;
        }
        sequence.is_stopped = true;
        switch::turn_off(epoch);
    }

    /// Returns whether the session is not on, whatever its schedule is.
    pub fn is_stopped(&self) -> bool {
        let sequence = lock(&self.sequence);
        !sequence.is_on || sequence.is_stopped
    }

    /// Takes no more steps. Called while the session has its recorder's place.
    pub fn end_session(&self) {
        let mut sequence = lock(&self.sequence);
        if sequence.is_on {
            IS_ON.store(false, Ordering::Release);
            sequence.is_on = false;
            sequence.open = None;
            self.current.store(0, Ordering::Relaxed);
            // What begins from now on is of no warm-up. What ran in it and is read later is.
            self.warmups.set(false, now_ns());
        }
    }

    /// Passes the steps that have ended to `each`, oldest first. Only the collector calls it.
    pub fn collect(&self, each: impl FnMut(Ended)) {
        self.queue.collect(each);
    }

    /// Returns whether steps have ended since the last call of [`collect`](Self::collect).
    pub fn has_ended(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns whether a step runs, or has ended and was not collected.
    pub fn is_under_way(&self) -> bool {
        self.current().is_some() || self.has_ended()
    }

    pub fn not_recorded(&self) -> NotRecorded {
        NotRecorded {
            left_out: self.left_out.load(Ordering::Relaxed),
            cut: self.cut.load(Ordering::Relaxed),
            dropped: self.queue.dropped(),
        }
    }

    /// Returns whether what began on a thread at this time belongs to a step of the schedule's warm-up, which is recorded and not
    /// handed on.
    #[inline]
    pub fn is_warmup(&self, begin_ns: i64) -> bool {
        self.warmups.contain(begin_ns)
    }

    /// Returns the number of the step that runs now.
    pub fn current(&self) -> Option<u64> {
        self.current.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Runs in a forked child, which only stores: the steps are the parent's.
fn leave_to_parent() {
    IS_ON.store(false, Ordering::Relaxed);
}
