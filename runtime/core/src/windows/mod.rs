//! The windows of a session with a budget. They select the zones to record, so that each step is recorded completely or not at
//! all.
//!
//! The session's time is a sequence of cycles. In a *gap* the switch is asleep, and a zone costs as much as without a session.
//! Then roots are *counted*: a root is a zone that nests and begins while no other such zone is open on its thread. A root that
//! begins now is followed to its end, so that the window knows which threads are between roots; nothing is recorded. Then the
//! window is *open*: roots that begin are recorded, with everything inside them. The window is *closing* until the last of them
//! ends. The collector (`collector::budget`) starts each phase. Zones ask for admission out of line, and only while the switch is awake.
//!
//! A gap leaves no trace of the zones that began in it, so a zone may look like a root although it is inside one that was not
//! followed. A range that has been seen inside a root is therefore not a root on a thread that has not been seen between roots in
//! this cycle. If a thread runs more such zones than any root contains, they are roots. A zone that lasts longer than
//! [`LONGEST_ROOT`] is not a root but a frame around roots.
//!
//! A window ends at its planned time even if the collector is late, which on a busy host may be by the length of many windows.
//!
//! The recorder owns the session's [`Windows`]; a collector that was given up changes only those of its own session. `thread` has
//! what a thread knows, and decides about its zones; `learned` has what is known of the program's ranges. Zones get
//! here only in a counting or open window, and in gaps of a session that stays awake.

mod learned;
mod thread;

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::lock::lock;
use crate::sample::{Sampled, parts};
use crate::switch::{self, SessionFlags};

pub(crate) use learned::Nesting;
pub use learned::{counting_ns, set_counting_ns};
pub(crate) use thread::{Admission, RootKind, ThreadRoots};

/// The maximum length of a root. A longer zone is not a step; the zones inside it are.
pub const LONGEST_ROOT: Duration = Duration::from_millis(250);

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

const PHASE_BITS: u32 = 2;

/// The windows of one session, and what the session says to every zone. The recorder owns it; launching threads keep a reference.
#[derive(Debug)]
pub struct Windows {
    epoch: NonZeroU32,
    /// The phase in the lowest bits, and the number of the cycle above it. Only the collector and a stop change it.
    state: AtomicU32,
    /// The probability with which a root is recorded in the cycle, in parts of 2³² − 1.
    share: AtomicU32,
    /// The time at which the window ends, even if the collector is late.
    until_ns: AtomicI64,
    /// The number of roots of the open window that have not ended, and of zones that were admitted as roots and have not started.
    under_way: AtomicU32,
    recorded: AtomicU64,
    /// The number of calls of [`suspend`](Self::suspend).
    suspensions: AtomicU32,
    /// What the session says to every zone while it is on. The lock orders changes of it, and of the switch.
    flags: Mutex<SessionFlags>,
}

/// The counts of roots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roots {
    /// The number of roots of the process that began while roots were counted and nothing was recorded, also in earlier sessions.
    pub counted: u64,
    /// The number of roots that are recorded.
    pub recorded: u64,
    /// The number of the window's roots that have not ended.
    pub under_way: u32,
}

impl Windows {
    pub(crate) fn new(epoch: NonZeroU32) -> Windows {
        Windows {
            epoch,
            state: AtomicU32::new(0),
            share: AtomicU32::new(0),
            until_ns: AtomicI64::new(0),
            under_way: AtomicU32::new(0),
            recorded: AtomicU64::new(0),
            suspensions: AtomicU32::new(0),
            flags: Mutex::default(),
        }
    }

    pub(crate) fn epoch(&self) -> NonZeroU32 {
        self.epoch
    }

    /// Turns the session on.
    pub(crate) fn turn_on(&self) {
        let flags = lock(&self.flags);
        switch::turn_on(self.epoch, *flags);
    }

    fn change_flags(&self, change: impl FnOnce(&mut SessionFlags)) {
        let mut flags = lock(&self.flags);
        change(&mut flags);
        switch::set_flags(self.epoch, *flags);
    }

    /// Makes the session record every zone that is captured into a graph, outside of its windows and of its sample, too. A graph is
    /// captured once, and its zones label all its replays. Stamps are nodes of the graph, and a second capture of the same work must
    /// have the same ones.
    pub fn take_captures(&self) {
        self.change_flags(|flags| flags.takes_captures = true);
    }

