//! Opens, locks and checks the files that a session is asked to write, before the first byte of any of them changes.
//!
//! A session claims all its files first. Dropping a claim leaves the file unchanged, and removes a file that the claim created. A
//! file that another session writes, in this process or another, is never touched: the trace is written to a file with the process
//! id in its name. On a file system without locks, it is unknown whether an existing trace is being written, so that trace is not
//! touched either.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::own::{OwnFile, Writer, try_lock};
use super::system::{self, is_at};
use warpline_core::file_name;

/// The number of names to try before giving up.
const ATTEMPTS: u32 = 1_000;

/// Why a trace gets a different name.
const IS_WRITTEN: &str = "another trace is being written to it";
const MAY_BE_WRITTEN: &str = "its file system has no locks, so another process may be writing it";

/// A locked file that is still unchanged. A file created for the claim is removed if the session does not start.
pub struct FileClaim {
    /// None once `begin` has returned the file.
    file: Option<OwnFile>,
    /// The actual path and the requested path.
    path: PathBuf,
    asked: PathBuf,
    is_new: bool,
    /// Whether the file system lacks locks.
    has_no_lock: bool,
    /// Whether the file is neither a device nor a pipe: it is locked, and has a length.
    is_regular: bool,
}

impl FileClaim {
    /// Opens or creates the file and locks it. Uses a different name if another session writes, or may be writing, the file.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn acquire(asked: &Path) -> io::Result<FileClaim> {
        FileClaim::by(asked, try_lock)
    }

    fn by(asked: &Path, try_lock: fn(&File) -> Writer) -> io::Result<FileClaim> {
        // Another process may remove the file between two steps.
        for _ in 0..8 {
            let (file, is_new) = open_or_make(asked)?;
            if !file.metadata()?.is_file() {
                return Ok(FileClaim::new(OwnFile::unlocked(file), asked, asked, is_new, false));
            }
            match OwnFile::lock_by(file, try_lock) {
                // Only one process creates a file. If the file already exists, another process may be writing it.
                Ok(file) if file.has_no_lock && !is_new => {
                    return FileClaim::of_process(asked, MAY_BE_WRITTEN, try_lock);
                }
                Ok(file) if is_at(&file, asked) => return Ok(FileClaim::new(file, asked, asked, is_new, true)),
                Ok(_) => {}
                Err(_) => return FileClaim::of_process(asked, IS_WRITTEN, try_lock),
            }
        }
        FileClaim::of_process(asked, IS_WRITTEN, try_lock)
    }

    /// Creates a file with the process id in its name. Never overwrites an existing file.
    fn of_process(asked: &Path, why: &str, try_lock: fn(&File) -> Writer) -> io::Result<FileClaim> {
        for attempt in 1..=ATTEMPTS {
            let path = file_name::of_process(asked, attempt);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    if let Ok(file) = OwnFile::lock_by(file, try_lock) {
                        return Ok(FileClaim::new(file, &path, asked, true, true));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let path = path.display();
                    let text = format!("{why}, and `{path}` cannot be created: {error}; choose another path");
                    return Err(io::Error::new(error.kind(), text));
                }
            }
        }
        let text = "other traces are being written to it and to every name beside it; choose another path";
        Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
    }

    fn new(file: OwnFile, path: &Path, asked: &Path, is_new: bool, is_regular: bool) -> FileClaim {
        let has_no_lock = file.has_no_lock;
        FileClaim { file: Some(file), path: path.to_owned(), asked: asked.to_owned(), is_new, has_no_lock, is_regular }
    }

    /// Returns the actual path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a regular file, not a device or a pipe.
    pub fn is_regular(&self) -> bool {
        self.is_regular
    }

    /// Returns the notice for the user if the file is not the requested one.
    pub fn notice(&self) -> Option<String> {
        let notice = if self.has_no_lock { notice_without_locks } else { notice };
        (self.path != self.asked).then(|| notice(&self.asked, &self.path))
    }

    /// Empties the file and returns it.
    ///
    /// # Errors
    /// The file cannot be emptied.
    pub fn begin(mut self) -> io::Result<OwnFile> {
        let gone = || io::Error::other("the file was given away before");
        if self.is_regular {
            let file = self.file.as_mut().ok_or_else(gone)?;
            file.set_len(0)?;
            file.watch(&self.path);
        }
        self.file.take().ok_or_else(gone)
    }
}

