//! The CUDA driver, called through a table of symbols. Beside the table is the call for the time between two events, in the better of the
//! two versions that the driver may have.
//!
//! `libcuda.so.1` is opened when the first CUDA stream is used. It is never closed, because the driver runs code at process exit. A missing
//! library, a missing symbol and an old driver are errors with a remedy, never a panic. Results are kept as numbers, because a newer driver
//! may return one that an enum would lack.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::OnceLock;

use super::symbols::missing;
use warpline_core::backend::BackendError;
use warpline_core::backend::Refused;
use warpline_core::library::reason;

/// A `CUcontext`. Like `CUstream` and `CUevent`, a pointer that only the driver dereferences.
pub(super) type ContextPtr = *mut c_void;
pub(super) type StreamPtr = *mut c_void;
pub(super) type EventPtr = *mut c_void;

/// A `CUresult`.
pub(super) type Code = c_int;

pub(super) const SUCCESS: Code = 0;
const OUT_OF_MEMORY: Code = 2;
const DEINITIALIZED: Code = 4;
const INVALID_CONTEXT: Code = 201;
const NOT_READY: Code = 600;
const CONTEXT_IS_DESTROYED: Code = 709;
/// The result of any call that a host function of a stream makes.
const NOT_PERMITTED: Code = 800;
const NOT_SUPPORTED: Code = 801;
/// The errors of captures: `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` to `_WRONG_THREAD`.
const CAPTURE: std::ops::RangeInclusive<Code> = 900..=908;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// The handles of the current context's default streams; that of `PER_THREAD` also depends on the calling thread.
pub(super) const LEGACY: usize = 1;
pub(super) const PER_THREAD: usize = 2;

/// Returns whether the handle denotes a different stream in each context.
pub(super) fn is_default(stream: StreamPtr) -> bool {
    stream as usize <= PER_THREAD
}

/// The oldest supported driver: CUDA 12.0, the first with unique ids of streams and contexts.
pub(crate) const OLDEST: c_int = 12_000;

table! {
    driver_get_version: b"cuDriverGetVersion\0" fn(*mut c_int);
    ctx_get_current: b"cuCtxGetCurrent\0" fn(*mut ContextPtr);
    ctx_set_current: b"cuCtxSetCurrent\0" fn(ContextPtr);
    ctx_push_current: b"cuCtxPushCurrent_v2\0" fn(ContextPtr);
    ctx_pop_current: b"cuCtxPopCurrent_v2\0" fn(*mut ContextPtr);
    ctx_get_device: b"cuCtxGetDevice\0" fn(*mut c_int);
    ctx_get_id: b"cuCtxGetId\0" fn(ContextPtr, *mut u64);
    primary_get_state: b"cuDevicePrimaryCtxGetState\0" fn(c_int, *mut c_uint, *mut c_int);
    primary_retain: b"cuDevicePrimaryCtxRetain\0" fn(*mut ContextPtr, c_int);
    primary_release: b"cuDevicePrimaryCtxRelease_v2\0" fn(c_int);
    device_get_count: b"cuDeviceGetCount\0" fn(*mut c_int);
    device_get_name: b"cuDeviceGetName\0" fn(*mut c_char, c_int, c_int);
    stream_create: b"cuStreamCreate\0" fn(*mut StreamPtr, c_uint);
    stream_destroy: b"cuStreamDestroy_v2\0" fn(StreamPtr);
    stream_get_ctx: b"cuStreamGetCtx\0" fn(StreamPtr, *mut ContextPtr);
    stream_get_id: b"cuStreamGetId\0" fn(StreamPtr, *mut u64);
    stream_is_capturing: b"cuStreamIsCapturing\0" fn(StreamPtr, *mut c_int);
    exchange_capture_mode: b"cuThreadExchangeStreamCaptureMode\0" fn(*mut c_int);
    event_create: b"cuEventCreate\0" fn(*mut EventPtr, c_uint);
    event_destroy: b"cuEventDestroy_v2\0" fn(EventPtr);
    event_record: b"cuEventRecord\0" fn(EventPtr, StreamPtr);
    event_query: b"cuEventQuery\0" fn(EventPtr);
    get_error_name: b"cuGetErrorName\0" fn(Code, *mut *const c_char);
}