    /// Ends what [`take_captures`](Self::take_captures) began.
    pub fn leave_captures(&self) {
        self.change_flags(|flags| flags.takes_captures = false);
    }

    pub fn takes_captures(&self) -> bool {
        lock(&self.flags).takes_captures
    }

    /// Closes the window, before a session with windows is turned on or after it was stopped. With `stays_awake`, zones ask for
    /// admission even in gaps.
    pub fn suspend(&self, stays_awake: bool) {
        self.suspensions.fetch_add(1, Ordering::SeqCst);
        self.set(Phase::Closed, stays_awake);
    }

    /// Returns the number of calls of [`suspend`](Self::suspend): the collector may see a stop only when it is over.
    pub fn suspensions(&self) -> u32 {
        self.suspensions.load(Ordering::SeqCst)
    }

    /// Sets the probability with which a root is recorded in the window that opens next, and the time at which the window ends.
    pub fn plan(&self, share: f64, until_ns: i64) {
        self.share.store(parts(share), Ordering::Relaxed);
        self.until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// Enters a phase; [`Phase::Counting`] begins a cycle. Only the collector of a session with a budget calls it, and a stop.
    pub fn set(&self, phase: Phase, stays_awake: bool) {
        self.change_flags(|flags| {
            let (cycle, _) = self.now();
            let cycle = if phase == Phase::Counting {
                self.under_way.store(0, Ordering::Relaxed);
                // Zero means no window.
                ((cycle + 1) & (u32::MAX >> PHASE_BITS)).max(1)
            } else {
                cycle
            };
            self.enter(cycle, phase);
            (flags.is_windowed, flags.is_closed) = (true, phase == Phase::Closed && !stays_awake);
        });
    }

    /// Ends the windows: zones no longer ask for admission.
    pub fn finish(&self) {
        self.change_flags(|flags| {
            self.enter(self.now().0, Phase::Closed);
            *flags = SessionFlags::default();
        });
    }

    /// Returns whether a window is open, or its last root has not ended.
    pub fn is_open(&self) -> bool {
        matches!(self.now().1, Phase::Open | Phase::Closing)
    }

    pub fn roots(&self) -> Roots {
        Roots {
            counted: learned::LEARNED.counted(),
            recorded: self.recorded.load(Ordering::Relaxed),
            under_way: self.under_way.load(Ordering::SeqCst),
        }
    }

    fn enter(&self, cycle: u32, phase: Phase) {
        self.state.store(cycle << PHASE_BITS | phase as u32, Ordering::SeqCst);
    }

    /// Returns the number of the cycle, and its phase.
    fn now(&self) -> (u32, Phase) {
        unpack(self.state.load(Ordering::Relaxed))
    }

    fn is_over(&self, now_ns: i64) -> bool {
        now_ns >= self.until_ns.load(Ordering::Relaxed)
    }

    /// Counts a zone that may be a root among those under way. Returns whether the window is still open.
    fn join(&self, cycle: u32) -> bool {
        // This store precedes the load below, and the collector's store of the phase precedes its load of the count, so one sees
        // the other.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        unpack(self.state.load(Ordering::SeqCst)) == (cycle, Phase::Open)
    }

    /// Removes a root of the cycle from those under way.
    fn leave(&self, cycle: u32) {
        // A root that was given up with its window is no longer counted.
        if self.now().0 == cycle {
            let _ = self.under_way.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |count| count.checked_sub(1));
        }
    }

    fn count_recorded(&self) {
        self.recorded.fetch_add(1, Ordering::Relaxed);
    }

    fn sampled(&self, sampled: Sampled) -> Sampled {
        sampled.in_window(self.share.load(Ordering::Relaxed), self.now().0)
    }
}

fn unpack(state: u32) -> (u32, Phase) {
    let phase = [Phase::Closed, Phase::Counting, Phase::Open, Phase::Closing][(state & 3) as usize];
    (state >> PHASE_BITS, phase)
}

#[cfg(all(test, unix, feature = "enable", not(any(loom, miri))))]
mod tests;
