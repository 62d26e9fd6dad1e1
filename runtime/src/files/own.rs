//! Files that one session writes and no other: locked before the first byte of them is changed.
//!
//! The sinks and the flight recorder open their files here. A file that another session writes, in this process or in another one,
//! is never touched: the trace goes to a file whose name has the process id. The lock is advisory (`flock`) and belongs to the
//! open file, so a forked process that starts a session meets the lock of its parent. It ends with the session, also while a
//! forked process still has the file open. Where the file system has no locks, nobody knows whether a trace that is there is being
//! written, so it is left alone too. Where there is no `flock`, files are written without a lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use super::name;
#[cfg(unix)]
use crate::fork::NotInChildren;
use crate::process::Process;

/// So many names are tried before it is given up.
const ATTEMPTS: u32 = 1_000;

/// Why a trace gets another name.
const IS_WRITTEN: &str = "another trace is being written to it";
const MAY_BE_WRITTEN: &str = "its file system has no locks, so another process may be writing it";

/// A file that is open for writing, and locked until it is dropped.
pub(crate) struct OwnFile {
    /// A forked process that lives longer than this one does not keep the lock.
    #[cfg(unix)]
    _not_in_children: NotInChildren,
    file: File,
    /// In a process that was forked from this one, the lock is not the process's to release.
    process: Process,
    /// The file system has no locks.
    has_no_lock: bool,
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

