//! Contexts on a real GPU: which one is current, and what is lost with one that is destroyed, reset or broken by a kernel.

use std::ptr;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, result, sys};
use gpu::Gpu;
use warpline::RawStream;
use warpline_tests::alone;

use super::{BAD, CHILD, INNER, KERNEL, US, all_recorded, assert_exact, child, device, memory};

fn current() -> sys::CUcontext {
    result::ctx::get_current().expect("the driver answers").unwrap_or(ptr::null_mut())
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_callers_context_stays_current() {
    let _turn = alone();
    let gpu = device();
    let (session, _zones) = memory();
    let primary = current();
    let mut begun = 0;
    // A second context on the same device.
    let other = OtherContext::new(gpu);
    gpu.context.bind_to_thread().expect("the context lives");
    // SAFETY: the stream lives until `other` is dropped.
    let raw = unsafe { RawStream::from_ptr(other.stream.cast()) };
    for _ in 0..10 {
        drop(KERNEL.zone(&raw));
        begun += 1;
        assert_eq!(current(), primary, "a zone in another context");
    }
    // A thread that has no context at all.
    let stream = gpu.stream().expect("a stream");
    std::thread::scope(|scope| {
        let zone = || {
            assert!(current().is_null());
            drop(KERNEL.zone(&stream));
            assert!(current().is_null(), "a zone made a context current");
        };
        scope.spawn(zone).join().expect("it holds");
    });
    begun += 1;
    // A second device.
    if CudaContext::device_count().expect("the driver answers") > 1 {
        let second = Gpu::new(1).expect("the second device");
        let there = second.stream().expect("a stream");
        gpu.context.bind_to_thread().expect("the context lives");
        drop(KERNEL.zone(&there));
        begun += 1;
        assert_eq!(current(), primary, "a zone on another device");
        there.synchronize().expect("no error");
        gpu.context.bind_to_thread().expect("the context lives");
    } else {
        println!("one GPU: not tried with a second");
    }
    stream.synchronize().expect("no error");
    other.synchronize();
    assert_eq!(current(), primary);
    all_recorded(session, begun);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn an_illegal_access_stays_the_applications_error() {
    if let Ok(role) = std::env::var(CHILD) {
        println!("child: {}", illegal_access(role == "marked"));
        return;
    }
    let _turn = alone();
    let test = "contexts::an_illegal_access_stays_the_applications_error";
    let (marked, unmarked) = (child(test, "marked"), child(test, "unmarked"));
    assert!(marked.contains("ILLEGAL_ADDRESS"), "{marked}");
    assert_eq!(marked, unmarked, "the application sees the same error");
}

/// What the application sees of its own error.
fn illegal_access(is_marked: bool) -> String {
    let gpu = device();
    let stream = gpu.stream().expect("a stream");
    let session = is_marked.then(memory);
    for _ in 0..10 {
        let _zone = KERNEL.zone(&stream);
        gpu.spin(&stream, 10 * US, None).expect("launched");
    }
    stream.synchronize().expect("all is well until here");
    // With the context go the times of the events that the collector has not read yet.
    std::thread::sleep(Duration::from_millis(100));
    {
        let _zone = BAD.zone(&stream);
        gpu.poke(&stream, 16).expect("launched");
    }
    let error = stream.synchronize().expect_err("address 16 is nobody's");
    let next = gpu.null(&stream).expect_err("the context is lost").to_string();
    if let Some((session, zones)) = session {
        drop(KERNEL.zone(&stream)); // a zone after the error neither panics nor hides it
        let begin = Instant::now();
        let report = session.finish();
        assert!(begin.elapsed() < Duration::from_secs(6), "finish took {:?}", begin.elapsed());
        assert_exact(&report);
        let good = zones.take().iter().filter(|zone| zone.range.name() == "cuda_tests.kernel").count();
        assert_eq!(good, 10, "what was complete before is there: {report}");
        assert!(report.dropped.stream_failed + report.dropped.event_failed >= 1, "{report}");
    }
    let again = stream.synchronize().expect_err("the error stays");
    format!("{:?}, {next}, {:?}", error.0, again.0)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_destroyed_context_costs_its_own_zones_alone() {
    let _turn = alone();
    let gpu = device();
    let (session, _zones) = memory();
    let stream = gpu.stream().expect("a stream");
    for _ in 0..20 {
        let other = OtherContext::new(gpu);
        // SAFETY: the stream lives until `other` is dropped, after the zone.
        let raw = unsafe { RawStream::from_ptr(other.stream.cast()) };
        drop(KERNEL.zone(&raw));
        // The driver itself does not stand a call in a context that another thread destroys at that moment.
        std::thread::sleep(Duration::from_millis(30));
        drop(other);
        gpu.context.bind_to_thread().expect("the context lives");
        let _zone = INNER.zone(&stream);
        gpu.null(&stream).expect("launched");
    }
    stream.synchronize().expect("no error");
    let report = session.finish();
    assert_exact(&report);
    assert_eq!(report.begun, 40, "{report}");
    let inner = report.ranges.iter().find(|range| range.name == "cuda_tests.inner").map_or(0, |range| range.count);
    assert_eq!(inner, 20, "the other context's zones are all there: {report}");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_device_that_is_reset_ends_no_process_and_is_released_as_often_as_it_was_retained() {
    if let Ok(role) = std::env::var(CHILD) {
        println!("child: {} releases", reset(role == "marked"));
        return;
    }
    let _turn = alone();
    let test = "contexts::a_device_that_is_reset_ends_no_process_and_is_released_as_often_as_it_was_retained";
    assert_eq!(child(test, "marked"), child(test, "unmarked"), "the session leaves nothing, and takes nothing away");
}

/// How often the primary context has to be released after a session in which it was reset.
fn reset(is_marked: bool) -> u32 {
    let gpu = device();
    let session = is_marked.then(memory);
    let stream = gpu.stream().expect("a stream");
    for _ in 0..10 {
        drop(KERNEL.zone(&stream));
    }
    stream.synchronize().expect("no error");
    // SAFETY: nothing of the context is used below but the stream's handle, by the session alone.
    unsafe { sys::cuDevicePrimaryCtxReset_v2(gpu.context.cu_device()) }.result().expect("the driver answers");
    std::thread::sleep(Duration::from_millis(50));
    let mut again = ptr::null_mut();
    // SAFETY: it writes one handle. A reset releases nothing, so this is one more.
    unsafe { sys::cuDevicePrimaryCtxRetain(&mut again, gpu.context.cu_device()) }.result().expect("a new context");
    if let Some((session, _zones)) = session {
        assert_exact(&session.finish());
    }
    // cudarc's stream belongs to a context that is gone.
    std::mem::forget(stream);
    // SAFETY: no context of this process is used below.
    let release = |_: &u32| unsafe { sys::cuDevicePrimaryCtxRelease_v2(gpu.context.cu_device()) }.result().is_ok();
    let released = (0..100).take_while(release).count() as u32;
    let (mut flags, mut is_active) = (0, 1);
    // SAFETY: it writes two numbers.
    let state = unsafe { sys::cuDevicePrimaryCtxGetState(gpu.context.cu_device(), &mut flags, &mut is_active) };
    assert!(state.result().is_ok() && is_active == 0, "{released} releases");
    released
}

/// A context beside the primary one, with a stream; current on this thread while it is made and destroyed.
struct OtherContext {
    context: sys::CUcontext,
    stream: sys::CUstream,
}

impl OtherContext {
    fn new(gpu: &Gpu) -> OtherContext {
        let mut context = ptr::null_mut();
        // SAFETY: it writes one handle.
        unsafe { sys::cuCtxCreate_v4(&mut context, ptr::null_mut(), 0, gpu.context.cu_device()) }
            .result()
            .expect("a context");
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking).expect("a stream");
        OtherContext { context, stream }
    }

    fn synchronize(&self) {
        // SAFETY: the stream lives as long as this.
        unsafe { result::stream::synchronize(self.stream) }.expect("no error");
    }
}

impl Drop for OtherContext {
    fn drop(&mut self) {
        // SAFETY: both are this one's own. The context goes with all that is in it.
        let _ = unsafe { sys::cuCtxDestroy_v2(self.context) };
    }
}

/// The driver's calls for green contexts, which cudarc has for some versions of CUDA only.
struct GreenCalls(libloading::Library);

/// A `CUdevResource`, with room to spare.
type Resource = [u64; 64];

warpline_tests::exports! {
    GreenCalls:

    fn cuDeviceGetDevResource(device: i32, resource: *mut Resource, kind: i32) -> u32;
    fn cuDevSmResourceSplitByCount(result: *mut Resource, groups: &mut u32, input: *const Resource, rest: *mut Resource, flags: u32, least: u32) -> u32;
    fn cuDevResourceGenerateDesc(description: &mut usize, resources: *const Resource, count: u32) -> u32;
    fn cuGreenCtxCreate(green: &mut usize, description: usize, device: i32, flags: u32) -> u32;
    fn cuCtxFromGreenCtx(context: &mut sys::CUcontext, green: usize) -> u32;
    fn cuGreenCtxStreamCreate(stream: &mut sys::CUstream, green: usize, flags: u32, priority: i32) -> u32;
    fn cuGreenCtxDestroy(green: usize) -> u32;
}

/// Zones and replays on a stream of a green context, which stays current to this thread.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn streams_of_a_green_context_are_timed() {
    let _turn = alone();
    let _gpu = device();
    // SAFETY: the driver is loaded already.
    let calls = GreenCalls(unsafe { libloading::Library::new("libcuda.so.1") }.expect("a driver"));
    // SAFETY: nothing is called.
    if unsafe { calls.0.get::<*const ()>(b"cuStreamGetCtx_v2\0") }.is_err() {
        return println!("the driver is older than 12.5: not tried");
    }
    let (mut all, mut some, mut rest): (Resource, Resource, Resource) = ([0; 64], [0; 64], [0; 64]);
    let (mut groups, mut description, mut green) = (1, 0, 0);
    let (mut context, mut stream) = (ptr::null_mut(), ptr::null_mut());
    let codes = [
        calls.cuDeviceGetDevResource(0, &mut all, 1),
        calls.cuDevSmResourceSplitByCount(&mut some, &mut groups, &all, &mut rest, 0, 16),
        calls.cuDevResourceGenerateDesc(&mut description, &some, 1),
        calls.cuGreenCtxCreate(&mut green, description, 0, 1),
        calls.cuCtxFromGreenCtx(&mut context, green),
        calls.cuGreenCtxStreamCreate(&mut stream, green, 1, 0),
    ];
    assert_eq!(codes, [0; 6]);
    let primary = current();
    // SAFETY: the context lives until the end of the test.
    unsafe { sys::cuCtxSetCurrent(context) }.result().expect("it is current");
    // SAFETY: the stream lives until the end of the test.
    let raw = unsafe { RawStream::from_ptr(stream.cast()) };
    let (session, zones) = memory();
    for _ in 0..20 {
        drop(KERNEL.zone(&raw));
        assert_eq!(current(), context, "it stays current");
    }
    // SAFETY: as above.
    unsafe { result::stream::synchronize(stream) }.expect("no error");
    let report = all_recorded(session, 20);
    assert!(zones.take().iter().all(|zone| zone.gpu.is_some()), "{report}");
    // SAFETY: both are this test's own.
    let ended = unsafe { (sys::cuStreamDestroy_v2(stream).result(), sys::cuCtxSetCurrent(primary).result()) };
    assert!(ended.0.is_ok() && ended.1.is_ok());
    assert_eq!(calls.cuGreenCtxDestroy(green), 0);
}
