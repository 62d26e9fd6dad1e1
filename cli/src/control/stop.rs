//! `warpline stop PID`: ends what was asked for from outside, and nothing of the program's own.

use serde::Deserialize;

use super::client::Client;
use super::error::ControlError;
use crate::runtime::protocol::Request;

#[derive(Deserialize)]
struct Stopped {
    ended: u64,
}

/// What was ended.
pub(crate) fn stop(process: u32) -> Result<String, ControlError> {
    let stopped: Stopped = Client::ask(process, &Request::Stop)?.expect("stopped")?;
    Ok(match stopped.ended {
        0 => format!("process {process} was asked for nothing; what it records for itself goes on\n"),
        ended => format!("process {process}: {ended} ended; what it records for itself goes on\n"),
    })
}
