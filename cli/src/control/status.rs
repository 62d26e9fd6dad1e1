//! `warpline status PID`: the identity of a program, and what it records now.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::client::Client;
use super::error::ControlError;
use super::find;
use crate::output;
use crate::runtime::protocol::ControlRequest;

/// What a program reports about itself.
#[derive(Deserialize, Serialize)]
pub(super) struct Status {
    pub(super) version: String,
    pub(super) program: String,
    pub(super) ranges: u64,
    pub(super) namespaces: Vec<String>,
    pub(super) state: String,
    pub(super) recordings: u64,
    pub(super) watchers: u64,
    pub(super) zones: Option<Zones>,
    /// Also none for programs with an older warpline.
    pub(super) flight: Option<Flight>,
}

/// Its flight recorder.
#[derive(Deserialize, Serialize)]
pub(super) struct Flight {
    file: String,
    problems: Vec<String>,
}

#[derive(Clone, Deserialize, Serialize)]
pub(super) struct Zones {
    pub(super) begun: u64,
    pub(super) recorded: u64,
    pub(super) captured: u64,
    pub(super) dropped: serde_json::Map<String, Value>,
    pub(super) on_their_way: u64,
}

impl Zones {
    /// How many were dropped, for whatever reason.
    pub(super) fn lost(&self) -> u64 {
        self.dropped.values().filter_map(Value::as_u64).sum()
    }

    /// The reasons, for people.
    pub(super) fn reasons(&self) -> String {
        let reasons: Vec<_> =
            self.dropped.iter().map(|(reason, count)| format!("{} {count}", output::printable(reason))).collect();
        if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) }
    }
}

impl Status {
    /// The current recordings, in a few words.
    pub(super) fn state(&self) -> String {
        let mut state = match self.state.as_str() {
            "idle" => "records nothing".to_owned(),
            "recording" => "records for itself".to_owned(),
            "stopped" => "stopped by itself".to_owned(),
            _ => String::new(),
        };
        for (number, what) in [(self.recordings, "recording"), (self.watchers, "watcher")] {
            if number > 0 {
                let comma = if state.is_empty() { "" } else { ", " };
                state += &format!("{comma}{}", output::counted(number, what));
            }
        }
        if state.is_empty() { "about to end a recording".to_owned() } else { state }
    }
}

/// The text, or the same as JSON.
pub(crate) fn status(process: u32, json: bool) -> Result<String, ControlError> {
    let status: Status = Client::ask(process, &ControlRequest::Status)?.expect("status")?;
    if json {
        return Ok(output::json(&status));
    }
    let program = find::command(process).unwrap_or_else(|| status.program.clone());
    let mut text = format!("process {process}: {}\n", output::printable(&program));
    let (version, names) = (output::printable(&status.version), output::printable(&status.namespaces.join(", ")));
    text += &format!("  warpline {version}, {} in {names}\n", output::counted(status.ranges, "range"));
    text += &format!("  {}\n", status.state());
    if let Some(zones) = &status.zones {
        let Zones { begun, recorded, captured, on_their_way, .. } = zones;
        text += &format!("  {} begun, {recorded} recorded", output::counted(*begun, "zone"));
        if *captured > 0 {
            text += &format!(", {captured} captured into graphs");
        }
        text += &format!(", {} dropped{}, {on_their_way} on their way\n", zones.lost(), zones.reasons());
    }
    if let Some(flight) = &status.flight {
        text += &format!("  flight recorder in {}\n", output::printable(&flight.file));
        flight.problems.iter().for_each(|problem| text += &format!("  warning: {}\n", output::printable(problem)));
    }
    Ok(text)
}
