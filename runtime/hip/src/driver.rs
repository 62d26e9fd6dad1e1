//! The HIP runtime, called through a table of symbols.
//!
//! `libamdhip64.so` is opened when the first HIP stream is used, and never closed. A missing library or symbol is an error with a remedy.
//! Results are kept as numbers, because a newer runtime may return one that an enum would lack. Every call may change what the
//! application's `hipGetLastError` returns on the calling thread, as any other HIP call does.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::OnceLock;

use warpline_core::backend::{BackendError, Refused};
use warpline_core::library::{loaded_first, open_first, reason};

/// A `hipStream_t`. Like `hipEvent_t`, a pointer that only the runtime dereferences.
pub(super) type StreamPtr = *mut c_void;
pub(super) type EventPtr = *mut c_void;

/// A `hipError_t`.
type Code = c_int;

const SUCCESS: Code = 0;
const INVALID_VALUE: Code = 1;
/// `hipErrorNoDevice`.
const NO_DEVICE: Code = 100;
const NOT_READY: Code = 600;
/// The errors of captures: `hipErrorStreamCaptureUnsupported` to `hipErrorStreamCaptureWrongThread`.
const CAPTURE: std::ops::RangeInclusive<Code> = 900..=908;

/// `hipStreamNonBlocking`.
const NON_BLOCKING: c_uint = 1;
/// `hipStreamCaptureModeRelaxed`.
const RELAXED: c_int = 2;

/// `hipStreamLegacy` and `hipStreamPerThread`.
pub(super) const LEGACY: usize = 1;
pub(super) const PER_THREAD: usize = 2;

/// Returns whether the handle denotes a different stream on each device.
pub(super) fn is_default(stream: StreamPtr) -> bool {
    stream as usize <= PER_THREAD
}

/// The names under which the loader is asked for the runtime, in this order: that of a development package, and those of ROCm 7, 6 and 5.
pub(super) const LIBRARIES: &[&str] = if cfg!(windows) {
    &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
} else {
    &["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"]
};

/// Declares the table of symbols: those that a session needs, and those that it can do without.
macro_rules! table {
    (
        required { $($field:ident: $symbol:literal fn($($argument:ty),*) -> $result:ty;)* }
        optional { $($wish:ident: $wished:literal fn($($taken:ty),*) -> $given:ty;)* }
    ) => {
        /// The symbols. Callers must pass pointers that the runtime created, or out-pointers of the right type.
        struct Symbols {
            $($field: unsafe extern "C" fn($($argument),*) -> $result,)*
            $($wish: Option<unsafe extern "C" fn($($taken),*) -> $given>,)*
        }

        impl Symbols {
            fn load(library: &libloading::Library) -> Result<Symbols, BackendError> {
                Ok(Symbols {
                    $($field: {
                        // SAFETY: the type is the one that HIP's headers declare for this symbol since ROCm 5.0.
                        let symbol = unsafe { library.get($symbol) };
                        *symbol.map_err(|_| missing($symbol))?
                    },)*
                    $($wish: {
                        // SAFETY: the type is the one that HIP's headers declare for this symbol.
                        unsafe { library.get($wished) }.ok().map(|symbol| *symbol)
                    },)*
                })
            }

            /// Returns the optional symbols that the runtime lacks.
            fn lacking(&self) -> Vec<&'static str> {
                let lacks = [$(self.$wish.is_none().then_some($wished)),*];
                lacks.into_iter().flatten().collect()
            }
        }
    };
}

table! {
    required {
        get_error_string: "hipGetErrorString" fn(Code) -> *const c_char;
        get_device: "hipGetDevice" fn(*mut c_int) -> Code;
        set_device: "hipSetDevice" fn(c_int) -> Code;
        device_get_name: "hipDeviceGetName" fn(*mut c_char, c_int, c_int) -> Code;
        stream_create: "hipStreamCreateWithFlags" fn(*mut StreamPtr, c_uint) -> Code;
        stream_destroy: "hipStreamDestroy" fn(StreamPtr) -> Code;
        stream_is_capturing: "hipStreamIsCapturing" fn(StreamPtr, *mut c_int) -> Code;
        event_create: "hipEventCreateWithFlags" fn(*mut EventPtr, c_uint) -> Code;
        event_destroy: "hipEventDestroy" fn(EventPtr) -> Code;
        event_record: "hipEventRecord" fn(EventPtr, StreamPtr) -> Code;
        event_query: "hipEventQuery" fn(EventPtr) -> Code;
        event_elapsed: "hipEventElapsedTime" fn(*mut f32, EventPtr, EventPtr) -> Code;
    }
    optional {
        stream_get_id: "hipStreamGetId" fn(StreamPtr, *mut u64) -> Code;
        stream_get_device: "hipStreamGetDevice" fn(StreamPtr, *mut c_int) -> Code;
        exchange_capture_mode: "hipThreadExchangeStreamCaptureMode" fn(*mut c_int) -> Code;
        runtime_get_version: "hipRuntimeGetVersion" fn(*mut c_int) -> Code;
        get_device_count: "hipGetDeviceCount" fn(*mut c_int) -> Code;
    }
}

