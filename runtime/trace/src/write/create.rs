//! Creates the file for a sink that the program constructs itself.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::claim::FileClaim;
use crate::files::own::OwnFile;
use warpline_core::file_name;
use warpline_core::stderr;

/// Creates the file. If its name differs from the requested one, a line on standard error reports this.
pub(super) fn create(path: &Path) -> io::Result<(PathBuf, OwnFile)> {
    let expanded = file_name::expand(path).map_err(|problem| {
        let text = format!("the trace file `{}` {problem}", path.display());
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    let created = FileClaim::acquire(&expanded).and_then(|claim| {
        claim.notice().into_iter().for_each(stderr::line);
        Ok((claim.path().to_owned(), claim.begin()?))
    });
    created.map_err(|error| {
        let path = expanded.display();
        let remedy = if error.get_ref().is_some() { "" } else { "; name a folder that can be written" };
        let text = format!("cannot create the trace file `{path}`: {error}{remedy}");
        io::Error::new(error.kind(), text)
    })
}
