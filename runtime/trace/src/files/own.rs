//! Files that one session writes and no other.
//!
//! `claim` opens them for the sinks, and the flight recorder opens its own. The lock is advisory (`flock`) and belongs to the open file,
//! so a forked process that starts a session meets the lock of its parent. It ends with the session, also while a forked process
//! still has the file open. Where there is no `flock`, files are written without a lock.
//!
//! A write ends no program with a signal, and waits for no reader of a pipe. It fails once somebody has removed, replaced or cut
//! the file, which is said on standard error at once.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, Instant};

use super::system;
use super::watch::{FileWatch, Loss};
use warpline_core::fork::NotInChildren;
use warpline_core::process::Process;
use warpline_core::signals::without_signals;
use warpline_core::stderr;

/// At the end, a reader of a pipe that takes nothing is waited for so long, and all of them together so long.
const STALLED: Duration = Duration::from_secs(1);
const AT_MOST: Duration = Duration::from_secs(4);

/// A file that is open for writing, and locked until it is dropped.
pub struct OwnFile {
    /// A forked process that lives longer than this one does not keep the lock.
    _not_in_children: NotInChildren,
    file: File,
    /// In a process that was forked from this one, the lock is not the process's to release.
    process: Process,
    /// The file system has no locks.
    pub(crate) has_no_lock: bool,
    /// Of a regular file that a sink writes from its beginning.
    watch: Option<FileWatch>,
    /// It takes no more.
    loss: Option<Loss>,
    /// Until then, a write waits for the reader of a pipe.
    patient_until: Option<Instant>,
}

/// Who writes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Nobody else: it is locked now, or needs no lock.
    Us,
    Another,
    /// The file system has no locks.
    Unknown,
}

impl OwnFile {
    /// Takes the file's lock, if its file system has locks, without waiting.
    ///
    /// # Errors
    /// The file, where another session has the lock.
    pub(crate) fn lock(file: File) -> Result<OwnFile, File> {
        OwnFile::lock_by(file, try_lock)
    }

    pub(super) fn lock_by(file: File, try_lock: fn(&File) -> Writer) -> Result<OwnFile, File> {
        let writer = try_lock(&file);
        match writer {
            Writer::Us | Writer::Unknown => {
                let mut file = OwnFile::unlocked(file);
                file.has_no_lock = writer == Writer::Unknown;
                Ok(file)
            }
            Writer::Another => Err(file),
        }
    }

    /// A file that needs no lock: a device, or a pipe.
    pub(crate) fn unlocked(file: File) -> OwnFile {
        OwnFile {
            _not_in_children: NotInChildren::new(&file),
            file,
            process: Process::this(),
            has_no_lock: false,
            watch: None,
            loss: None,
            patient_until: None,
        }
    }

    /// From now on, somebody who removes or cuts the file is noticed. It is an empty regular file.
    pub(crate) fn watch(&mut self, path: &Path) {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.watch = Some(FileWatch::new(path, &self.file));
    }

    /// Whether the file still takes bytes, and all that was written to it is still there. What has happened to it is said on standard
    /// error, once.
    ///
    /// # Errors
    /// What has happened to it.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        if let (None, Some(watch)) = (self.loss, &self.watch) {
            self.loss = watch.look(&self.file);
            if let Some(loss) = self.loss {
                stderr::line(format_args!("`{}` {loss}", watch.path.display()));
            }
        }
        let kind = |loss| if loss == Loss::NoReader { "pipe" } else { "file" };
        self.loss.map_or(Ok(()), |loss| Err(io::Error::other(format!("the {} {loss}", kind(loss)))))
    }

    /// The same for those who look again and again: an error that was known before is none.
    pub(crate) fn look_again(&mut self) -> io::Result<()> {
        if self.loss.is_none() { self.look() } else { Ok(()) }
    }

    /// Whether nothing that was written to it can be read any more, as far as that is known.
    pub(crate) fn has_lost_all(&self) -> bool {
        matches!(self.loss, Some(Loss::Removed | Loss::Changed))
    }

    /// From now on, a write waits for a slow reader of a pipe, for some seconds in all. Otherwise it fails with
    /// [`io::ErrorKind::WouldBlock`].
    pub(crate) fn wait_for_reader(&mut self) {
        self.patient_until = Some(Instant::now() + AT_MOST);
    }

    /// Cuts it, or makes it longer.
    ///
    /// # Errors
    /// That of the operating system, or what somebody has done to the file.
    pub(crate) fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.look()?;
        without_signals(|| self.file.set_len(len))?;
        if let Some(watch) = &mut self.watch {
            watch.set_len(len);
        }
        Ok(())
    }

    /// Writes once what the file takes now.
    fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match without_signals(|| self.file.write(bytes)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.patient_until.is_some() => {
                    self.wait_for_room()?;
                }
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    // Another reader that comes later would get a trace without its middle.
                    self.loss = Some(Loss::NoReader);
                    return self.look().map(|()| 0);
                }
                written => return written,
            }
        }
    }

    /// Waits until the reader of a pipe has taken something.
    fn wait_for_room(&self) -> io::Result<()> {
        let left = self.patient_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        if system::wait_for_room(&self.file, left.min(STALLED))? {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the reader of the pipe is too slow; use a faster one, or a file"))
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if self.process.is_this() {
            system::unlock(&self.file);
        }
    }
}

impl Deref for OwnFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Write for OwnFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.look()?;
        let written = self.write_once(bytes)?;
        if let Some(watch) = &mut self.watch {
            watch.wrote(written);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for OwnFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = self.file.seek(to)?;
        if let Some(watch) = &mut self.watch {
            watch.sought(at);
        }
        Ok(at)
    }
}

/// Takes the file's lock, without waiting.
pub(super) fn try_lock(file: &File) -> Writer {
    match system::try_lock(file) {
        Ok(true) => Writer::Us,
        Ok(false) => Writer::Another,
        // Not every file system has locks.
        Err(_) => Writer::Unknown,
    }
}
