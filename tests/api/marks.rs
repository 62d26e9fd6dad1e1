//! Marked functions as users write them, and what a session has recorded of each.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use warpline::backend::StreamRef;
use warpline::collective::ProcessGroup;
use warpline::record::{Status, ZoneRecord};
use warpline::sink::MemorySink;
use warpline::{AsStream, HostStream, Session, Value, block, collective, gpu_zone, host_zone};
use warpline_tests::alone;

warpline::range! {
    SHARED = "api.marks.shared": "A range that two functions share.", fields(n);
}

/// Adds on the stream.
///
/// The second paragraph is not its description.
#[gpu_zone("api.marks.add", fields(n = n, half = f64::from(n) / 2.0, name = "x"), label = format_args!("layer {n}"))]
fn add(stream: &HostStream, n: u32) -> u32 {
    stream.launch(|| ());
    n + 1
}

/// Named after its function.
#[gpu_zone(level = fine, lane = "side", color = 0x00ff88)]
fn unnamed(stream: &HostStream) {
    stream.launch(|| ());
}

#[gpu_zone(SHARED, fields(n = 1))]
fn first(stream: &HostStream) {
    stream.launch(|| ());
}

#[gpu_zone(SHARED, stream = queue, fields(n = 2))]
fn second(queue: &HostStream) {
    queue.launch(|| ());
}

/// Fails when it is told to.
#[gpu_zone("api.marks.fallible", err)]
fn fallible(stream: &HostStream, text: &str) -> Result<u32, std::num::ParseIntError> {
    stream.launch(|| ());
    let value = text.parse::<u32>()?;
    Ok(value)
}

/// Prepares for `PREPARED`, once the stream is through with all before it, and launches then.
#[gpu_zone("api.marks.prepared", begin = launch)]
fn prepared(stream: &HostStream) {
    stream.synchronize().expect("no closure panics");
    std::thread::sleep(PREPARED);
    stream.launch(|| std::thread::sleep(PREPARED));
}

/// Launches at once.
#[gpu_zone("api.marks.queued", begin = "launch")]
fn queued(stream: &HostStream) {
    stream.launch(|| ());
}

const PREPARED: Duration = Duration::from_millis(20);

struct Layer {
    stream: HostStream,
}

impl Layer {
    /// A method on the layer's own stream.
    #[gpu_zone("api.marks.forward", stream = self.stream)]
    fn forward<const N: usize>(&self, input: [f32; N]) -> impl Iterator<Item = f32> + use<N> {
        self.stream.launch(|| ());
        input.into_iter().map(|x| x * 2.0)
    }
}

/// Waits twice, fails at the end.
#[gpu_zone("api.marks.later", err)]
async fn later(stream: &HostStream) -> Result<(), String> {
    stream.launch(|| ());
    Yield(false).await;
    Yield(false).await;
    Err("too late".to_owned())
}

/// As `#[async_trait]` rewrites a method.
#[gpu_zone("api.marks.boxed", fields(n = n + 1), err)]
fn boxed(stream: &HostStream, n: u32) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
    Box::pin(async move {
        stream.launch(|| ());
        Yield(false).await;
        Err("too late".to_owned())
    })
}

/// Returns a future.
#[gpu_zone("api.marks.returned")]
fn returned(stream: &HostStream) -> impl Future<Output = ()> + use<'_> {
    stream.launch(|| ());
    async move {
        Yield(false).await;
    }
}

/// A trait whose futures borrow nothing, such as `Service` of `tower`.
trait Service {
    type Future: Future<Output = u32> + Send + 'static;
    fn call(&mut self, request: u32) -> Self::Future;
    fn lazily(&self) -> impl Future<Output = u32> + Send + 'static;
}

struct Server {
    stream: Arc<HostStream>,
}

impl Service for Server {
    type Future = Pin<Box<dyn Future<Output = u32> + Send>>;

