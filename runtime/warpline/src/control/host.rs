//! Which session a request from outside records in: the program's own, where it has one, else one that is held for those who
//! ask, as long as somebody does.
//!
//! The program's sessions come first. Where it starts one while another is held for somebody outside, that one ends, and who
//! asked is told.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::Duration;

use crate::collector::{Inbox, NewSubscription, SessionStats, SubscriptionHandle};
use crate::error::Error;
use crate::flight::Flight;
use crate::settings::{Config, Filter};
use warpline_core::fork::PerProcess;
use warpline_core::kernel::CUPTI_STAYS;
use warpline_core::lock::lock;
use warpline_core::report::Report;
use warpline_core::stderr;
use warpline_core::stream::recorder::Recorder;
use warpline_core::switch;
use warpline_trace::control::protocol::Refusal;

/// The longest that a session which is held for others takes to end, besides a fixed grace.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// A session that is held for those who ask. Dropped, it ends.
pub(crate) trait HeldSession: Send {
    /// Lets zones begin again.
    fn start(&self);
    /// Lets no zone begin.
    fn stop(&self);
    /// Records only ranges that fit the filters.
    fn narrow(&self, filters: Vec<Filter>);
    /// Ends it.
    fn finish(self: Box<Self>) -> Report;
}

/// Starts a session with these settings for these guests.
pub(crate) type Hold = fn(Config, Arc<Inbox>) -> Result<Box<dyn HeldSession>, Error>;

/// The session that there is, the program's or one that is held.
static CURRENT: PerProcess<Mutex<Option<Current>>> = PerProcess::new(Mutex::default);

/// The session that is held for those who ask.
static HELD: PerProcess<Mutex<Option<Box<dyn HeldSession>>>> = PerProcess::new(Mutex::default);

/// What there is to know of a session that runs.
#[derive(Clone)]
pub(crate) struct Current {
    pub(crate) epoch: NonZeroU32,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) tally: Arc<SessionStats>,
    pub(crate) guests: Arc<Inbox>,
    pub(crate) collector: Thread,
    /// It is held for others.
    pub(crate) is_held: bool,
    /// Whether it records kernels, where it was asked to, or why it cannot.
    pub(crate) kernels: Option<Result<(), String>>,
    pub(crate) flight: Option<Arc<Flight>>,
}

impl Current {
    pub(super) fn is_recording(&self) -> bool {
        switch::epoch() == Some(self.epoch)
    }
}

/// A session has begun.
pub(crate) fn begin(current: Current) {
    *lock(&CURRENT) = Some(current);
}

/// A session is over.
pub(crate) fn end(epoch: NonZeroU32) {
    let mut current = lock(&CURRENT);
    if current.as_ref().is_some_and(|current| current.epoch == epoch) {
        *current = None;
    }
}

/// The session that there is now.
pub(super) fn current() -> Option<Current> {
    lock(&CURRENT).clone()
}

/// Ends a session that was held. Nobody reads its report; what it leaves in the program is said there.
fn end_held(session: Box<dyn HeldSession>) {
    let report = session.finish();
    report.notes.iter().filter(|note| note.starts_with(CUPTI_STAYS)).for_each(stderr::line);
}

/// The program starts a session of its own: one that is held for others ends.
pub(crate) fn give_way() {
    // Whoever begins or ends one meanwhile holds the lock for as long as that takes.
    let mut held = lock(&HELD);
    if let Some(session) = held.take() {
        end_held(session);
    }
}

/// Whether there is one that is held; no answer while one begins or ends.
pub(super) fn holds_one() -> bool {
    HELD.try_lock().is_ok_and(|held| held.is_some())
}

/// A guest that is in a session.
pub(super) struct Seat {
    session: Current,
    tie: Arc<SubscriptionHandle>,
    filters: Vec<Filter>,
    /// The program has no filters of its own that hold.
    may_narrow: bool,
}

impl Seat {
    pub(super) fn tie(&self) -> &SubscriptionHandle {
        &self.tie
    }

    pub(super) fn session(&self) -> &Current {
        &self.session
    }

    /// The guest leaves, as soon as what began before is through, or some time has passed.
    pub(super) fn leave(&self, others: &[&Seat]) {
        if self.session.is_held {
            let mut held = lock(&HELD);
            if let Some(session) = held.as_mut() {
                if others.is_empty() {
                    // Nothing new begins; what is on its way has time to come.
                    session.stop();
                } else {
                    narrow(&**session, others);
                }
            }
        }
        self.session.guests.cancel(&self.tie);
        self.session.collector.unpark();
    }
}

/// Lets a guest into the session that there is, or into one that is begun for it.
///
/// # Errors
/// Why there is none.
pub(super) fn seat(
    mut guest: NewSubscription,
    base: &Config,
    hold: Hold,
    kernels: bool,
    others: &[&Seat],
) -> Result<Seat, Refusal> {
    let (tie, filters) = (Arc::clone(&guest.handle), guest.filters.clone());
    let may_narrow = base.filters.is_empty();
    // The program may start a session, or end one, at this moment.
    for _ in 0..3 {
        if let Some(session) = current() {
            match session.guests.admit(guest) {
                Ok(()) => {
                    let seat = Seat { session, tie, filters, may_narrow };
                    if seat.session.is_held
                        && let Some(held) = lock(&HELD).as_mut()
                    {
                        let all: Vec<_> = others.iter().copied().chain([&seat]).collect();
                        narrow(&**held, &all);
                        held.start();
                    }
                    seat.session.collector.unpark();
                    return Ok(seat);
                }
                Err(back) => guest = *back,
            }
            continue;
        }
        let guests = Arc::<Inbox>::default();
        if let Err(back) = guests.admit(guest) {
            guest = *back;
            continue;
        }
        let mut held = lock(&HELD);
        match hold(settings(base, &filters, kernels), Arc::clone(&guests)) {
            Ok(session) => {
                *held = Some(session);
                let Some(session) = current() else { break };
                return Ok(Seat { session, tie, filters, may_narrow });
            }
            Err(Error::AlreadyRecording) => match guests.take_back() {
                Some(back) => guest = back,
                None => break,
            },
            Err(error) => return Err(Refusal::new("session", error.to_string())),
        }
    }
    Err(Refusal::new("session", "the program is starting or ending a session at this moment; try again"))
}

/// Nobody is in the session that was held: it ends.
pub(super) fn release_session() {
    let mut held = lock(&HELD);
    if let Some(session) = held.take() {
        end_held(session);
    }
}

/// What a session that is held records: what its guests want, and no more than the program's own settings allow.
fn settings(base: &Config, filters: &[Filter], kernels: bool) -> Config {
    let mut config = Config {
        kernels: kernels && cfg!(feature = "cupti"),
        finish_timeout: base.finish_timeout.min(ENDS_WITHIN),
        ..base.shared()
    };
    if config.filters.is_empty() {
        config.filters = filters.to_vec();
    }
    config
}

/// Records no more than what those who are left want.
fn narrow(session: &dyn HeldSession, all: &[&Seat]) {
    if all.iter().any(|seat| !seat.may_narrow) {
        return;
    }
    let mut wishes = all.iter().map(|seat| &seat.filters);
    let first = wishes.next().cloned().unwrap_or_default();
    let filters = if wishes.all(|filters| *filters == first) { first } else { Vec::new() };
    session.narrow(filters);
}
