//! Finds the flight recorder's file of a program that does not answer or has ended, so that an error can name the
//! command that recovers it. The errors of `control` call it.
//!
//! It looks among the files that the process has open. It writes nothing.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::output;

/// The first bytes of the file, in every version.
const BEGINS: &[u8] = b"warpline flight";

/// The remedy for a process that runs and does not answer, if it has a recorder.
pub(super) fn remedy_if_silent(process: u32) -> Option<String> {
    let file = open_in(process)?;
    Some(format!("its flight recorder can be read without an answer: {}", recover(&file)))
}

/// The remedy for a process that has ended.
pub(super) fn remedy_if_ended(process: u32) -> String {
    let file = PathBuf::from(format!("warpline-{process}.flight"));
    if is_recorder(&file) {
        return format!("its flight recorder is here: {}", recover(&file));
    }
    format!(
        "if it had a flight recorder, its file is `warpline-{process}.flight` in the program's working directory, or the \
         file of the setting `flight=`: {}",
        recover(&file)
    )
}

fn recover(file: &Path) -> String {
    let file = file.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@,".contains(c);
    let file = if file.chars().all(is_plain) { file } else { format!("'{}'", file.replace('\'', "'\\''")) };
    format!("`warpline recover {} -o last.pftrace`", output::printable(&file))
}

/// The recorder's file that a process has open, under its name in this mount namespace if it has one.
fn open_in(process: u32) -> Option<PathBuf> {
    let handles = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    let handle = handles.flatten().map(|handle| handle.path()).find(|handle| is_recorder(handle))?;
    // The name may be that of a container, or the file may be deleted.
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let name =
        fs::read_link(&handle).ok().filter(|name| identity(name).is_some_and(|it| Some(it) == identity(&handle)));
    Some(name.unwrap_or(handle))
}

fn is_recorder(path: &Path) -> bool {
    // Opening a pipe would block.
    if !fs::metadata(path).is_ok_and(|file| file.is_file()) {
        return false;
    }
    let mut begins = [0; BEGINS.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut begins)).is_ok() && begins == BEGINS
}