    /// Answers later.
    #[gpu_zone("api.marks.call", stream = self.stream, fields(request = request))]
    fn call(&mut self, request: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
        let answer = request + 1;
        Box::pin(async move {
            Yield(false).await;
            answer
        })
    }

    /// Answers later, and moves nothing.
    #[gpu_zone("api.marks.lazily", stream = self.stream)]
    fn lazily(&self) -> impl Future<Output = u32> + Send + 'static {
        async { 7 }
    }
}

/// A stream that cannot be cloned.
struct Unique(HostStream);

impl AsStream for Unique {
    fn as_stream(&self) -> StreamRef<'_> {
        self.0.as_stream()
    }
}

/// Borrows its stream.
#[gpu_zone("api.marks.unique")]
fn borrowed(stream: &Unique) -> impl Future<Output = ()> + use<'_> {
    async move {
        Yield(false).await;
    }
}

/// Has text in its fields.
#[host_zone("api.marks.text", fields(name = name, path = path, kind = "csv"))]
fn text(name: &str, path: &String) {}

/// A field panics.
#[host_zone("api.marks.panics", fields(first = numbers[0]))]
fn panics(numbers: &[u32]) -> usize {
    numbers.len()
}

/// Its error cannot be shown.
#[host_zone("api.marks.unshown", err)]
fn unshown() -> Result<(), Unshown> {
    Err(Unshown)
}

#[derive(Debug, PartialEq)]
struct Unshown;

impl std::fmt::Display for Unshown {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("not to be shown")
    }
}

/// Reads one lock in its stream, its fields and its label.
#[gpu_zone(
    "api.marks.locked",
    stream = layer.try_lock().expect("free").stream,
    fields(n = layer.try_lock().expect("free").n, twice = 2 * layer.try_lock().expect("free").n),
    label = layer.try_lock().expect("free").n
)]
fn locked(layer: &Mutex<Locked>) {}

/// Reads one lock in what it moves.
#[collective(
    "api.marks.locked_message",
    kind = "all_reduce",
    stream = layer.try_lock().expect("free").stream,
    count = layer.try_lock().expect("free").n,
    group = layer.try_lock().expect("free").group
)]
fn locked_message(layer: &Mutex<Locked>) {}

struct Locked {
    stream: HostStream,
    group: ProcessGroup,
    n: u32,
}

struct Held {
    value: Vec<u32>,
}

impl Held {
    /// Hands on a part of what it borrows.
    #[host_zone("api.marks.borrowed", err)]
    fn borrowed(&mut self, at: usize) -> Result<&mut u32, String> {
        self.value.get_mut(at).ok_or_else(|| format!("nothing at {at}"))
    }

    /// The same with its parameter by name.
    #[host_zone("api.marks.reborrowed", err)]
    fn reborrowed(value: &mut [u32]) -> Result<&mut [u32], String> {
        Ok(&mut value[..])
    }
}

/// Work of the thread.
#[host_zone("api.marks.load", fields(rows = rows))]
fn load(rows: usize) -> usize {
    rows * 2
}

fn parts(stream: &HostStream) -> Option<u32> {
    let loaded = block::host_zone!("api.marks.part.load", description = "Loads.", { 3 });
    block::gpu_zone!("api.marks.part.scale", stream, description = "Scales.", fields(loaded = loaded), {
        stream.launch(|| ());
        if loaded == 3 {
            // Leaves the function, not only the block.
            return Some(loaded);
        }
    });
    None
}

struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

fn record(work: impl FnOnce(&HostStream)) -> Vec<ZoneRecord> {
    let _turn = alone();
    let zones = MemorySink::new(1_000);
    let session = Session::builder().sink(zones.clone()).start().expect("no other session");
    let stream = HostStream::new("compute");
    work(&stream);
    let report = session.finish();
    assert_eq!(report.recorded, report.begun, "{report}");
    zones.take()
}

