//! Who asked for which zones, and the ticket with which a zone answers.
//!
//! A zone looks here only while somebody has asked for something (the switch says so), and then only if this thread asked or
//! its range was asked for. Everything else is behind one lock, under which no user's code and no driver is called.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use crate::backend::{self, NoKey, StreamKey, StreamRef};
use crate::catalog::RangeSpec;
use crate::clock::thread_id;
use crate::fork::PerProcess;
use crate::lock::Locked;
use crate::profile::answers::Shared;
use crate::profile::error::ProfileError;
use crate::profile::outside;
use crate::profile::waiting;
use crate::record::ZoneRecord;
use crate::stream::context::NoSlot;
use crate::stream::slot::{Completion, Lost};
use crate::switch;

static REQUESTS: PerProcess<Mutex<Requests>> = PerProcess::new(Mutex::default);

#[derive(Default)]
struct Requests {
    /// Those that have zones to begin.
    list: Vec<Request>,
}

struct Request {
    what: What,
    /// How many zones are to begin.
    left: u32,
    shared: Arc<Shared>,
}

enum What {
    /// The next zones of a thread on a stream.
    Next { thread: u64, stream: StreamKey },
    /// The next zones of a range, commonly one.
    Runs(Vec<&'static RangeSpec>),
}

thread_local! {
    static HERE: Here = const { Here(Cell::new(false)) };
}

/// Whether this thread may have asked for its next zones.
struct Here(Cell<bool>);

impl Drop for Here {
    /// The thread ends: it will begin no zone.
    fn drop(&mut self) {
        if self.0.get() {
            let thread = thread_id();
            fail(&ProfileError::ThreadEnded, |what| matches!(what, What::Next { thread: of, .. } if *of == thread));
        }
    }
}

/// Asks for the next zones of this thread on a stream.
pub fn ask_next(stream: &StreamRef<'_>, zones: u32) -> Arc<Shared> {
    let stream = match stream.key {
        Ok(key) => key,
        Err(NoKey::Captured) => return Shared::failed(ProfileError::Captured),
        Err(NoKey::Unknown) => return Shared::failed(outside::refusal(stream)),
        Err(NoKey::NoStream) => return Shared::failed(ProfileError::NoStream),
    };
    // A thread that is ending has no place for it, and begins no zone that could be meant.
    if HERE.try_with(|here| here.0.set(true)).is_err() {
        return Shared::failed(ProfileError::ThreadEnded);
    }
    ask(What::Next { thread: thread_id(), stream }, zones)
}

/// Asks for the next zones of ranges.
pub fn ask_runs(ranges: Vec<&'static RangeSpec>, zones: u32) -> Arc<Shared> {
    ask(What::Runs(ranges), zones)
}

fn ask(what: What, zones: u32) -> Arc<Shared> {
    let shared = Shared::waiting(zones);
    if zones == 0 {
        return shared;
    }
    backend::on_drop(forget);
    waiting::begin();
    let mut requests = lock();
    what.count(true);
    requests.list.push(Request { what, left: zones, shared: Arc::clone(&shared) });
    switch::arm(true);
    drop(requests);
    // Where no session has the zone, its way is there before it begins.
    if switch::epoch().is_none() {
        outside::prepare();
    }
    shared
}

/// A handle on one zone that begins now, whatever was asked for.
pub(crate) fn ask_now() -> (PendingAnswers, Arc<Shared>) {
    let shared = Shared::waiting(1);
    waiting::begin();
    shared.begin();
    (PendingAnswers(vec![Arc::clone(&shared)]), shared)
}

/// Whether a zone of this range that this thread begins may have been asked for.
#[inline]
pub(crate) fn is_asked(range: &'static RangeSpec) -> bool {
    range.asked() || HERE.try_with(|here| here.0.get()).unwrap_or(false)
}

/// The ticket of a zone that begins on this thread; none if nobody asked for it.
pub(crate) fn take(range: &'static RangeSpec, stream: Option<&StreamRef<'_>>) -> Option<PendingAnswers> {
    let thread = thread_id();
    let is_captured = stream.is_some_and(|stream| matches!(stream.key, Err(NoKey::Captured)));
    let mut ticket = Vec::new();
    let mut is_here = false;
    let mut requests = lock();
    requests.list.retain_mut(|request| {
        let is_meant = match &request.what {
            What::Next { thread: of, .. } if *of != thread => false,
            // Which stream it is cannot be asked while it is captured.
            What::Next { stream: of, .. } => stream.is_some_and(|stream| is_captured || stream.key == Ok(*of)),
            What::Runs(ranges) => ranges.iter().any(|of| std::ptr::eq(*of, range)),
        };
        if is_meant && is_captured {
            request.shared.pass_captured();
        } else if is_meant {
            request.shared.begin();
            request.left -= 1;
            ticket.push(Arc::clone(&request.shared));
        }
        let stays = request.left > 0;
        if !stays {
            request.what.count(false);
        }
        is_here |= stays && matches!(request.what, What::Next { thread: of, .. } if of == thread);
        stays
    });
    requests.disarm();
    drop(requests);
    let _ = HERE.try_with(|here| here.0.set(is_here));
    (!ticket.is_empty()).then_some(PendingAnswers(ticket))
}

/// The application has dropped the stream.
pub fn forget(stream: StreamKey) {
    if switch::is_armed() {
        fail(&ProfileError::StreamGone, |what| matches!(what, What::Next { stream: of, .. } if *of == stream));
    }
}

/// No zone of these requests will begin.
fn fail(error: &ProfileError, which: impl Fn(&What) -> bool) {
    let failed = lock().remove(|request| which(&request.what));
    // Not under the lock: who waits may be woken.
    for request in failed {
        request.shared.fail(request.left, error);
    }
}

/// The handle is gone.
pub(super) fn take_back(shared: &Shared) {
    let taken = lock().remove(|request| std::ptr::eq(Arc::as_ptr(&request.shared), shared));
    // Not under the lock.
    drop(taken);
}

impl Requests {
    fn remove(&mut self, which: impl Fn(&Request) -> bool) -> Vec<Request> {
        let removed: Vec<_> = self.list.extract_if(.., |request| which(request)).collect();
        removed.iter().for_each(|request| request.what.count(false));
        self.disarm();
        removed
    }

