//! What a pair of events adds to a kernel: measured with a kernel, where the user allows one.
//!
//! A kernel has to be loaded into the application's context, which may wait for work in it. So this runs only when it is
//! asked for, on the thread that starts the session.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::clock::median;
use super::driver::{CudaError, Driver, EventPtr, Kernel, Kernels, StreamPtr};
use crate::backend::BackendError;

/// Runs until so many ns of the device's clock are over.
const SPIN: &CStr = c"
.version 7.0
.target sm_70
.address_size 64

.visible .entry spin(.param .u64 ns)
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
const LIMIT: Duration = Duration::from_secs(1);

static KNOWN: Mutex<Option<HashMap<u64, i64>>> = Mutex::new(None);

/// What a pair adds to a kernel in this context, if it was measured, in ns.
pub(super) fn known(context_id: u64) -> Option<i64> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&context_id).copied()
}

/// Measures in the calling thread's context, once in its life.
///
/// # Errors
/// No driver, no context, or what the driver says.
pub(crate) fn calibrate() -> Result<(), BackendError> {
    let driver = Driver::get()?;
    let told = |error| driver.told(error);
    // Before the application has initialised CUDA there is none either.
    let context = driver.current_context().unwrap_or(std::ptr::null_mut());
    if context.is_null() {
        return Err(BackendError("no CUDA context is current on the thread that starts the session".to_owned()));
    }
    let id = driver.context_id(context).map_err(told)?;
    if known(id).is_some() {
        return Ok(());
    }
    let kernels = driver.kernels()?;
    // Other threads may capture: to load a kernel, or to ask for an event, would break what they do.
    let measured = driver.outside_captures(|| {
        let kernel = driver.load_kernel(&kernels, SPIN, c"spin")?;
        let measured = with_stream(driver, |stream, events| measure(driver, &kernels, &kernel, stream, events));
        driver.unload_kernel(&kernels, &kernel);
        measured
    });
    let bracket_ns = measured.map_err(told)?;
    let bracket_ns =
        bracket_ns.ok_or_else(|| BackendError("the device did not come to it within a second".to_owned()))?;
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(id, bracket_ns);
    Ok(())
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
    kernel: &Kernel,
    stream: StreamPtr,
    events: &[EventPtr],
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
        if begin.elapsed() > LIMIT {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    let mut lengths = Vec::new();
    for pair in events.chunks_exact(2) {
        lengths.extend(driver.elapsed_ns(pair[0], pair[1])?);
    }
    Ok(Some((median(lengths) - KERNEL_NS as i64 - AROUND_NS).max(0)))
}
