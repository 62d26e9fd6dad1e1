//! Reads traces as slices on rows, for the commands that compute figures: `report`, `compare` and `query`.
//!
//! [`read`] opens a Perfetto trace of warpline, or Chrome JSON of warpline or of PyTorch's profiler, compressed with gzip or not, and passes
//! each slice to a [`Visitor`]. `packets`, `wire` and `perfetto` read the first format, `chrome` the second, and `kinds`, `rows` and
//! `messages` have what both have in common. A trace can be gigabytes in size, truncated, or hostile: it is read once from the front, memory is bounded by the
//! limits here, a malformed packet is counted and skipped, and nothing here panics.

mod chrome;
mod kinds;
mod messages;
mod names;
mod packets;
mod perfetto;
mod rows;
mod wire;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use warpline_core::record::Span;

use crate::runtime::{counted, counted_as};

pub use kinds::{Args, Kind};
pub use messages::Message;
pub use names::{Name, Names};
pub use rows::{Place, Row, Rows, Stream};

/// The maximum size of a decompressed trace, in bytes.
const MAX_UNPACKED: u64 = 64 << 30;

const CHUNK: usize = 256 << 10;

/// The first bytes of a file in gzip's format.
const GZIP: [u8; 2] = [0x1F, 0x8B];

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
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
    /// The folder has no trace.
    #[error("{}: no trace (`.pftrace`, `.json`, or either with `.gz`) in this folder; name the folder that the traces were written to", path.display())]
    EmptyFolder {
        /// The folder.
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
    /// The file is that of a flight recorder.
    #[error("{}: the file of a flight recorder; make a trace of it with `warpline recover {} -o trace.pftrace`", path.display(), path.display())]
    Flight {
        /// The file.
        path: PathBuf,
    },
    /// The texts of the trace take too much memory.
    #[error("{}: the names in it take more than {} MiB; is the file damaged?", path.display(), names::MAX_TEXTS >> 20)]
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
}

/// One end of a wait's arrow.
#[derive(Clone, Copy, Debug)]
pub struct Arrow {
    /// The row that waited.
    pub on: usize,
    /// The time of the wait.
    pub wait: Span,
    /// The row that signalled.
    pub from: usize,
    /// When it did, in ns.
    pub at_ns: i64,
}

/// Receives what a trace contains.
pub trait Visitor {
    /// A slice. They come in the order of the file.
    fn slice(&mut self, slice: &Slice<'_>, rows: &Rows, names: &Names);

    /// What ended a wait.
    fn arrow(&mut self, _arrow: &Arrow, _rows: &Rows) {}

    /// A value of a counter of device memory, by the counter's name.
    fn memory(&mut self, _counter: &str, _at_ns: i64, _bytes: u64) {}

    /// What the session says of itself.
    fn fact(&mut self, _fact: Fact) {}
}

/// What was left out of one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Packets or events that are malformed or too large.
    pub malformed: u64,
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
        say(self.unpaired, format!("{} without an end or a begin", counted(self.unpaired, "slice")), "left out");
        say(self.unplaced, format!("{} without a known time or row", counted(self.unplaced, "slice")), "left out");
        if let Some(at) = self.damaged_at {
            all.push(format!("damaged at byte {at}; the rest of the file is left out"));
        } else if self.is_cut {
            all.push(
                "the trace is cut, as a killed program leaves it; the figures are those of what is there".to_owned(),
            );
        }
        all
    }
}

/// What can be wrong within a trace.
enum Fault {
    Io(io::Error),
    NotATrace(&'static str),
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
    // Opening a pipe would block.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(ReadError::NotAFile { path: path.to_owned() });
    }
    let mut file = BufReader::with_capacity(CHUNK, File::open(path).map_err(io)?);
    let read = if file.fill_buf().map_err(io)?.starts_with(&GZIP) {
        let unpacked = MultiGzDecoder::new(file).take(MAX_UNPACKED);
        read_unpacked(BufReader::with_capacity(CHUNK, unpacked), names, visitor)
    } else {
        read_unpacked(file, names, visitor)
    };
    read.map_err(|fault| match fault {
        Fault::Io(error) => io(error),
        Fault::NotATrace("flight") => ReadError::Flight { path: path.to_owned() },
        Fault::NotATrace(what) => ReadError::NotATrace { path: path.to_owned(), what },
        Fault::TooManyNames => ReadError::TooManyNames { path: path.to_owned() },
    })
}

fn read_unpacked(mut trace: impl BufRead, names: &mut Names, visitor: &mut impl Visitor) -> Result<Skipped, Fault> {
    let begin = trace.fill_buf()?;
    if begin.is_empty() {
        return Err(Fault::NotATrace("an empty file; name a trace"));
    }
    // A packet's tag is also a line feed, with which JSON may begin.
    let mut letters = begin.iter().take(64).copied().filter(|byte| !byte.is_ascii_whitespace());
    let is_json = match letters.next() {
        Some(b'{') => matches!(letters.next(), Some(b'"' | b'}') | None),
        Some(b'[') => matches!(letters.next(), Some(b'{' | b']') | None),
        _ => false,
    };
    if is_json {
        chrome::read(trace, names, visitor)
    } else if begin.first() == Some(&packets::FIRST) {
        perfetto::read(trace, names, visitor)
    } else if begin.starts_with(b"warpline") || begin.starts_with(b"WARPLINE") {
        Err(Fault::NotATrace("flight"))
    } else {
        Err(Fault::NotATrace(
            "neither a Perfetto trace nor Chrome JSON; name a trace that a session or a profiler wrote",
        ))
    }
}

/// Returns the traces that the arguments name: files, and the traces in folders, in the order of their names.
///
/// # Errors
/// A folder cannot be read, or contains no trace.
pub fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, ReadError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let io = |error| ReadError::Io { path: path.clone(), error };
        let entries = std::fs::read_dir(path).map_err(io)?.collect::<io::Result<Vec<_>>>().map_err(io)?;
        let mut found: Vec<PathBuf> = entries
            .into_iter()
            .map(|entry| entry.path())
            .filter(|path| path.is_file() && is_named_as_trace(path))
            .collect();
        if found.is_empty() {
            return Err(ReadError::EmptyFolder { path: path.clone() });
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

fn is_named_as_trace(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    [".pftrace", ".perfetto-trace", ".json"].iter().any(|ending| name.ends_with(ending))
}
