//! The file of a flight recorder as the session writes it.
//!
//! The session uses positioned writes instead of a mapping: written bytes belong to the operating system and survive `kill -9` as
//! with a mapping, and neither a full disk nor a truncated file can end the program with a signal. Room on the disk is reserved at
//! the start. The file is locked: a second process records into a file with its process id in the name.

#[cfg(target_os = "linux")]
mod disk;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::format::{HEADER_BYTES, Layout, MAGIC, PIECE_HEADER, PieceHeader};
use crate::files::own::OwnFile;
use crate::files::system::is_at;
use warpline_core::file_name;
use warpline_core::lock::lock;
use warpline_core::signals::without_signals;

/// Replaces `disk` on systems other than Linux, which lack these calls.
#[cfg(not(target_os = "linux"))]
mod disk {
    use std::fs::File;
    use std::io;

    /// Treats the whole file as data.
    pub(super) fn next_data(_: &File, at: u64) -> Option<u64> {
        Some(at)
    }

    /// Reserves no room.
    pub(super) fn reserve(_: &File, _: u64) -> io::Result<bool> {
        Ok(false)
    }
}

pub struct RingFile {
    file: OwnFile,
    before: Before,
    /// The number of failed writes, and the reason for the first one.
    refused: Mutex<(u64, String)>,
    is_cut: AtomicBool,
    is_removed: AtomicBool,
    is_elsewhere: AtomicBool,
    pub path: PathBuf,
    pub layout: Layout,
}

