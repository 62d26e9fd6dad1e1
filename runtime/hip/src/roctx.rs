//! ROCm's marker library, which passes ranges of threads to `rocprofv3` and other tools.
//!
//! A tool makes the program load the library: `rocprofv3 --marker-trace` preloads it. It is therefore used if it is already loaded, and
//! opened only if the caller asks for that. It is never closed. Unlike NVTX, roctx has no domains, and a range has nothing but a name.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use warpline_core::library::{is_loaded, open_first, reason};

/// The names of the library: that which `rocprofv3` reads first, and that of roctracer.
const LIBRARIES: [&str; 4] =
    ["librocprofiler-sdk-roctx.so.1", "librocprofiler-sdk-roctx.so", "libroctx64.so.4", "libroctx64.so"];

/// The functions of the library. All of them take calls from any thread.
pub struct Roctx {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
    mark: unsafe extern "C" fn(*const c_char),
    start: Option<unsafe extern "C" fn(*const c_char) -> u64>,
    stop: Option<unsafe extern "C" fn(u64)>,
}

impl Roctx {
    /// Returns the library if the program has loaded it.
    pub fn loaded() -> Option<&'static Roctx> {
        static FOUND: OnceLock<Roctx> = OnceLock::new();
        if let Some(found) = FOUND.get() {
            return Some(found);
        }
        let loaded = LIBRARIES.into_iter().filter(|name| is_loaded(name.as_ref()));
        let found = loaded.into_iter().find_map(|name| Roctx::load(name).ok())?;
        Some(FOUND.get_or_init(|| found))
    }

    /// Returns the library, and opens it if the program has not.
    ///
    /// # Errors
    /// There is none that has the functions.
    pub fn open() -> Result<&'static Roctx, String> {
        static OPENED: OnceLock<Result<Roctx, String>> = OnceLock::new();
        if let Some(loaded) = Roctx::loaded() {
            return Ok(loaded);
        }
        let opened = OPENED.get_or_init(|| open_first(LIBRARIES, |name| Roctx::load(name)).map(|(_, roctx)| roctx));
        opened.as_ref().map_err(|why| {
            format!(
                "there is no roctx library ({why}): install ROCm's rocprofiler-sdk, or start the program under `rocprofv3 --marker-trace`"
            )
        })
    }

    /// Opens a library, which stays open, and reads its functions.
    fn load(name: &str) -> Result<Roctx, String> {
        let library = open(name)?;
        let lacks = |symbol| move |_| format!("{name} has no {symbol}");
        // SAFETY: the types are those that roctx.h declares, in roctracer and in rocprofiler-sdk alike.
        unsafe {
            Ok(Roctx {
                push: *library.get("roctxRangePushA").map_err(lacks("roctxRangePushA"))?,
                pop: *library.get("roctxRangePop").map_err(lacks("roctxRangePop"))?,
                mark: *library.get("roctxMarkA").map_err(lacks("roctxMarkA"))?,
                start: library.get("roctxRangeStartA").ok().map(|symbol| *symbol),
                stop: library.get("roctxRangeStop").ok().map(|symbol| *symbol),
            })
        }
    }

    /// Begins a range that nests on this thread. Returns false if the library refuses it; it must not be popped then.
    pub fn push(&self, name: &CStr) -> bool {
        // SAFETY: the name outlives the call.
        unsafe { (self.push)(name.as_ptr()) >= 0 }
    }

    /// Ends the innermost range of this thread.
    pub fn pop(&self) {
        // SAFETY: the call takes nothing.
        let _ = unsafe { (self.pop)() };
    }

    /// Adds a mark.
    pub fn mark(&self, name: &CStr) {
        // SAFETY: the name outlives the call.
        unsafe { (self.mark)(name.as_ptr()) };
    }

    /// Begins a range that does not nest; none if the library has no such ranges.
    pub fn start(&self, name: &CStr) -> Option<u64> {
        self.stop?;
        // SAFETY: the name outlives the call.
        self.start.map(|start| unsafe { start(name.as_ptr()) })
    }

    /// Ends a range that [`start`](Self::start) began.
    pub fn stop(&self, range: u64) {
        if let Some(stop) = self.stop {
            // SAFETY: the call takes a number.
            unsafe { stop(range) };
        }
    }
}

/// Opens a library that is never closed.
fn open(name: &str) -> Result<ManuallyDrop<libloading::Library>, String> {
    if cfg!(not(target_os = "linux")) {
        return Err("ROCm has none for this system".to_owned());
    }
    // SAFETY: a library that is loaded runs nothing; ROCm's runs its initialisers.
    let library = unsafe { libloading::Library::new(name) }.map_err(|error| reason(&error))?;
    Ok(ManuallyDrop::new(library))
}
