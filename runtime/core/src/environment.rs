//! Access to environment variables, which no other code reads. They are ignored if the program has more rights than its user.
//!
//! The caller of a set-user-ID program controls its environment. A variable that names a file to write or a library to load would
//! give the program's rights to its user. Linux reports such rights by `AT_SECURE`, which makes the dynamic loader ignore
//! `LD_PRELOAD`. The program's own settings are not affected.

use std::env;
pub use std::env::VarError;
use std::ffi::OsString;
use std::sync::Once;

use crate::stderr;

/// Returns the value of a variable. A program with raised privileges gets none.
pub fn var_os(name: &str) -> Option<OsString> {
    honoured(name, is_privileged())
}

/// Returns the value of a variable, as text. A program with raised privileges gets none.
///
/// # Errors
/// It is not set, or is not UTF-8.
pub fn var(name: &str) -> Result<String, VarError> {
    var_os(name).ok_or(VarError::NotPresent)?.into_string().map_err(VarError::NotUnicode)
}

/// Warns once per process that the environment is ignored, if this variable is set.
pub fn tell_if_ignored(name: &str) {
    static TOLD: Once = Once::new();
    if is_privileged() && env::var_os(name).is_some() {
        TOLD.call_once(|| {
            stderr::line(format_args!(
                "`{name}` is ignored, as every other environment variable: this program runs with raised privileges (set-user-ID, \
                 set-group-ID or file capabilities); run it without them, or put the settings into the program"
            ));
        });
    }
}

/// The variables in which launchers put a process's number in its job: torchrun, Open MPI, MPICH and others, Slurm.
const RANKS: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];

/// Returns the process's number in its job, from these environment variables; none without a launcher.
pub fn launched_rank(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    RANKS.iter().find_map(|name| variable(name)?.trim().parse().ok())
}

/// Returns the first launcher variable that is set, with its value, if the value is not a number. [`launched_rank`] ignores such a variable, and
/// the user should know.
pub fn rejected_rank(variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let set = RANKS.iter().filter_map(|name| Some((*name, variable(name)?)));
    let mut set = set.filter(|(_, value)| !value.trim().is_empty());
    set.next().filter(|(_, value)| value.trim().parse::<u32>().is_err())
}

fn honoured(name: &str, is_privileged: bool) -> Option<OsString> {
    if is_privileged { None } else { env::var_os(name) }
}

/// Returns whether the program has rights that its user lacks: by a set-user-ID or set-group-ID bit, by file capabilities, or by
/// a security module.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[allow(unsafe_code)]
fn is_privileged() -> bool {
    use std::ffi::c_ulong;
    // From the C library that std links, so that it needs no feature.
    unsafe extern "C" {
        fn getauxval(kind: c_ulong) -> c_ulong;
    }
    const AT_SECURE: c_ulong = 23;
    // SAFETY: glibc, musl and bionic declare it like this; it reads the kernel's auxiliary vector and accepts any number.
    unsafe { getauxval(AT_SECURE) != 0 }
}

#[cfg(any(
    target_vendor = "apple",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "dragonfly"
))]
#[allow(unsafe_code)]
fn is_privileged() -> bool {
    use std::ffi::c_int;
    unsafe extern "C" {
        fn issetugid() -> c_int;
    }
    // SAFETY: these systems declare it like this; it has no arguments and cannot fail.
    unsafe { issetugid() != 0 }
}

/// Returns false: this system has no such programs.
#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_vendor = "apple",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "dragonfly"
)))]
fn is_privileged() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn no_variable_counts_where_privileges_are_raised() {
        assert!(honoured("PATH", false).is_some_and(|path| !path.is_empty()));
        assert_eq!(honoured("PATH", true), None);
        assert!(!is_privileged(), "the tests run as their user");
        assert_eq!(var("WARPLINE_TEST_OF_NO_VARIABLE"), Err(VarError::NotPresent));
    }

    #[test]
    fn a_rank_that_is_no_number_is_told_and_another_one_counts() {
        let of = |set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            (launched_rank(value), rejected_rank(value))
        };
        assert_eq!(of(&[]), (None, None));
        assert_eq!(of(&[("RANK", " 7 "), ("PMI_RANK", "x")]), (Some(7), None));
        assert_eq!(of(&[("RANK", "")]), (None, None));
        for wrong in ["-1", "1e30", "0x1", "4294967296", "1 2"] {
            assert_eq!(of(&[("RANK", wrong), ("PMI_RANK", "3")]), (Some(3), Some(("RANK", wrong.to_owned()))));
            assert_eq!(of(&[("SLURM_PROCID", wrong)]), (None, Some(("SLURM_PROCID", wrong.to_owned()))));
        }
    }

    /// Reads of the environment, or of a folder that it names.
    const READERS: [&str; 6] = ["env::var", "env::{", "use std::env::", "temp_dir(", "home_dir(", "getenv"];

    /// Files that are compiled only for tests.
    const OF_TESTS: [&str; 4] = ["tests.rs", "fixture.rs", "docs.rs", "killed.rs"];

    fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("it is there") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => sources(&path, files),
                false => files.push(path),
            }
        }
    }

    #[test]
    fn nothing_else_reads_the_environment() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut files = Vec::new();
        sources(&root, &mut files);
        let mut found = Vec::new();
        for path in files {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path == root.join("environment.rs") || OF_TESTS.contains(&&*name) || !name.ends_with(".rs") {
                continue;
            }
            let text = fs::read_to_string(&path).expect("UTF-8");
            // Tests are at the end of a file.
            let shipped = text.split("mod tests {").next().unwrap_or_default();
            let lines = shipped.lines().zip(1..).filter(|(line, _)| !line.trim_start().starts_with("//"));
            let reads = lines.filter(|(line, _)| READERS.iter().any(|reader| line.contains(reader)));
            found.extend(reads.map(|(line, number)| format!("{}:{number}: {}", path.display(), line.trim())));
        }
        assert!(found.is_empty(), "read the environment through `crate::environment`:\n{}", found.join("\n"));
    }
}
