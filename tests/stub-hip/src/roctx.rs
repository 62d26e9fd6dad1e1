//! The marker library: it writes down every call.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, PoisonError};

/// The calls, a line each, and the number of lines.
static LOG: Mutex<(String, usize)> = Mutex::new((String::new(), 0));

thread_local! {
    static DEPTH: Cell<c_int> = const { Cell::new(0) };
}

/// Logs a call, and returns its line.
fn log(line: &str) -> usize {
    let (log, lines) = &mut *LOG.lock().unwrap_or_else(PoisonError::into_inner);
    log.push_str(line);
    log.push('\n');
    *lines += 1;
    *lines
}

/// # Safety
/// The text ends in NUL.
unsafe fn text(name: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn roctxRangePushA(name: *const c_char) -> c_int {
    // SAFETY: roctx.h asks the caller for text that ends in NUL.
    log(&format!("push {}", unsafe { text(name) }));
    DEPTH.replace(DEPTH.get() + 1)
}

#[unsafe(no_mangle)]
extern "C" fn roctxRangePop() -> c_int {
    log("pop");
    DEPTH.set(DEPTH.get() - 1);
    DEPTH.get()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn roctxMarkA(name: *const c_char) {
    // SAFETY: as above.
    log(&format!("mark {}", unsafe { text(name) }));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn roctxRangeStartA(name: *const c_char) -> u64 {
    // SAFETY: as above.
    log(&format!("start {}", unsafe { text(name) })) as u64
}

#[unsafe(no_mangle)]
extern "C" fn roctxRangeStop(range: u64) {
    log(&format!("stop {range}"));
}

/// Copies the log, and returns its length.
#[unsafe(no_mangle)]
unsafe extern "C" fn stub_roctx_log(to: *mut u8, room: usize) -> usize {
    let (log, _) = &*LOG.lock().unwrap_or_else(PoisonError::into_inner);
    if room >= log.len() {
        // SAFETY: the test passes a buffer of this size.
        unsafe { std::ptr::copy_nonoverlapping(log.as_ptr(), to, log.len()) };
    }
    log.len()
}
