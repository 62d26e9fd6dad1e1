//! The completions for shells and the pages for `man`, made from the definition of the command's arguments. The command
//! `warpline-ranks` has the same two.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap_complete::Shell;

use crate::args::Warpline;
use crate::output::{self, OutputError};

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShellError {
    #[error("cannot write the manual pages into {}: {error}; name a folder that can be written", path.display())]
    Man { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Prints the completions for a shell.
///
/// # Errors
/// They cannot be written.
pub(crate) fn completions(shell: Shell) -> Result<(), ShellError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Warpline::grouped(), "warpline", &mut script);
    Ok(output::write_script(&script)?)
}

/// Writes a manual page for each command.
///
/// # Errors
/// The folder cannot be made or written.
pub(crate) fn man(folder: &Path) -> Result<(), ShellError> {
    let pages = || {
        fs::create_dir_all(folder)?;
        // The commands are not grouped: a page lists them as clap does.
        clap_mangen::generate_to(Warpline::definition(), folder)
    };
    pages().map_err(|error| ShellError::Man { path: folder.to_owned(), error })
}