/// The name under which the loader finds the driver.
pub(crate) const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// The symbols that a driver must have.
pub(crate) const REQUIRED: &[&[u8]] = Symbols::NAMES;

/// The driver of this process.
pub(crate) struct Driver {
    symbols: Symbols,
    elapsed: ElapsedTime,
    /// The library, which is never closed.
    pub(super) library: ManuallyDrop<libloading::Library>,
}

/// The driver's call for the time between two events. Both versions return `NOT_READY` while an event is incomplete.
struct ElapsedTime {
    name: &'static str,
    call: unsafe extern "C" fn(*mut f32, EventPtr, EventPtr) -> Code,
    /// Whether the call is `cuEventElapsedTime_v2`, which does not wait for threads that launch. The older call does.
    is_v2: bool,
}

/// The error of a driver call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CudaError {
    pub(super) call: &'static str,
    pub(super) code: Code,
}

impl Driver {
    /// Returns the driver, which the first call opens.
    pub(crate) fn get() -> Result<&'static Driver, BackendError> {
        static DRIVER: OnceLock<Result<Driver, BackendError>> = OnceLock::new();
        DRIVER.get_or_init(Driver::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Driver, BackendError> {
        let name = LIBRARY;
        // SAFETY: opening the driver runs its initialisers, as the application's own use of it does.
        let library = unsafe { libloading::Library::new(name) }.map_err(|error| {
            BackendError(format!("there is no CUDA driver: {}; install one, or time host streams", reason(&error)))
        })?;
        let library = ManuallyDrop::new(library);
        let driver = Driver { symbols: Symbols::load(&library)?, elapsed: ElapsedTime::load(&library)?, library };
        let version = driver.version().map_err(|error| driver.describe(error))?;
        if version < OLDEST {
            let (major, minor) = (version / 1000, version % 1000 / 10);
            return Err(BackendError(format!(
                "the CUDA driver is for CUDA {major}.{minor}: install one for 12.0 or newer"
            )));
        }
        Ok(driver)
    }

    #[inline]
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<(), CudaError> {
        if code == SUCCESS { Ok(()) } else { Err(CudaError { call, code }) }
    }

    /// Makes a call that writes its result to a pointer, where `value` is before the call, and returns the result.
    #[inline]
    pub(super) fn ask<T>(
        &self,
        call: &'static str,
        mut value: T,
        ask: impl FnOnce(*mut T) -> Code,
    ) -> Result<T, CudaError> {
        self.check(call, ask(&raw mut value)).map(|()| value)
    }

    /// Returns the error as text.
    pub(crate) fn describe(&self, error: CudaError) -> BackendError {
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: `name` is a valid out-pointer; the driver's names are static.
        let code = unsafe { (self.symbols.get_error_name)(error.code, &raw mut name) };
        let name = if code == SUCCESS && !name.is_null() {
            // SAFETY: the pointer is not null; the driver's names are NUL-terminated and static.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            format!("error {}", error.code)
        };
        BackendError(format!("`{}` gave {name}", error.call))
    }

    /// Returns the newest CUDA version that the driver supports, as 1000 × major + 10 × minor.
    pub(crate) fn version(&self) -> Result<c_int, CudaError> {
        // SAFETY: `version` is a valid out-pointer.
        self.ask("cuDriverGetVersion", 0, |version| unsafe { (self.symbols.driver_get_version)(version) })
    }

    /// Returns the calling thread's current context; null if it has none.
    pub(super) fn current_context(&self) -> Result<ContextPtr, CudaError> {
        // SAFETY: a valid out-pointer.
        self.ask("cuCtxGetCurrent", null_mut(), |context| unsafe { (self.symbols.ctx_get_current)(context) })
    }

    /// Makes a live context, or none, current on this thread.
    pub(super) fn make_current(&self, context: ContextPtr) {
        // SAFETY: null, or a context that the caller has just found alive.
        let _ = unsafe { (self.symbols.ctx_set_current)(context) };
    }

    /// Calls `work` with `context` current on this thread, and restores the context that was current before.
    pub(super) fn with_context<T>(
        &self,
        context: ContextPtr,
        work: impl FnOnce() -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        // SAFETY: the driver created the pointer, and rejects one that is no longer a context.
        let code = unsafe { (self.symbols.ctx_push_current)(context) };
        self.check("cuCtxPushCurrent", code)?;
        let result = work();
        let mut popped = null_mut();
        // SAFETY: a valid out-pointer.
        let code = unsafe { (self.symbols.ctx_pop_current)(&raw mut popped) };
        self.check("cuCtxPopCurrent", code).and(result)
    }

    /// Calls `work` with `context` current on this thread. Nothing is switched without a context, or if it is current already.
    #[inline]
    pub(super) fn in_context<T>(
        &self,
        context: Option<ContextPtr>,
        work: impl FnOnce() -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        match context {
            Some(context) if self.current_context()? != context => self.with_context(context, work),
            _ => work(),
        }
    }

    /// Returns the device of the current context.
    pub(super) fn device(&self) -> Result<c_int, CudaError> {
        // SAFETY: a valid out-pointer.
        self.ask("cuCtxGetDevice", 0, |device| unsafe { (self.symbols.ctx_get_device)(device) })
    }

    /// Returns an id that no other context of this process has had.
    pub(super) fn context_id(&self, context: ContextPtr) -> Result<u64, CudaError> {
        // SAFETY: a valid out-pointer; the driver rejects a pointer that is no longer a context.
        self.ask("cuCtxGetId", 0, |id| unsafe { (self.symbols.ctx_get_id)(context, id) })
    }

    /// Retains a device's primary context if it is `context`. Returns whether it is. No capture is broken.
    pub(super) fn retain_primary(&self, device: c_int, context: ContextPtr) -> Result<bool, CudaError> {
        self.outside_captures(|| self.retain_primary_here(device, context))
    }

    fn retain_primary_here(&self, device: c_int, context: ContextPtr) -> Result<bool, CudaError> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: valid out-pointers.
        let code = unsafe { (self.symbols.primary_get_state)(device, &raw mut flags, &raw mut active) };
        self.check("cuDevicePrimaryCtxGetState", code)?;
        if active == 0 {
            // Retaining the context would create it.
            return Ok(false);
        }
        // SAFETY: a valid out-pointer.
        let retain = |primary| unsafe { (self.symbols.primary_retain)(primary, device) };
        let primary = self.ask("cuDevicePrimaryCtxRetain", null_mut(), retain)?;
        if primary != context {
            self.release_primary_here(device);
        }
        Ok(primary == context)
    }

