//! Reads traces: the only decoder of their formats, for the commands that compute figures (`report`, `compare`, `query`, `stragglers`), for those
//! that show or mend a trace (`open`, `catalog`, `recover`), for the joiner of annotations, and for the merger of the ranks' traces.
//!
//! [`read`] opens a trace of warpline or of PyTorch's profiler, in Perfetto's format or Chrome JSON, compressed or not, and passes each slice to
//! a [`Visitor`]. `packets`, `wire`, `parts` and `perfetto` read the first format, `chrome` the second, and `kinds`, `others`, `rows` and `messages` have
//! what both have in common. Below it, `inputs` finds, decompresses and bounds the files that a user named, `document` splits Chrome JSON into events and `event`
//! parses one, `native` reads the Perfetto traces of PyTorch's profiler as Chrome JSON, `annotations` tells files that are no traces, `tools` which other tool wrote one, and `budget` bounds memory.
//!
//! A trace can be gigabytes in size, truncated, or hostile: it is read from the front, memory is bounded by the
//! limits here, a malformed packet is counted and skipped, and nothing here panics.

pub mod annotations;
pub mod budget;
mod chrome;
pub mod document;
mod endings;
pub mod event;
mod fields;
mod ids;
pub mod inputs;
mod kinds;
mod messages;
pub mod native;
mod open_zones;
mod others;
mod packets;
pub mod parts;
mod perfetto;
mod rows;
mod tools;
pub mod wire;

use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use indicatif::ProgressBar;
use warpline_core::plural::{counted, counted_as};
use warpline_core::record::{Span, is_bound};

use warpline_report::names::TooManyNames;

use crate::write::perfetto::proto::packet;
use document::{Broken, Document, Piece, Refused};
use inputs::{InputError, TRACES};
use native::{Layout, Translated};

pub use kinds::{Args, Kind};
pub use messages::Message;
pub use open_zones::{LastOpenZone, open_zones};
pub use packets::{FIRST, Head, MAX_PACKET, Packets, Unsound};
pub use rows::{Place, Rows, Stream, TraceRow};
pub use tools::other;
pub use warpline_report::names::{Name, Names};

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A folder stands for no trace.
    #[error(transparent)]
    Input(#[from] InputError),
    /// What the system says.
    #[error("{}: {error}; name a trace, such as one that `WARPLINE=perfetto=FILE` writes", path.display())]
    Io {
        /// The trace.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// It is a folder, a pipe or a device.
    #[error("{}: not a file; name a trace, or a folder of traces", path.display())]
    NotAFile {
        /// What is no file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{}: {what}", path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What it is, and the remedy.
        what: &'static str,
    },
    /// It is a trace of PyTorch's profiler that is damaged.
    #[error("{}: {why}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong, and the remedy.
        why: String,
    },
    /// The file is that of a flight recorder.
    #[error("{}: the file of a flight recorder; make a trace of it with `warpline recover {} -o trace.pftrace`", path.display(), path.display())]
    Flight {
        /// The file.
        path: PathBuf,
    },
    /// The texts of the trace take too much memory.
    #[error("{}: the names in it take more than {} MiB; is the file damaged?", path.display(), warpline_report::names::MAX_TEXTS >> 20)]
    TooManyNames {
        /// The trace.
        path: PathBuf,
    },
}

/// One slice.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its name, such as that of its range.
    pub name: Name,
    /// An index into [`Rows`]; `usize::MAX` for a kernel that is on no row.
    pub row: usize,
    /// Its time.
    pub span: Span,
    /// The launch of a zone: its row, and its time.
    pub launch: Option<(usize, Span)>,
    /// Its arguments.
    pub args: &'a Args,
}

impl Slice<'_> {
    /// Returns the time by which the end may be earlier, in ns; 0 if it is that of an event, and for what is neither a zone nor a wait of a
    /// stream.
    pub fn early_by_ns(&self) -> i64 {
        let is_timed = matches!(self.kind, Kind::Zone | Kind::Collective | Kind::BatchEntry | Kind::Wait);
        self.args.end_early_by_ns.filter(|_| is_timed).unwrap_or(0)
    }

    /// Returns whether the length is only an upper bound ([`is_bound`]).
    pub fn is_bounded(&self) -> bool {
        is_bound(self.span.duration_ns(), self.early_by_ns())
    }
}