fn one(zones: &[ZoneRecord]) -> &ZoneRecord {
    let [zone] = zones else { panic!("one zone: {zones:?}") };
    zone
}

#[test]
fn a_function_with_fields_and_a_label() {
    let zones = record(|stream| assert_eq!(add(stream, 12), 13));
    let zone = one(&zones);
    assert_eq!(zone.range.name(), "api.marks.add");
    assert_eq!(zone.range.description(), "Adds on the stream.");
    assert_eq!(zone.range.fields(), ["n", "half", "name"]);
    let fields: Vec<_> = zone.fields.iter().map(|(name, value)| (name, value.clone())).collect();
    assert_eq!(fields, [("n", Value::U64(12)), ("half", Value::F64(6.0)), ("name", Value::Str("x"))]);
    assert_eq!(zone.fields.label(), Some("layer 12"));
}

#[test]
fn a_name_from_the_function_and_the_options_of_the_range() {
    let zones = record(unnamed);
    let range = one(&zones).range;
    assert_eq!((range.name(), range.namespace()), ("api.unnamed", "api"));
    assert_eq!(range.label(), c"api.unnamed");
    assert_eq!(
        (range.level(), range.lane(), range.color()),
        (warpline::catalog::Level::Fine, Some("side"), Some(0x00ff88))
    );
    assert_eq!((range.krate(), range.module(), range.file()), ("api", "api::marks", file!()));
    let found = warpline::catalog().find("api.unnamed").expect("in the catalog");
    assert!(std::ptr::eq(found, range));
    assert!(std::ptr::eq(warpline::catalog().get(range.id().expect("in the slice")).expect("an id"), range));
}

#[test]
fn functions_that_share_a_range() {
    let zones = record(|stream| {
        first(stream);
        second(stream);
    });
    let seen: Vec<_> = zones.iter().map(|zone| (zone.range.name(), zone.fields.get("n").cloned())).collect();
    assert_eq!(seen, [("api.marks.shared", Some(Value::I64(1))), ("api.marks.shared", Some(Value::I64(2)))]);
}

#[test]
fn an_error_is_recorded_and_returned_as_it_was() {
    let zones = record(|stream| {
        assert_eq!(fallible(stream, "7"), Ok(7));
        assert!(fallible(stream, "seven").is_err());
    });
    let [good, bad] = &zones[..] else { panic!("two zones: {zones:?}") };
    assert_eq!((good.status, good.error.as_deref()), (Status::Complete, None));
    assert_eq!((bad.status, bad.error.as_deref()), (Status::Error, Some("invalid digit found in string")));
}

#[test]
fn a_zone_that_begins_with_its_launch() {
    let (release, wait) = mpsc::channel::<()>();
    let zones = record(|stream| {
        prepared(stream);
        stream.launch(move || {
            let _ = wait.recv();
        });
        queued(stream);
        drop(release);
    });
    let [prepared, queued] = &zones[..] else { panic!("two zones: {zones:?}") };
    let gpu = prepared.gpu.expect("on a stream");
    assert!(prepared.begin_late_by_ns >= PREPARED.as_nanos() as i64, "{prepared:?}");
    assert_eq!(gpu.begin_ns, prepared.host.end_ns.min(gpu.end_ns), "the work came behind the launch");
    assert_eq!(prepared.launch_wait_ns(), 0, "what it waited is not in its time");
    assert_eq!((queued.begin_late_by_ns, queued.launch_wait_ns()), (0, 0), "the stream came to it later: {queued:?}");
    assert!(queued.gpu.expect("on a stream").begin_ns > queued.host.end_ns);
}

#[test]
fn a_method_with_const_generics_and_an_opaque_return() {
    let _turn = alone();
    let zones = MemorySink::new(10);
    let session = Session::builder().sink(zones.clone()).start().expect("no other session");
    let layer = Layer { stream: HostStream::new("layer") };
    assert_eq!(layer.forward([1.0, 2.0]).collect::<Vec<_>>(), [2.0, 4.0]);
    session.finish();
    assert_eq!(one(&zones.take()).stream.as_ref().expect("on a stream").name, "layer");
}

