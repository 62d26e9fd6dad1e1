//! `warpline record PID`: a trace of a program that runs.
//!
//! The program sends the trace and this process writes it, so the program touches no file, and the recording ends when
//! this process ends, even by a kill. A limit of time and of bytes ends the recording if the program does not.

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::client::{Client, Reply};
use super::error::ControlError;
use super::packets::{Packets, PieceError};
use super::{find, signals};
use crate::inputs;
use crate::output;
use crate::output_file::{PlaceError, TracePlace};
use crate::runtime::figures::Figures;
use crate::runtime::protocol::ControlRequest;
use warpline_trace::read::document::Limit;

/// A program ends a recording when its time is up. After this additional time it is asked to end it.
const GRACE: Duration = Duration::from_secs(1);

/// The time and the bytes that a program has to end the recording once it is asked to.
const ENDS_WITHIN: Duration = Duration::from_secs(15);
const LAST_BYTES: u64 = 32 << 20;

/// The arguments of a recording.
pub(crate) struct Recording {
    pub(crate) process: u32,
    pub(crate) time: Option<Duration>,
    pub(crate) filter: String,
    pub(crate) kernels: bool,
    /// The recording ends when the program has sent this many bytes.
    pub(crate) limit: u64,
    pub(crate) output: Option<PathBuf>,
}

/// The result of a recording.
pub(crate) struct Recorded {
    /// The trace.
    pub(crate) path: PathBuf,
    /// The text for people.
    pub(crate) text: String,
    /// Whether the trace has everything that was requested.
    pub(crate) is_complete: bool,
    /// The status of the command if a signal ended it.
    pub(crate) cut: Option<u8>,
}

