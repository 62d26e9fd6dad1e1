//! What the program did, as lines: thread, call and its arguments, separated by tabs.

use std::ffi::{CStr, c_char};
use std::sync::Mutex;

static LOG: Mutex<String> = Mutex::new(String::new());

/// Writes a call down.
pub fn line(call: &str, arguments: &[String]) {
    // SAFETY: the call takes nothing and cannot fail.
    let thread = unsafe { libc::gettid() };
    let line = format!("{thread}\t{call}\t{}\n", arguments.join("\t"));
    LOG.lock().unwrap().push_str(&line);
}

/// A string of the client.
///
/// # Safety
/// It is one.
pub unsafe fn text(string: *const c_char) -> String {
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(string) }.to_str().expect("UTF-8").to_owned()
}

/// Copies the lines to `buffer`, as far as they fit, and says how long they are.
///
/// # Safety
/// The buffer has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stub_nvtx_log(buffer: *mut u8, len: usize) -> usize {
    let log = LOG.lock().unwrap();
    // SAFETY: the caller says so.
    unsafe { std::ptr::copy_nonoverlapping(log.as_ptr(), buffer, log.len().min(len)) };
    log.len()
}
