//! Findings about the settings, the places of files and sockets, and the clock.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Finding, PartState, Wanted};
use warpline_core::clock::{kernels_clock, kernels_clock_is_counter};

/// Whether the settings are valid, and which features the program needs for them.
pub(super) fn settings(wanted: &Wanted) -> Finding {
    let Wanted { line, origin, is_unreadable, asks } = wanted;
    if *is_unreadable {
        return Finding::new("settings", PartState::Broken, "WARPLINE is not UTF-8")
            .asked_for(true)
            .remedy("write its paths and names in UTF-8");
    }
    let Some(line) = line else {
        return Finding::new("settings", PartState::Off, "WARPLINE is not set: the program's own settings apply");
    };
    if let Some(problem) = &asks.problem {
        return Finding::new(
            "settings",
            PartState::Broken,
            format!("{origin} has a setting that cannot be used: {problem}"),
        )
        .asked_for(true)
        .remedy("run a program with `WARPLINE=help`, which lists all settings");
    }
    if asks.is_off {
        return Finding::new("settings", PartState::Off, format!("{origin}=`{line}` records nothing")).asked_for(true);
    }
    let features: Vec<_> = ["enable"].into_iter().chain(asks.features.iter().copied()).collect();
    let features = features.iter().map(|feature| format!("`{feature}`")).collect::<Vec<_>>().join(", ");
    let plural = if asks.features.is_empty() { "feature" } else { "features" };
    let what = format!("{origin}=`{line}` is valid; the program needs warpline's {plural} {features}");
    Finding::new("settings", PartState::Works, what).asked_for(true)
}

/// Whether the files of the settings can be written, or without any, files in this folder.
pub(super) fn files(wanted: &Wanted) -> Vec<Finding> {
    let named = &wanted.asks.files;
    if named.is_empty() {
        let found = match in_folder(Path::new(".")) {
            Ok(()) => Finding::new("trace files", PartState::Works, "this folder is writable"),
            Err(why) => Finding::new("trace files", PartState::Missing, format!("this folder is not writable: {why}"))
                .remedy("name a file in another folder, as in `perfetto=/tmp/trace.pftrace`"),
        };
        return vec![found];
    }
    let finding = |path: &PathBuf| {
        let name = path.display();
        let found = match can_write(path) {
            Ok(()) => Finding::new("trace files", PartState::Works, format!("`{name}` is writable")),
            Err(why) => Finding::new("trace files", PartState::Missing, format!("`{name}` is not writable: {why}"))
                .remedy("create the folder, or name a file in another one"),
        };
        found.asked_for(true)
    };
    named.iter().map(finding).collect()
}

/// Nothing is left behind, and no file that exists is changed.
fn can_write(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err("it is a folder".to_owned()),
        // A pipe or a device could block, or act.
        Ok(there) if !there.is_file() => Ok(()),
        Ok(_) => fs::OpenOptions::new().write(true).open(path).map(drop).map_err(|error| error.to_string()),
        Err(_) => in_folder(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))),
    }
}

fn in_folder(folder: &Path) -> Result<(), String> {
    tempfile::tempfile_in(folder).map(drop).map_err(|error| error.to_string())
}

/// Whether programs with `control` can make their sockets.
#[cfg(target_os = "linux")]
pub(super) fn control(wanted: &Wanted) -> Option<Finding> {
    use crate::runtime::socket;

    /// The longest path of a socket, and of a socket's name with its temporary ending.
    const LONGEST_PATH: usize = 107;
    const LONGEST_NAME: usize = ".4194304-18446744073709551615-4294967295.sock.new".len();

    let user = rustix::process::geteuid().as_raw();
    let folder = socket::directory(std::env::var_os("XDG_RUNTIME_DIR").as_deref(), user);
    let name = folder.display();
    let fault = match fs::symlink_metadata(&folder) {
        Ok(there) => socket::fault(&there, user).map_or_else(|| in_folder(&folder), Err),
        Err(_) => in_folder(folder.parent().unwrap_or(Path::new("/"))),
    };
    let is_long = folder.as_os_str().len() + 1 + LONGEST_NAME > LONGEST_PATH;
    let fault = if is_long { Err("its path is too long for a socket".to_owned()) } else { fault };
    let found = match fault {
        Ok(()) => Finding::new("control", PartState::Works, format!("programs can create their sockets in `{name}`")),
        Err(why) => {
            Finding::new("control", PartState::Missing, format!("programs cannot create sockets in `{name}`: {why}"))
                .remedy("set XDG_RUNTIME_DIR to a directory of yours with a short name and mode 0700")
        }
    };
    Some(found.asked_for(wanted.asks.control))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn control(_: &Wanted) -> Option<Finding> {
    None
}

/// Whether hardware counters are for administrators only, where NVIDIA's kernel module says.
pub(super) fn counters() -> Option<Finding> {
    let text = fs::read_to_string("/proc/driver/nvidia/params").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:"))?;
    let what = match value.trim() {
        "0" => "all users may read hardware counters; warpline does not need them",
        _ => "only administrators may read hardware counters; Nsight Compute needs them, warpline does not",
    };
    Some(Finding::new("permissions", PartState::Works, what))
}

/// The host's clock.
pub(super) fn clock() -> Finding {
    let clock = kernels_clock();
    match clock {
        _ if kernels_clock_is_counter() => {
            Finding::new("clock", PartState::Works, "the time stamp counter, which is also the kernel's clock source")
        }
        Some(name) => {
            let what = format!("the system's clock, because the kernel's clock source is `{name}` and not `tsc`");
            Finding::new("clock", PartState::Limited, what)
                .remedy("each zone takes a little longer on its thread; nothing else changes")
        }
        None => Finding::new("clock", PartState::Works, "the system's clock"),
    }
}