/// A fact about the session.
#[derive(Clone, Debug)]
pub enum Fact {
    /// The session began at this time.
    Begun(i64),
    /// A number of the account at its end.
    Number(String, i64),
    /// A note of the account.
    Note(String),
    /// The session's account is complete, at this time.
    Ended(i64),
    /// What the session recorded was changed: the name of the change.
    Changed(String),
    /// A category of another tool whose slices are not read, and their number.
    Other(String, u64),
    /// One instant by two clocks of the host, with which a trace of warpline in Perfetto's format begins, and each
    /// further piece of it.
    Clocks {
        /// `CLOCK_BOOTTIME`, in ns.
        boot_ns: i64,
        /// The wall clock, in ns.
        wall_ns: i64,
    },
    /// The number of a process, in Perfetto's format.
    Process(i32),
    /// An attribute of the trace in Perfetto's format: its name, and its text.
    Attribute(String, String),
}

/// One end of a wait's arrow.
#[derive(Clone, Copy, Debug)]
pub struct Arrow {
    /// The row that waited.
    pub on: usize,
    /// The time of the wait.
    pub wait: Span,
    /// The time by which the wait may have ended earlier, in ns.
    pub early_by_ns: i64,
    /// The row that signalled.
    pub from: usize,
    /// When it did, in ns.
    pub at_ns: i64,
}

/// Receives what a trace contains.
pub trait Visitor {
    /// A slice. They come in the order of the file. The visitor may add names of its own.
    fn slice(&mut self, slice: &Slice<'_>, rows: &Rows, names: &mut Names);

    /// Returns whether slices of zones shall have their fields and labels ([`Args::fields`]).
    fn wants_fields(&self) -> bool {
        false
    }

    /// What ended a wait.
    fn arrow(&mut self, _arrow: &Arrow, _rows: &Rows) {}

    /// A value of a counter of device memory, by the counter's name.
    fn memory(&mut self, _counter: &str, _at_ns: i64, _bytes: u64) {}

    /// What the session says of itself.
    fn fact(&mut self, _fact: Fact) {}

    /// Returns whether the rest of a Perfetto trace need not be read.
    fn has_enough(&self) -> bool {
        false
    }
}

/// What was left out of one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Packets or events that are malformed or too large.
    pub malformed: u64,
    /// Events that are not JSON and are read as what is meant: those with control characters in their texts, for example.
    pub mended: u64,
    /// Slices without an end, and ends without a begin.
    pub unpaired: u64,
    /// Slices with more rows than are kept, or with a time that no clock of the trace gives.
    pub unplaced: u64,
    /// The byte at which the file stops being a trace.
    pub damaged_at: Option<u64>,
    /// Whether the file ends within a packet or an event.
    pub is_cut: bool,
    /// Whether the trace is of warpline, and not of another tool.
    pub is_ours: bool,
}

impl Skipped {
    /// Returns what was left out, in sentences: nothing for a trace that was read whole.
    pub fn warnings(&self) -> Vec<String> {
        let is_or_are = |count: u64| if count == 1 { "is" } else { "are" };
        let mut all = Vec::new();
        let mut say = |count: u64, what: String, how: &str| {
            if count > 0 {
                all.push(format!("{what} {} {how}", is_or_are(count)));
            }
        };
        let events = counted_as(self.malformed, "packet or event", "packets and events");
        say(self.malformed, events, "malformed or too large, and left out");
        let how = "not valid JSON, and read with what is not allowed escaped or left out";
        say(self.mended, counted(self.mended, "event"), how);
        say(self.unpaired, format!("{} without an end or a begin", counted(self.unpaired, "slice")), "left out");
        say(self.unplaced, format!("{} without a known time or row", counted(self.unplaced, "slice")), "left out");
        if let Some(at) = self.damaged_at {
            all.push(format!("damaged at byte {at}; the rest of the file is left out"));
        } else if self.is_cut {
            all.push(
                "the trace is cut off, as after a killed program; the figures cover only what was read".to_owned(),
            );
        }
        all
    }
}

/// The most slices of a trace of PyTorch's profiler in Perfetto's format, which take 8 bytes each.
const MAX_NATIVE: usize = 1 << 27;

/// What can be wrong within a trace.
#[derive(Debug)]
pub enum Fault {
    /// What the system says.
    Io(io::Error),
    /// It is a damaged trace of PyTorch's profiler: what is wrong.
    Refused(String),
    /// It is something else: what it is, and the remedy.
    NotATrace(&'static str),
    /// The texts take too much memory.
    TooManyNames,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Io(error)
    }
}

