//! Opens each folder through the folder above it, so a link that is created in the meantime is not followed either.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};

use libc::c_int;

use super::is_a_link;

/// A folder only has to be searched, where a system knows the difference.
#[cfg(any(target_os = "linux", target_os = "android"))]
const SEARCH: c_int = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const SEARCH: c_int = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;

/// An open folder. Whatever happens to its path, its files are in this folder.
#[derive(Debug)]
pub(in super::super) struct Beneath {
    folder: File,
    path: PathBuf,
}

impl Beneath {
    /// Opens the folder of all ranks.
    pub(in super::super) fn root(path: &Path) -> io::Result<Beneath> {
        use std::os::unix::fs::OpenOptionsExt;
        let folder = File::options().read(true).custom_flags(SEARCH).open(path)?;
        Ok(Beneath { folder, path: path.to_owned() })
    }

    /// Where it was opened.
    pub(in super::super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a folder in it, and makes it before if there is none.
    pub(in super::super) fn enter(&self, name: &str) -> io::Result<Beneath> {
        let open = || self.open(name, SEARCH);
        let folder = open().or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let path = c_name(name)?;
                // SAFETY: the folder is open and the name is a C string; both outlive the call.
                let made = unsafe { libc::mkdirat(self.folder.as_raw_fd(), path.as_ptr(), 0o777) };
                match outcome(made) {
                    // Another rank made it at the same time.
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => open(),
                }
            }
            _ => Err(error),
        })?;
        Ok(Beneath { folder, path: self.path.join(name) })
    }

    /// Whether there is anything of this name.
    pub(in super::super) fn has(&self, name: &str) -> bool {
        let Ok(path) = c_name(name) else { return false };
        let mut facts = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the folder is open, the name is a C string, and the call writes to `facts` alone.
        let found = unsafe {
            libc::fstatat(self.folder.as_raw_fd(), path.as_ptr(), facts.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW)
        };
        found == 0
    }

    /// Makes a file, or empties the one that is there.
    pub(in super::super) fn create(&self, name: &str) -> io::Result<File> {
        self.open(name, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC)
    }

    /// Opens a file that is there, to write over it. A pipe or a device counts as missing: to open a pipe would wait for its reader.
    pub(in super::super) fn file(&self, name: &str) -> io::Result<File> {
        let file = match self.open(name, libc::O_WRONLY | libc::O_NONBLOCK | libc::O_CLOEXEC) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Err(io::ErrorKind::NotFound.into()),
            opened => opened?,
        };
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Gives a file another name, in place of the file that has it.
    pub(in super::super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (folder, from, to) = (self.folder.as_raw_fd(), c_name(from)?, c_name(to)?);
        // SAFETY: the folder is open and the names are C strings; all outlive the call.
        outcome(unsafe { libc::renameat(folder, from.as_ptr(), folder, to.as_ptr()) }).map(drop)
    }

    /// Removes a file; a link itself, and not what it leads to.
    pub(in super::super) fn remove(&self, name: &str) -> io::Result<()> {
        let path = c_name(name)?;
        // SAFETY: the folder is open and the name is a C string; both outlive the call.
        outcome(unsafe { libc::unlinkat(self.folder.as_raw_fd(), path.as_ptr(), 0) }).map(drop)
    }

    fn open(&self, name: &str, flags: c_int) -> io::Result<File> {
        let path = c_name(name)?;
        let mode: libc::c_uint = 0o666;
        // SAFETY: the folder is open and the name is a C string; both outlive the call.
        let file = unsafe { libc::openat(self.folder.as_raw_fd(), path.as_ptr(), flags | libc::O_NOFOLLOW, mode) };
        match outcome(file) {
            // SAFETY: the call has opened it, and nobody else has it.
            Ok(file) => Ok(unsafe { File::from_raw_fd(file) }),
            Err(_) if self.path.join(name).is_symlink() => Err(is_a_link()),
            Err(error) => Err(error),
        }
    }
}

fn c_name(name: &str) -> io::Result<CString> {
    CString::new(name).map_err(io::Error::other)
}

fn outcome(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
