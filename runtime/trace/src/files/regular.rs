//! Opens a regular file for reading. It refuses a pipe at once and never waits for a writer.

use std::fs::File;
use std::io;
use std::path::Path;

use super::system::never_block;

/// Opens a regular file, or a link to one; none where something else has its name. What is opened is what was looked at, whatever takes the name
/// meanwhile.
///
/// # Errors
/// Those of the system.
pub fn regular(path: &Path) -> io::Result<Option<File>> {
    let mut options = File::options();
    options.read(true);
    never_block(&mut options);
    let file = options.open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn only_a_regular_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| folder.path().join(name));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(regular(&file).unwrap().is_some() && regular(&link).unwrap().is_some());
        assert!(regular(&pipe).unwrap().is_none() && regular(folder.path()).unwrap().is_none());
        assert!(regular(Path::new("/dev/null")).unwrap().is_none() && regular(&folder.path().join("none")).is_err());
    }
}
