//! `warpline ps`: the programs of this user that listen.

use warpline::__private::protocol::Request;

use super::client::{Client, ControlError};
use super::status::Status;
use super::{count, find};
use crate::output;

/// The text, and what kept from looking somewhere.
pub(crate) fn ps(on_terminal: bool) -> (String, Vec<String>) {
    let (found, faults) = find::all();
    let mut table = output::sheet(["pid", "state", "ranges", "namespaces", "command"], on_terminal);
    let mut listed = 0;
    for program in found {
        let process = program.owner.process;
        let asked =
            Client::ask_at(process, &program.socket, &Request::Status).and_then(|mut client| client.expect("status"));
        let status: Status = match asked {
            Ok(status) => status,
            // It ended while it was looked at.
            Err(ControlError::Gone { .. }) => continue,
            Err(error) => {
                let command = find::command(process).unwrap_or_default();
                let row = [process.to_string(), error.to_string(), String::new(), String::new(), command];
                table.add_row(row.map(|text| output::printable(&text)));
                listed += 1;
                continue;
            }
        };
        let command = if program.is_elsewhere { None } else { find::command(process) };
        let number = if program.is_elsewhere { format!("{process} (in a container)") } else { process.to_string() };
        let row = [
            number,
            status.state(),
            status.ranges.to_string(),
            status.namespaces.join(", "),
            command.unwrap_or_else(|| find::file_name(&status.program).to_owned()),
        ];
        table.add_row(row.map(|text| output::printable(&text)));
        listed += 1;
    }
    if listed == 0 {
        return ("no program of this user listens; start one with `WARPLINE=control`\n".to_owned(), faults);
    }
    (format!("{}\n\n{}\n", table.trim_fmt(), count(listed, "program")), faults)
}