    /// Retains a context if it is a device's primary one, and returns the number of the device. No call is made in the context, which may
    /// have been destroyed.
    pub(super) fn retain_if_primary(&self, context: ContextPtr) -> Option<c_int> {
        // SAFETY: a valid out-pointer.
        let count = self.ask("cuDeviceGetCount", 0, |count| unsafe { (self.symbols.device_get_count)(count) }).ok()?;
        (0..count).find(|device| self.retain_primary(*device, context) == Ok(true))
    }

    /// Releases what [`retain_primary`](Self::retain_primary) retained, once for each success. A reset of the context in the meantime
    /// changes nothing: it does not release the context, and the driver counts on, also for the context that takes its place.
    pub(super) fn release_primary(&self, device: c_int) {
        self.outside_captures(|| self.release_primary_here(device));
    }

    fn release_primary_here(&self, device: c_int) {
        // SAFETY: the only argument is a number.
        let _ = unsafe { (self.symbols.primary_release)(device) };
    }

    pub(super) fn device_name(&self, device: c_int) -> Result<String, CudaError> {
        let mut name = [0_u8; 256];
        // SAFETY: the buffer is longer than the length that is passed.
        let code = unsafe { (self.symbols.device_get_name)(name.as_mut_ptr().cast(), 255, device) };
        self.check("cuDeviceGetName", code)?;
        Ok(CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
    }

    /// Creates a stream in the current context that waits for no other stream.
    pub(super) fn create_stream(&self) -> Result<StreamPtr, CudaError> {
        // SAFETY: a valid out-pointer.
        self.ask("cuStreamCreate", null_mut(), |stream| unsafe { (self.symbols.stream_create)(stream, NON_BLOCKING) })
    }

    /// Destroys a stream that warpline created; its remaining work is still executed.
    pub(super) fn destroy_stream(&self, stream: StreamPtr) {
        // SAFETY: ours, and not used again.
        let _ = unsafe { (self.symbols.stream_destroy)(stream) };
    }

    pub(super) fn stream_context(&self, stream: StreamPtr) -> Result<ContextPtr, CudaError> {
        // SAFETY: a valid out-pointer, and a stream whose owner vouches for it.
        self.ask("cuStreamGetCtx", null_mut(), |context| unsafe { (self.symbols.stream_get_ctx)(stream, context) })
    }

    /// Returns an id that no other stream of this process has had.
    #[inline]
    pub(super) fn stream_id(&self, stream: StreamPtr) -> Result<u64, CudaError> {
        // SAFETY: a valid out-pointer, and a stream whose owner vouches for it.
        self.ask("cuStreamGetId", 0, |id| unsafe { (self.symbols.stream_get_id)(stream, id) })
    }

    /// Returns whether the stream is being captured, or cannot be used because another stream is.
    #[inline]
    pub(super) fn is_capturing(&self, stream: StreamPtr) -> Result<bool, CudaError> {
        let mut status = 0;
        // SAFETY: a valid out-pointer, and a stream whose owner vouches for it.
        let code = unsafe { (self.symbols.stream_is_capturing)(stream, &raw mut status) };
        if CAPTURE.contains(&code) {
            return Ok(true);
        }
        self.check("cuStreamIsCapturing", code).map(|()| status != 0)
    }

    /// Relaxes this thread's capture mode: none of its later calls invalidates another thread's capture.
    pub(super) fn relax_capture_mode(&self) {
        let mut mode = RELAXED;
        // SAFETY: a valid in- and out-pointer.
        let _ = unsafe { (self.symbols.exchange_capture_mode)(&raw mut mode) };
    }

    /// Calls `work` so that it invalidates no capture, and restores the thread's capture mode.
    pub(crate) fn outside_captures<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut mode = RELAXED;
        // SAFETY: a valid in- and out-pointer.
        let exchanged = unsafe { (self.symbols.exchange_capture_mode)(&raw mut mode) };
        let result = work();
        if exchanged == SUCCESS {
            // SAFETY: as above; `mode` is the previous mode.
            let _ = unsafe { (self.symbols.exchange_capture_mode)(&raw mut mode) };
        }
        result
    }