impl RingFile {
    /// Creates the whole file. Its name contains the process id if another session records into the requested file. The file of an
    /// earlier session is renamed to `….previous`: it may be all that is left of a program that was killed.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub fn create(asked: &Path, layout: Layout) -> Result<RingFile, String> {
        let mut path = asked.to_owned();
        let mut attempt = 0;
        let taken = loop {
            match take(&path, &layout) {
                Ok(taken) => break taken,
                Err(Refused::Written) if attempt < ATTEMPTS => {
                    attempt += 1;
                    path = file_name::of_process(asked, attempt);
                }
                Err(Refused::Written) => return Err("other processes record into it; name another one".to_owned()),
                Err(Refused::For(problem)) => return Err(problem),
            }
        };
        let [is_cut, is_removed, is_elsewhere] = [(); 3].map(|()| AtomicBool::new(false));
        let Taken { file, before } = taken;
        let ring = RingFile { file, before, refused: Mutex::default(), is_cut, is_removed, is_elsewhere, path, layout };
        match without_signals(|| reserve(&ring.file, &ring.layout)) {
            Ok(()) => Ok(ring),
            Err(error) => {
                ring.undo();
                Err(no_room(&ring.layout, &error))
            }
        }
    }

    /// Restores what was there before, because the session does not start.
    pub fn undo(&self) {
        if !is_at(&self.file, &self.path) {
            return;
        }
        let _ = match &self.before {
            Before::Nothing => fs::remove_file(&self.path),
            Before::Unused => File::set_len(&self.file, 0),
            Before::EarlierRun(previous) => fs::rename(previous, &self.path),
        };
    }

    /// Writes at this position of the file.
    pub fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        without_signals(|| self.file.write_all_at(bytes, at)).inspect_err(|error| {
            let mut refused = lock(&self.refused);
            refused.0 += 1;
            if refused.0 == 1 {
                refused.1 = error.to_string();
            }
        })
    }

    /// Returns why the file lacks records, if it could not be written.
    pub fn problem(&self) -> Option<String> {
        let (count, first) = &*lock(&self.refused);
        (*count > 0).then(|| {
            let how_often = if *count == 1 { first.clone() } else { format!("{count} times, at first: {first}") };
            format!(
                "the flight recorder's file `{}` could not be written ({how_often}): what was recorded then is not in it; make \
                 room on its disk, or name another place",
                self.path.display()
            )
        })
    }

    /// Marks the piece that begins at `at` as complete.
    pub fn commit(&self, at: u64, header: PieceHeader) -> io::Result<()> {
        self.write_at(at, &header.to_bytes())
    }

    /// Marks that no piece begins at `at`.
    pub fn clear(&self, at: u64) -> io::Result<()> {
        self.write_at(at, &[0; PIECE_HEADER])
    }

    /// Returns a reader from the beginning of the file. It can be used while the session writes.
    pub fn reader(&self) -> impl Read + Seek + '_ {
        Reader { file: &self.file, at: 0 }
    }

    /// Returns the file descriptor.
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Checks whether another program has truncated, removed or moved the file. The collector, which writes to it anyway, calls
    /// this: a disk that hangs then blocks no other thread.
    pub fn check(&self) {
        if let Ok(there) = self.file.metadata() {
            self.is_cut.fetch_or(there.len() < self.layout.file_bytes(), Ordering::Relaxed);
            self.is_removed.fetch_or(there.nlink() == 0, Ordering::Relaxed);
        }
        self.is_elsewhere.store(!is_at(&self.file, &self.path), Ordering::Relaxed);
    }

    /// Returns what another program had done to the file at the last check, with the remedy.
    pub fn harm(&self) -> impl Iterator<Item = String> {
        let is = |what: &AtomicBool| what.load(Ordering::Relaxed);
        let path = self.path.display();
        let cut = is(&self.is_cut).then(|| {
            format!(
                "another program truncated the flight recorder's file `{path}` while it was written: the removed part is lost; do \
                 not change the file until the session ends"
            )
        });
        let (is_removed, is_elsewhere) = (is(&self.is_removed), is(&self.is_elsewhere));
        let removed = is_removed.then(|| {
            format!(
                "the flight recorder's file `{path}` was removed while it was written: `Session::dump` still reads it, and after the \
                 session or a kill it is lost; leave the file there until the session ends"
            )
        });
        let moved = (is_elsewhere && !is_removed).then(|| {
            format!(
                "the flight recorder's file `{path}` was moved while it was written: `warpline recover` needs the path to which it was \
                 moved; leave the file there until the session ends"
            )
        });
        cut.into_iter().chain(removed).chain(moved)
    }

    /// Whether pieces that were written may be missing.
    pub(crate) fn is_harmed(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed) || self.is_removed.load(Ordering::Relaxed)
    }

    /// Whether pieces can be found in the file.
    pub(crate) fn is_readable(&self) -> bool {
        let header = self.layout.to_bytes();
        !self.is_removed.load(Ordering::Relaxed) && self.read(0, header.len()).is_some_and(|there| there == header)
    }

    /// Whether the piece with this number begins at `at` and is complete.
    pub(crate) fn has_piece(&self, at: u64, sequence: u64) -> bool {
        let header = self.read(at, PIECE_HEADER);
        let header = header.and_then(|bytes| PieceHeader::read(bytes.first_chunk()?));
        let is_it = |header: &PieceHeader| header.sequence == sequence && header.len <= self.layout.segment;
        header.filter(is_it).is_some_and(|header| {
            let content = self.read(at + PIECE_HEADER as u64, header.len as usize);
            content.is_some_and(|content| crc32fast::hash(&content) == header.checksum)
        })
    }

    /// Reads `count` bytes, or returns none if the file does not have them.
    fn read(&self, at: u64, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
    }

    /// Removes the file if it still has its name.
    pub fn remove(&self) {
        if is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The number of names to try before giving up.
const ATTEMPTS: u32 = 1_000;

/// A file that no other session has.
struct Taken {
    file: OwnFile,
    before: Before,
}

/// What had the file's name before.
enum Before {
    Nothing,
    /// An empty file, or the file of a process that was killed before it recorded anything.
    Unused,
    /// The file of an earlier run, and its new path.
    EarlierRun(PathBuf),
}

/// Why the recorder cannot use a file.
enum Refused {
    /// Another session records into it.
    Written,
    /// The problem and the remedy.
    For(String),
}

impl From<String> for Refused {
    fn from(problem: String) -> Refused {
        Refused::For(problem)
    }
}

/// Opens or creates a file with this name that no other session has and that holds no records. A file of an earlier session is
/// renamed only if there is room for a new one.
fn take(path: &Path, layout: &Layout) -> Result<Taken, Refused> {
    let mut put_aside = None;
    // Another process may rename the file between two steps.
    for _ in 0..8 {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let (opened, is_new) = match options.create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (options.create_new(false).open(path), false),
            opened => (opened, true),
        };
        if let Err(error) = &opened
            && error.kind() == io::ErrorKind::NotFound
            && !is_new
        {
            // The author of such a link decides where the file would be created, and nothing is written to another user's
            // directory.
            if fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink()) {
                let problem = "it is a link to a file that does not exist; remove the link, or create the file";
                return Err(problem.to_owned().into());
            }
            continue;
        }
        let file = opened.map_err(|error| format!("{error}; name a file in a folder that can be written"))?;
        let metadata = |file: &File| file.metadata().map_err(|error| format!("{error}; name another place"));
        if !metadata(&file)?.is_file() {
            return Err("it is not a file; name one".to_owned().into());
        }
        let file = OwnFile::lock(file).map_err(|_| Refused::Written)?;
        if !is_at(&file, path) {
            continue;
        }
        // The previous holder of the lock may have written to the file after it was opened.
        let len = metadata(&file)?.len();
        if len == 0 || !file.has_no_lock && is_unused(&file, len, layout) {
            let before = match put_aside {
                Some(previous) => Before::EarlierRun(previous),
                None if is_new => Before::Nothing,
                None => Before::Unused,
            };
            return Ok(Taken { file, before });
        }
        if !is_recorder(&file) {
            let problem = "a file of that name exists and is not a flight recorder's; name another one";
            return Err(problem.to_owned().into());
        }
        let mut previous = path.as_os_str().to_owned();
        previous.push(".previous");
        let previous = PathBuf::from(previous);
        // The file from two runs ago is replaced, and frees its room.
        let freed = fs::symlink_metadata(&previous).map_or(0, |there| there.len());
        has_room(&file, layout, freed).map_err(|error| no_room(layout, &error))?;
        // A file with that name is replaced if it is from an earlier run.
        let is_free = match fs::symlink_metadata(&previous) {
            Ok(there) => there.is_file() && File::open(&previous).is_ok_and(|file| is_recorder(&file)),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if !is_free {
            return Err(format!(
                "the file of an earlier run cannot be renamed: `{}` is not a flight recorder's file; move one of the two",
                previous.display()
            )
            .into());
        }
        fs::rename(path, &previous)
            .map_err(|error| format!("the file of an earlier run cannot be renamed: {error}; remove it"))?;
        put_aside = Some(previous);
    }
    Err("other processes create files of that name at the same time; name another one".to_owned().into())
}

