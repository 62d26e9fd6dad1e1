//! The CUDA driver through our own table of symbols.
//!
//! `libcuda.so.1` is opened when the first CUDA stream is met, and never closed: the driver runs code at process exit. A
//! missing library, a missing symbol and a driver that is too old are errors with a remedy, never a panic. Results stay
//! numbers, because a newer driver may return one that no enum of ours knows.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::elapsed::ElapsedTime;
use super::symbols::missing;
use warpline_core::backend::BackendError;
use warpline_core::backend::Refused;

/// `CUcontext`, `CUstream` and `CUevent` are pointers that only the driver looks through.
pub(super) type ContextPtr = *mut c_void;
pub(super) type StreamPtr = *mut c_void;
pub(super) type EventPtr = *mut c_void;

/// A `CUresult`.
pub(super) type Code = c_int;

pub(super) const SUCCESS: Code = 0;
const DEINITIALIZED: Code = 4;
const INVALID_CONTEXT: Code = 201;
const NOT_READY: Code = 600;
const CONTEXT_IS_DESTROYED: Code = 709;
/// What a function that the device calls on the host gets for any call.
const NOT_PERMITTED: Code = 800;
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` to `_WRONG_THREAD`: the capture's own business.
const CAPTURE: std::ops::RangeInclusive<Code> = 900..=908;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: c_uint = 2;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// Handles that stand for a stream of whatever context is current, the last one also of whatever thread calls.
pub(super) const LEGACY: usize = 1;
pub(super) const PER_THREAD: usize = 2;

/// Whether the handle means another stream where another context is current.
pub(super) fn is_default(stream: StreamPtr) -> bool {
    stream as usize <= PER_THREAD
}

/// The oldest driver that tells streams and contexts apart for good: CUDA 12.0.
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
    /// Never closed.
    pub(super) library: &'static libloading::Library,
}

/// What launches kernels of our own; only a calibration asks for it.
pub(super) struct Kernels {
    load: unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> Code,
    function: unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> Code,
    launch: LaunchKernel,
}

/// What lets one stream wait for another.
#[derive(Clone, Copy)]
pub(super) struct Waits {
    wait: unsafe extern "C" fn(StreamPtr, EventPtr, c_uint) -> Code,
}

/// Function, grid, block, shared memory, stream, parameters, extra.
type LaunchKernel = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    StreamPtr,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Code;

/// A kernel of our own, in the context that was current when it was loaded. It stays loaded as long as the context: the driver may
/// let its unloading wait for the application's work.
#[derive(Clone, Copy)]
pub(super) struct Kernel {
    function: *mut c_void,
}

// SAFETY: the driver takes the handle from any thread.
unsafe impl Send for Kernel {}

/// A call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CudaError {
    pub(super) call: &'static str,
    pub(super) code: Code,
}

impl Driver {
    /// The driver, opened on the first call.
    pub(crate) fn get() -> Result<&'static Driver, BackendError> {
        static DRIVER: OnceLock<Result<Driver, BackendError>> = OnceLock::new();
        DRIVER.get_or_init(Driver::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Driver, BackendError> {
        let name = LIBRARY;
        // SAFETY: opening the driver runs its initialisers, as the application's own use of it does.
        let library = unsafe { libloading::Library::new(name) }.map_err(|error| {
            BackendError(format!("there is no CUDA driver: {error}; install one, or time host streams"))
        })?;
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        let driver = Driver { symbols: Symbols::load(library)?, elapsed: ElapsedTime::load(library)?, library };
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

    /// The error in words.
    pub(crate) fn describe(&self, error: CudaError) -> BackendError {
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: `name` is a valid out-pointer; the driver's names are static.
        let code = unsafe { (self.symbols.get_error_name)(error.code, &raw mut name) };
        let name = if code == SUCCESS && !name.is_null() {
            // SAFETY: not null, NUL-terminated and static, says the driver.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            format!("error {}", error.code)
        };
        BackendError(format!("`{}` gave {name}", error.call))
    }

    /// The newest CUDA that the driver supports, as 1000 × major + 10 × minor.
    pub(crate) fn version(&self) -> Result<c_int, CudaError> {
        let mut version = 0;
        // SAFETY: `version` is a valid out-pointer.
        let code = unsafe { (self.symbols.driver_get_version)(&raw mut version) };
        self.check("cuDriverGetVersion", code).map(|()| version)
    }

    /// The calling thread's current context; null if it has none.
    pub(super) fn current_context(&self) -> Result<ContextPtr, CudaError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: a valid out-pointer.
        let code = unsafe { (self.symbols.ctx_get_current)(&raw mut context) };
        self.check("cuCtxGetCurrent", code).map(|()| context)
    }

    /// Makes a context that lives, or none, current on this thread.
    pub(super) fn make_current(&self, context: ContextPtr) {
        // SAFETY: null, or a context that the caller has just found alive.
        let _ = unsafe { (self.symbols.ctx_set_current)(context) };
    }

    /// Calls `work` with `context` current on this thread, and leaves what was current before.
    pub(super) fn with_context<T>(
        &self,
        context: ContextPtr,
        work: impl FnOnce() -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        // SAFETY: the driver made the pointer; it refuses one that is not a context any more.
        let code = unsafe { (self.symbols.ctx_push_current)(context) };
        self.check("cuCtxPushCurrent", code)?;
        let result = work();
        let mut popped = std::ptr::null_mut();
        // SAFETY: a valid out-pointer.
        let code = unsafe { (self.symbols.ctx_pop_current)(&raw mut popped) };
        self.check("cuCtxPopCurrent", code).and(result)
    }

    /// The device of the current context.
    pub(super) fn device(&self) -> Result<c_int, CudaError> {
        let mut device = 0;
        // SAFETY: a valid out-pointer.
        let code = unsafe { (self.symbols.ctx_get_device)(&raw mut device) };
        self.check("cuCtxGetDevice", code).map(|()| device)
    }

    /// What tells a context from every other that this process has had.
    pub(super) fn context_id(&self, context: ContextPtr) -> Result<u64, CudaError> {
        let mut id = 0;
        // SAFETY: a valid out-pointer; the driver refuses a pointer that is not a context any more.
        let code = unsafe { (self.symbols.ctx_get_id)(context, &raw mut id) };
        self.check("cuCtxGetId", code).map(|()| id)
    }

    /// Keeps a device's primary context alive if `context` is it; says whether it is.
    pub(super) fn retain_primary(&self, device: c_int, context: ContextPtr) -> Result<bool, CudaError> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: valid out-pointers.
        let code = unsafe { (self.symbols.primary_get_state)(device, &raw mut flags, &raw mut active) };
        self.check("cuDevicePrimaryCtxGetState", code)?;
        if active == 0 {
            // To retain it would be to make it.
            return Ok(false);
        }
        let mut primary = std::ptr::null_mut();
        // SAFETY: a valid out-pointer.
        let code = unsafe { (self.symbols.primary_retain)(&raw mut primary, device) };
        self.check("cuDevicePrimaryCtxRetain", code)?;
        if primary != context {
            self.release_primary(device);
        }
        Ok(primary == context)
    }

    /// Keeps a context alive if it is a device's primary one, by the number of the device. No call is made in the context, which may
    /// be gone.
    pub(super) fn retain_if_primary(&self, context: ContextPtr) -> Option<c_int> {
        let mut count = 0;
        // SAFETY: a valid out-pointer.
        let code = unsafe { (self.symbols.device_get_count)(&raw mut count) };
        self.check("cuDeviceGetCount", code).ok()?;
        (0..count).find(|device| self.retain_primary(*device, context) == Ok(true))
    }

    /// Ends what [`retain_primary`](Self::retain_primary) began.
    pub(super) fn release_primary(&self, device: c_int) {
        // SAFETY: it takes a number.
        let _ = unsafe { (self.symbols.primary_release)(device) };
    }

    pub(super) fn device_name(&self, device: c_int) -> Result<String, CudaError> {
        let mut name = [0_u8; 256];
        // SAFETY: the buffer is as long as it is said to be.
        let code = unsafe { (self.symbols.device_get_name)(name.as_mut_ptr().cast(), 255, device) };
        self.check("cuDeviceGetName", code)?;
        Ok(CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
    }

    /// A stream of our own in the current context, that waits for no other.
    pub(super) fn create_stream(&self) -> Result<StreamPtr, CudaError> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: a valid out-pointer.
        let code = unsafe { (self.symbols.stream_create)(&raw mut stream, NON_BLOCKING) };
        self.check("cuStreamCreate", code).map(|()| stream)
    }

    /// Destroys a stream of our own; work on it is still done.
    pub(super) fn destroy_stream(&self, stream: StreamPtr) {
        // SAFETY: ours, and not used again.
        let _ = unsafe { (self.symbols.stream_destroy)(stream) };
    }

    pub(super) fn stream_context(&self, stream: StreamPtr) -> Result<ContextPtr, CudaError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: a valid out-pointer, and a stream whose owner vouches for it.
        let code = unsafe { (self.symbols.stream_get_ctx)(stream, &raw mut context) };
        self.check("cuStreamGetCtx", code).map(|()| context)
    }

    /// What tells a stream from every other that this process has had.
    #[inline]
    pub(super) fn stream_id(&self, stream: StreamPtr) -> Result<u64, CudaError> {
        let mut id = 0;
        // SAFETY: a valid out-pointer, and a stream whose owner vouches for it.
        let code = unsafe { (self.symbols.stream_get_id)(stream, &raw mut id) };
        self.check("cuStreamGetId", code).map(|()| id)
    }

    /// Whether work for the stream goes into a graph, or may not be put on it because another stream's does.
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

    /// From now on nothing that this thread calls invalidates a capture of another one.
    pub(super) fn relax_capture_mode(&self) {
        let mut mode = RELAXED;
        // SAFETY: a valid in- and out-pointer.
        let _ = unsafe { (self.symbols.exchange_capture_mode)(&raw mut mode) };
    }

    /// Calls `work` so that it invalidates no capture, and leaves the thread's mode as it was.
    pub(crate) fn outside_captures<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut mode = RELAXED;
        // SAFETY: a valid in- and out-pointer.
        let exchanged = unsafe { (self.symbols.exchange_capture_mode)(&raw mut mode) };
        let result = work();
        if exchanged == SUCCESS {
            // SAFETY: as above; `mode` is what it was before.
            let _ = unsafe { (self.symbols.exchange_capture_mode)(&raw mut mode) };
        }
        result
    }

    /// An event of the current context, with times or without.
    pub(super) fn create_event(&self, timed: bool) -> Result<EventPtr, CudaError> {
        let mut event = std::ptr::null_mut();
        // SAFETY: a valid out-pointer.
        let code = unsafe { (self.symbols.event_create)(&raw mut event, if timed { 0 } else { DISABLE_TIMING }) };
        self.check("cuEventCreate", code).map(|()| event)
    }

    /// So many events of the current context with times, or none.
    pub(super) fn create_events(&self, count: usize) -> Result<Vec<EventPtr>, CudaError> {
        let mut events = Vec::with_capacity(count);
        while events.len() < count {
            match self.create_event(true) {
                Ok(event) => events.push(event),
                Err(error) => {
                    events.into_iter().for_each(|event| self.destroy_event(event));
                    return Err(error);
                }
            }
        }
        Ok(events)
    }

    /// Destroys an event of ours, at once or when the device is through with it.
    pub(super) fn destroy_event(&self, event: EventPtr) {
        // SAFETY: ours, and not used again.
        let _ = unsafe { (self.symbols.event_destroy)(event) };
    }

    /// What lets one stream wait for another; only a timeline asks for it.
    pub(super) fn waits(&self) -> Result<Waits, BackendError> {
        let symbol = b"cuStreamWaitEvent\0";
        // SAFETY: the type is the one that CUDA's headers declare for this symbol since CUDA 3.2.
        let wait = unsafe { self.library.get(symbol) };
        Ok(Waits { wait: *wait.map_err(|_| missing(symbol))? })
    }

    /// What comes on the stream from now on waits, on the device, for what was ahead of the event when it was recorded.
    #[inline]
    pub(super) fn wait(&self, waits: Waits, stream: StreamPtr, event: EventPtr) -> Result<(), CudaError> {
        // SAFETY: an event of ours, and a stream whose owner vouches for it.
        let code = unsafe { (waits.wait)(stream, event, 0) };
        self.check("cuStreamWaitEvent", code)
    }

    /// The symbols that kernels need.
    pub(super) fn kernels(&self) -> Result<Kernels, BackendError> {
        macro_rules! symbol {
            ($symbol:literal) => {{
                // SAFETY: the type is the one that CUDA's headers declare for this symbol since CUDA 4.0.
                let symbol = unsafe { self.library.get($symbol) };
                *symbol.map_err(|_| missing($symbol))?
            }};
        }
        Ok(Kernels {
            load: symbol!(b"cuModuleLoadData\0"),
            function: symbol!(b"cuModuleGetFunction\0"),
            launch: symbol!(b"cuLaunchKernel\0"),
        })
    }

    /// Loads a kernel from PTX text into the current context.
    pub(super) fn load_kernel(&self, kernels: &Kernels, ptx: &CStr, name: &CStr) -> Result<Kernel, CudaError> {
        let mut module = std::ptr::null_mut();
        // SAFETY: a valid out-pointer, and text that ends in NUL.
        let code = unsafe { (kernels.load)(&raw mut module, ptx.as_ptr().cast()) };
        self.check("cuModuleLoadData", code)?;
        let mut function = std::ptr::null_mut();
        // SAFETY: as above; the module is loaded.
        let code = unsafe { (kernels.function)(&raw mut function, module, name.as_ptr()) };
        self.check("cuModuleGetFunction", code).map(|()| Kernel { function })
    }

    /// Launches one thread of a kernel that takes one number.
    pub(super) fn launch(
        &self,
        kernels: &Kernels,
        kernel: Kernel,
        stream: StreamPtr,
        mut number: u64,
    ) -> Result<(), CudaError> {
        let mut parameters = [(&raw mut number).cast::<c_void>()];
        // SAFETY: the kernel takes one u64, which the driver copies before it returns.
        let code = unsafe {
            (kernels.launch)(
                kernel.function,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream,
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.check("cuLaunchKernel", code)
    }

    #[inline]
    pub(super) fn record(&self, event: EventPtr, stream: StreamPtr) -> Result<(), CudaError> {
        // SAFETY: an event of ours, and a stream whose owner vouches for it.
        let code = unsafe { (self.symbols.event_record)(event, stream) };
        self.check("cuEventRecord", code)
    }

    /// Whether an event is complete. The call waits for threads that launch at the same time; where an event has a time,
    /// [`has_passed`](Self::has_passed) does not.
    pub(super) fn is_complete(&self, event: EventPtr) -> Result<bool, CudaError> {
        // SAFETY: an event of ours.
        match unsafe { (self.symbols.event_query)(event) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            code => Err(CudaError { call: "cuEventQuery", code }),
        }
    }

    /// Whether reading timed events does not wait for threads that launch: the driver is one for CUDA 12.8 or newer.
    pub(super) fn reads_beside_launches(&self) -> bool {
        self.elapsed.is_v2
    }

    /// Whether a timed event is complete.
    #[inline]
    pub(super) fn has_passed(&self, event: EventPtr) -> Result<bool, CudaError> {
        if self.elapsed.is_v2 { Ok(self.elapsed_ns(event, event)?.is_some()) } else { self.is_complete(event) }
    }

    /// The time between two timed events in ns; none while either is not complete.
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
    /// What the driver says of a context that was destroyed, where it is not asked.
    pub(super) const CONTEXT_IS_GONE: CudaError = CudaError { call: "cuCtxGetId", code: CONTEXT_IS_DESTROYED };

    /// Whether the context, or the whole driver, is gone: none of its handles may be touched any more.
    pub(super) fn context_is_gone(self) -> bool {
        matches!(self.code, DEINITIALIZED | INVALID_CONTEXT | CONTEXT_IS_DESTROYED)
    }

    /// Whether it says nothing of the device: the caller is a host function of a stream, which may not ask.
    pub(super) fn is_of_caller(self) -> bool {
        self.code == NOT_PERMITTED
    }

    /// Whether it is a capture that the call stood in the way of.
    pub(super) fn is_of_capture(self) -> bool {
        CAPTURE.contains(&self.code)
    }

    /// The error as a zone sees it.
    pub(super) fn refusal(self, driver: &Driver) -> Refused {
        if CAPTURE.contains(&self.code) { Refused::Captured } else { Refused::Failed(driver.describe(self)) }
    }
}