    fn lock_by(file: File, try_lock: fn(&File) -> Writer) -> Result<OwnFile, File> {
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
            #[cfg(unix)]
            _not_in_children: NotInChildren::of(&file),
            file,
            process: Process::this(),
            has_no_lock: false,
        }
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if self.process.is_this() {
            unlock(&self.file);
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
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for OwnFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// A file that is locked and not changed yet. One that was made for this goes again where nothing begins.
pub(crate) struct Claim {
    /// None once the file is given away.
    file: Option<OwnFile>,
    /// Where it is, and where it was asked for.
    path: PathBuf,
    asked: PathBuf,
    is_new: bool,
    /// The file system has no locks.
    has_no_lock: bool,
    /// No device and no pipe: it is locked, and has a length.
    is_regular: bool,
}

impl Claim {
    /// Opens and locks the file, or makes it; one of another name where another session writes it, or may be writing it.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn of(asked: &Path) -> io::Result<Claim> {
        Claim::by(asked, try_lock)
    }

    fn by(asked: &Path, try_lock: fn(&File) -> Writer) -> io::Result<Claim> {
        // Somebody may remove the file between two steps.
        for _ in 0..8 {
            let (file, is_new) = open_or_make(asked)?;
            if !file.metadata()?.is_file() {
                return Ok(Claim::new(OwnFile::unlocked(file), asked, asked, is_new, false));
            }
            match OwnFile::lock_by(file, try_lock) {
                // Only one process makes a file; whoever finds it does not know whether another one writes it.
                Ok(file) if file.has_no_lock && !is_new => return Claim::of_process(asked, MAY_BE_WRITTEN, try_lock),
                Ok(file) if is_at(&file, asked) => return Ok(Claim::new(file, asked, asked, is_new, true)),
                Ok(_) => {}
                Err(_) => return Claim::of_process(asked, IS_WRITTEN, try_lock),
            }
        }
        Claim::of_process(asked, IS_WRITTEN, try_lock)
    }

    /// Makes a file with the process id in its name. None that is there is written over.
    fn of_process(asked: &Path, why: &str, try_lock: fn(&File) -> Writer) -> io::Result<Claim> {
        for attempt in 1..=ATTEMPTS {
            let path = name::of_process(asked, attempt);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    if let Ok(file) = OwnFile::lock_by(file, try_lock) {
                        return Ok(Claim::new(file, &path, asked, true, true));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let path = path.display();
                    let text = format!("{why}, and `{path}` cannot be made: {error}");
                    return Err(io::Error::new(error.kind(), text));
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "another trace is being written to it"))
    }

    fn new(file: OwnFile, path: &Path, asked: &Path, is_new: bool, is_regular: bool) -> Claim {
        let has_no_lock = file.has_no_lock;
        Claim { file: Some(file), path: path.to_owned(), asked: asked.to_owned(), is_new, has_no_lock, is_regular }
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a file and not a device or a pipe.
    pub(crate) fn is_regular(&self) -> bool {
        self.is_regular
    }

    /// What the user must know, where the file is not the one that was asked for.
    pub(crate) fn notice(&self) -> Option<String> {
        let notice = if self.has_no_lock { notice_without_locks } else { notice };
        (self.path != self.asked).then(|| notice(&self.asked, &self.path))
    }

    /// Empties the file and gives it away.
    ///
    /// # Errors
    /// It cannot be emptied.
    pub(crate) fn begin(mut self) -> io::Result<OwnFile> {
        let gone = || io::Error::other("the file was given away before");
        if self.is_regular {
            self.file.as_ref().ok_or_else(gone)?.set_len(0)?;
        }
        self.file.take().ok_or_else(gone)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let (Some(file), true) = (&self.file, self.is_new)
            && is_at(file, &self.path)
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// That a trace is in another file than was asked for.
pub(crate) fn notice(asked: &Path, path: &Path) -> String {
    format!(
        "another trace is being written to `{}`; this one is written to `{}`; put `{{pid}}` or `{{rank}}` into the name to \
         choose it",
        asked.display(),
        path.display()
    )
}

/// The same, where the file system does not say whether the file is in use.
fn notice_without_locks(asked: &Path, path: &Path) -> String {
    format!(
        "`{}` is left as it is, because its file system has no locks and another process may be writing it; this trace is written \
         to `{}`; remove the file, or put `{{pid}}` or `{{rank}}` into the name",
        asked.display(),
        path.display()
    )
}

/// The file, and whether it was made here.
fn open_or_make(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.write(true);
    match options.create_new(true).open(path) {
        // `create`, because it may be a link to a file that is not there yet.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.create_new(false).create(true).truncate(false).open(path).map(|file| (file, false))
        }
        made => made.map(|file| (file, true)),
    }
}

/// Whether the open file is the one that has this name now.
#[cfg(unix)]
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let there = fs::metadata(path).map(|there| (there.dev(), there.ino()));
    let ours = file.metadata().map(|ours| (ours.dev(), ours.ino()));
    matches!((there, ours), (Ok(there), Ok(ours)) if there == ours)
}

#[cfg(not(unix))]
pub(crate) fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

/// Whether another session has the lock of the file with this name.
pub(crate) fn is_written(path: &Path) -> bool {
    // NFS locks only what is open for writing.
    OpenOptions::new().write(true).open(path).is_ok_and(|file| OwnFile::lock(file).is_err())
}

#[cfg(unix)]
fn try_lock(file: &File) -> Writer {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::{Errno, retry_on_intr};
    match retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Writer::Us,
        Err(Errno::WOULDBLOCK) => Writer::Another,
        // Not every file system has locks.
        Err(_) => Writer::Unknown,
    }
}

#[cfg(not(unix))]
fn try_lock(_: &File) -> Writer {
    Writer::Us
}

#[cfg(unix)]
fn unlock(file: &File) {
    use rustix::fs::{FlockOperation, flock};
    let _ = flock(file, FlockOperation::Unlock);
}

#[cfg(not(unix))]
fn unlock(_: &File) {}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("warpline-own-{}-{test}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn a_file_that_is_being_written_is_left_alone() {
        let folder = folder("left_alone");
        let path = folder.join("t.json");
        fs::write(&path, "of an earlier run").expect("it can be written");
        let first = Claim::of(&path).expect("it is there");
        assert_eq!((first.path(), first.notice()), (path.as_path(), None));
        assert_eq!(fs::read(&path).expect("it is there"), b"of an earlier run", "nothing begins yet");
        let mut first = first.begin().expect("it is ours");
        first.write_all(b"first").expect("there is room");
        let [second, third] = [(); 2].map(|()| Claim::of(&path).expect("a name is free"));
        let pid = std::process::id();
        assert_eq!(second.path(), folder.join(format!("t.{pid}.json")));
        assert_eq!(third.path(), folder.join(format!("t.{pid}-2.json")));
        let notice = third.notice().expect("it is another name");
        assert!(notice.starts_with(&format!("another trace is being written to `{}`; this one", path.display())));
        third.begin().expect("it is new").write_all(b"third").expect("there is room");
        drop(second);
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        assert_eq!(read("t.json").as_deref(), Some("first"));
        assert_eq!(read(&format!("t.{pid}.json")), None, "one in which nothing began goes again");
        assert_eq!(read(&format!("t.{pid}-2.json")).as_deref(), Some("third"));
        drop(first);
        assert_eq!(Claim::of(&path).expect("it is free").begin().expect("it is ours").metadata().expect("it").len(), 0);
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn the_lock_ends_with_the_writer_also_while_a_copy_of_the_file_is_open() {
        let folder = folder("ends");
        let path = folder.join("t.json");
        let first = Claim::of(&path).expect("it can be made").begin().expect("it is new");
        // What a forked process has.
        let copy = first.try_clone().expect("another descriptor");
        assert!(is_written(&path));
        drop(first);
        assert!(!is_written(&path));
        drop(copy);
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn without_locks_a_file_that_is_there_is_left_alone() {
        let folder = folder("no_locks");
        let path = folder.join("t.json");
        let claim = || Claim::by(&path, |_| Writer::Unknown).expect("a name is free");
        let first = claim();
        assert_eq!((first.path(), first.notice()), (path.as_path(), None));
        first.begin().expect("it is ours").write_all(b"first").expect("there is room");
        let second = claim();
        assert_eq!(second.path(), folder.join(format!("t.{}.json", std::process::id())));
        let notice = second.notice().expect("it is another name");
        assert!(notice.starts_with(&format!("`{}` is left as it is", path.display())), "{notice}");
        second.begin().expect("it is new").write_all(b"second").expect("there is room");
        assert_eq!(fs::read(&path).expect("it is there"), b"first");
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn where_no_other_name_can_be_made_both_files_are_named() {
        let folder = folder("both_named");
        // So long that no process id fits in.
        let path = folder.join(format!("{}.json", "t".repeat(248)));
        let first = Claim::of(&path).expect("it can be made");
        let error = Claim::of(&path).err().expect("it is taken").to_string();
        assert!(error.starts_with("another trace is being written to it, and `"), "{error}");
        assert!(error.contains(&format!(".{}.json` cannot be made: ", std::process::id())), "{error}");
        drop(first);
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn devices_are_no_files_to_lock() {
        let null = || Claim::of(Path::new("/dev/null")).expect("it is there");
        let (first, second) = (null(), null());
        assert!(first.notice().is_none() && second.notice().is_none() && !first.is_regular());
        assert!(first.begin().is_ok() && second.begin().is_ok());
        assert!(Path::new("/dev/null").exists());
    }
}
