//! What CUPTI records now, and its numbers of streams while it does.
//!
//! A session sets it. A request for a submission adds what is missing ([`next_submission`]), and the collector takes that off again. The calls here
//! are made by threads of the application, so they affect no capture.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::abi::SUCCESS;
use super::activity::{change, timestamp, why};
use super::library::Cupti;
use super::selection::Wanted;
use super::submissions::Asked;
use super::{gate, submissions};
use crate::DefaultStream;
use crate::driver::{Driver, is_default};
use crate::stream;
use warpline_core::backend::device::RawParts;
use warpline_core::backend::{Source, StreamRef, source_of};
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::profile::PendingSubmission;
use warpline_core::record::ThreadInfo;

/// Whether CUPTI records for a session, so that streams get its numbers.
pub(super) static IS_RECORDING: AtomicBool = AtomicBool::new(false);

/// What CUPTI records now: what the session wants, and more while requests wait for submissions. None while nothing is recorded.
pub(super) static RECORDED: Mutex<Option<Wanted>> = Mutex::new(None);

/// Returns whether CUPTI records, so that requests for submissions can be made.
pub fn is_recording() -> bool {
    lock(&RECORDED).is_some()
}

/// Returns whether requests for submissions wait.
pub fn has_requests() -> bool {
    submissions::are_pending()
}

/// Requests the next submission of the calling thread on a stream. CUPTI must record; what is missing for the request is turned on.
///
/// # Errors
/// The reason why the submission cannot be timed, with a remedy.
pub fn next_submission(stream: &StreamRef<'_>, thread: ThreadInfo) -> Result<PendingSubmission, String> {
    let Source::Device(stream) = source_of(stream) else {
        return Err("CUPTI knows no in-process streams: use `time!`".to_owned());
    };
    let RawParts { stream, context } = stream.parts()?;
    let driver = Driver::get().map_err(|error| error.to_string())?;
    let context = match context {
        Some(context) => Ok(context),
        None if is_default(stream) => driver.current_context(),
        None => driver.stream_context(stream),
    };
    let context = context.map_err(|error| driver.describe(error).to_string())?;
    let cupti = Cupti::get()?;
    // This is a thread of the application, and others may be capturing.
    outside_captures(|| {
        let mut recorded = lock(&RECORDED);
        let Some(now) = *recorded else { return Err("CUPTI has stopped in the meantime: ask again".to_owned()) };
        if cupti.symbols.set_thread_id.is_none() {
            return Err("this CUPTI does not record which thread launches: install a newer one".to_owned());
        }
        let nothing = "CUPTI does not identify the stream: check that it is alive, or install a newer CUPTI";
        let numbers = numbers(context, stream::of_context(stream)).ok_or_else(|| nothing.to_owned())?;
        let wanted = Wanted { submissions: true, ..now };
        if wanted != now {
            let changed = gate::inside(|_| change(cupti, now, wanted));
            changed.ok_or("CUPTI has stopped in the meantime: ask again")?.map_err(|error| why(cupti, error))?;
            *recorded = Some(wanted);
        }
        // Under the lock, so that what was turned on stays on.
        let cupti_ns = gate::inside(|_| timestamp(cupti)).ok_or("CUPTI has stopped in the meantime: ask again")?;
        let asked = Asked { host_ns: now_ns(), cupti_ns: cupti_ns.map_err(|error| why(cupti, error))? };
        let shared = submissions::ask(thread, numbers, asked);
        Ok(PendingSubmission::new(shared, submissions::take_back))
    })
}

/// Returns CUPTI's numbers of a context and of a stream, or of the context's default stream, which may be the thread's own. The stream is
/// not being captured.
pub(super) fn numbers(context: *mut c_void, stream: Result<*mut c_void, DefaultStream>) -> Option<(u32, u32)> {
    if !IS_RECORDING.load(Ordering::Acquire) {
        return None;
    }
    let symbols = &Cupti::get().ok()?.symbols;
    // A created stream is identified by its handle, and a default stream by its context.
    let nothing = std::ptr::null_mut();
    let (of, stream, per_thread) = match stream {
        Ok(stream) => (nothing, stream, 0),
        Err(DefaultStream::Legacy) => (context, nothing, 0),
        Err(DefaultStream::PerThread) => (context, nothing, 1),
    };
    let (mut of_context, mut of_stream) = (0, 0);
    let ask = |_| {
        // SAFETY: the handles are of a live context and a live stream of the driver; the out-pointers are valid.
        unsafe {
            let found = (symbols.context_id?)(context, &raw mut of_context) == SUCCESS
                && (symbols.stream_id?)(of, stream, per_thread, &raw mut of_stream) == SUCCESS;
            found.then_some((of_context, of_stream))
        }
    };
    gate::inside(ask).flatten()
}

/// Relaxes this thread's capture mode: its later calls do not affect the captures of other threads.
pub(super) fn relax_capture_mode() {
    if let Ok(driver) = Driver::get() {
        driver.relax_capture_mode();
    }
}

/// Calls `work` so that it does not affect the captures of other threads, and restores the thread's capture mode.
pub(super) fn outside_captures<T>(work: impl FnOnce() -> T) -> T {
    match Driver::get() {
        Ok(driver) => driver.outside_captures(work),
        Err(_) => work(),
    }
}
