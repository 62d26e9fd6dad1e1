//! The requests for zones, and the tickets with which zones answer them.
//!
//! A zone checks the requests only while there are any (the switch shows this), and then only if this thread made a request or its range
//! was requested. All other data is behind one lock, under which neither user code nor a driver is called.

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
    /// The requests that still have zones to begin.
    list: Vec<ProfileRequest>,
}

struct ProfileRequest {
    what: What,
    /// What the launching thread puts behind the end of the zone.
    signal: Option<Arc<dyn EndSignal>>,
    /// The number of zones that have not begun.
    left: u32,
    shared: Arc<Shared>,
}

enum What {
    /// The next zones of a thread on a stream.
    Next { thread: u64, stream: StreamKey },
    /// The next zones of these ranges, usually one range.
    Runs(Vec<&'static RangeSpec>),
}

thread_local! {
    static HERE: Here = const { Here(Cell::new(false)) };
}

/// Whether this thread may have requested its next zones.
struct Here(Cell<bool>);

impl Drop for Here {
    /// Fails the thread's requests, because an ending thread begins no more zones.
    fn drop(&mut self) {
        if self.0.get() {
            let thread = thread_id();
            fail(&ProfileError::ThreadEnded, |what| matches!(what, What::Next { thread: of, .. } if *of == thread));
        }
    }
}

/// An event of the caller's own, which is put on the stream right behind the end of a requested zone.
pub trait EndSignal: Send + Sync {
    /// Puts it on the stream. The thread that ends the zone calls this once.
    ///
    /// # Errors
    /// The reason why it is not on the stream.
    fn signal(&self) -> Result<(), String>;
}

/// Requests the next zones of this thread on a stream, with a signal behind the end of the first of them.
pub fn ask_next(stream: &StreamRef<'_>, zones: u32, signal: Option<Arc<dyn EndSignal>>) -> Arc<Shared> {
    let stream = match stream.key {
        Ok(key) => key,
        Err(NoKey::Captured) => return Shared::failed(ProfileError::Captured),
        Err(NoKey::Unknown) => return Shared::failed(outside::refusal(stream)),
        Err(NoKey::NoStream) => return Shared::failed(ProfileError::NoStream),
    };
    // A thread that is ending has no thread-local storage, and begins no zone that could match.
    if HERE.try_with(|here| here.0.set(true)).is_err() {
        return Shared::failed(ProfileError::ThreadEnded);
    }
    ask(What::Next { thread: thread_id(), stream }, zones, signal)
}

/// Requests the next zones of ranges.
pub fn ask_runs(ranges: Vec<&'static RangeSpec>, zones: u32) -> Arc<Shared> {
    ask(What::Runs(ranges), zones, None)
}

fn ask(what: What, zones: u32, signal: Option<Arc<dyn EndSignal>>) -> Arc<Shared> {
    let shared = Shared::waiting(zones);
    if zones == 0 {
        return shared;
    }
    backend::on_drop(forget);
    waiting::begin();
    let mut requests = lock();
    what.count(true);
    requests.list.push(ProfileRequest { what, signal, left: zones, shared: Arc::clone(&shared) });
    switch::arm(true);
    drop(requests);
    // If no session records the zone, its recorder starts before the zone begins.
    if switch::epoch().is_none() {
        outside::prepare();
    }
    shared
}

/// Creates a ticket and the shared state for one zone that begins now, independent of other requests.
pub(crate) fn ask_now() -> (PendingAnswers, Arc<Shared>) {
    let shared = Shared::waiting(1);
    waiting::begin();
    shared.begin();
    (PendingAnswers(vec![Answer { shared: Arc::clone(&shared), signal: None, failure: None }]), shared)
}

/// Returns whether a zone of this range on this thread may have been requested.
#[inline]
pub(crate) fn is_asked(range: &'static RangeSpec) -> bool {
    range.asked() || HERE.try_with(|here| here.0.get()).unwrap_or(false)
}

/// Returns the ticket of a zone that begins on this thread; none if it was not requested.
pub(crate) fn take(range: &'static RangeSpec, stream: Option<&StreamRef<'_>>) -> Option<PendingAnswers> {
    let thread = thread_id();
    let is_captured = stream.is_some_and(|stream| matches!(stream.key, Err(NoKey::Captured)));
    let mut ticket = Vec::new();
    let mut is_here = false;
    let mut requests = lock();
    requests.list.retain_mut(|request| {
        let is_meant = match &request.what {
            What::Next { thread: of, .. } if *of != thread => false,
            // The key of a stream is not available while the stream is captured.
            What::Next { stream: of, .. } => stream.is_some_and(|stream| is_captured || stream.key == Ok(*of)),
            What::Runs(ranges) => ranges.iter().any(|of| std::ptr::eq(*of, range)),
        };
        if is_meant && is_captured {
            request.shared.pass_captured();
        } else if is_meant {
            request.shared.begin();
            request.left -= 1;
            let signal = request.signal.take();
            ticket.push(Answer { shared: Arc::clone(&request.shared), signal, failure: None });
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

/// Fails the requests for the zones of a stream that the application has dropped.
pub fn forget(stream: StreamKey) {
    if switch::is_armed() {
        fail(&ProfileError::StreamGone, |what| matches!(what, What::Next { stream: of, .. } if *of == stream));
    }
}

/// Fails these requests, because none of their zones will begin.
fn fail(error: &ProfileError, which: impl Fn(&What) -> bool) {
    let failed = lock().remove(|request| which(&request.what));
    // Without the lock, because this may wake waiters.
    for request in failed {
        request.shared.fail(request.left, error);
    }
}

/// Removes the request of a handle that was dropped.
pub(super) fn take_back(shared: &Shared) {
    let taken = lock().remove(|request| std::ptr::eq(Arc::as_ptr(&request.shared), shared));
    // Without the lock.
    drop(taken);
}

impl Requests {
    fn remove(&mut self, which: impl Fn(&ProfileRequest) -> bool) -> Vec<ProfileRequest> {
        let removed: Vec<_> = self.list.extract_if(.., |request| which(request)).collect();
        removed.iter().for_each(|request| request.what.count(false));
        self.disarm();
        removed
    }

    /// Clears the switch if there are no requests, so that zones do not check for them.
    fn disarm(&self) {
        if self.list.is_empty() {
            switch::arm(false);
        }
    }
}

impl What {
    /// Notes in the ranges that they are requested, or that they no longer are.
    fn count(&self, is_asked: bool) {
        if let What::Runs(ranges) = self {
            ranges.iter().for_each(|range| range.ask(is_asked));
        }
    }
}

/// The answer that a zone must give to its requests. If it is dropped, it reports that the zone did not end.
pub(crate) struct PendingAnswers(Vec<Answer>);

/// The answer of a zone to one request.
struct Answer {
    shared: Arc<Shared>,
    signal: Option<Arc<dyn EndSignal>>,
    /// Why the signal was not put on the stream.
    failure: Option<String>,
}

impl PendingAnswers {
    /// Reports that there is no zone.
    pub(crate) fn fail(mut self, error: &ProfileError) {
        self.answer_all(error);
    }

    fn answer_all(&mut self, error: &ProfileError) {
        for Answer { shared, .. } in self.0.drain(..) {
            shared.answer(Err(error.clone()));
        }
    }
}

impl Completion for PendingAnswers {
    fn is_wanted(&self) -> bool {
        self.0.iter().any(|answer| answer.shared.is_wanted())
    }

    fn ended(&mut self) {
        for Answer { shared, signal, failure } in &mut self.0 {
            // A handle that was dropped has taken its event back.
            if let Some(signal) = signal.take() {
                shared.while_wanted(|| *failure = signal.signal().err());
            }
        }
    }

    fn complete(mut self: Box<Self>, record: &ZoneRecord) {
        for Answer { shared, failure, .. } in self.0.drain(..) {
            shared.answer(failure.map_or_else(|| Ok(record.clone()), |why| Err(ProfileError::Event(why))));
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

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::profile::pending::PendingZone;

    /// A signal that is in the driver until the test lets it go.
    struct Slow {
        begun: Sender<()>,
        go: Mutex<Receiver<()>>,
    }

    impl EndSignal for Slow {
        fn signal(&self) -> Result<(), String> {
            let _ = self.begun.send(());
            let _ = crate::lock::lock(&self.go).recv();
            Ok(())
        }
    }

    #[test]
    fn a_handle_is_dropped_after_the_signal_of_its_event() {
        let ((begun, has_begun), (go, may_go), (dropped, is_dropped)) = (channel(), channel(), channel());
        let (mut ticket, shared) = ask_now();
        let slow: Arc<dyn EndSignal> = Arc::new(Slow { begun, go: Mutex::new(may_go) });
        ticket.0[0].signal = Some(slow);
        let handle = PendingZone::new(shared);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                ticket.ended();
                drop(ticket);
            });
            has_begun.recv().expect("it is put on the stream");
            scope.spawn(move || {
                drop(handle);
                let _ = dropped.send(());
            });
            // The event may be destroyed when the handle is gone.
            assert!(is_dropped.recv_timeout(Duration::from_millis(300)).is_err(), "the signal uses the event");
            drop(go);
            is_dropped.recv_timeout(Duration::from_secs(20)).expect("it waits for nothing else");
        });
    }

    #[test]
    fn the_event_of_a_dropped_handle_is_not_used() {
        let ((begun, has_begun), (_go, may_go)) = (channel(), channel());
        let (mut ticket, shared) = ask_now();
        let slow: Arc<dyn EndSignal> = Arc::new(Slow { begun, go: Mutex::new(may_go) });
        ticket.0[0].signal = Some(slow);
        drop(PendingZone::new(shared));
        ticket.ended();
        assert!(has_begun.try_recv().is_err());
    }
}