fn is_recorder(file: &File) -> bool {
    let mut first = [0; MAGIC.len()];
    file.read_exact_at(&mut first, 0).is_ok() && first == MAGIC
}

/// Whether a recorder created this file of `len` bytes and was killed, or its machine lost power, before it recorded anything: the
/// header is complete or missing, and the rest is zeros. A file of zeros is a recorder's if it has the requested length.
fn is_unused(file: &File, len: u64, layout: &Layout) -> bool {
    let mut header = vec![0; HEADER_BYTES.min(len) as usize];
    file.read_exact_at(&mut header, 0).is_ok()
        && (header.starts_with(&MAGIC) || len == layout.file_bytes() && header.iter().all(|byte| *byte == 0))
        && is_zero(file, HEADER_BYTES, len).unwrap_or(false)
}

/// Whether all bytes between the two positions are zero.
fn is_zero(file: &File, begin: u64, end: u64) -> io::Result<bool> {
    let mut bytes = vec![0; 1 << 20];
    let mut at = begin;
    while at < end {
        // Skips room that was reserved and never written.
        match disk::next_data(file, at) {
            Some(data) => at = data,
            None => return Ok(true),
        }
        let count = end.saturating_sub(at).min(bytes.len() as u64);
        let part = &mut bytes[..count as usize];
        file.read_exact_at(part, at)?;
        if part.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += count.max(1);
    }
    Ok(true)
}

/// Returns the message that the recorder's bytes cannot be reserved, with the remedy.
fn no_room(layout: &Layout, error: &io::Error) -> String {
    let megabytes = layout.file_bytes().div_ceil(1 << 20);
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            format!("there is no room for its {megabytes} MiB ({error}); make it smaller, or name another place")
        }
        _ => format!("its {megabytes} MiB cannot be written: {error}; name another place"),
    }
}

/// Checks that the disk has room for the whole file once `freed` more bytes are free.
fn has_room(file: &File, layout: &Layout, freed: u64) -> io::Result<()> {
    let bytes = layout.file_bytes();
    // The check comes before the reservation, which could otherwise take the last room from other programs. A file system without
    // blocks does not report its free room.
    let free = |disk: &rustix::fs::StatVfs| disk.f_bavail.saturating_mul(disk.f_frsize).saturating_add(freed);
    let is_full = |disk: rustix::fs::StatVfs| disk.f_blocks > 0 && free(&disk) < bytes;
    if rustix::fs::fstatvfs(file).is_ok_and(is_full) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    // No file can grow beyond this limit.
    if rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some_and(|most| most < bytes) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(())
}

/// Writes the header and reserves room on the disk for the whole file, so that no later write runs out of it. The header comes
/// first: a process that is killed in between leaves a file that is recognized as a recorder's.
fn reserve(file: &File, layout: &Layout) -> io::Result<()> {
    has_room(file, layout, 0)?;
    file.set_len(0)?;
    file.write_all_at(&layout.to_bytes(), 0)?;
    let bytes = layout.file_bytes();
    if !disk::reserve(file, bytes)? {
        let zeros = vec![0; 1 << 20];
        let mut at = HEADER_BYTES;
        while at < bytes {
            let count = (bytes - at).min(zeros.len() as u64);
            file.write_all_at(&zeros[..count as usize], at)?;
            at += count;
        }
    }
    Ok(())
}

struct Reader<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Reader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if let SeekFrom::Start(at) = to {
            self.at = at;
            return Ok(at);
        }
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_any_more_says_so_with_its_place_and_the_remedy() {
        let path = std::env::temp_dir().join(format!("warpline-refused-{}.flight", std::process::id()));
        let reading = |path: &Path| OwnFile::unlocked(File::open(path).expect("it is there"));
        let ring = RingFile::create(&path, Layout::with_size(256 << 10, 1, "test")).expect("room for it");
        assert_eq!(ring.problem(), None);
        // Behaves like a full disk.
        let refusing = RingFile { file: reading(&path), ..ring };
        for _ in 0..2 {
            refusing.clear(4096).expect_err("it is open for reading alone");
        }
        let problem = refusing.problem().expect("it was refused");
        assert!(problem.contains("refused") && problem.contains("(2 times, at first: "), "{problem}");
        assert!(problem.ends_with("make room on its disk, or name another place"), "{problem}");
        refusing.remove();
    }
}
