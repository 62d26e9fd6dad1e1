//! Which of a library's names to open, and why none opens.
//!
//! Backends and adapters call it where they open a library. A name that the process has loaded comes first: a second copy of a runtime or of
//! a profiling library has a state of its own, does not know the program's streams, and sees none of its calls. This module loads nothing
//! itself.
#![allow(unsafe_code)]

use std::error::Error;
use std::ffi::OsStr;

/// Returns the names, or paths, with those of loaded libraries first, and otherwise in their order.
pub fn loaded_first<N: AsRef<OsStr>>(names: impl IntoIterator<Item = N>) -> Vec<N> {
    let mut names: Vec<N> = names.into_iter().collect();
    names.sort_by_cached_key(|name| !is_loaded(name.as_ref()));
    names
}

/// Opens the first of these names that opens. Returns it with the library. `open` returns the loader's [`reason`].
///
/// # Errors
/// The reason of the first name whose library is there, or else of the first name.
pub fn open_first<N: AsRef<OsStr>, L>(
    names: impl IntoIterator<Item = N>,
    open: impl Fn(&N) -> Result<L, String>,
) -> Result<(N, L), String> {
    let (mut first, mut broken) = (None, None);
    for name in names {
        match open(&name) {
            Ok(library) => return Ok((name, library)),
            Err(why) => {
                let kept = if is_absent(&name.as_ref().to_string_lossy(), &why) { &mut first } else { &mut broken };
                kept.get_or_insert(why);
            }
        }
    }
    Err(broken.or(first).unwrap_or_else(|| "it has no name on this system".to_owned()))
}

/// Returns why a library did not open, as the loader says it: `libcuda.so.1: invalid ELF header`. The error's own text is that `dlopen` failed, and
/// its source has the reason.
pub fn reason(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Whether the loader found no file of this name. If a library that it needs is missing, the loader names that one.
fn is_absent(name: &str, why: &str) -> bool {
    why.strip_prefix(name).is_some_and(|why| why.ends_with("No such file or directory"))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn open(name: &&str) -> Result<u8, String> {
        match *name {
            "there" => Ok(7),
            "broken" => Err("broken: invalid ELF header".to_owned()),
            "needs" => Err("libneeded.so.1: cannot open shared object file: No such file or directory".to_owned()),
            name => Err(format!("{name}: cannot open shared object file: No such file or directory")),
        }
    }

    #[test]
    fn the_reason_of_an_error_is_its_cause() {
        /// Like libloading's.
        #[derive(Debug)]
        struct Failed(std::fmt::Error);
        impl std::fmt::Display for Failed {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("dlopen failed")
            }
        }
        impl Error for Failed {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        assert_eq!(reason(&Failed(std::fmt::Error)), std::fmt::Error.to_string());
        assert_eq!(reason(&std::fmt::Error), std::fmt::Error.to_string());
    }

    #[test]
    fn the_first_library_that_opens_is_taken() {
        assert_eq!(open_first(["none", "broken", "there", "other"], open), Ok(("there", 7)));
    }

    #[test]
    fn the_reason_is_that_of_a_library_that_is_there() {
        let why = |names: &[&'static str]| open_first(names.iter().copied(), open).expect_err("none opens");
        assert_eq!(why(&["none", "other"]), "none: cannot open shared object file: No such file or directory");
        assert_eq!(why(&["none", "broken", "needs"]), "broken: invalid ELF header");
        assert_eq!(
            why(&["none", "needs"]),
            "libneeded.so.1: cannot open shared object file: No such file or directory"
        );
        assert!(!why(&[]).is_empty());
    }

    #[cfg(all(target_os = "linux", feature = "runtime"))]
    #[test]
    fn a_loaded_library_comes_first_and_the_others_keep_their_order() {
        // The C library, by its name, is in every process that has the loader.
        let names = ["libnone.so.2", "libnone.so.1", "libc.so.6", "lib\0.so"];
        assert_eq!(loaded_first(names), ["libc.so.6", "libnone.so.2", "libnone.so.1", "lib\0.so"]);
        assert!(is_loaded("libc.so.6".as_ref()) && !is_loaded("libnone.so.1".as_ref()));
    }
}
