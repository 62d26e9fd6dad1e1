//! The file of a flight recorder as the session writes it.
//!
//! It is written with positioned writes instead of a mapping: what a write has stored belongs to the operating system and survives
//! `kill -9` as a mapping would, and neither a full disk nor a truncated file can end the program with a signal. Room on the disk is
//! reserved at the start. The file is locked: a second process records into a file with its process id in the name.

#[cfg_attr(not(target_os = "linux"), path = "file/other_disk.rs")]
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

pub struct RingFile {
    file: OwnFile,
    before: Before,
    /// How often it was not written, and why the first time.
    refused: Mutex<(u64, String)>,
    is_cut: AtomicBool,
    is_removed: AtomicBool,
    is_elsewhere: AtomicBool,
    pub path: PathBuf,
    pub layout: Layout,
}

impl RingFile {
    /// Makes the file, all of it; with the process id in its name where another session records into the file that was asked
    /// for. The file of an earlier session goes to `….previous`: it may be all that is left of a program that was killed.
    ///
    /// # Errors
    /// What is in the way, and the remedy.
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

    /// Leaves what was there before: the session does not start.
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

    /// Writes at that place of the file.
    pub fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        without_signals(|| self.file.write_all_at(bytes, at)).inspect_err(|error| {
            let mut refused = lock(&self.refused);
            refused.0 += 1;
            if refused.0 == 1 {
                refused.1 = error.to_string();
            }
        })
    }

    /// Why something is missing in it, where it could not be written.
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

    /// Says that the piece that begins there is whole.
    pub fn commit(&self, at: u64, header: PieceHeader) -> io::Result<()> {
        self.write_at(at, &header.to_bytes())
    }

    /// Says that nothing begins there.
    pub fn clear(&self, at: u64) -> io::Result<()> {
        self.write_at(at, &[0; PIECE_HEADER])
    }

    /// Reads it from the beginning, beside whoever writes.
    pub fn reader(&self) -> impl Read + Seek + '_ {
        Reader { file: &self.file, at: 0 }
    }

    /// The number of the open file in this process.
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Looks whether somebody has cut the file since, removed it or moved it. The collector does so, which writes it anyway: a disk
    /// that hangs keeps nobody else.
    pub fn look(&self) {
        if let Ok(there) = self.file.metadata() {
            self.is_cut.fetch_or(there.len() < self.layout.file_bytes(), Ordering::Relaxed);
            self.is_removed.fetch_or(there.nlink() == 0, Ordering::Relaxed);
        }
        self.is_elsewhere.store(!is_at(&self.file, &self.path), Ordering::Relaxed);
    }

    /// What somebody had done to the file at the last look, with the remedy.
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

    /// Whether pieces may be missing that were written.
    pub(crate) fn is_harmed(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed) || self.is_removed.load(Ordering::Relaxed)
    }

    /// Whether there is a file in which pieces can be found.
    pub(crate) fn is_readable(&self) -> bool {
        let header = self.layout.to_bytes();
        !self.is_removed.load(Ordering::Relaxed) && self.read(0, header.len()).is_some_and(|there| there == header)
    }

    /// Whether the piece of this number, which begins there, is whole.
    pub(crate) fn has_piece(&self, at: u64, sequence: u64) -> bool {
        let header = self.read(at, PIECE_HEADER);
        let header = header.and_then(|bytes| PieceHeader::read(bytes.first_chunk()?));
        let is_it = |header: &PieceHeader| header.sequence == sequence && header.len <= self.layout.segment;
        header.filter(is_it).is_some_and(|header| {
            let content = self.read(at + PIECE_HEADER as u64, header.len as usize);
            content.is_some_and(|content| crc32fast::hash(&content) == header.checksum)
        })
    }

    /// So many bytes of it; none where it does not have them.
    fn read(&self, at: u64, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
    }

    /// Removes the file, if it is still there under its name.
    pub fn remove(&self) {
        if is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// So many names are tried before it is given up.
const ATTEMPTS: u32 = 1_000;

/// A file that nobody else has.
struct Taken {
    file: OwnFile,
    before: Before,
}

/// What stood under the file's name before.
enum Before {
    Nothing,
    /// An empty file, or one of a process that was killed before it recorded anything.
    Unused,
    /// The file of an earlier run, which is there now.
    EarlierRun(PathBuf),
}

/// Why a file cannot be the recorder's.
enum Refused {
    /// Another session records into it.
    Written,
    /// What is in the way, and the remedy.
    For(String),
}

impl From<String> for Refused {
    fn from(problem: String) -> Refused {
        Refused::For(problem)
    }
}

/// A file under this name, which nobody else has and which holds nothing. What an earlier session has left is only put aside where
/// there is room for a new one.
fn take(path: &Path, layout: &Layout) -> Result<Taken, Refused> {
    let mut put_aside = None;
    // Somebody may rename the file between two steps.
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
            // Whoever made such a link says where the file would be made: nobody else's folder is written to.
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
        // Whoever had the lock before may have written to it since it was opened.
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
        // The file of two runs ago goes, and leaves its room.
        let freed = fs::symlink_metadata(&previous).map_or(0, |there| there.len());
        has_room(&file, layout, freed).map_err(|error| no_room(layout, &error))?;
        // What stands there makes room, if it is of an earlier run.
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

/// Whether a recorder has made the file of so many bytes and was killed, or its machine lost power, before it recorded anything:
/// there is a header or none yet, and nothing behind it. A file of zeros is a recorder's if it is as long as the one that is asked for.
fn is_unused(file: &File, len: u64, layout: &Layout) -> bool {
    let mut header = vec![0; HEADER_BYTES.min(len) as usize];
    file.read_exact_at(&mut header, 0).is_ok()
        && (header.starts_with(&MAGIC) || len == layout.file_bytes() && header.iter().all(|byte| *byte == 0))
        && is_zero(file, HEADER_BYTES, len).unwrap_or(false)
}

/// Whether there is nothing but zeros between the two places.
fn is_zero(file: &File, begin: u64, end: u64) -> io::Result<bool> {
    let mut bytes = vec![0; 1 << 20];
    let mut at = begin;
    while at < end {
        // Room that was taken and never written is skipped.
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

/// That the recorder's bytes cannot be had, and the remedy.
fn no_room(layout: &Layout, error: &io::Error) -> String {
    let megabytes = layout.file_bytes().div_ceil(1 << 20);
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            format!("there is no room for its {megabytes} MiB ({error}); make it smaller, or name another place")
        }
        _ => format!("its {megabytes} MiB cannot be written: {error}; name another place"),
    }
}

/// Whether the disk has room for all of it, once so many bytes more are free.
fn has_room(file: &File, layout: &Layout, freed: u64) -> io::Result<()> {
    let bytes = layout.file_bytes();
    // Asked first, because taking all that is left would take it from others meanwhile.
    // A file system that has no blocks does not say how much is free.
    let free = |disk: &rustix::fs::StatVfs| disk.f_bavail.saturating_mul(disk.f_frsize).saturating_add(freed);
    let is_full = |disk: rustix::fs::StatVfs| disk.f_blocks > 0 && free(&disk) < bytes;
    if rustix::fs::fstatvfs(file).is_ok_and(is_full) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    // No file grows beyond this limit.
    if rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some_and(|most| most < bytes) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(())
}

/// Writes the header, and takes the disk's room for all of it, so that no later write finds none. The header comes first: a process that
/// is killed in between leaves a file that is known to be a recorder's.
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
        // What a full disk does, without one.
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
