//! The recorder's streams and threads: which it forgets, which it refuses, and what it calls without its lock.

use super::*;
use crate::backend::host::HostStream;
use crate::backend::{AsStream, BackendError, BackendStream, Clock, EventPair, Reader, Space, new_space};
use crate::stream::registry::{MORE_THREADS, REMEMBERED};
use crate::stream::slot::Lost;
use crate::stream::thread::Thread;
use crate::timing::EndMode;

fn recorder() -> Recorder {
    recorder_of(NonZeroU32::MIN)
}

fn recorder_of(epoch: NonZeroU32) -> Recorder {
    Recorder::new(epoch, Limits { zones: 16, events: 16, ends: EndMode::Eager, watch: false })
}

#[test]
fn a_stream_on_which_a_zone_was_abandoned_is_forgotten_as_any_other() {
    let (recorder, stream) = (recorder(), HostStream::new("abandoned"));
    let context = recorder.context(&stream.as_stream()).expect("a stream");
    Arc::clone(&context).claim(|_| {}).ok().expect("a slot").give_up(Lost::Abandoned);
    assert!(context.settled().1);
    recorder.evict(&context);
    assert!(recorder.retire(&context));
    let account = recorder.account();
    assert_eq!((account.begun, account.dropped.unfinished, recorder.contexts().len()), (1, 1, 1));
}

#[test]
fn a_zone_that_is_open_when_its_stream_is_let_go_of_ends_as_any_other() {
    let (recorder, stream) = (recorder(), HostStream::new("open"));
    let context = recorder.context(&stream.as_stream()).expect("a stream");
    let mut open = Arc::clone(&context).claim(|_| {}).ok().expect("a slot");
    recorder.evict(&context);
    assert!(!open.is_closed());
    assert!(!recorder.retire(&context));
    let anew = recorder.context(&stream.as_stream()).expect("the stream, met anew");
    // A holder of the old context evicts only that one.
    recorder.evict(&context);
    assert!(!anew.is_retired());
    recorder.close();
    assert!(open.is_closed());
    open.give_up(Lost::Abandoned);
    assert!(recorder.retire(&context));
    assert_eq!(recorder.account().begun, 1);
}

#[cfg(all(unix, not(miri)))]
#[test]
fn a_backend_may_drop_a_stream_wherever_a_session_asks_it_something() {
    // A thread that takes its own lock waits for ever.
    crate::fork::testing::in_a_fork(|| {
        let recorder = reserve(|epoch| Arc::new(recorder_of(epoch)));
        let recorder = recorder.expect("no other session");
        let stream = Dropping(new_space());
        let context = recorder.context(&StreamRef::of_backend(Ok(stream.0.key(1)), &stream)).expect("a stream");
        assert_eq!(context.info.as_ref().map(|info| info.name.as_str()), Some("dropping"));
        assert!(recorder.known_stream_of_tool((1, 2)).is_none());
        recorder.evict(&context);
        assert!(recorder.retire(&context));
    });
}

/// A stream whose backend drops streams at each call.
struct Dropping(Space);

impl Dropping {
    fn drop_some(&self) {
        crate::backend::stream_dropped(self.0.key(u64::MAX));
    }
}

impl BackendStream for Dropping {
    fn backend(&self, _: &Scope) -> Result<Arc<dyn Backend>, BackendError> {
        self.drop_some();
        Ok(Arc::new(Dropping(self.0)))
    }
}

impl Backend for Dropping {
    fn name(&self) -> Option<String> {
        self.drop_some();
        Some("dropping".to_owned())
    }

    fn set_name_in_tools(&self, _: &str) {
        self.drop_some();
    }

    fn tool_numbers(&self) -> Option<(u32, u32)> {
        self.drop_some();
        None
    }

    fn device(&self) -> DeviceInfo {
        self.drop_some();
        DeviceInfo { ordinal: 0, name: String::new(), kind: DeviceKind::Host }
    }

    fn clock_space(&self) -> u64 {
        self.0.id()
    }

    fn points(&self) -> Result<EventPair, BackendError> {
        self.drop_some();
        Err(BackendError::new("it has none"))
    }

    fn reader(&self) -> Box<dyn Reader> {
        unreachable!("no collector reads it")
    }

    fn clock(&self) -> Result<Box<dyn Clock>, BackendError> {
        Err(BackendError::new("it has none"))
    }

    fn retire(&self) {
        self.drop_some();
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        self.drop_some();
    }
}

