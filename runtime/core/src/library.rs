//! Which of a library's names to open: one that the process has loaded comes first.
//!
//! Backends and adapters call it before they open a library that has several names. A second copy of a runtime or of a profiling library has a
//! state of its own: it does not know the program's streams, and sees none of its calls. It loads nothing.
#![allow(unsafe_code)]

use std::ffi::OsStr;

/// Returns the names, or paths, with those of loaded libraries first, and otherwise in their order.
pub fn loaded_first<N: AsRef<OsStr>>(names: impl IntoIterator<Item = N>) -> Vec<N> {
    let mut names: Vec<N> = names.into_iter().collect();
    names.sort_by_cached_key(|name| !is_loaded(name.as_ref()));
    names
}

/// Returns whether the process has loaded a library of this name or path.
#[cfg(all(target_os = "linux", feature = "runtime"))]
pub fn is_loaded(name: &OsStr) -> bool {
    use std::os::unix::ffi::OsStrExt;

    let Ok(name) = std::ffi::CString::new(name.as_bytes()) else { return false };
    // SAFETY: the name is NUL-terminated; the flag only finds libraries that are loaded, so no code runs.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return false;
    }
    // SAFETY: the handle is that of the call above, whose use of the library ends here.
    unsafe { libc::dlclose(library) };
    true
}

/// Returns false: elsewhere, the first name that opens is taken.
#[cfg(not(all(target_os = "linux", feature = "runtime")))]
pub fn is_loaded(_name: &OsStr) -> bool {
    false
}

#[cfg(all(test, target_os = "linux", feature = "runtime"))]
mod tests {
    use super::*;

    #[test]
    fn a_loaded_library_comes_first_and_the_others_keep_their_order() {
        // The C library, by its name, is in every process that has the loader.
        let names = ["libnone.so.2", "libnone.so.1", "libc.so.6", "lib\0.so"];
        assert_eq!(loaded_first(names), ["libc.so.6", "libnone.so.2", "libnone.so.1", "lib\0.so"]);
        assert!(is_loaded("libc.so.6".as_ref()) && !is_loaded("libnone.so.1".as_ref()));
    }
}
