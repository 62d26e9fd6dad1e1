//! By paths, which are looked at before they are opened: these systems let only administrators make links.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::is_a_link;

/// A folder.
#[derive(Debug)]
pub(in super::super) struct Beneath {
    path: PathBuf,
}

impl Beneath {
    /// Opens the folder of all ranks.
    pub(in super::super) fn root(path: &Path) -> io::Result<Beneath> {
        fs::metadata(path).map(|_| Beneath { path: path.to_owned() })
    }

    /// Where it was opened.
    pub(in super::super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a folder in it, and makes it before if there is none.
    pub(in super::super) fn enter(&self, name: &str) -> io::Result<Beneath> {
        let path = self.no_link(name)?;
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(Beneath { path }),
        }
    }

    /// Whether there is anything of this name.
    pub(in super::super) fn has(&self, name: &str) -> bool {
        self.path.join(name).symlink_metadata().is_ok()
    }

    /// Makes a file, or empties the one that is there.
    pub(in super::super) fn create(&self, name: &str) -> io::Result<File> {
        File::create(self.no_link(name)?)
    }

    /// Opens a file that is there, to write over it.
    pub(in super::super) fn file(&self, name: &str) -> io::Result<File> {
        File::options().write(true).open(self.no_link(name)?)
    }

    /// Gives a file another name, in place of the file that has it.
    pub(in super::super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    /// Removes a file; a link itself, and not what it leads to.
    pub(in super::super) fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn no_link(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        if path.is_symlink() { Err(is_a_link()) } else { Ok(path) }
    }
}
