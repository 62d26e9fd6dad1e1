//! `warpline ps`: the programs of this user that listen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::Client;
use super::error::ControlError;
use super::find::{self, All, Found};
use super::status::Status;
use crate::output::{self, Column};
use crate::runtime::protocol::ControlRequest;
use crate::runtime::socket::ProcessView;

/// After this time a message names the programs that have not answered.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many programs are asked at one time. Each takes a file descriptor.
const AT_ONCE: usize = 256;

/// The time for all programs together. Those that have not replied by then count as not answering.
const ALL_WITHIN: Duration = Duration::from_secs(12);

/// A program with its status, or why there is none.
struct Program {
    found: Found,
    /// Its process number, if the kernel and the socket's name agree on it.
    process: Option<u32>,
    command: Option<String>,
    status: Result<Status, ControlError>,
}

impl Program {
    fn row(&self) -> Vec<String> {
        let number = match self.process {
            Some(process) if self.found.is_elsewhere => format!("{process} (in a container)"),
            Some(process) => process.to_string(),
            // The number is not confirmed, so the socket is shown.
            None => self.found.socket.display().to_string(),
        };
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
        vec![number, state, ranges, namespaces, self.command.clone().unwrap_or(program)]
    }

    fn json(&self) -> Value {
        let (status, error) = match &self.status {
            Ok(status) => (serde_json::to_value(status).unwrap_or_default(), None),
            Err(error) => (Value::Null, Some(error.to_string())),
        };
        json!({
            "process": self.process,
            "socket": self.found.socket.display().to_string(),
            "in_another_namespace": self.found.is_elsewhere,
            "command": self.command,
            "status": status,
            "error": error,
        })
    }
}

/// The list as text or JSON, and why directories could not be searched.
pub(crate) fn ps(json: bool, on_terminal: bool) -> Result<(String, Vec<String>), ControlError> {
    let All { found, here, faults } = find::all()?;
    let programs = ask(found, here)?;
    if json {
        let programs: Vec<_> = programs.iter().map(Program::json).collect();
        return Ok((output::json(&programs), faults));
    }
    if programs.is_empty() {
        return Ok(("no program of this user listens; start one with `WARPLINE=control`\n".to_owned(), faults));
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
    Ok((format!("{table}\n\n{listed}{without}\n"), faults))
}

/// Asks the programs in parallel: ten that do not answer take no longer than one.
fn ask(found: Vec<Found>, here: Option<ProcessView>) -> Result<Vec<Program>, ControlError> {
    let until = Instant::now() + ALL_WITHIN;
    let (say, said) = mpsc::channel();
    let mut waiting: Vec<Option<Found>> = found.iter().cloned().map(Some).collect();
    let (all, here) = (Arc::new((found, AtomicUsize::new(0))), Arc::new(here));
    for _ in 0..all.0.len().min(AT_ONCE) {
        let (all, here, say) = (Arc::clone(&all), Arc::clone(&here), say.clone());
        let asks = move || {
            let (found, next) = &*all;
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(found) = found.get(at) else { return };
                if say.send((at, query(found.clone(), here.as_ref().as_ref()))).is_err() {
                    return;
                }
            }
        };
        // With fewer threads it takes longer.
        if thread::Builder::new().spawn(asks).is_err() {
            break;
        }
    }
    drop(say);
    let (mut programs, mut has_complained) = (Vec::new(), false);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match said.recv_timeout(if has_complained { left } else { left.min(PATIENCE) }) {
            Ok((at, program)) => {
                waiting[at] = None;
                programs.push((at, program));
            }
            Err(RecvTimeoutError::Timeout) if !has_complained => {
                has_complained = true;
                complain_of(waiting.iter().flatten());
            }
            Err(_) => break,
        }
    }
    let silent = waiting.into_iter().enumerate().filter_map(|(at, found)| Some((at, found?)));
    programs.extend(silent.map(|(at, found)| {
        let (process, remedy) = (found.owner.process, "try again".to_owned());
        (at, Program { found, process: None, command: None, status: Err(ControlError::NoAnswer { process, remedy }) })
    }));
    programs.sort_by_key(|(at, _)| *at);
    let mut listed = Vec::new();
    for (_, program) in programs {
        match program.status {
            // It has ended meanwhile.
            Err(ControlError::Gone { .. }) => {}
            // This process's own fault, not the program's.
            Err(error @ ControlError::Descriptors { .. }) => return Err(error),
            _ => listed.push(program),
        }
    }
    Ok(listed)
}

/// Names the programs that have not answered yet.
fn complain_of<'a>(waiting: impl Iterator<Item = &'a Found> + Clone) {
    const NAMED: usize = 8;
    let mut names: Vec<_> = waiting.clone().take(NAMED).map(|found| found.owner.process.to_string()).collect();
    let more = waiting.count().saturating_sub(NAMED);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    output::complain(format_args!("waiting some seconds for an answer of process {}", names.join(", ")));
}

/// Asks one program, and compares the name of its socket with what the kernel says.
fn query(found: Found, here: Option<&ProcessView>) -> Program {
    let claimed = found.owner.process;
    let (mut client, listener) = match Client::connect(claimed, &found.socket) {
        Ok(connected) => connected,
        Err(error) => return Program { found, process: None, command: None, status: Err(error) },
    };
    let shown = listener.zip(here).and_then(|(listener, here)| here.find(listener));
    let process = match &shown {
        Some((process, seen)) if seen.is(&found.owner) => Some(*process),
        Some(_) => {
            let error = ControlError::Other { process: claimed, socket: found.socket.clone(), listener };
            return Program { found, process: None, command: None, status: Err(error) };
        }
        // It runs in a PID namespace that is not visible, or `/proc` does not show it.
        None => None,
    };
    process.into_iter().for_each(|process| client.is_process(process));
    client.send(&ControlRequest::Status);
    let status = client.expect("status");
    Program { command: process.and_then(find::command), process, found, status }
}