#[derive(Deserialize)]
struct Started {
    session: String,
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct Ended {
    why: String,
    recorded: u64,
    captured: u64,
    dropped: serde_json::Map<String, Value>,
    kernels: u64,
    kernels_lost: u64,
    lost: u64,
    seconds: f64,
    notes: Vec<String>,
    #[serde(default)]
    figures: Value,
}

/// Records.
pub(crate) fn record(recording: &Recording) -> Result<Recorded, ControlError> {
    let process = recording.process;
    let output = recording.output.as_deref().map(|path| find::expand(path, process)).transpose()?;
    let place = TracePlace::for_a_stream(output.as_deref(), format!("warpline-{process}"))?;
    let request = ControlRequest::Record {
        for_ms: recording.time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        filter: recording.filter.clone(),
        kernels: recording.kernels,
    };
    let mut client = Client::ask(process, &request)?;
    let started: Started = client.expect("started")?;
    let stream = client.stream()?;
    // The program records now. Only then is a file created or replaced.
    let (path, file) = place.create()?;
    let cut = signals::end(stream, ENDS_WITHIN);
    let beside = if started.session == "own" { ", beside the program's own session" } else { "" };
    let until = recording.time.map_or(String::new(), |time| format!(" for {} s", time.as_secs_f64()));
    output::complain(format_args!("recording process {process}{until}{beside}; Ctrl-C ends it"));
    started.notes.iter().for_each(|note| output::complain(format_args!("warning: {note}")));
    // The program sends nothing while it has nothing to record.
    client.bound(recording.time.map(|time| time + GRACE), recording.limit);
    let bar = inputs::received();
    let mut trace = Packets::new(BufWriter::new(bar.wrap_write(file)));
    let unwritten = |error| PlaceError::Write { path: path.clone(), error };
    let (mut is_asked, mut is_limited) = (false, false);
    let ended = loop {
        let error = match client.next() {
            Ok(Reply::Trace(piece)) => match trace.write(&piece) {
                Ok(()) => continue,
                Err(PieceError::Write(error)) => return Err(unwritten(error).into()),
                Err(PieceError::NoPacket) => ControlError::Strange { process, what: "no packet of a trace".to_owned() },
            },
            Ok(Reply::Json(value)) if value["is"] == "ended" => match serde_json::from_value::<Ended>(value) {
                Ok(ended) => break ended,
                Err(error) => ControlError::Strange { process, what: error.to_string() },
            },
            Ok(_) => continue,
            Err(error) => error,
        };
        if let ControlError::NoAnswer { .. } | ControlError::TooMuch { .. } = error
            && !std::mem::replace(&mut is_asked, true)
        {
            is_limited = matches!(error, ControlError::TooMuch { .. });
            client.end();
            client.bound(Some(ENDS_WITHIN), LAST_BYTES);
            continue;
        }
        trace.flush().map_err(unwritten)?;
        bar.finish_and_clear();
        return match error {
            ControlError::Gone { .. } => {
                cut.recording_is_over();
                let cut = cut.status();
                let why = if cut.is_some() {
                    "a signal ended it".to_owned()
                } else {
                    format!("process {process} ended meanwhile")
                };
                let text = format!("{why}; the trace has everything up to then, without the final counts\n");
                let text = format!("{}: {text}", output::printable(&path.display().to_string()));
                Ok(Recorded { path, text, is_complete: false, cut })
            }
            ControlError::NoAnswer { .. } | ControlError::TooMuch { .. } => {
                Err(ControlError::Endless { process, file: path })
            }
            error => Err(error),
        };
    };
    trace.flush().map_err(unwritten)?;
    bar.finish_and_clear();
    cut.recording_is_over();
    let mut text = ended.text(process, &path, &started.notes);
    if is_limited {
        let limit = Limit(recording.limit);
        text += &format!("the recording ended at the limit of {limit}; raise it with `--limit`\n");
    }
    Ok(Recorded { path, text, is_complete: !is_limited || recording.time.is_none(), cut: None })
}

impl Ended {
    fn text(&self, process: u32, path: &Path, told: &[String]) -> String {
        let path = output::printable(&path.display().to_string());
        let lost: u64 = self.dropped.values().filter_map(Value::as_u64).sum();
        let mut text = format!("{path}: {} recorded", output::counted(self.recorded, "zone"));
        if self.captured > 0 {
            text += &format!(", {} captured into graphs", self.captured);
        }
        if self.kernels + self.kernels_lost > 0 {
            text += &format!(", {}", output::counted_as(self.kernels, "kernel or copy", "kernels and copies"));
        }
        text += &format!(", {lost} dropped");
        let reasons: Vec<_> =
            self.dropped.iter().map(|(reason, count)| format!("{} {count}", output::printable(reason))).collect();
        if !reasons.is_empty() {
            text += &format!(" ({})", reasons.join(", "));
        }
        text += &format!(" in {:.3} s\n", self.seconds);
        if self.dropped.contains_key("ring_full") {
            text += "zones came faster than they were collected: record fewer with `--filter`, or start the program with \
                     `control,ring=65536`\n";
        }
        if self.kernels_lost > 0 {
            let lost = output::counted_as(self.kernels_lost, "kernel or copy was", "kernels and copies were");
            text += &format!("{lost} dropped\n");
        }
        if self.lost > 0 {
            let lost = output::counted_as(self.lost, "record is", "records are");
            text += &format!("{lost} missing: this machine wrote too slowly; record less with `--filter`\n");
        }
        let mut figures = Figures::from_json(&self.figures);
        for range in &mut figures.ranges {
            range.name = output::printable(&range.name).into();
        }
        let tables = figures.to_string();
        if !tables.is_empty() {
            text += &format!("\n{tables}");
        }
        let why = match self.why.as_str() {
            "session" => format!("process {process} ended its session, and the recording with it\n"),
            "yielded" => format!(
                "process {process} began a session of its own, and ended the recording; record again beside it\n"
            ),
            "stopped" => "somebody ended it with `warpline stop`\n".to_owned(),
            _ => String::new(),
        };
        text += &why;
        let notes = self.notes.iter().filter(|note| !told.contains(note));
        notes.for_each(|note| text += &format!("note: {}\n", output::printable(note)));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_counted_in_the_singular_and_in_the_plural() {
        let text = |count: u64| {
            let ended = serde_json::json!({
                "why": "", "recorded": count, "captured": 0, "dropped": {}, "kernels": count, "kernels_lost": count,
                "lost": count, "seconds": 1.0, "notes": ["told before"],
            });
            let ended: Ended = serde_json::from_value(ended).unwrap();
            ended.text(42, Path::new("trace.pftrace"), &["told before".to_owned()])
        };
        let expected = "trace.pftrace: 1 zone recorded, 1 kernel or copy, 0 dropped in 1.000 s\n\
                        1 kernel or copy was dropped\n\
                        1 record is missing: this machine wrote too slowly; record less with `--filter`\n";
        assert_eq!(text(1), expected);
        let expected = "trace.pftrace: 2 zones recorded, 2 kernels and copies, 0 dropped in 1.000 s\n\
                        2 kernels and copies were dropped\n\
                        2 records are missing: this machine wrote too slowly; record less with `--filter`\n";
        assert_eq!(text(2), expected);
    }
}