impl Drop for FileClaim {
    fn drop(&mut self) {
        if let (Some(file), true) = (&self.file, self.is_new)
            && is_at(file, &self.path)
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the notice that a trace is in a different file than requested.
pub fn notice(asked: &Path, path: &Path) -> String {
    let remedy = match has_process_id(asked) {
        true => "give the traces of one process different names to choose it",
        false => "put `{pid}` or `{rank}` into the name to choose it",
    };
    let (asked, path) = (asked.display(), path.display());
    format!("another trace is being written to `{asked}`; this one is written to `{path}`; {remedy}")
}

/// Returns whether the name has the id of this process in it, as `{pid}` gives it.
fn has_process_id(path: &Path) -> bool {
    let id = std::process::id().to_string();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split(|c: char| !c.is_ascii_digit()).any(|number| number == id)
}

/// Like [`notice`], for a file system that cannot report whether the file is in use.
fn notice_without_locks(asked: &Path, path: &Path) -> String {
    let remedy = match has_process_id(asked) {
        true => "write to another name",
        false => "put `{pid}` or `{rank}` into the name",
    };
    format!(
        "`{}` is left as it is, because its file system has no locks and another process may be writing it; this trace is written \
         to `{}`; remove the file, or {remedy}",
        asked.display(),
        path.display()
    )
}

/// Opens or creates the file, and returns whether it was created. A pipe without a reader is an error, and a pipe with a reader
/// never blocks a write.
fn open_or_make(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.write(true);
    system::never_block(&mut options);
    match options.create_new(true).open(path) {
        // Uses `create` because the path may be a link to a file that does not exist yet.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let opened = options.create_new(false).create(true).truncate(false).open(path);
            opened
                .map(|file| (file, false))
                .map_err(|error| if system::is_pipe(path) { no_reader(error) } else { error })
        }
        made => made.map(|file| (file, true)),
    }
}

/// Adds the remedy to the error of opening a pipe without a reader.
fn no_reader(error: io::Error) -> io::Error {
    if system::says_no_reader(&error) {
        return io::Error::other("it is a pipe that no process reads; start the reader before this program");
    }
    error
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Write;

    use super::*;

    /// Whether another session has the lock of the file with this name.
    fn is_written(path: &Path) -> bool {
        OpenOptions::new().write(true).open(path).is_ok_and(|file| OwnFile::lock(file).is_err())
    }

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("warpline-own-{}-{test}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn a_name_that_has_the_process_id_gets_no_advice_to_add_it() {
        let (pid, to) = (std::process::id(), Path::new("t.7.json"));
        let advice = "put `{pid}` or `{rank}` into the name";
        for name in ["t.json", &format!("t.{pid}7.json"), "run.7/t.json"] {
            assert!(notice(Path::new(name), to).ends_with(&format!("; {advice} to choose it")), "{name}");
            assert!(notice_without_locks(Path::new(name), to).ends_with(&format!("; remove the file, or {advice}")));
        }
        for name in [format!("t.{pid}.json"), format!("a/{pid}")] {
            let other = "; give the traces of one process different names to choose it";
            assert!(notice(Path::new(&name), to).ends_with(other), "{name}");
            assert!(
                notice_without_locks(Path::new(&name), to).ends_with("; remove the file, or write to another name")
            );
        }
    }

    #[test]
    fn a_file_that_is_being_written_is_left_alone() {
        let folder = folder("left_alone");
        let path = folder.join("t.json");
        fs::write(&path, "of an earlier run").expect("it can be written");
        let first = FileClaim::acquire(&path).expect("it is there");
        assert_eq!((first.path(), first.notice()), (path.as_path(), None));
        assert_eq!(fs::read(&path).expect("it is there"), b"of an earlier run", "nothing begins yet");
        let mut first = first.begin().expect("it is ours");
        first.write_all(b"first").expect("there is room");
        let [second, third] = [(); 2].map(|()| FileClaim::acquire(&path).expect("a name is free"));
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
        assert_eq!(
            FileClaim::acquire(&path).expect("it is free").begin().expect("it is ours").metadata().expect("it").len(),
            0
        );
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn the_lock_ends_with_the_writer_also_while_a_copy_of_the_file_is_open() {
        let folder = folder("ends");
        let path = folder.join("t.json");
        let first = FileClaim::acquire(&path).expect("it can be made").begin().expect("it is new");
        // A forked process has such a copy.
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
        let claim = || FileClaim::by(&path, |_| Writer::Unknown).expect("a name is free");
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
        // The name is so long that no process id fits in.
        let path = folder.join(format!("{}.json", "t".repeat(248)));
        let first = FileClaim::acquire(&path).expect("it can be made");
        let error = FileClaim::acquire(&path).err().expect("it is taken").to_string();
        assert!(error.starts_with("another trace is being written to it, and `"), "{error}");
        assert!(error.contains(&format!(".{}.json` cannot be created: ", std::process::id())), "{error}");
        drop(first);
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn devices_are_no_files_to_lock() {
        let null = || FileClaim::acquire(Path::new("/dev/null")).expect("it is there");
        let (first, second) = (null(), null());
        assert!(first.notice().is_none() && second.notice().is_none() && !first.is_regular());
        assert!(first.begin().is_ok() && second.begin().is_ok());
        assert!(Path::new("/dev/null").exists());
    }
}
