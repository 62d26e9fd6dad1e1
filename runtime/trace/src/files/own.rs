//! Files that only one session writes.
//!
//! `claim` opens them for the sinks, and the flight recorder opens its own. The lock is advisory (`flock`) and belongs to the open
//! file, so a forked process that starts a session finds its parent's lock. The lock ends with the session, even if a forked
//! process still has the file open. Without `flock`, files are written without a lock.
//!
//! A write raises no signal that ends the program, and does not wait for the reader of a pipe. A write fails once another program
//! has removed, replaced or truncated the file, and standard error reports this at once.

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

/// At the end, the longest wait for a reader of a pipe that reads nothing, and the longest total wait for the reader.
const STALLED: Duration = Duration::from_secs(1);
const AT_MOST: Duration = Duration::from_secs(4);

/// A file that is open for writing and locked until it is dropped.
pub struct OwnFile {
    /// Ensures that a forked process that outlives this one does not keep the lock.
    _not_in_children: NotInChildren,
    file: File,
    /// The process that took the lock. A process forked from it must not release the lock.
    process: Process,
    /// Whether the file system lacks locks.
    pub(crate) has_no_lock: bool,
    /// The watch of a regular file that a sink writes from its beginning.
    watch: Option<FileWatch>,
    /// Why the file takes no more bytes.
    loss: Option<Loss>,
    /// The time until which a write waits for the reader of a pipe.
    patient_until: Option<Instant>,
}

/// The writer of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// This session alone: the file is now locked, or needs no lock.
    Us,
    Another,
    /// Unknown: the file system has no locks.
    Unknown,
}

impl OwnFile {
    /// Takes the file's lock without waiting, if the file system has locks.
    ///
    /// # Errors
    /// Returns the file if another session has the lock.
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

    /// Wraps a file that needs no lock: a device or a pipe.
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

    /// Watches for removal and truncation from now on. The file must be regular and empty.
    pub(crate) fn watch(&mut self, path: &Path) {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.watch = Some(FileWatch::new(path, &self.file));
    }

    /// Checks that the file still takes bytes and still has everything that was written to it. Standard error reports a loss once.
    ///
    /// # Errors
    /// What happened to the file.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        if let (None, Some(watch)) = (self.loss, &self.watch) {
            self.loss = watch.check(&self.file);
            if let Some(loss) = self.loss {
                stderr::line(format_args!("`{}` {loss}", watch.path.display()));
            }
        }
        let kind = |loss| if loss == Loss::NoReader { "pipe" } else { "file" };
        self.loss.map_or(Ok(()), |loss| Err(io::Error::other(format!("the {} {loss}", kind(loss)))))
    }

    /// Like [`check`](Self::check), for callers that check repeatedly: returns an error only the first time.
    pub(crate) fn check_again(&mut self) -> io::Result<()> {
        if self.loss.is_none() { self.check() } else { Ok(()) }
    }

    /// Whether everything written to the file is known to be unreadable.
    pub(crate) fn has_lost_all(&self) -> bool {
        matches!(self.loss, Some(Loss::Removed | Loss::Changed))
    }

    /// Makes later writes wait for a slow reader of a pipe, for a few seconds in total. Without this, such a write fails with
    /// [`io::ErrorKind::WouldBlock`].
    pub fn wait_for_reader(&mut self) {
        self.patient_until = Some(Instant::now() + AT_MOST);
    }

    /// Truncates or extends the file.
    ///
    /// # Errors
    /// The error of the operating system, or what happened to the file.
    pub(crate) fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.check()?;
        without_signals(|| self.file.set_len(len))?;
        if let Some(watch) = &mut self.watch {
            watch.set_len(len);
        }
        Ok(())
    }

    /// Writes once, as many bytes as the file takes now.
    fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match without_signals(|| self.file.write(bytes)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.patient_until.is_some() => {
                    self.wait_for_room()?;
                }
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    // A later reader would get a trace with a gap.
                    self.loss = Some(Loss::NoReader);
                    return self.check().map(|()| 0);
                }
                written => return written,
            }
        }
    }

    /// Waits until the reader of a pipe has read something.
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
        self.check()?;
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

/// Takes the file's lock without waiting.
pub(super) fn try_lock(file: &File) -> Writer {
    match system::try_lock(file) {
        Ok(true) => Writer::Us,
        Ok(false) => Writer::Another,
        // Not every file system has locks.
        Err(_) => Writer::Unknown,
    }
}
