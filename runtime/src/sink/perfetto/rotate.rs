//! Files that follow one another, of which the newest stay.
//!
//! `trace.pftrace` becomes `trace.0001.pftrace`, `trace.0002.pftrace`, …, behind whatever is there of earlier runs. It
//! removes files that it has made itself in this session, and no other: not one of an earlier run, and not one that
//! somebody has put in the place of its own.

use std::collections::VecDeque;
use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::pieces::Medium;
use crate::files::name;
use crate::files::own::{OwnFile, is_at, is_written};
use crate::session::{Kept, TraceFile};
use crate::sink::written::write_counted;

pub(crate) struct Files {
    folder: PathBuf,
    stem: String,
    extension: String,
    limit: u64,
    keep: usize,
    next: u64,
    file: OwnFile,
    /// Something was to be written.
    has_begun: bool,
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
    /// Makes the first file, and says what its name is made of: the path, or another one where another session writes to files
    /// of the first.
    pub(super) fn create(asked: &Path, limit: u64, keep: usize) -> io::Result<(Files, PathBuf)> {
        let mut path = asked.to_owned();
        for attempt in 1.. {
            let files = Files::of(&path, limit, keep)?;
            if let Some(files) = files {
                return Ok((files, path));
            }
            path = name::of_process(asked, attempt);
        }
        Err(io::Error::other("others write to files of that name"))
    }

    /// None where another session writes to files of this path.
    fn of(path: &Path, limit: u64, keep: usize) -> io::Result<Option<Files>> {
        // The program may go to another folder, and the files that follow belong beside the first one.
        let path = &std::path::absolute(path)?;
        let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let stem = text(path.file_stem()).ok_or_else(|| io::Error::other("it names no file"))?;
        let extension = text(path.extension()).map(|extension| format!(".{extension}")).unwrap_or_default();
        let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
        let last = last_number(&folder, &stem, &extension)?;
        if last > 0 && is_written(&piece(&folder, &stem, &extension, last)) {
            return Ok(None);
        }
        let (number, ours, file) = make(&folder, &stem, &extension, last + 1)?;
        Ok(Some(Files {
            folder,
            stem,
            extension,
            limit,
            keep: keep.max(1),
            next: number + 1,
            file,
            has_begun: false,
            kept: VecDeque::from([ours]),
            removed: 0,
            removed_zones: 0,
        }))
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

impl Drop for Files {
    /// A session that does not start leaves no file.
    fn drop(&mut self) {
        if let (false, Some(first)) = (self.has_begun, self.kept.front())
            && is_at(&self.file, &first.file.path)
        {
            let _ = fs::remove_file(&first.file.path);
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
        self.has_begun = true;
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
fn make(folder: &Path, stem: &str, extension: &str, first: u64) -> io::Result<(u64, Ours, OwnFile)> {
    let mut number = first;
    loop {
        let path = piece(folder, stem, extension, number);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => {
                let identity = file.metadata().ok().as_ref().and_then(identity_of);
                // Another session that starts now looks for a moment whether somebody writes it.
                let locked = OwnFile::lock(file).or_else(|file| {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    OwnFile::lock(file)
                });
                match locked {
                    Ok(file) => {
                        return Ok((number, Ours { file: TraceFile { path, zones: 0, bytes: 0 }, identity }, file));
                    }
                    // Another session has taken the file since it was made.
                    Err(_) => number += 1,
                }
            }
            // Another process writes beside this one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number - first < 10_000 => number += 1,
            Err(error) => return Err(error),
        }
    }
}

fn piece(folder: &Path, stem: &str, extension: &str, number: u64) -> PathBuf {
    folder.join(format!("{stem}.{number:04}{extension}"))
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
