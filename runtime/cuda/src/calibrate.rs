//! What a pair of events adds to a kernel: measured with a kernel, where the user allows one.
//!
//! A kernel has to be loaded into the application's context, which may wait for work in it. So this runs only in a session that
//! asks for it: on the thread that starts the session, where a context is current there, and otherwise on the collector's thread,
//! when the first zone in a context has come to it. Never on a launching thread.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::context::Context;
use super::driver::{CudaError, Driver, EventPtr, Kernel, Kernels, StreamPtr};
use super::event_overhead::{Estimate, estimate, lengths};
use warpline_core::backend::BackendError;
use warpline_core::fork::PerProcess;
use warpline_core::lock::lock;

/// Runs until so many ns of the device's clock are over.
const SPIN: &CStr = c"
.version 7.0
.target sm_70
.address_size 64

.visible .entry warpline_spin(.param .u64 ns)
{
    .reg .pred %p;
    .reg .u64 %begin, %now, %ns;
    ld.param.u64 %ns, [ns];
    mov.u64 %begin, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %p, %now, %ns;
    @%p bra again;
    ret;
}
";

/// How long the measured kernel runs, and the one before it that keeps the stream busy meanwhile.
const KERNEL_NS: u64 = 10_000;
const AHEAD_NS: u64 = 40_000;

/// What CUPTI counts of a kernel before and behind its first and last instruction: seen on H100 and H200.
const AROUND_NS: i64 = 850;

const PAIRS: usize = 32;
/// How long the device may take to come to it: while the program starts, and while the collector has other things to do.
const LIMIT: Duration = Duration::from_secs(1);
const LATER_LIMIT: Duration = Duration::from_millis(200);
/// How often the collector tries.
const ATTEMPTS: u32 = 5;

static STATE: PerProcess<Mutex<State>> = PerProcess::new(Mutex::default);

#[derive(Default)]
struct State {
    /// The session that is on asks for it.
    is_wanted: bool,
    /// It has it, of one context at least.
    is_measured: bool,
    /// How often the collector has tried.
    attempts: u32,
    /// Why it has it not.
    problem: Option<String>,
    /// What a pair adds to a kernel, in ns, by context: once in a context's life.
    known: HashMap<u64, i64>,
    /// Where the kernel is loaded, by context. A measurement that was given up may still run, and is tried again with the same.
    loaded: HashMap<u64, Kernel>,
}

/// A session that asks for it starts: measures in the calling thread's context, or later, in the first one in which a zone begins.
pub fn start() {
    {
        let mut state = lock(&STATE);
        (state.is_wanted, state.is_measured, state.attempts, state.problem) = (true, false, 0, None);
    }
    let current = || {
        let driver = Driver::get()?;
        // Before the application has initialised CUDA there is none either.
        let context = driver.current_context().unwrap_or(std::ptr::null_mut());
        if context.is_null() {
            return Ok(());
        }
        let id = driver.context_id(context).map_err(|error| driver.describe(error))?;
        note(id, known(id).map_or_else(|| here(driver, id, LIMIT), |known| Ok(Some(known))));
        Ok(())
    };
    if let Err(BackendError(problem)) = current() {
        lock(&STATE).problem = Some(problem);
    }
}

/// The session is over; why nothing was calibrated, if it asked for that.
pub fn finish() -> Option<String> {
    let mut state = lock(&STATE);
    if !std::mem::take(&mut state.is_wanted) || state.is_measured {
        return None;
    }
    let why = state.problem.take().unwrap_or_else(|| "no zone began on a CUDA stream".to_owned());
    Some(format!("nothing was calibrated: {why}"))
}

/// What a pair adds to a kernel in a context of the session's, in ns, if the session asks for it. It takes some ms at first; only
/// the collector's thread may call it.
pub(super) fn overhead_ns(context: &Context) -> Option<i64> {
    let known = {
        let mut state = lock(&STATE);
        let known = state.known.get(&context.id).copied();
        if !state.is_wanted || (known.is_none() && state.attempts == ATTEMPTS) {
            return None;
        }
        state.attempts += u32::from(known.is_none());
        known
    };
    let measured = match known {
        Some(known) => Ok(Some(known)),
        None => context
            .pool
            .in_context(|| Ok(here(context.driver, context.id, LATER_LIMIT)))
            .unwrap_or_else(|error| Err(context.driver.describe(error))),
    };
    note(context.id, measured)
}

fn known(id: u64) -> Option<i64> {
    lock(&STATE).known.get(&id).copied()
}

fn note(id: u64, measured: Result<Option<i64>, BackendError>) -> Option<i64> {
    let mut state = lock(&STATE);
    match measured {
        Ok(Some(ns)) => {
            state.known.insert(id, ns);
            state.is_measured = true;
            return Some(ns);
        }
        Ok(None) => state.problem = Some("the device was busy whenever it was asked".to_owned()),
        Err(BackendError(problem)) => state.problem = Some(problem),
    }
    None
}

/// Measures in the calling thread's context, of which this is the id; none where the device is too busy.
fn here(driver: &'static Driver, id: u64, limit: Duration) -> Result<Option<i64>, BackendError> {
    let kernels = driver.kernels()?;
    // Other threads may capture: to load a kernel, or to ask for an event, would break what they do.
    let measured = driver.outside_captures(|| {
        let loaded = lock(&STATE).loaded.get(&id).copied();
        let kernel = loaded.map_or_else(|| driver.load_kernel(&kernels, SPIN, c"warpline_spin"), Ok)?;
        lock(&STATE).loaded.insert(id, kernel);
        with_stream(driver, |stream, events| measure(driver, &kernels, kernel, (stream, events), limit))
    });
    measured.map_err(|error| driver.describe(error))
}

fn with_stream<T>(
    driver: &Driver,
    work: impl FnOnce(StreamPtr, &[EventPtr]) -> Result<T, CudaError>,
) -> Result<T, CudaError> {
    let stream = driver.create_stream()?;
    let result = driver.create_events(2 * PAIRS).and_then(|events| {
        let result = work(stream, &events);
        events.into_iter().for_each(|event| driver.destroy_event(event));
        result
    });
    driver.destroy_stream(stream);
    result
}

/// None where the device is too busy.
fn measure(
    driver: &Driver,
    kernels: &Kernels,
    kernel: Kernel,
    (stream, events): (StreamPtr, &[EventPtr]),
    limit: Duration,
) -> Result<Option<i64>, CudaError> {
    for pair in events.chunks_exact(2) {
        driver.launch(kernels, kernel, stream, AHEAD_NS)?;
        driver.record(pair[0], stream)?;
        driver.launch(kernels, kernel, stream, KERNEL_NS)?;
        driver.record(pair[1], stream)?;
    }
    let begin = Instant::now();
    while let Some(&last) = events.last()
        && !driver.is_complete(last)?
    {
        if begin.elapsed() > limit {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    let fixed_ns = KERNEL_NS as i64 + AROUND_NS;
    let estimate = estimate(lengths(driver, events.chunks_exact(2))?, fixed_ns);
    Ok(estimate.filter(|estimate| estimate.is_sound).map(|Estimate { ns, .. }| ns))
}
