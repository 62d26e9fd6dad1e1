//! `warpline dump PID`: the last zones of a program that runs with a flight recorder, as a trace.
//!
//! The program only has its collector flush to the recorder's file. This process reads the file through the program's
//! own file descriptor, which leads to the right file from any folder, in a container, and after a rename.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use warpline_core::recovered::Recovered;

use super::client::Client;
use super::error::ControlError;
use super::{find, flight};
use crate::output;
use crate::output_file::TracePlace;
use crate::recover::{RecoverFileError, describe, recover_file};
use crate::runtime::protocol::ControlRequest;

#[derive(Deserialize)]
struct Flight {
    fd: i32,
    file: String,
    is_fresh: bool,
    /// The writes that failed. Programs with an older warpline do not send them.
    #[serde(default)]
    problems: Vec<String>,
}

/// The result, with a text for people.
pub(crate) struct Dumped {
    pub(crate) found: Recovered,
    pub(crate) file: PathBuf,
    pub(crate) text: String,
}

/// Writes the trace. `on_temporary` is called with the temporary file, which must be removed if this process is killed.
pub(crate) fn dump(
    process: u32,
    output: Option<&Path>,
    on_temporary: impl FnOnce(&Path),
) -> Result<Dumped, ControlError> {
    let output = output.map(|path| find::expand(path, process)).transpose()?;
    let place = TracePlace::new(output.as_deref(), format!("warpline-{process}.last"))?;
    let flight: Flight = Client::ask(process, &ControlRequest::Dump)
        .and_then(|mut client| client.expect("flight"))
        .map_err(|error| match error {
            ControlError::NoProcess { .. } | ControlError::Gone { .. } if find::is_over(process) => {
                ControlError::NothingToDump { process, remedy: flight::remedy_if_ended(process) }
            }
            error => error,
        })?;
    let file = PathBuf::from(format!("/proc/{process}/fd/{}", flight.fd));
    let (found, path) = recover_file(&file, &place, on_temporary).map_err(|error| match error {
        RecoverFileError::Place(error) => ControlError::Place(error),
        error => ControlError::Dump { process, file: output::printable(&flight.file), error: Box::new(error) },
    })?;
    let (mut text, file) = (describe(&found, &path), PathBuf::from(&flight.file));
    if !flight.is_fresh {
        text +=
            "the program did not write its latest zones in time, so they may be missing: a sink may be blocking it\n";
    }
    flight.problems.iter().for_each(|problem| text += &format!("warning: {}\n", output::printable(problem)));
    text += &output::open_it(&path);
    Ok(Dumped { found, file, text })
}
