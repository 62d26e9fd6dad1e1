//! The way of every driver call: into the journal, past the faults, then to its work; never a panic to the caller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::clock;
use crate::code::{Code, SUCCESS};
use crate::driver::{self, Driver, Locked};
use crate::faults::Verdict;
use crate::orders;
use crate::thread;

/// Calls that work before `cuInit`.
const BEFORE_INIT: [&str; 4] = ["cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString"];

/// Calls that say whether work is done.
const TELL_OF_WORK: [&str; 5] =
    ["cuCtxSynchronize", "cuEventQuery", "cuEventSynchronize", "cuStreamQuery", "cuStreamSynchronize"];

/// The calls that a profiler is told of, by its numbers (`cupti_driver_cbid.h`).
const TRACED: [(&str, u32); 2] = [("cuDriverGetVersion", 2), ("cuCtxGetCurrent", 304)];

/// `CUPTI_API_ENTER`, `CUPTI_API_EXIT`.
const ENTER: i32 = 0;
const EXIT: i32 = 1;

/// A profiler: it is told of a call's number, where it begins and where it ends, on the calling thread.
pub type Tracer = extern "C" fn(u32, i32);

static TRACER: Mutex<Option<Tracer>> = Mutex::new(None);

/// From now on this profiler is told.
pub fn trace(tracer: Tracer) {
    *TRACER.lock().unwrap_or_else(PoisonError::into_inner) = Some(tracer);
}

/// Makes exported driver functions: the symbol in the journal is the symbol that is exported.
macro_rules! driver_calls {
    ($(
        $(#[$attribute:meta])*
        fn $symbol:ident($($argument:ident: $type:ty),*) = |$driver:ident| $body:block
    )*) => {
        $(
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            extern "C" fn $symbol($($argument: $type),*) -> u32 {
                #[allow(unused_mut, unused_variables, reason = "not every call changes the driver")]
                $crate::call::call(stringify!($symbol), move |mut $driver| $body)
            }
        )*
    };
}
pub(crate) use driver_calls;

/// Where a call puts a result: the caller's pointer.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Puts it there.
    pub fn put(self, value: T) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller of a driver function gives a pointer to which a `T` may be written, as CUDA demands.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Reads what the caller put there.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> Result<R, Code> {
        // SAFETY: the caller of a driver function gives a pointer to a `T`, or null.
        unsafe { self.0.as_ref() }.map(read).ok_or(Code::INVALID_VALUE)
    }

    /// Puts it there if the caller wants it.
    pub fn put_if_wanted(self, value: T) {
        let _ = self.put(value);
    }

    /// Whether the caller gave a place.
    pub fn is_wanted(&self) -> bool {
        !self.0.is_null()
    }

    /// Puts all there; the caller was told how many there are, and has room for them.
    pub fn put_all(self, values: &[T])
    where
        T: Copy,
    {
        // SAFETY: the caller gives room for as many as the driver has said that there are.
        unsafe { self.0.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }

    /// Changes what is there.
    pub fn exchange(self, change: impl FnOnce(T) -> Result<T, Code>) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller gives a pointer to an initialized `T`, as CUDA demands of arguments that go in and out.
        let value = change(unsafe { self.0.read() })?;
        self.put(value)
    }

    /// Copies bytes there and ends them with NUL, as much as fits.
    pub fn put_text(self, text: &str, len: usize) -> Result<(), Code> {
        if self.0.is_null() || len == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let kept = text.len().min(len - 1);
        let to = self.0.cast::<u8>();
        // SAFETY: the caller gives a buffer of `len` bytes; `kept + 1 <= len`.
        unsafe {
            to.copy_from_nonoverlapping(text.as_ptr(), kept);
            to.add(kept).write(0);
        }
        Ok(())
    }
}

/// Makes a call of `symbol`.
pub fn call(symbol: &'static str, body: impl FnOnce(Locked) -> Result<(), Code>) -> u32 {
    orders::at(symbol);
    let traced = TRACED.iter().find(|(traced, _)| *traced == symbol);
    let tracer = traced.and_then(|_| *TRACER.lock().unwrap_or_else(PoisonError::into_inner));
    let tell = |site| {
        if let (Some(tracer), Some((_, number))) = (tracer, traced) {
            tracer(*number, site);
        }
    };
    tell(ENTER);
    let run = AssertUnwindSafe(|| {
        let mut driver = driver::stop(driver::lock(), symbol);
        match verdict(&mut driver, symbol) {
            Verdict::Works => body(driver).and_then(|()| of_work(symbol)).map_or_else(|code| code.0, |()| SUCCESS),
            Verdict::Fails(code) => code.0,
            Verdict::WorksAndFails(code) => {
                let _ = body(driver);
                code.0
            }
        }
    });
    let code = catch_unwind(run).unwrap_or(Code::UNKNOWN.0);
    tell(EXIT);
    code
}

/// What a call that found work done says of it: a kernel may have broken the device since the call began.
fn of_work(symbol: &str) -> Result<(), Code> {
    if !TELL_OF_WORK.contains(&symbol) {
        return Ok(());
    }
    driver::lock().faults.device(clock::now_ns()).map_or(Ok(()), Err)
}

fn verdict(driver: &mut Driver, symbol: &'static str) -> Verdict {
    driver.journal.call(symbol);
    if thread::is_in_host_function() {
        driver.host_function_calls += 1;
        return Verdict::Fails(Code::NOT_PERMITTED);
    }
    match driver.faults.verdict(symbol, clock::now_ns()) {
        Verdict::Works if !driver.is_initialized && !BEFORE_INIT.contains(&symbol) => {
            Verdict::Fails(Code::NOT_INITIALIZED)
        }
        verdict => verdict,
    }
}