    /// Zones look no longer where nothing is asked for.
    fn disarm(&self) {
        if self.list.is_empty() {
            switch::arm(false);
        }
    }
}

impl What {
    /// Tells the ranges that they are asked for, or no longer.
    fn count(&self, is_asked: bool) {
        if let What::Runs(ranges) = self {
            ranges.iter().for_each(|range| range.ask(is_asked));
        }
    }
}

/// What a zone owes to those who asked for it: an answer. Dropped, it says that the zone did not come to its end.
pub(crate) struct PendingAnswers(Vec<Arc<Shared>>);

impl PendingAnswers {
    /// There is no zone.
    pub(crate) fn fail(mut self, error: &ProfileError) {
        self.answer_all(error);
    }

    fn answer_all(&mut self, error: &ProfileError) {
        for shared in self.0.drain(..) {
            shared.answer(Err(error.clone()));
        }
    }
}

impl Completion for PendingAnswers {
    fn is_wanted(&self) -> bool {
        self.0.iter().any(|shared| shared.is_wanted())
    }

    fn complete(mut self: Box<Self>, record: &ZoneRecord) {
        for shared in self.0.drain(..) {
            shared.answer(Ok(record.clone()));
        }
    }

    fn lose(self: Box<Self>, why: Lost) {
        self.fail(&why.into());
    }

    fn fail_stream(self: Box<Self>, error: &str) {
        self.fail(&ProfileError::Stream(error.to_owned()));
    }
}

impl Drop for PendingAnswers {
    fn drop(&mut self) {
        self.answer_all(&ProfileError::Unfinished);
    }
}

impl From<NoSlot> for ProfileError {
    fn from(why: NoSlot) -> ProfileError {
        match why {
            NoSlot::Full => ProfileError::Full,
            NoSlot::NotMade => ProfileError::EventFailed,
            NoSlot::Closed | NoSlot::Retired | NoSlot::None => ProfileError::Unfinished,
        }
    }
}

impl From<Lost> for ProfileError {
    fn from(lost: Lost) -> ProfileError {
        match lost {
            Lost::EventFailed => ProfileError::EventFailed,
            Lost::Captured | Lost::CaptureFailed => ProfileError::Captured,
            Lost::Full => ProfileError::Full,
            Lost::Abandoned => ProfileError::Unfinished,
        }
    }
}

fn lock() -> Locked<'static, Requests> {
    crate::lock::lock(&REQUESTS)
}
