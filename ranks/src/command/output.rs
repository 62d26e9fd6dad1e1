//! The output of the command. Names come from ranks, traces and files that are not trusted, and errors echo the user's
//! arguments: control characters and characters that hide or reorder text are escaped, and errors have no secrets. A
//! reader that closes the pipe, such as `head`, is not an error.

use std::io::Write;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use serde::Serialize;
use warpline_core::text::{printable, printable_json, printable_lines};

use super::secrets::hidden;
use crate::error::Error;

/// Prints lines.
pub(super) fn print(text: &str) {
    let _ = std::io::stdout().write_all(printable_lines(text).as_bytes());
}

/// Prints a line on standard error.
pub(super) fn complain(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "warpline-ranks: {}", printable(&hidden(&text.to_string())));
}

pub(super) fn to_json(value: &impl Serialize) -> Result<String, Error> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Error::Asked(format!("cannot write JSON: {error}")))?;
    Ok(printable_json(&text).into_owned() + "\n")
}

/// The arguments of the process. It ends if they are wrong.
pub(super) fn parse<T: CommandFactory + FromArgMatches>() -> T {
    let matches = T::command().try_get_matches();
    matches.and_then(|matches| T::from_arg_matches(&matches)).unwrap_or_else(|error| refuse(T::command(), &error))
}

/// Prints the error as clap does. Clap quotes arguments, so what they hide is hidden and what acts is escaped before it
/// sees them.
fn refuse(definition: clap::Command, error: &clap::Error) -> ! {
    let shown = std::env::args_os().map(|argument| printable(&hidden(&argument.to_string_lossy())).into_owned());
    match definition.try_get_matches_from(shown) {
        Err(shown) => shown.exit(),
        // The lossy conversion made the arguments valid. Such an error quotes nothing.
        Ok(_) if error.kind() == ErrorKind::InvalidUtf8 => error.exit(),
        Ok(_) => {
            complain("an argument contains characters that cannot be shown; see `warpline-ranks --help`");
            std::process::exit(2)
        }
    }
}
