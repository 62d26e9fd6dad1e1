//! Files that follow one another, of which the newest stay.
//!
//! `trace.pftrace` becomes `trace.0001.pftrace`, `trace.0002.pftrace`, …, behind whatever is there of earlier runs. It
//! removes files that it has made itself in this session, and no other: not one of an earlier run, and not one that
//! somebody has put in the place of its own.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::pieces::Medium;
use crate::session::{Kept, TraceFile};
use crate::sink::written::write_counted;

pub(crate) struct Files {
    folder: PathBuf,
    stem: String,
    extension: String,
    limit: u64,
    keep: usize,
    next: u64,
    file: File,
    /// The files that are there, the current one last.
    kept: VecDeque<Ours>,
    removed: u64,
    removed_zones: u64,
}

/// A file that was made here.
struct Ours {
    file: TraceFile,
    identity: Option<Identity>,
}

type Identity = (u64, u64);

impl Files {
    pub(super) fn create(path: &Path, limit: u64, keep: usize) -> io::Result<Files> {
        // The program may go to another folder, and the files that follow belong beside the first one.
        let path = &std::path::absolute(path)?;
        let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let stem = text(path.file_stem()).ok_or_else(|| io::Error::other("it names no file"))?;
        let extension = text(path.extension()).map(|extension| format!(".{extension}")).unwrap_or_default();
        let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
        let next = last_number(&folder, &stem, &extension)? + 1;
        let (number, ours, file) = make(&folder, &stem, &extension, next)?;
        Ok(Files {
            folder,
            stem,
            extension,
            limit,
            keep: keep.max(1),
            next: number + 1,
            file,
            kept: VecDeque::from([ours]),
            removed: 0,
            removed_zones: 0,
        })
    }

    fn remove_oldest(&mut self) {
        while self.kept.len() > self.keep {
            let Some(Ours { file, identity }) = self.kept.pop_front() else { return };
            self.removed += 1;
            self.removed_zones += file.zones;
            let is_ours = fs::symlink_metadata(&file.path).is_ok_and(|there| identity_of(&there) == identity);
            if is_ours {
                // One that cannot be removed is one too many, and no reason to stop.
                let _ = fs::remove_file(&file.path);
            }
        }
    }
}

impl Medium for Files {
    fn size(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }

    fn room(&self) -> usize {
        let written = self.kept.back().map_or(0, |ours| ours.file.bytes);
        usize::try_from(self.limit.saturating_sub(written)).unwrap_or(usize::MAX)
    }

    fn append(&mut self, bytes: &[u8], zones: u64) -> (usize, io::Result<()>) {
        let (taken, result) = write_counted(&mut self.file, bytes);
        if let Some(current) = self.kept.back_mut() {
            current.file.bytes += taken as u64;
            current.file.zones = zones;
        }
        (taken, result)
    }

    fn next(&mut self, _before: u64) -> io::Result<()> {
        let (number, ours, file) = make(&self.folder, &self.stem, &self.extension, self.next)?;
        self.next = number + 1;
        self.file = file;
        self.kept.push_back(ours);
        self.remove_oldest();
        Ok(())
    }

    fn holds(&mut self, zones: u64) {
        if let Some(current) = self.kept.back_mut() {
            current.file.zones = zones;
        }
    }

    fn kept(&self) -> Kept {
        let files = self.kept.iter().map(|ours| ours.file.clone()).collect();
        Kept { files, removed: self.removed, removed_zones: self.removed_zones }
    }
}

/// The highest number that a file of this name has.
fn last_number(folder: &Path, stem: &str, extension: &str) -> io::Result<u64> {
    let names = fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let number = |name: String| -> Option<u64> {
        let digits = name.strip_prefix(stem)?.strip_prefix('.')?.strip_suffix(extension)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    // A number that leaves no room for more is nobody's.
    Ok(names.filter_map(number).filter(|number| *number < u64::MAX / 2).max().unwrap_or(0))
}

/// Makes the file of this number, or of the next one that nobody has.
fn make(folder: &Path, stem: &str, extension: &str, first: u64) -> io::Result<(u64, Ours, File)> {
    let mut number = first;
    loop {
        let path = folder.join(format!("{stem}.{number:04}{extension}"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => {
                let identity = file.metadata().ok().as_ref().and_then(identity_of);
                return Ok((number, Ours { file: TraceFile { path, zones: 0, bytes: 0 }, identity }, file));
            }
            // Another process writes beside this one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number - first < 10_000 => number += 1,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(unix)]
fn identity_of(metadata: &Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity_of(_: &Metadata) -> Option<Identity> {
    None
}