    /// Creates an event in the current context, with or without a time.
    pub(super) fn create_event(&self, timed: bool) -> Result<EventPtr, CudaError> {
        let flags = if timed { 0 } else { DISABLE_TIMING };
        // SAFETY: a valid out-pointer.
        self.ask("cuEventCreate", null_mut(), |event| unsafe { (self.symbols.event_create)(event, flags) })
    }

    /// Creates this many events with times in the current context, or none.
    pub(super) fn create_events(&self, count: usize) -> Result<Vec<EventPtr>, CudaError> {
        let mut events = Vec::with_capacity(count);
        for _ in 0..count {
            let event = self.create_event(true);
            let event = event.inspect_err(|_| events.iter().for_each(|event| self.destroy_event(*event)))?;
            events.push(event);
        }
        Ok(events)
    }

    /// Destroys an event that warpline created, at once or when the device no longer uses it.
    pub(super) fn destroy_event(&self, event: EventPtr) {
        // SAFETY: ours, and not used again.
        let _ = unsafe { (self.symbols.event_destroy)(event) };
    }

    #[inline]
    pub(super) fn record(&self, event: EventPtr, stream: StreamPtr) -> Result<(), CudaError> {
        // SAFETY: an event of ours, and a stream whose owner vouches for it.
        let code = unsafe { (self.symbols.event_record)(event, stream) };
        self.check("cuEventRecord", code)
    }

