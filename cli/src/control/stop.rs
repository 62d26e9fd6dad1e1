//! `warpline stop PID`: ends everything that was requested from outside the program, and leaves its own recording
//! alone.

use serde::Deserialize;

use super::client::Client;
use super::error::ControlError;
use crate::output;
use crate::runtime::protocol::ControlRequest;

#[derive(Deserialize)]
struct Stopped {
    ended: u64,
}

/// Ends everything that was requested from outside, and says how much that was.
pub(crate) fn stop(process: u32) -> Result<String, ControlError> {
    let stopped: Stopped = Client::ask(process, &ControlRequest::Stop)?.expect("stopped")?;
    Ok(match stopped.ended {
        0 => format!("process {process} had no requests from outside; its own recording continues\n"),
        ended => {
            format!("process {process}: {} ended; its own recording continues\n", output::counted(ended, "request"))
        }
    })
}