#[test]
fn an_async_function_from_first_poll_to_completion_on_any_thread() {
    let zones = record(|stream| {
        let mut future = pin!(later(stream));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        std::thread::scope(|scope| {
            let finished = scope.spawn(|| {
                let mut context = Context::from_waker(Waker::noop());
                assert!(future.as_mut().poll(&mut context).is_pending());
                future.as_mut().poll(&mut context)
            });
            assert_eq!(finished.join().expect("no panic"), Poll::Ready(Err("too late".to_owned())));
        });
        add(stream, 1);
    });
    let [later, add] = &zones[..] else { panic!("two zones: {zones:?}") };
    assert_eq!((later.status, later.error.as_deref(), later.depth), (Status::Error, Some("too late"), 0));
    assert_eq!(add.depth, 0, "an async zone takes no part in the nesting");
    assert!(later.gpu.expect("on a stream").end_ns <= add.gpu.expect("on a stream").begin_ns);
}

#[test]
fn a_future_that_outlives_what_lends_its_stream_has_its_zone() {
    let stream = Arc::new(HostStream::new("server"));
    let ready = |future: Pin<Box<dyn Future<Output = u32> + Send>>| {
        let (mut future, mut context) = (future, Context::from_waker(Waker::noop()));
        loop {
            if let Poll::Ready(answer) = future.as_mut().poll(&mut context) {
                return answer;
            }
        }
    };
    let zones = record(|_| {
        let mut server = Server { stream: Arc::clone(&stream) };
        let (called, lazily) = (server.call(41), Box::pin(server.lazily()));
        drop(server);
        assert_eq!((ready(called), ready(lazily)), (42, 7));
        let unique = Unique(HostStream::new("unique"));
        let mut context = Context::from_waker(Waker::noop());
        let mut future = pin!(borrowed(&unique));
        while future.as_mut().poll(&mut context).is_pending() {}
    });
    let mut names: Vec<_> =
        zones.iter().map(|zone| (zone.range.name(), &*zone.stream.as_ref().expect("on a stream").name)).collect();
    // Zones of two streams have no order.
    names.sort_unstable();
    let expected = [("api.marks.call", "server"), ("api.marks.lazily", "server"), ("api.marks.unique", "unique")];
    assert_eq!(names, expected);
    let _turn = alone();
    let called = Server { stream: Arc::clone(&stream) }.call(1);
    assert_eq!((Arc::strong_count(&stream), ready(called)), (1, 2), "no stream is kept while nothing records");
}

#[test]
fn a_cancelled_future_ends_its_zone() {
    let zones = record(|stream| {
        let mut future = Box::pin(later(stream));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
    });
    assert_eq!(one(&zones).status, Status::Complete);
}

#[test]
fn host_zones_and_parts_of_functions() {
    let zones = record(|stream| {
        assert_eq!(load(4), 8);
        assert_eq!(parts(stream), Some(3));
    });
    let mut names: Vec<_> = zones.iter().map(|zone| zone.range.name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["api.marks.load", "api.marks.part.load", "api.marks.part.scale"]);
    let load = zones.iter().find(|zone| zone.range.name() == "api.marks.load").expect("recorded");
    assert_eq!(load.fields.get("rows"), Some(&Value::U64(4)));
    assert!(load.stream.is_none() && load.gpu.is_none());
}