    /// Returns whether an event is complete. The call waits for threads that launch at the same time; [`has_passed`](Self::has_passed) can
    /// avoid that for an event with a time.
    pub(super) fn is_complete(&self, event: EventPtr) -> Result<bool, CudaError> {
        // SAFETY: an event of ours.
        match unsafe { (self.symbols.event_query)(event) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            code => Err(CudaError { call: "cuEventQuery", code }),
        }
    }

    /// Returns whether timed events are read without waiting for threads that launch, as drivers for CUDA 12.8 and newer do.
    pub(super) fn reads_beside_launches(&self) -> bool {
        self.elapsed.is_v2
    }

    /// Returns whether a timed event is complete.
    #[inline]
    pub(super) fn has_passed(&self, event: EventPtr) -> Result<bool, CudaError> {
        if self.elapsed.is_v2 { Ok(self.elapsed_ns(event, event)?.is_some()) } else { self.is_complete(event) }
    }

    /// Returns the time between two timed events in ns; none while either is incomplete.
    #[inline]
    pub(super) fn elapsed_ns(&self, since: EventPtr, event: EventPtr) -> Result<Option<i64>, CudaError> {
        let mut ms = 0_f32;
        // SAFETY: a valid out-pointer, and two events of ours.
        match unsafe { (self.elapsed.call)(&raw mut ms, since, event) } {
            SUCCESS => Ok(Some((f64::from(ms) * 1e6).round() as i64)),
            NOT_READY => Ok(None),
            code => Err(CudaError { call: self.elapsed.name, code }),
        }
    }
}

impl CudaError {
    /// The error that the driver returns for a destroyed context, for use without a call.
    pub(super) const CONTEXT_IS_GONE: CudaError = CudaError { call: "cuCtxGetId", code: CONTEXT_IS_DESTROYED };

    /// The error for a green context whose primary context is unknown, for use without a call.
    pub(super) const CONTEXT_IS_GREEN: CudaError = CudaError { call: "cuStreamGetGreenCtx", code: NOT_SUPPORTED };

    /// Returns whether the context or the whole driver is gone, so that none of its handles may be used.
    pub(super) fn context_is_gone(self) -> bool {
        matches!(self.code, DEINITIALIZED | INVALID_CONTEXT | CONTEXT_IS_DESTROYED)
    }

    /// Returns whether the error is about the caller and not the device: a host function of a stream may not query it.
    pub(super) fn is_of_caller(self) -> bool {
        self.code == NOT_PERMITTED
    }

    /// Returns whether the device has no memory left. The context stays usable.
    pub(super) fn is_out_of_memory(self) -> bool {
        self.code == OUT_OF_MEMORY
    }

    /// Returns whether a capture is the reason for the error.
    pub(super) fn is_of_capture(self) -> bool {
        CAPTURE.contains(&self.code)
    }

    /// Converts the error to that of a zone.
    pub(super) fn refusal(self, driver: &Driver) -> Refused {
        if CAPTURE.contains(&self.code) { Refused::Captured } else { Refused::Failed(driver.describe(self)) }
    }
}

impl ElapsedTime {
    fn load(library: &libloading::Library) -> Result<ElapsedTime, BackendError> {
        // SAFETY: the type is the one that CUDA's headers declare for this symbol since CUDA 12.8.
        if let Ok(call) = unsafe { library.get(b"cuEventElapsedTime_v2\0") } {
            return Ok(ElapsedTime { name: "cuEventElapsedTime_v2", call: *call, is_v2: true });
        }
        let symbol = b"cuEventElapsedTime\0";
        // SAFETY: the type is the one that CUDA's headers declare for this symbol since CUDA 2.0.
        let call = unsafe { library.get(symbol) };
        Ok(ElapsedTime { name: "cuEventElapsedTime", call: *call.map_err(|_| missing(symbol))?, is_v2: false })
    }
}
