//! Commands that another program of this project carries out: `warpline ranks` is `warpline-ranks`, and
//! `warpline query` is its `query`. That program needs a newer Rust and has hundreds of crates, so it is built
//! separately. The arguments are passed on unchanged, and this command exits with its status.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// A program that carries out commands of this one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    /// Its name.
    pub(crate) name: &'static str,
    /// What `--help` prints if the program was not found: for the program, and for its command `query`. Its tests
    /// compare the names.
    help: &'static str,
    help_of_query: &'static str,
    /// How to build it in a checkout, and where it is then.
    build: &'static str,
    built: &'static str,
}

/// The program that reads the tables of many ranks, and answers SQL.
pub(crate) const RANKS: Program = Program {
    name: "warpline-ranks",
    help: include_str!("hand_over/ranks.txt"),
    help_of_query: include_str!("hand_over/query.txt"),
    build: "cargo build --release --manifest-path ranks/Cargo.toml",
    built: "ranks/target/release",
};

/// Why the program did not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandOverError {
    /// The program was not found.
    #[error(
        "`{}` is not in the folder of `warpline`, and not on the PATH; build it in a checkout of warpline with `{}`, and add `{}` to the PATH",
        .0.name, .0.build, .0.built
    )]
    NotFound(Program),
    /// The program was found, and the system does not run it.
    #[error("`{}` does not start: {error}; check its permissions, or build it anew with `{}`", path.display(), program.build)]
    NotStarted {
        /// The program.
        program: Program,
        /// Where it is.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
}

/// Runs the program with these arguments. On Unix it takes the place of this process, so this returns only if it does
/// not start; elsewhere this returns its exit status. Without the program, `--help` still lists its commands.
///
/// # Errors
/// The program is not found, or does not start.
pub(crate) fn run(program: Program, arguments: &[OsString]) -> Result<u8, HandOverError> {
    let Some(path) = find(program) else {
        if let Some(help) = program.help(arguments) {
            // A closed pipe is not an error.
            let _ = writeln!(std::io::stdout().lock(), "{help}");
        }
        return Err(HandOverError::NotFound(program));
    };
    let mut command = Command::new(&path);
    command.args(arguments);
    started(&mut command).map_err(|error| HandOverError::NotStarted { program, path, error })
}

impl Program {
    /// Returns the list for arguments that ask for help.
    fn help(self, arguments: &[OsString]) -> Option<&'static str> {
        let of_query = arguments.first().is_some_and(|first| first == "query");
        let asks = arguments.iter().any(|argument| argument == "--help" || argument == "-h")
            || arguments.first().is_none_or(|first| first == "help");
        asks.then_some(if of_query { self.help_of_query } else { self.help })
    }
}

#[cfg(unix)]
fn started(command: &mut Command) -> Result<u8, std::io::Error> {
    Err(std::os::unix::process::CommandExt::exec(command))
}

#[cfg(not(unix))]
fn started(command: &mut Command) -> Result<u8, std::io::Error> {
    // A status that does not fit into a byte is a failure too.
    Ok(command.status()?.code().map_or(u8::MAX, |code| u8::try_from(code).unwrap_or(u8::MAX)))
}

/// The program beside this one, or the first one on the PATH. An installed command may be a link: what it points to
/// counts too.
fn find(program: Program) -> Option<PathBuf> {
    let name = format!("{}{}", program.name, std::env::consts::EXE_SUFFIX);
    let this = std::env::current_exe().ok();
    let real = this.as_ref().and_then(|this| this.canonicalize().ok());
    let beside = [this, real].into_iter().flatten().filter_map(|this| Some(this.parent()?.to_owned()));
    // An empty part of the PATH is the current folder, from which nothing is run unasked.
    let on_path =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    let on_path = on_path.into_iter().filter(|folder| folder.is_absolute());
    beside.chain(on_path).map(|folder| folder.join(&name)).find(|path| path.is_file())
}
