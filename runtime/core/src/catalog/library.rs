//! Which shared library an address is in. The catalog calls it, to say whose ranges it has.
#![allow(unsafe_code)]

/// Returns the file name of the shared library that contains this address; none for the program itself.
#[cfg(all(target_os = "linux", feature = "runtime"))]
pub(super) fn of_address(address: *const std::ffi::c_void) -> Option<String> {
    use std::ffi::CStr;
    use std::mem::MaybeUninit;
    use std::path::Path;

    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the call only looks the address up, and fills in the structure if it returns another number than 0.
    let found = unsafe { (libc::dladdr(address, found.as_mut_ptr()) != 0).then(|| found.assume_init())? };
    // SAFETY: the call takes a number.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    // The headers of the program are in its first page.
    let is_program = headers.checked_sub(found.dli_fbase.addr()).is_some_and(|offset| offset < 4_096);
    if is_program || headers == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name ends in a NUL, and stays as long as the library, which contains this function's data.
    let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy().into_owned();
    Some(Path::new(&path).file_name()?.to_string_lossy().into_owned())
}

/// Returns none: elsewhere, it is not known.
#[cfg(not(all(target_os = "linux", feature = "runtime")))]
pub(super) fn of_address(_address: *const std::ffi::c_void) -> Option<String> {
    None
}
