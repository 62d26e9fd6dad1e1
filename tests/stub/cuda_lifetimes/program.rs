//! A program without unsafe code, which drops what it works with as early as the compiler lets it.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cudarc::cublas::CudaBlas;
use cudarc::driver::{CudaContext, CudaGraph, CudaStream, sys};
use warpline::collective::{CollectiveKind, DataType, Message};
use warpline::graph::GraphZones;
use warpline::timeline::{Queue, Semaphore};
use warpline::{gpu_zone, profile};

warpline::range! {
    WORK = "stub.cuda_lifetimes.work": "Work on a stream.";
    OTHER = "stub.cuda_lifetimes.other": "Work inside of other work.";
    ALL = "stub.cuda_lifetimes.all": "Several collectives at once.", kind = collective;
    ONE = "stub.cuda_lifetimes.one": "One of them.", kind = collective;
}

/// A new stream of a device, which owns the only handle of its context.
pub fn stream(device: usize) -> Arc<CudaStream> {
    CudaContext::new(device).and_then(|context| context.new_stream()).expect("a stream")
}

pub fn one_zone(stream: &Arc<CudaStream>) {
    drop(WORK.zone(stream));
}

/// Takes the last handle of its stream with it before it returns.
#[gpu_zone("stub.cuda_lifetimes.consumes", stream = stream)]
fn consumes(stream: Arc<CudaStream>) {
    drop(stream);
}

struct Model {
    stream: Arc<CudaStream>,
}

impl Model {
    /// Replaces the stream that its zone is on.
    #[gpu_zone("stub.cuda_lifetimes.replaces", stream = self.stream)]
    fn replaces(&mut self) {
        self.stream = self.stream.context().default_stream();
    }
}

/// Drops its stream at an `await`, and ends on whatever thread polls it last.
#[gpu_zone("stub.cuda_lifetimes.waits", stream = stream)]
async fn waits(stream: Arc<CudaStream>) {
    drop(stream);
    std::future::ready(()).await;
}

/// Each drops its stream, and with it its context, before its zone. Returns how many zones that were.
pub fn drop_before_the_zone() -> u64 {
    let own = stream(0);
    let zone = WORK.zone(&own);
    drop(own);
    drop(zone);

    let own = stream(0);
    let zone = WORK.async_zone(&own);
    drop(own);
    drop(zone);

    let own = stream(0);
    let zone = WORK.async_zone(&own);
    drop(own);
    thread::spawn(move || drop(zone)).join().expect("no panic");

    // Inner and outer, the outer one first.
    let own = stream(0);
    let (outer, inner) = (WORK.async_zone(&own), OTHER.async_zone(&own));
    drop(own);
    drop(outer);
    drop(inner);

    let own = stream(0);
    let mut batch = ALL.batch(&own);
    drop(own);
    batch.add(&ONE, || Message::new(CollectiveKind::AllReduce).count(8).dtype(DataType::F32));
    drop(batch);

    consumes(stream(0));
    Model { stream: stream(0) }.replaces();

    let future = waits(stream(0));
    thread::spawn(move || {
        let mut future = Box::pin(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_ready());
    })
    .join()
    .expect("no panic");

    // The default streams have no handle of their own: their context is what must live.
    let context = CudaContext::new(0).expect("a context");
    let (default, per_thread) = (context.default_stream(), context.per_thread_stream());
    drop(context);
    let zones = (WORK.zone(&default), WORK.zone(&per_thread));
    drop((default, per_thread));
    drop(zones);

    // A batch counts with its entry.
    5 + 2 + 3 + 2
}

/// Zones whose streams and session are gone before they end.
pub struct Open {
    zone: warpline::Zone,
    async_zone: warpline::AsyncZone,
}

impl Open {
    pub fn begin() -> Open {
        let (first, second) = (stream(0), stream(0));
        Open { zone: WORK.zone(&first), async_zone: WORK.async_zone(&second) }
    }

    pub fn end(self) {
        let Open { zone, async_zone } = self;
        drop(zone);
        thread::spawn(move || drop(async_zone)).join().expect("no panic");
    }
}

const FLAGS: sys::CUgraphInstantiate_flags =
    sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

/// No answer takes longer.
const LONG: Duration = Duration::from_secs(20);

const MODE: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

/// Zones that are captured, or around a capture, and whose stream goes first.
pub fn drop_in_a_capture() {
    // The capture never ends: its stream goes.
    let own = stream(0);
    own.begin_capture(MODE).expect("the capture begins");
    let (outer, inner) = (WORK.async_zone(&own), OTHER.async_zone(&own));
    drop(own);
    drop(inner);
    drop(outer);

    // The zone began before the capture, and ends in it.
    let own = stream(0);
    let zone = WORK.zone(&own);
    own.begin_capture(MODE).expect("the capture begins");
    drop(own);
    drop(zone);

    // It began in the capture, and outlives it, the graph and the stream.
    let own = stream(0);
    own.begin_capture(MODE).expect("the capture begins");
    let zone = WORK.async_zone(&own);
    let graph = own.end_capture(FLAGS);
    if let Ok(Some(graph)) = &graph {
        let _ = GraphZones::for_graph(graph);
    }
    drop(graph);
    drop(own);
    drop(zone);
}

