//! What single calls cost: those that a zone makes beside recording its events, on the launching thread; and those that
//! read events back, on another thread, alone and beside a thread that launches without a pause.

use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use cudarc::driver::{CudaStream, sys};
use gpu::{Event, Gpu, Result};

use crate::clock::boottime_ns;
use crate::figures::{Table, median};
use crate::options::Options;

const CALLS: usize = 256;
const ROUNDS: usize = 31;

pub fn run(_: &Options) -> Result {
    let gpu = Gpu::new(0)?;
    let stream = gpu.stream()?;
    let raw = stream.cu_stream();
    let events = Event::many(CALLS)?;
    let mut table = Table::new("calls: ns of one call", &["call", "alone", "beside a launching thread"]);
    let (mut id, mut capturing, mut current) =
        (0, sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, ptr::null_mut());
    let mut row = |name: &str, alone: f64, beside: Option<f64>| {
        let beside = beside.map_or_else(String::new, |ns| format!("{ns:.0}"));
        table.row(&[name.to_owned(), format!("{alone:.0}"), beside]);
    };
    // SAFETY: valid out-pointers and a stream that lives.
    row("cuStreamGetId", each(|_| unsafe { sys::cuStreamGetId(raw, &mut id) }), None);
    // SAFETY: as above.
    row("cuStreamIsCapturing", each(|_| unsafe { sys::cuStreamIsCapturing(raw, &mut capturing) }), None);
    // SAFETY: as above.
    row("cuCtxGetCurrent", each(|_| unsafe { sys::cuCtxGetCurrent(&mut current) }), None);
    row("Instant::now", each(|_| Instant::now()), None);
    row("CLOCK_BOOTTIME", each(|_| boottime_ns()), None);
    // SAFETY: it takes nothing.
    row("gettid", each(|_| unsafe { libc::gettid() }), None);
    row("cuEventRecord", each(|n| events[n].record(&stream)), None);
    stream.synchronize()?;
    let query = |n: usize| {
        let _ = black_box(events[n].is_complete());
    };
    let elapsed = |n: usize| {
        let _ = black_box(events[0].elapsed_ms(&events[n]));
    };
    for (name, has_context) in [("no context current", false), ("context current", true)] {
        let read = |call: &(dyn Fn(usize) + Sync)| on_thread(&gpu, has_context, call);
        let (alone, beside) = (read(&query), beside_launches(&gpu, || read(&query))?);
        row(&format!("cuEventQuery, {name}"), alone, Some(beside));
        let (alone, beside) = (read(&elapsed), beside_launches(&gpu, || read(&elapsed))?);
        row(&format!("cuEventElapsedTime, {name}"), alone, Some(beside));
    }
    if let Some(v2) = ElapsedV2::load() {
        let elapsed = |n: usize| _ = black_box(v2.call(&events[0], &events[n]));
        let same = |n: usize| _ = black_box(v2.call(&events[n], &events[n]));
        row(
            "cuEventElapsedTime_v2",
            on_thread(&gpu, false, &elapsed),
            Some(beside_launches(&gpu, || on_thread(&gpu, false, &elapsed))?),
        );
        row(
            "the same, of one event",
            on_thread(&gpu, false, &same),
            Some(beside_launches(&gpu, || on_thread(&gpu, false, &same))?),
        );
        table.print();
        v2.answers(&gpu, &stream)?;
    } else {
        table.print();
        println!("the driver has no cuEventElapsedTime_v2");
    }
    fresh(&gpu, &stream, &events)
}

/// `cuEventElapsedTime_v2`, which not every driver has; the plain symbol is the older call.
struct ElapsedV2(unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> u32);

impl ElapsedV2 {
    fn load() -> Option<ElapsedV2> {
        // SAFETY: the driver is loaded already.
        let library = unsafe { libloading::Library::new("libcuda.so.1") }.ok()?;
        // SAFETY: the type is that of the driver's header.
        let call = *unsafe { library.get(b"cuEventElapsedTime_v2\0") }.ok()?;
        std::mem::forget(library);
        Some(ElapsedV2(call))
    }

    fn call(&self, start: &Event, end: &Event) -> (u32, f32) {
        let mut ms = f32::NAN;
        // SAFETY: a valid out-pointer, and events that live.
        let code = unsafe { (self.0)(&mut ms, start.raw(), end.raw()) };
        (code, ms)
    }

