//! `warpline ps`: the programs of this user that listen.

use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use warpline::__private::protocol::Request;

use super::client::{Client, ControlError};
use super::find;
use super::find::Found;
use super::status::Status;
use crate::output::{self, Column};

/// Who waits longer is told for whom.
const PATIENCE: Duration = Duration::from_secs(1);

/// A program and what it says of itself, or why it says nothing.
struct Program {
    found: Found,
    status: Result<Status, ControlError>,
}

impl Program {
    fn command(&self) -> Option<String> {
        let is_here = !self.found.is_elsewhere;
        is_here.then(|| find::command(self.found.owner.process)).flatten()
    }

    fn row(&self) -> Vec<String> {
        let process = self.found.owner.process;
        let number = if self.found.is_elsewhere { format!("{process} (in a container)") } else { process.to_string() };
        let (state, ranges, namespaces, program) = match &self.status {
            Ok(status) => {
                let program = find::file_name(&status.program).to_owned();
                (status.state(), status.ranges.to_string(), status.namespaces.join(", "), program)
            }
            Err(ControlError::NoAnswer { .. }) => {
                ("does not answer".to_owned(), String::new(), String::new(), String::new())
            }
            Err(error) => (error.to_string(), String::new(), String::new(), String::new()),
        };
        let row = [number, state, ranges, namespaces, self.command().unwrap_or(program)];
        row.iter().map(|text| output::printable(text)).collect()
    }

    fn json(&self) -> Value {
        let (status, error) = match &self.status {
            Ok(status) => (serde_json::to_value(status).unwrap_or_default(), None),
            Err(error) => (Value::Null, Some(error.to_string())),
        };
        json!({
            "process": self.found.owner.process,
            "in_another_namespace": self.found.is_elsewhere,
            "command": self.command(),
            "status": status,
            "error": error,
        })
    }
}

/// The text, or the same as JSON, and what kept from looking somewhere.
pub(crate) fn ps(json: bool, on_terminal: bool) -> (String, Vec<String>) {
    let (found, faults) = find::all();
    let programs = ask(found);
    if json {
        let programs: Vec<_> = programs.iter().map(Program::json).collect();
        return (output::json(&programs), faults);
    }
    if programs.is_empty() {
        return ("no program of this user listens; start one with `WARPLINE=control`\n".to_owned(), faults);
    }
    let columns = vec![
        Column::whole("pid"),
        Column::words("state"),
        Column::whole("ranges").left_out(1),
        Column::words("namespaces").left_out(2),
        Column::words("command"),
    ];
    let listed = output::counted(programs.len() as u64, "program");
    let (table, without) = output::fitted(columns, programs.iter().map(Program::row).collect(), on_terminal);
    (format!("{table}\n\n{listed}{without}\n"), faults)
}

/// Asks all at once: one that does not answer takes some seconds, and ten of them take no longer.
fn ask(found: Vec<Found>) -> Vec<Program> {
    let (say, said) = mpsc::channel();
    let mut waiting: Vec<u32> = found.iter().map(|found| found.owner.process).collect();
    for (at, found) in found.into_iter().enumerate() {
        let say = say.clone();
        std::thread::spawn(move || {
            let process = found.owner.process;
            let status =
                Client::ask_at(process, &found.socket, &Request::Status).and_then(|mut client| client.expect("status"));
            let _ = say.send((at, Program { found, status }));
        });
    }
    drop(say);
    let (mut programs, mut is_told) = (Vec::new(), false);
    loop {
        let next = if is_told { said.recv().map_err(|_| None) } else { said.recv_timeout(PATIENCE).map_err(Some) };
        match next {
            Ok((at, program)) => {
                waiting.retain(|process| *process != program.found.owner.process);
                programs.push((at, program));
            }
            Err(Some(mpsc::RecvTimeoutError::Timeout)) => {
                is_told = true;
                let waiting: Vec<_> = waiting.iter().map(u32::to_string).collect();
                output::complain(format_args!("waiting some seconds for an answer of process {}", waiting.join(", ")));
            }
            Err(_) => break,
        }
    }
    programs.sort_by_key(|(at, _)| *at);
    // One that ended while it was looked at is none.
    let is_there = |program: &Program| !matches!(program.status, Err(ControlError::Gone { .. }));
    programs.into_iter().map(|(_, program)| program).filter(is_there).collect()
}
