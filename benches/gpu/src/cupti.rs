//! Exact kernel times from CUPTI's activity records, the yardstick of the lengths. Not linked: a host without CUPTI
//! measures without this column.
//!
//! The layout is that of `CUpti_ActivityKernel9` (CUDA 12 and 13); its first fields have been the same since CUDA 11.

use std::ffi::{CStr, c_char, c_int};
use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};

use gpu::Result;
use libloading::Library;

/// A kernel, as CUPTI saw it.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub name: String,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Counts launches in the order in which the host made them.
    pub correlation: u32,
}

impl Kernel {
    pub fn length_ns(&self) -> f64 {
        (self.end_ns - self.begin_ns) as f64
    }
}

/// CUPTI, recording kernels until it is dropped.
pub struct Cupti {
    /// Never unloaded: its callbacks may still come.
    library: ManuallyDrop<Library>,
}

const CONCURRENT_KERNEL: u32 = 10;
const FLUSH_FORCED: u32 = 1;
const BUFFER_BYTES: usize = 4 << 20;
const ALIGN: usize = 8;

type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = extern "C" fn(*mut u8, u32, *mut u8, usize, usize);

static KERNELS: Mutex<Vec<Kernel>> = Mutex::new(Vec::new());
static NEXT_RECORD: Mutex<Option<NextRecord>> = Mutex::new(None);
type NextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> c_int;

impl Cupti {
    /// Starts recording.
    pub fn start() -> Result<Cupti> {
        // SAFETY: CUPTI's initialisers are those of every program that profiles itself.
        let library = gpu::cupti_name().and_then(|name| unsafe { Library::new(name) }.ok());
        let library = library.ok_or("there is no libcupti.so.13; add its folder to LD_LIBRARY_PATH")?;
        // SAFETY: the types are those of cupti_activity.h.
        unsafe {
            let next = library.get::<NextRecord>(b"cuptiActivityGetNextRecord\0")?;
            *NEXT_RECORD.lock().unwrap_or_else(PoisonError::into_inner) = Some(*next);
            let register = library
                .get::<unsafe extern "C" fn(Request, Completed) -> c_int>(b"cuptiActivityRegisterCallbacks\0")?;
            check("cuptiActivityRegisterCallbacks", register(request, completed))?;
            let enable = library.get::<unsafe extern "C" fn(u32) -> c_int>(b"cuptiActivityEnable\0")?;
            check("cuptiActivityEnable", enable(CONCURRENT_KERNEL))?;
        }
        Ok(Cupti { library: ManuallyDrop::new(library) })
    }

    /// All kernels until now, in the order of their launches. Synchronise first.
    pub fn take(&self) -> Result<Vec<Kernel>> {
        // SAFETY: the type is that of cupti_activity.h.
        unsafe {
            let flush = self.library.get::<unsafe extern "C" fn(u32) -> c_int>(b"cuptiActivityFlushAll\0")?;
            check("cuptiActivityFlushAll", flush(FLUSH_FORCED))?;
        }
        let mut kernels = std::mem::take(&mut *KERNELS.lock().unwrap_or_else(PoisonError::into_inner));
        kernels.sort_by_key(|kernel| kernel.correlation);
        Ok(kernels)
    }
}

/// CUPTI with callbacks that throw away what comes: what any tool pays that has these kinds recorded.
pub struct Bare {
    kinds: &'static [u32],
    /// Never unloaded: its callbacks may still come.
    library: ManuallyDrop<Library>,
}

/// What a session with kernels has recorded, without what ties it to zones: kernels, copies and sets.
pub const WORK: &[u32] = &[CONCURRENT_KERNEL, 1, 2];

/// What a clock needs at the least: kernels, and the calls of the driver that launch them.
pub const KERNELS_AND_CALLS: &[u32] = &[CONCURRENT_KERNEL, 4];