#[test]
fn zones_on_new_streams_are_counted_as_dropped_while_too_many_dropped_streams_wait() {
    let recorder = recorder();
    let (dropped, new) = (HostStream::new("dropped"), HostStream::new("new"));
    let context = recorder.context(&dropped.as_stream()).expect("a stream");
    context.forgotten.store(true, Ordering::Release);
    recorder.lock().dropped = MOST_DROPPED;
    assert!(recorder.context(&new.as_stream()).is_none());
    assert!(recorder.context(&dropped.as_stream()).is_some(), "one that is known goes on");
    let account = recorder.account();
    assert_eq!((account.begun, account.dropped.ring_full), (1, 1));
    assert_eq!(recorder.take_refusals().len(), 1);
    recorder.evict(&context);
    assert!(recorder.retire(&context));
    assert!(recorder.context(&new.as_stream()).is_some());
}

#[test]
fn streams_that_are_gone_are_forgotten_the_oldest_first_and_those_in_use_are_not() {
    let recorder = recorder();
    let meet = |stream: &HostStream| recorder.context(&stream.as_stream()).expect("a stream");
    let evict = |context: &Arc<StreamContext>| {
        recorder.evict(context);
        assert!(recorder.retire(context));
    };
    let id = |context: &StreamContext| context.info.as_ref().map(|info| info.id);
    let (first, kept, used) = (HostStream::new("first"), HostStream::new("kept"), HostStream::new("used"));
    let (old, in_use) = (meet(&first), meet(&used));
    evict(&old);
    for n in 0..3 * REMEMBERED {
        let context = meet(&HostStream::new("one of many"));
        evict(&context);
        // A stream that comes back from time to time keeps its number, and its zones are counted on.
        if n % (REMEMBERED / 4) == 0 {
            let back = meet(&kept);
            assert_eq!(back.begun(), (n / (REMEMBERED / 4)) as u64);
            Arc::clone(&back).claim(|_| {}).ok().expect("a slot").give_up(Lost::Abandoned);
            evict(&back);
        }
    }
    let known = recorder.lock().infos.len();
    assert!(known <= REMEMBERED + 1, "{known} streams");
    assert!(id(&meet(&first)) > id(&old), "it is a new one");
    evict(&in_use);
    assert_eq!(id(&meet(&used)), id(&in_use));
}

#[test]
fn threads_that_have_ended_are_forgotten_and_those_that_run_are_not() {
    let recorder = recorder();
    let meet = |id| recorder.discover_thread(ThreadInfo { id, name: None }, true);
    let runs = meet(1);
    for id in 2..10 * MORE_THREADS as u64 {
        drop(meet(id));
        // Records of the thread's last zones are read a little later.
        assert!(recorder.lock().threads.contains_key(&id));
    }
    let known = recorder.lock().threads.len();
    assert!(known <= 3 * MORE_THREADS, "{known} threads");
    assert!(Arc::ptr_eq(&recorder.thread(1), &runs));
}

#[test]
fn a_thread_is_not_called_by_the_name_of_one_that_had_its_id() {
    let recorder = recorder();
    let name = |id| recorder.thread(id).name.clone();
    let meet = |is_ending| drop(Thread::with_id(7, is_ending).make_known(&recorder));
    let on_a_thread = |thread: std::thread::Builder, is_ending| {
        let joined = std::thread::scope(|scope| thread.spawn_scoped(scope, || meet(is_ending)).map(|it| it.join()));
        joined.expect("a thread").expect("no panic");
    };
    on_a_thread(std::thread::Builder::new().name("first".to_owned()), false);
    assert_eq!(name(7).as_deref(), Some("first"));
    // This thread cannot get its name any more.
    on_a_thread(std::thread::Builder::new(), true);
    assert_eq!(name(7).as_deref(), Some("first"));
    on_a_thread(std::thread::Builder::new(), false);
    assert_eq!(name(7), None);
}

#[cfg(not(miri))]
#[test]
fn figures_of_a_running_session_add_up_while_waits_begin() {
    use std::time::{Duration, Instant};

    let (recorder, stream) = (recorder(), HostStream::new("waits"));
    let context = recorder.context(&stream.as_stream()).expect("a stream");
    // All zones that have begun are recorded, so that one that is missing shows.
    let mut zone = Arc::clone(&context).claim(|_| {}).ok().expect("a slot");
    zone.publish();
    context.recorded.fetch_add(1, Ordering::Release);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let wait = Arc::clone(&context).claim_wait().ok().expect("a slot");
                wait.give_up_wait(Lost::Abandoned);
            }
        });
        let began = Instant::now();
        let mut wrong = None;
        while began.elapsed() < Duration::from_millis(500) && wrong.is_none() {
            let account = context.account();
            let known = account.recorded + account.captured + account.dropped.total();
            wrong = (account.begun != known).then_some((account.begun, known));
            let waits = account.waits;
            let known = waits.recorded + waits.dropped.total();
            wrong = wrong.or((waits.begun != known).then_some((waits.begun, known)));
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(wrong, None, "begun, and what became of it");
    });
}