fn missing(symbol: &str) -> BackendError {
    BackendError(format!("the HIP runtime has no `{symbol}`: install ROCm 5.0 or newer"))
}

/// The HIP runtime of this process.
pub(super) struct Driver {
    symbols: Symbols,
    /// The name under which it was found.
    pub(super) library: &'static str,
}

/// The error of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HipError {
    call: &'static str,
    code: Code,
}

impl HipError {
    /// Whether the runtime works and finds no device, as on a host with GPUs of others.
    pub(super) fn is_no_device(&self) -> bool {
        self.code == NO_DEVICE
    }

    /// Converts the error to that of a zone.
    pub(super) fn refusal(self, driver: &Driver) -> Refused {
        if CAPTURE.contains(&self.code) { Refused::Captured } else { Refused::Failed(driver.describe(self)) }
    }
}

impl Driver {
    /// Returns the runtime, which the first call opens.
    pub(super) fn get() -> Result<&'static Driver, BackendError> {
        static DRIVER: OnceLock<Result<Driver, BackendError>> = OnceLock::new();
        DRIVER.get_or_init(Driver::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Driver, BackendError> {
        // SAFETY: opening the runtime runs its initialisers, as the application's own use of it does.
        let open = |name: &&str| unsafe { libloading::Library::new(*name) }.map_err(|error| reason(&error));
        // The program's own runtime is loaded; another copy would not know its streams.
        let opened = open_first(loaded_first(LIBRARIES.iter().copied()), open);
        let (name, library) = opened.map_err(|why| {
            BackendError(format!("there is no HIP runtime: {why}; install ROCm, or add its `lib` to LD_LIBRARY_PATH"))
        })?;
        let library = ManuallyDrop::new(library);
        Ok(Driver { symbols: Symbols::load(&library)?, library: name })
    }

    /// Returns the optional symbols that the runtime lacks.
    pub(super) fn lacking(&self) -> Vec<&'static str> {
        self.symbols.lacking()
    }

    #[inline]
    fn check(&self, call: &'static str, code: Code) -> Result<(), HipError> {
        if code == SUCCESS { Ok(()) } else { Err(HipError { call, code }) }
    }

    /// Makes a call that writes its result to a pointer, where `value` is before the call, and returns the result.
    #[inline]
    fn ask<T>(&self, call: &'static str, mut value: T, ask: impl FnOnce(*mut T) -> Code) -> Result<T, HipError> {
        self.check(call, ask(&raw mut value)).map(|()| value)
    }

    /// Returns the error as text.
    pub(super) fn describe(&self, error: HipError) -> BackendError {
        // SAFETY: the call takes any number; its texts are static.
        let text = unsafe { (self.symbols.get_error_string)(error.code) };
        let text = if text.is_null() {
            format!("error {}", error.code)
        } else {
            // SAFETY: the pointer is not null; the runtime's texts are NUL-terminated and static.
            format!("{} ({})", unsafe { CStr::from_ptr(text) }.to_string_lossy(), error.code)
        };
        BackendError(format!("`{}` gave {text}", error.call))
    }

    /// Returns the runtime's version, as 10,000,000 × major + 100,000 × minor + patch; none if it does not tell.
    pub(super) fn version(&self) -> Option<c_int> {
        let mut version = 0;
        // SAFETY: a valid out-pointer.
        let code = unsafe { self.symbols.runtime_get_version?(&raw mut version) };
        (code == SUCCESS).then_some(version)
    }

    /// Returns the number of devices.
    pub(super) fn device_count(&self) -> Result<c_int, HipError> {
        let Some(call) = self.symbols.get_device_count else { return Ok(0) };
        // SAFETY: a valid out-pointer.
        self.ask("hipGetDeviceCount", 0, |count| unsafe { call(count) })
    }

    /// Returns the calling thread's device.
    #[inline]
    pub(super) fn current_device(&self) -> Result<c_int, HipError> {
        // SAFETY: a valid out-pointer.
        self.ask("hipGetDevice", 0, |device| unsafe { (self.symbols.get_device)(device) })
    }

    /// Calls `work` with this device as the calling thread's, and restores the device from before.
    pub(super) fn with_device<T>(
        &self,
        device: c_int,
        work: impl FnOnce() -> Result<T, HipError>,
    ) -> Result<T, HipError> {
        let before = self.current_device()?;
        if before == device {
            return work();
        }
        // SAFETY: the call takes a number.
        let set = |device| self.check("hipSetDevice", unsafe { (self.symbols.set_device)(device) });
        set(device)?;
        let result = work();
        // The device was current before, so this succeeds.
        let _ = set(before);
        result
    }