/// A zone on a stream that is being captured, and that is gone.
pub fn open_in_a_capture() -> warpline::AsyncZone {
    let own = stream(0);
    own.begin_capture(MODE).expect("the capture begins");
    WORK.async_zone(&own)
}

/// A graph with one zone, which is registered.
pub fn capture_one_zone(stream: &Arc<CudaStream>) -> (CudaGraph, GraphZones) {
    stream.begin_capture(MODE).expect("the capture begins");
    drop(WORK.zone(stream));
    let graph = stream.end_capture(FLAGS).expect("the capture ends").expect("a graph");
    let zones = GraphZones::for_graph(&graph).expect("a graph that is alive");
    (graph, zones)
}

/// Zones that somebody asked for, with no session. Returns how many were timed.
pub fn drop_while_asked_for() -> usize {
    let own = stream(0);
    let next = profile::next(&own);
    let zone = WORK.zone(&own);
    drop(own);
    drop(zone);

    let runs = profile::range(&OTHER, 1);
    let own = stream(0);
    let zone = OTHER.async_zone(&own);
    drop(own);
    drop(zone);

    let mut own = Some(stream(0));
    let ((), timed) = warpline::time!(own.as_ref().expect("a stream"), drop(own.take()));

    // Asked for, and never begun.
    let own = stream(0);
    let never = profile::next(&own);
    drop(own);
    drop(never);

    let runs = runs.wait(LONG).into_iter().filter(Result::is_ok).count();
    runs + [next, timed].iter().filter(|pending| pending.wait(LONG).is_ok()).count()
}

/// A cuBLAS handle keeps its stream; a zone keeps the handle.
pub fn drop_the_cublas_handle() {
    let handle = || CudaBlas::new(stream(0)).map(Arc::new).expect("a handle");
    let own = handle();
    let zone = WORK.zone(&own);
    drop(own);
    drop(zone);

    let own = handle();
    let zone = WORK.async_zone(&own);
    drop(own);
    thread::spawn(move || drop(zone)).join().expect("no panic");
}

/// Signals whose streams are gone before somebody waits for them.
pub fn drop_behind_a_timeline() {
    let semaphore = Semaphore::named("lifetimes", 0);
    let (first, second) = (stream(0), stream(0));
    semaphore.signal_on(&first, 1).expect("a signal");
    drop(first);
    semaphore.wait_on(&second, 1).expect("a wait");
    drop(second);
    semaphore.wait(1, LONG).expect("the signal");

    // A queue owns its stream until everything that was submitted is done.
    let queue = Queue::new("lifetimes", stream(0)).expect("a queue");
    let gate = Semaphore::named("gate", 0);
    let work = |stream: &Arc<CudaStream>| {
        let _zone = WORK.zone(stream);
        Ok(())
    };
    queue.submit(&[(&gate, 1)], &[(&semaphore, 2)], work).expect("submitted");
    gate.signal(1).expect("a signal");
    semaphore.wait(2, LONG).expect("the signal");
    drop(queue);
}

/// Signals on a stream of the second device, lets a thread wait for that, on the host or with a stream of the first device, and
/// drops the stream with its context when the thread has come to the call that `stop` stops it at.
pub fn drop_the_context_of_a_signal<W: FnOnce()>(on_host: bool, stop: impl FnOnce() -> W) -> thread::JoinHandle<()> {
    let semaphore = Semaphore::named("context", 0);
    let own = stream(1);
    semaphore.signal_on(&own, 1).expect("a signal");
    let wait_until_stopped = stop();
    let waits = move || {
        if on_host {
            semaphore.wait(1, LONG).expect("the signal");
        } else {
            semaphore.wait_on(&stream(0), 1).expect("a wait");
        }
    };
    let thread = thread::spawn(waits);
    wait_until_stopped();
    drop(own);
    thread
}

/// Drops the stream here and ends its zone on another thread, where another device is current. There `look` is called before the
/// end and behind it, and `mark` right before the end. Returns what `look` says here, and there.
pub fn end_on_another_thread<T: Send>(mark: impl Fn() + Sync, look: impl Fn() -> T + Sync) -> (T, [T; 2]) {
    let own = stream(0);
    let zone = WORK.async_zone(&own);
    drop(own);
    let here = look();
    let there = thread::scope(|scope| {
        let end = || {
            let other = CudaContext::new(1).expect("a second device");
            other.bind_to_thread().expect("it is current");
            let before = look();
            mark();
            drop(zone);
            [before, look()]
        };
        scope.spawn(end).join().expect("no panic")
    });
    (here, there)
}

/// How many owners a stream has while a zone is open on it.
pub fn owners_in_a_zone(stream: &Arc<CudaStream>) -> usize {
    let _zone = WORK.zone(stream);
    Arc::strong_count(stream)
}
