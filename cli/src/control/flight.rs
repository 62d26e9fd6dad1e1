//! The way out for a program that does not answer, or is no more: its flight recorder's file needs no answer.
//!
//! The file is looked for among those that the process has open; nothing is written, and a process of another user is left alone.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::output;

/// How the file of every version begins.
const BEGINS: &[u8] = b"warpline flight";

/// What to do about a process that is there and does not answer, where it has a recorder.
pub(super) fn of_silent(process: u32) -> Option<String> {
    let file = open_in(process)?;
    Some(format!("its flight recorder needs no answer: {}", recover(&file)))
}

/// What to do about a process that is no more.
pub(super) fn of_dead(process: u32) -> String {
    let file = PathBuf::from(format!("warpline-{process}.flight"));
    if is_recorder(&file) {
        return format!("its flight recorder is here: {}", recover(&file));
    }
    format!(
        "if it had a flight recorder, that is `warpline-{process}.flight` in the folder in which it ran, or where `flight=` said: {}",
        recover(&file)
    )
}

fn recover(file: &Path) -> String {
    let file = file.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@,".contains(c);
    let file = if file.chars().all(is_plain) { file } else { format!("'{}'", file.replace('\'', "'\\''")) };
    format!("`warpline recover {} -o last.pftrace`", output::printable(&file))
}

/// The recorder that a process has open, by the name that it has here, if it has one.
fn open_in(process: u32) -> Option<PathBuf> {
    let handles = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    let handle = handles.flatten().map(|handle| handle.path()).find(|handle| is_recorder(handle))?;
    // Its name may be one of a container, or nobody's any more.
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let name =
        fs::read_link(&handle).ok().filter(|name| identity(name).is_some_and(|it| Some(it) == identity(&handle)));
    Some(name.unwrap_or(handle))
}

fn is_recorder(path: &Path) -> bool {
    // To open a pipe would wait for its other end.
    if !fs::metadata(path).is_ok_and(|file| file.is_file()) {
        return false;
    }
    let mut begins = [0; BEGINS.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut begins)).is_ok() && begins == BEGINS
}