#[test]
fn a_returned_future_is_timed_from_first_poll_to_completion() {
    let zones = record(|stream| {
        let mut context = Context::from_waker(Waker::noop());
        let mut future = boxed(stream, 1);
        add(stream, 1);
        assert!(future.as_mut().poll(&mut context).is_pending());
        add(stream, 2);
        assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(Err("too late".to_owned())));
        let mut future = pin!(returned(stream));
        assert!(future.as_mut().poll(&mut context).is_pending());
        add(stream, 3);
        assert!(future.as_mut().poll(&mut context).is_ready());
    });
    let of = |name: &str| zones.iter().filter(move |zone| zone.range.name() == name).collect::<Vec<_>>();
    let [before, within, later] = of("api.marks.add")[..] else { panic!("three zones: {zones:?}") };
    let [boxed] = of("api.marks.boxed")[..] else { panic!("one zone: {zones:?}") };
    let [returned] = of("api.marks.returned")[..] else { panic!("one zone: {zones:?}") };
    assert_eq!((boxed.status, boxed.error.as_deref(), boxed.depth), (Status::Error, Some("too late"), 0));
    assert_eq!(boxed.fields.get("n"), Some(&Value::U64(2)));
    assert!(before.host.end_ns <= boxed.host.begin_ns, "it begins at its first poll: {zones:?}");
    assert!(boxed.host.begin_ns <= within.host.begin_ns && within.host.end_ns <= boxed.host.end_ns, "{zones:?}");
    assert_eq!(returned.status, Status::Complete);
    assert!(returned.host.begin_ns <= later.host.begin_ns && later.host.end_ns <= returned.host.end_ns, "{zones:?}");
}

#[test]
fn borrowed_text_is_copied() {
    let zones = record(|_| text(&"a".repeat(3), &"b".repeat(2_000)));
    let fields = &one(&zones).fields;
    assert_eq!(fields.get("name"), Some(&Value::Text("aaa".into())));
    assert!(matches!(fields.get("kind"), Some(Value::Str("csv"))), "a literal is not copied");
    let path = fields.get("path").expect("given").to_string();
    assert_eq!(path, format!("{}…", "b".repeat(warpline::fields::MAX_TEXT_BYTES - "…".len())));
}

#[test]
fn an_expression_holds_nothing_while_the_next_one_runs() {
    let (stream, group) = (HostStream::new("locked"), ProcessGroup::new("tp0", [0, 1], 0));
    let layer = Mutex::new(Locked { stream, group, n: 3 });
    let zones = record(|_| {
        locked(&layer);
        locked_message(&layer);
    });
    let [zone, collective] = &zones[..] else { panic!("two zones: {zones:?}") };
    assert_eq!(collective.message.as_ref().and_then(|message| message.count), Some(3));
    assert_eq!((zone.fields.get("n"), zone.fields.get("twice")), (Some(&Value::U64(3)), Some(&Value::U64(6))));
    assert_eq!(zone.fields.label(), Some("3"));
}

#[test]
fn a_function_with_err_returns_what_it_borrows() {
    let zones = record(|_| {
        let mut held = Held { value: vec![1] };
        *held.borrowed(0).expect("one element") += 1;
        assert_eq!(held.borrowed(1), Err("nothing at 1".to_owned()));
        assert_eq!(Held::reborrowed(&mut held.value), Ok(&mut [2][..]));
    });
    assert_eq!(zones.iter().filter(|zone| zone.status == Status::Error).count(), 1, "{zones:?}");
}

#[test]
fn a_field_that_panics_costs_its_zone_alone() {
    let _turn = alone();
    let zones = MemorySink::new(10);
    let session = Session::builder().sink(zones.clone()).start().expect("no other session");
    assert_eq!(panics(&[]), 0);
    assert_eq!(panics(&[1]), 1);
    assert_eq!(unshown(), Err(Unshown));
    let report = session.finish();
    assert_eq!((report.begun, report.recorded, report.dropped.unfinished), (3, 2, 1), "{report}");
    let [first, unshown] = &zones.take()[..] else { panic!("two zones") };
    assert_eq!(first.fields.get("first"), Some(&Value::U64(1)));
    assert_eq!((unshown.status, unshown.error.as_deref()), (Status::Error, Some("its `Display` panicked")));
}
