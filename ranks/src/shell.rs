//! The completions for shells and the pages for `man`, made from the definition of the command's arguments. The command
//! `warpline` has the same two.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Subcommand;
use clap_complete::Shell as Name;

/// The commands about the command itself.
#[derive(Subcommand)]
pub(crate) enum Shell {
    /// Print the completions for a shell: `source <(warpline-ranks completions bash)`.
    Completions {
        /// The shell.
        shell: Name,
    },
    /// Write a manual page for each command into a folder: `man -l FOLDER/warpline-ranks.1`.
    Man {
        /// The folder; it is created if it is missing.
        folder: PathBuf,
    },
}

impl Shell {
    /// Writes the completions or the manual pages.
    ///
    /// # Errors
    /// The folder or standard output cannot be written.
    pub(crate) fn write(self, mut command: clap::Command) -> io::Result<()> {
        match self {
            Shell::Completions { shell } => {
                let mut script = Vec::new();
                let name = command.get_name().to_owned();
                clap_complete::generate(shell, &mut command, name, &mut script);
                match io::stdout().write_all(&script) {
                    Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
                    _ => Ok(()),
                }
            }
            Shell::Man { folder } => {
                let named = |error: io::Error| {
                    io::Error::new(error.kind(), format!("cannot write `{}`: {error}", folder.display()))
                };
                std::fs::create_dir_all(&folder)
                    .and_then(|()| clap_mangen::generate_to(command, &folder))
                    .map_err(named)
            }
        }
    }
}
