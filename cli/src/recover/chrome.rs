//! Converts an unfinished Chrome trace to a document that strict parsers read.
//!
//! While a session runs, its Chrome trace is an array without an end. The complete events are copied byte for byte into
//! an object with `traceEvents`; the members that follow the events of a finished trace are taken from the event
//! `warpline_session`. Truncated objects of other tools are closed in the same way. Memory is bounded by the largest
//! event, plus 16 MiB for all members.

use std::io::{self, BufRead, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_json::value::RawValue;
use warpline_trace::read::document::{Broken, Document, MAX_VALUE, Piece, Position};

use super::{RecoverFileError, open_packed};
use crate::inputs;
use crate::output;
use crate::output_file::{self, PlaceError, TracePlace};
use crate::trace;

/// The event with the facts of a session that are known at its start.
const SESSION: &str = "warpline_session";

/// The events of the process and the session are among the first of the trace.
const FIRST: u64 = 16;

/// The result of a recovery.
#[derive(Debug, Default)]
pub(super) struct Found {
    events: u64,
    process: Option<(u32, String)>,
    /// The arguments of the session's event.
    session: Option<Value>,
    /// Where the trace is truncated or damaged: the rest is left out.
    pub(super) cut: Option<Position>,
    /// Nothing is missing.
    is_whole: bool,
}

/// Whether the file is JSON, and not the file of a flight recorder.
pub(super) fn is_json(path: &Path) -> bool {
    let mut begin = Vec::new();
    // The command refuses anything that is not a file, such as a pipe, with the reason.
    let file = open_packed(path).ok().and_then(|file| inputs::unpacked(file).ok());
    let read = file.and_then(|file| file.take(64).read_to_end(&mut begin).ok());
    read.is_some() && trace::is_json(&begin)
}

/// Whether an output has the name of a Chrome trace.
pub(super) fn is_named(output: &Path) -> bool {
    output.as_os_str().to_string_lossy().to_lowercase().ends_with(".json")
}

/// The output for this trace. `{pid}` in the name stands for the recorded process.
///
/// # Errors
/// The name is not one of a Chrome trace, or is that of the input.
pub(super) fn place(path: &Path, output: &Path) -> Result<TracePlace, RecoverFileError> {
    let mut process = std::process::id();
    if output.to_string_lossy().contains("{pid}") {
        // The file is read twice in this case, because the output is opened before the file is read.
        let found = copy(path, &mut io::sink(), output)?;
        process = found.process.map_or(process, |(id, _)| id);
    }
    let output = output_file::expand(output, process, |name| std::env::var(name).ok())?;
    if !is_named(&output) {
        return Err(RecoverFileError::Ending { path: output });
    }
    if let (Ok(path), Ok(output)) = (path.canonicalize(), output.canonicalize())
        && path == output
    {
        return Err(RecoverFileError::Same { path });
    }
    Ok(TracePlace::Named(output))
}

/// Recovers into a temporary file beside the output, and renames it when it is complete. `on_temporary` gets the path
/// of the temporary file.
///
/// # Errors
/// Why there is no document. No partial output is left.
pub(super) fn recover_file(
    path: &Path,
    place: &TracePlace,
    on_temporary: impl FnOnce(&Path),
) -> Result<(Found, PathBuf), RecoverFileError> {
    let unfinished = place.begin()?;
    on_temporary(unfinished.path());
    let mut out = BufWriter::with_capacity(1 << 20, unfinished.as_file());
    let found = copy(path, &mut out, &place.wanted())?;
    drop(out);
    let refused = |why| Err(RecoverFileError::Chrome { path: path.to_owned(), why });
    if found.is_whole {
        return refused("the trace is complete; open it directly".to_owned());
    }
    if found.events == 0 {
        return refused("it contains no events; name a Chrome trace, or the file of a flight recorder".to_owned());
    }
    Ok((found, place.keep(unfinished)?))
}

/// Copies the complete events and members to `out`.
fn copy(path: &Path, out: &mut impl Write, output: &Path) -> Result<Found, RecoverFileError> {
    let path = path.to_owned();
    let bar = inputs::bar(std::slice::from_ref(&path), "recovering");
    let file = open_packed(&path)?;
    let copied = inputs::unpacked(bar.wrap_read(file)).map_err(Fault::Read).and_then(|file| copy_document(file, out));
    bar.finish_and_clear();
    copied.map_err(|fault| match fault {
        Fault::Write(error) => PlaceError::Write { path: output.to_owned(), error }.into(),
        Fault::Read(error) => RecoverFileError::Open { path, error },
        Fault::NoTrace(why) => RecoverFileError::Chrome { path, why: format!("not a Chrome trace: {why}") },
    })
}

/// Recovers a trace without a file, for the fuzz targets and the attacks. Returns the number of events, and whether the
/// input was complete.
///
/// # Errors
/// Why the input is not a trace.
pub fn recover(input: impl BufRead, out: &mut impl Write) -> Result<(u64, bool), String> {
    match copy_document(input, out) {
        Ok(found) => Ok((found.events, found.is_whole)),
        Err(Fault::Read(error) | Fault::Write(error)) => Err(error.to_string()),
        Err(Fault::NoTrace(why)) => Err(why.to_owned()),
    }
}

enum Fault {
    Read(io::Error),
    Write(io::Error),
    NoTrace(&'static str),
}

fn copy_document(input: impl BufRead, out: &mut impl Write) -> Result<Found, Fault> {
    let mut document = Document::new(input).may_be_cut();
    let mut found = Found::default();
    let mut members = Members::default();
    out.write_all(b"{\"traceEvents\":[\n").map_err(Fault::Write)?;
    loop {
        let is_taken = match document.next_piece() {
            Ok(None) => {
                found.cut = document.cut();
                break;
            }
            Ok(Some(Piece::Events)) => true,
            Ok(Some(Piece::Member(name, value))) => members.copy(name, value),
            Ok(Some(Piece::Event(bytes))) if is_value(bytes) => {
                let comma: &[u8] = if found.events == 0 { b"" } else { b",\n" };
                [comma, bytes].into_iter().try_for_each(|bytes| out.write_all(bytes)).map_err(Fault::Write)?;
                found.event(bytes);
                true
            }
            Ok(Some(Piece::Event(_))) => false,
            Err(Broken::Wrong(at, _) | Broken::Short(at) | Broken::TooLarge(at)) => {
                found.cut = Some(at);
                break;
            }
            Err(Broken::NoTrace(why)) => return Err(Fault::NoTrace(why)),
            // The compressed file is cut or damaged.
            Err(Broken::Io(error)) if found.events > 0 && inputs::is_damage(&error) => {
                found.cut = Some(document.place());
                break;
            }
            Err(Broken::Io(error)) => return Err(Fault::Read(error)),
            Err(Broken::TooLong(_)) => return Err(Fault::NoTrace("it is too long")),
        };
        if !is_taken {
            found.cut = Some(document.place());
            break;
        }
    }
    found.is_whole = !document.is_array() && found.cut.is_none() && found.events > 0;
    if let Some(session) = &found.session {
        members.complete(session);
    }
    let end = [b"\n]", &members.text[..], b"}\n"];
    end.into_iter().try_for_each(|bytes| out.write_all(bytes)).and_then(|()| out.flush()).map_err(Fault::Write)?;
    Ok(found)
}

fn is_value(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok()
}

impl Found {
    /// Counts an event, and keeps the facts of the process and the session.
    fn event(&mut self, bytes: &[u8]) {
        self.events += 1;
        if self.events > FIRST || (self.process.is_some() && self.session.is_some()) {
            return;
        }
        let Ok(mut event) = serde_json::from_slice::<Value>(bytes) else { return };
        if event["ph"] != "M" {
            return;
        }
        let process = event["pid"].as_u64().and_then(|id| u32::try_from(id).ok());
        match (event["name"].as_str(), process) {
            (Some("process_name"), Some(id)) if self.process.is_none() => {
                let name = event["args"]["name"].as_str().unwrap_or_default().to_owned();
                self.process = Some((id, name));
            }
            (Some(SESSION), _) => self.session = Some(event["args"].take()),
            _ => {}
        }
    }
}

/// The members that follow the events of the document, each with its leading comma.
#[derive(Default)]
struct Members {
    text: Vec<u8>,
    names: Vec<Vec<u8>>,
}

impl Members {
    /// Copies a member unchanged, if it is JSON and not too large.
    fn copy(&mut self, name: &[u8], value: &[u8]) -> bool {
        let is_taken = is_value(name) && is_value(value) && self.text.len() + name.len() + value.len() <= MAX_VALUE;
        if is_taken {
            self.text.extend([b",\n", name, b":", value].concat());
            self.names.push(name.to_owned());
        }
        is_taken
    }

    /// Adds the members that a finished trace of this session would have.
    fn complete(&mut self, session: &Value) {
        let rank = session["rank"].as_u64().unwrap_or(0);
        let members = [
            ("\"schemaVersion\"", Some("1".to_owned())),
            ("\"displayTimeUnit\"", Some("\"ns\"".to_owned())),
            ("\"baseTimeNanoseconds\"", session["baseTimeNanoseconds"].as_i64().map(|ns| ns.to_string())),
            // HolisticTraceAnalysis looks for the space.
            ("\"distributedInfo\"", Some(format!("{{\"rank\": {rank}}}"))),
        ];
        for (name, value) in members {
            if let (Some(value), false) = (value, self.names.iter().any(|there| there == name.as_bytes())) {
                self.text.extend(format!(",\n{name}:{value}").into_bytes());
            }
        }
    }
}

/// A line that says what was found.
pub(super) fn describe(found: &Found, output: &Path) -> String {
    let events = output::counted(found.events, "event");
    let of = match &found.process {
        Some((id, name)) => format!(" of {name} (process {id})"),
        None => String::new(),
    };
    output::printable(&format!("{}: {events}{of}", output.display())) + "\n"
}