/// Reads the trace at `path`. `names` may have the names of other traces.
///
/// # Errors
/// The reason, with the remedy.
pub fn read(path: &Path, names: &mut Names, visitor: &mut impl Visitor) -> Result<Skipped, ReadError> {
    let io = |error| ReadError::Io { path: path.to_owned(), error };
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(ReadError::NotAFile { path: path.to_owned() });
    }
    let bar = inputs::bar_of(path);
    let read = read_file(path, &bar, names, visitor);
    bar.finish_and_clear();
    read.map_err(|fault| match fault {
        Fault::Io(error) => io(error),
        Fault::NotATrace("flight") => ReadError::Flight { path: path.to_owned() },
        Fault::NotATrace(what) => ReadError::NotATrace { path: path.to_owned(), what },
        Fault::Refused(why) => ReadError::Refused { path: path.to_owned(), why },
        Fault::TooManyNames => ReadError::TooManyNames { path: path.to_owned() },
    })
}

impl From<TooManyNames> for Fault {
    fn from(TooManyNames: TooManyNames) -> Fault {
        Fault::TooManyNames
    }
}

/// Reads a trace in Perfetto's format, or several that are concatenated.
///
/// # Errors
/// The reason.
pub fn read_perfetto(trace: impl Read, names: &mut Names, visitor: &mut impl Visitor) -> Result<Skipped, Fault> {
    perfetto::read(trace, names, visitor)
}

fn read_file(path: &Path, bar: &ProgressBar, names: &mut Names, visitor: &mut impl Visitor) -> Result<Skipped, Fault> {
    let mut trace = inputs::open(path, bar)?;
    let begin = trace.fill_buf()?;
    if begin.is_empty() {
        return Err(Fault::NotATrace("an empty file; name a trace"));
    }
    if is_json(begin) {
        chrome::read(trace, names, visitor)
    } else if is_perfetto(begin) {
        // The reader of the trace says what is wrong with a file that cannot be read.
        let again = || inputs::open(path, &ProgressBar::hidden());
        if !again().and_then(native::is_native).unwrap_or(false) {
            return perfetto::read(trace, names, visitor);
        }
        let layout = Layout::read(again()?, MAX_NATIVE, "profile fewer steps").map_err(|error| {
            match error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>()) {
                Some(Refused(why)) => Fault::Refused(why.clone()),
                None => Fault::Io(error),
            }
        })?;
        chrome::read(Translated::new(trace, Rc::new(layout)), names, visitor)
    } else if begin.starts_with(b"warpline") || begin.starts_with(b"WARPLINE") {
        Err(Fault::NotATrace("flight"))
    } else {
        Err(Fault::NotATrace(
            "neither a Perfetto trace nor Chrome JSON; name a trace that a session or a profiler wrote",
        ))
    }
}

/// Whether a trace begins like JSON. A packet's tag is also a line feed, and its length may be a brace.
pub fn is_json(begin: &[u8]) -> bool {
    let mut letters = document::without_mark(begin).iter().take(64).copied().filter(|byte| !byte.is_ascii_whitespace());
    match letters.next() {
        Some(b'{') => matches!(letters.next(), Some(b'"' | b'}') | None),
        Some(b'[') => matches!(letters.next(), Some(b'{' | b']') | None),
        _ => false,
    }
}

/// Returns whether a file is JSON without events, such as settings or a report. A file that cannot be read is not.
pub fn is_other_json(path: &Path) -> bool {
    let Ok(mut file) = inputs::open(path, &ProgressBar::hidden()) else { return false };
    if !file.fill_buf().is_ok_and(|begin| {
        document::without_mark(begin).trim_ascii_start().first().is_some_and(|byte| b"{[".contains(byte))
    }) {
        return false;
    }
    let mut document = Document::new(file).may_be_cut();
    loop {
        match document.next_piece() {
            Ok(Some(Piece::Member(..))) => {}
            Ok(Some(Piece::Events | Piece::Event(_))) | Err(Broken::Io(_)) => return false,
            Ok(None) | Err(_) => return true,
        }
    }
}

/// Whether a trace begins like one in Perfetto's format. A packet's tag is also a line feed, with which JSON may begin.
pub fn is_perfetto(begin: &[u8]) -> bool {
    begin.first() == Some(&FIRST) && !begin.trim_ascii().is_empty() && !is_json(begin)
}

/// Returns the time of the first packet of a Perfetto trace, at which warpline's sessions begin.
///
/// # Errors
/// The trace cannot be read.
pub fn first_time(trace: impl Read) -> io::Result<Option<u64>> {
    let mut packets = Packets::new(trace);
    let mut fields = wire::Fields(packets.next_packet()?.unwrap_or_default()).map_while(Result::ok);
    Ok(fields.find(|(number, _)| *number == packet::TIMESTAMP).map(|(_, value)| value.int()))
}

/// Returns the traces that the arguments name: files, and the traces in folders.
///
/// # Errors
/// A folder cannot be read, or contains no trace.
pub fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, ReadError> {
    Ok(inputs::expand(paths, TRACES)?)
}