    /// What the call returns for events of each kind: the collector depends on it.
    fn answers(&self, gpu: &Gpu, stream: &CudaStream) -> Result {
        let events = Event::many(4)?;
        let [passed, pending, later, never] = &events[..] else { return Ok(()) };
        passed.record(stream)?;
        stream.synchronize()?;
        gpu.spin(stream, 5_000_000, None)?;
        pending.record(stream)?;
        later.record(stream)?;
        let before = [
            ("passed, passed", self.call(passed, passed)),
            ("passed, pending", self.call(passed, pending)),
            ("pending, pending", self.call(pending, pending)),
            ("pending, later", self.call(pending, later)),
            ("never recorded, itself", self.call(never, never)),
            ("passed, never recorded", self.call(passed, never)),
        ];
        stream.synchronize()?;
        let again = [
            ("pending, pending after it", self.call(pending, pending)),
            ("pending, later after it", self.call(pending, later)),
        ];
        gpu.spin(stream, 5_000_000, None)?;
        passed.record(stream)?;
        let anew = [
            ("recorded anew, itself", self.call(passed, passed)),
            ("recorded anew, pending", self.call(passed, pending)),
        ];
        stream.synchronize()?;
        let mut table = Table::new(
            "calls: what cuEventElapsedTime_v2 returns (0 success, 400 invalid handle, 600 not ready)",
            &["of", "code", "ms"],
        );
        for (name, (code, ms)) in before.into_iter().chain(again).chain(anew) {
            table.row(&[name.to_owned(), code.to_string(), format!("{ms:.4}")]);
        }
        table.print();
        Ok(())
    }
}

/// What reading an event costs that nobody has read yet: its time lies where the device wrote it.
fn fresh(gpu: &Gpu, stream: &CudaStream, events: &[Event]) -> Result {
    let other = gpu.stream()?;
    let anchors = Event::many(1)?;
    let anchor = &anchors[0];
    anchor.record(&other)?;
    other.synchronize()?;
    let mut table =
        Table::new("calls: ns of one call on a thread of its own, each event read for the first time", &["call", "ns"]);
    let mut row = |name: &str, read: &(dyn Fn(&[Event]) + Sync)| -> Result {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            for event in events {
                event.record(stream)?;
            }
            stream.synchronize()?;
            std::thread::sleep(std::time::Duration::from_millis(1));
            let ns = std::thread::scope(|scope| {
                let work = scope.spawn(|| {
                    let begin = Instant::now();
                    events.chunks_exact(2).for_each(read);
                    begin.elapsed().as_nanos() as f64 / (events.len() / 2) as f64
                });
                work.join().expect("no panic")
            });
            rounds.push(ns);
        }
        table.row(&[name.to_owned(), format!("{:.0}", median(&rounds))]);
        Ok(())
    };
    row("query first of pair", &|pair| _ = black_box(pair[0].is_complete()))?;
    row("elapsed first to second", &|pair| _ = black_box(pair[0].elapsed_ms(&pair[1])))?;
    row("elapsed other stream's to first", &|pair| _ = black_box(anchor.elapsed_ms(&pair[0])))?;
    row("both elapsed", &|pair| {
        _ = black_box(anchor.elapsed_ms(&pair[0]));
        _ = black_box(pair[0].elapsed_ms(&pair[1]));
    })?;
    row("two queries, elapsed", &|pair| {
        _ = black_box(pair[0].is_complete());
        _ = black_box(pair[1].is_complete());
        _ = black_box(pair[0].elapsed_ms(&pair[1]));
    })?;
    table.print();
    Ok(())
}

/// Median over the rounds of one call's time.
fn each<T>(mut call: impl FnMut(usize) -> T) -> f64 {
    let rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            (0..CALLS).for_each(|n| drop(black_box(call(n))));
            begin.elapsed().as_nanos() as f64 / CALLS as f64
        })
        .collect();
    median(&rounds)
}

fn on_thread(gpu: &Gpu, has_context: bool, call: &(dyn Fn(usize) + Sync)) -> f64 {
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            if has_context {
                gpu.context.bind_to_thread().expect("the context is there");
            }
            each(call)
        });
        work.join().expect("no panic")
    })
}

/// Measures while another thread launches kernels on a stream of its own, without a pause.
fn beside_launches(gpu: &Gpu, measure: impl FnOnce() -> f64) -> Result<f64> {
    let is_over = AtomicBool::new(false);
    let stream = gpu.stream()?;
    let ns = std::thread::scope(|scope| {
        scope.spawn(|| {
            gpu.context.bind_to_thread().expect("the context is there");
            while !is_over.load(Ordering::Relaxed) {
                gpu.null(&stream).expect("a kernel can be launched");
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        let ns = measure();
        is_over.store(true, Ordering::Relaxed);
        ns
    });
    stream.synchronize()?;
    Ok(ns)
}