    /// Returns the name of a device.
    pub(super) fn device_name(&self, device: c_int) -> Result<String, HipError> {
        let mut name = [0_u8; 256];
        // SAFETY: the buffer is one byte longer than the length that is passed.
        let code = unsafe { (self.symbols.device_get_name)(name.as_mut_ptr().cast(), 255, device) };
        self.check("hipDeviceGetName", code)?;
        Ok(CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
    }

    /// Creates a stream on the calling thread's device that waits for no other stream.
    pub(super) fn create_stream(&self) -> Result<StreamPtr, HipError> {
        // SAFETY: a valid out-pointer.
        self.ask("hipStreamCreateWithFlags", null_mut(), |stream| unsafe {
            (self.symbols.stream_create)(stream, NON_BLOCKING)
        })
    }

    /// Destroys a stream that warpline created.
    pub(super) fn destroy_stream(&self, stream: StreamPtr) {
        // SAFETY: ours, and not used again.
        let _ = unsafe { (self.symbols.stream_destroy)(stream) };
    }

    /// Returns the device of a stream. A runtime without `hipStreamGetDevice` gives the calling thread's.
    pub(super) fn stream_device(&self, stream: StreamPtr) -> Result<c_int, HipError> {
        let Some(call) = self.symbols.stream_get_device.filter(|_| !is_default(stream)) else {
            return self.current_device();
        };
        // SAFETY: a valid out-pointer, and a stream whose owner vouches for it.
        self.ask("hipStreamGetDevice", 0, |device| unsafe { call(stream, device) })
    }

    /// Returns a number that tells this stream from every other: its id, or on an older runtime its address.
    #[inline]
    pub(super) fn stream_id(&self, stream: StreamPtr) -> Result<u64, HipError> {
        let Some(call) = self.symbols.stream_get_id else { return Ok(stream as u64) };
        // SAFETY: a valid out-pointer, and a stream whose owner vouches for it.
        self.ask("hipStreamGetId", 0, |id| unsafe { call(stream, id) })
    }

    /// Returns whether the stream is being captured, or cannot be used because another stream is.
    #[inline]
    pub(super) fn is_capturing(&self, stream: StreamPtr) -> Result<bool, HipError> {
        let mut status = 0;
        // SAFETY: a valid out-pointer, and a stream whose owner vouches for it.
        match unsafe { (self.symbols.stream_is_capturing)(stream, &raw mut status) } {
            SUCCESS => Ok(status != 0),
            code if CAPTURE.contains(&code) => Ok(true),
            // Runtimes before ROCm 6 refuse the null stream, which cannot be captured.
            INVALID_VALUE if is_default(stream) => Ok(false),
            code => Err(HipError { call: "hipStreamIsCapturing", code }),
        }
    }

    /// Relaxes this thread's capture mode: none of its later calls invalidates another thread's capture.
    pub(super) fn relax_capture_mode(&self) {
        let mut mode = RELAXED;
        if let Some(exchange) = self.symbols.exchange_capture_mode {
            // SAFETY: a valid in- and out-pointer.
            let _ = unsafe { exchange(&raw mut mode) };
        }
    }

    /// Calls `work` so that it invalidates no capture, and restores the thread's capture mode.
    pub(super) fn outside_captures<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(exchange) = self.symbols.exchange_capture_mode else { return work() };
        let mut mode = RELAXED;
        // SAFETY: a valid in- and out-pointer.
        let exchanged = unsafe { exchange(&raw mut mode) };
        let result = work();
        if exchanged == SUCCESS {
            // SAFETY: as above; `mode` is the previous mode.
            let _ = unsafe { exchange(&raw mut mode) };
        }
        result
    }

    /// Creates an event with a time on the calling thread's device.
    pub(super) fn create_event(&self) -> Result<EventPtr, HipError> {
        // SAFETY: a valid out-pointer.
        self.ask("hipEventCreateWithFlags", null_mut(), |event| unsafe { (self.symbols.event_create)(event, 0) })
    }

    /// Destroys an event that warpline created.
    pub(super) fn destroy_event(&self, event: EventPtr) {
        // SAFETY: ours, and not used again.
        let _ = unsafe { (self.symbols.event_destroy)(event) };
    }

    /// Records an event behind the work that is on the stream now.
    #[inline]
    pub(super) fn record(&self, event: EventPtr, stream: StreamPtr) -> Result<(), HipError> {
        // SAFETY: an event of ours, and a stream whose owner vouches for it.
        let code = unsafe { (self.symbols.event_record)(event, stream) };
        self.check("hipEventRecord", code)
    }

    /// Returns whether an event is complete.
    pub(super) fn is_complete(&self, event: EventPtr) -> Result<bool, HipError> {
        // SAFETY: an event of ours.
        match unsafe { (self.symbols.event_query)(event) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            code => Err(HipError { call: "hipEventQuery", code }),
        }
    }

    /// Returns the time between two events in ns; none while either is incomplete.
    pub(super) fn elapsed_ns(&self, since: EventPtr, event: EventPtr) -> Result<Option<i64>, HipError> {
        let mut ms = 0_f32;
        // SAFETY: a valid out-pointer, and two events of ours.
        match unsafe { (self.symbols.event_elapsed)(&raw mut ms, since, event) } {
            SUCCESS => Ok(Some((f64::from(ms) * 1e6).round() as i64)),
            NOT_READY => Ok(None),
            code => Err(HipError { call: "hipEventElapsedTime", code }),
        }
    }
}
