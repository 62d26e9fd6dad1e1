//! Measures, with a kernel, by how much a pair of events lengthens a kernel.
//!
//! The kernel must be loaded into the application's context, which may wait for work there. The measurement therefore runs only in a
//! session that requests it. It runs on the thread that starts the session if a context is current there, and otherwise on the collector's
//! thread after the first zone in a context. It never runs on a launching thread.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::context::Context;
use super::driver::{CudaError, Driver, EventPtr, StreamPtr};
use super::kernels::{Kernel, Kernels};
use super::stamps::{PTX, SPIN};
use warpline_core::backend::BackendError;
use warpline_core::backend::event_clock::{Estimate, estimate};
use warpline_core::fork::PerProcess;
use warpline_core::lock::lock;

/// The duration of the measured kernel, and of the kernel before it that keeps the stream busy.
const KERNEL_NS: u64 = 10_000;
const AHEAD_NS: u64 = 40_000;

/// The part of a kernel's time in CUPTI that is before its first and after its last instruction, as measured on H100 and H200.
const AROUND_NS: i64 = 850;

const PAIRS: usize = 32;
/// The maximum time to wait for the device: at the start of the program, and while the collector has other work.
const LIMIT: Duration = Duration::from_secs(1);
const LATER_LIMIT: Duration = Duration::from_millis(200);
/// The maximum number of attempts of the collector.
const ATTEMPTS: u32 = 5;

static STATE: PerProcess<Mutex<CalibrationState>> = PerProcess::new(Mutex::default);

#[derive(Default)]
struct CalibrationState {
    /// Whether the current session requests a measurement.
    is_wanted: bool,
    /// Whether the session has a measurement of at least one context.
    is_measured: bool,
    /// The number of attempts that the collector has made.
    attempts: u32,
    /// Why there is no measurement.
    problem: Option<String>,
    /// The time by which a pair lengthens a kernel, in ns, by context. It is measured once per context.
    known: HashMap<u64, i64>,
    /// The loaded kernel, by context. An abandoned measurement may still run, and later attempts use the same kernel.
    loaded: HashMap<u64, Kernel>,
}

/// Starts a session that requests a measurement. Measures in the calling thread's context, or later in the first context in which a zone
/// begins.
pub fn start() {
    {
        let mut state = lock(&STATE);
        (state.is_wanted, state.is_measured, state.attempts, state.problem) = (true, false, 0, None);
    }
    let current = || {
        let driver = Driver::get()?;
        // No context is current before the application has initialised CUDA.
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

/// Ends the session. Returns why nothing was calibrated, if the session requested it.
pub fn finish() -> Option<String> {
    let mut state = lock(&STATE);
    if !std::mem::take(&mut state.is_wanted) || state.is_measured {
        return None;
    }
    let why = state.problem.take().unwrap_or_else(|| "no zone began on a CUDA stream".to_owned());
    Some(format!("nothing was calibrated: {why}"))
}

/// Returns by how much a pair lengthens a kernel in a context of the session, in ns, if the session requests it. The first call takes some
/// ms. Only the collector's thread may call this.
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
        Ok(None) => state.problem = Some("the device was busy at every attempt".to_owned()),
        Err(BackendError(problem)) => state.problem = Some(problem),
    }
    None
}

/// Measures in the calling thread's current context, which has this id; none if the device is too busy.
fn here(driver: &'static Driver, id: u64, limit: Duration) -> Result<Option<i64>, BackendError> {
    let kernels = Kernels::new(driver)?;
    // Other threads may be capturing, and loading a kernel or querying an event would break their captures.
    let measured = driver.outside_captures(|| {
        let loaded = lock(&STATE).loaded.get(&id).copied();
        let kernel = loaded.map_or_else(|| kernels.function(kernels.load(PTX)?, SPIN), Ok)?;
        lock(&STATE).loaded.insert(id, kernel);
        with_stream(driver, |stream, events| {
            // Other work of the application on the device can spoil a measurement, but seldom two in a row.
            let deadline = Instant::now() + limit;
            let mut measured = None;
            while measured.is_none() && Instant::now() < deadline {
                measured = measure(driver, &kernels, kernel, (stream, events), deadline)?;
            }
            Ok(measured)
        })
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

/// Measures once; none if the device is too busy or the readings differ too much.
fn measure(
    driver: &Driver,
    kernels: &Kernels,
    kernel: Kernel,
    (stream, events): (StreamPtr, &[EventPtr]),
    deadline: Instant,
) -> Result<Option<i64>, CudaError> {
    for pair in events.chunks_exact(2) {
        kernels.launch(kernel, (1, 1), stream, [AHEAD_NS])?;
        driver.record(pair[0], stream)?;
        kernels.launch(kernel, (1, 1), stream, [KERNEL_NS])?;
        driver.record(pair[1], stream)?;
    }
    while let Some(&last) = events.last()
        && !driver.is_complete(last)?
    {
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    let fixed_ns = KERNEL_NS as i64 + AROUND_NS;
    let mut lengths = Vec::new();
    for pair in events.chunks_exact(2) {
        lengths.extend(driver.elapsed_ns(pair[0], pair[1])?);
    }
    let estimate = estimate(lengths, fixed_ns);
    Ok(estimate.filter(|estimate| estimate.is_sound).map(|Estimate { ns, .. }| ns))
}