impl Bare {
    pub fn start(kinds: &'static [u32]) -> Result<Bare> {
        // SAFETY: CUPTI's initialisers are those of every program that profiles itself.
        let library = gpu::cupti_name().and_then(|name| unsafe { Library::new(name) }.ok());
        let library = library.ok_or("there is no libcupti.so.13; add its folder to LD_LIBRARY_PATH")?;
        // SAFETY: the types are those of cupti_activity.h.
        unsafe {
            let register = library
                .get::<unsafe extern "C" fn(Request, Completed) -> c_int>(b"cuptiActivityRegisterCallbacks\0")?;
            check("cuptiActivityRegisterCallbacks", register(request, throw_away))?;
            let enable = library.get::<unsafe extern "C" fn(u32) -> c_int>(b"cuptiActivityEnable\0")?;
            for kind in kinds {
                check("cuptiActivityEnable", enable(*kind))?;
            }
        }
        Ok(Bare { kinds, library: ManuallyDrop::new(library) })
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: the types are those of cupti_activity.h.
        unsafe {
            type Call = unsafe extern "C" fn(u32) -> c_int;
            if let Ok(disable) = self.library.get::<Call>(b"cuptiActivityDisable\0") {
                self.kinds.iter().for_each(|kind| _ = disable(*kind));
            }
            if let Ok(flush) = self.library.get::<Call>(b"cuptiActivityFlushAll\0") {
                flush(FLUSH_FORCED);
            }
        }
    }
}

extern "C" fn throw_away(_context: *mut u8, _stream: u32, buffer: *mut u8, _bytes: usize, _valid: usize) {
    if !buffer.is_null() {
        // SAFETY: the buffer came from `request`.
        unsafe { std::alloc::dealloc(buffer, layout()) };
    }
}

impl Drop for Cupti {
    fn drop(&mut self) {
        let _ = self.take();
        // SAFETY: the type is that of cupti_activity.h.
        unsafe {
            if let Ok(disable) = self.library.get::<unsafe extern "C" fn(u32) -> c_int>(b"cuptiActivityDisable\0") {
                disable(CONCURRENT_KERNEL);
            }
        }
    }
}

fn check(call: &str, code: c_int) -> Result {
    if code == 0 { Ok(()) } else { Err(format!("{call} answers {code}; see CUptiResult in cupti_result.h").into()) }
}

fn layout() -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(BUFFER_BYTES, ALIGN).unwrap_or(std::alloc::Layout::new::<u64>())
}

extern "C" fn request(buffer: *mut *mut u8, bytes: *mut usize, records: *mut usize) {
    // SAFETY: CUPTI gives three places to write to; the layout has a size.
    unsafe {
        *buffer = std::alloc::alloc(layout());
        *bytes = if (*buffer).is_null() { 0 } else { BUFFER_BYTES };
        *records = 0;
    }
}

extern "C" fn completed(_context: *mut u8, _stream: u32, buffer: *mut u8, _bytes: usize, valid: usize) {
    let next = *NEXT_RECORD.lock().unwrap_or_else(PoisonError::into_inner);
    let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut record: *mut u8 = std::ptr::null_mut();
    // SAFETY: the buffer came from `request` and holds `valid` bytes of records, through which CUPTI leads.
    unsafe {
        while let Some(next) = next
            && valid > 0
            && next(buffer, valid, &mut record) == 0
        {
            if read::<u32>(record, 0) == CONCURRENT_KERNEL {
                let name = read::<*const c_char>(record, 104);
                kernels.push(Kernel {
                    name: if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into() },
                    begin_ns: read(record, 16),
                    end_ns: read(record, 24),
                    correlation: read(record, 92),
                });
            }
        }
        if !buffer.is_null() {
            std::alloc::dealloc(buffer, layout());
        }
    }
}

/// A field of a record.
///
/// # Safety
/// The record has a `T` at `offset`.
unsafe fn read<T>(record: *const u8, offset: usize) -> T {
    // SAFETY: the caller says so.
    unsafe { record.add(offset).cast::<T>().read_unaligned() }
}
