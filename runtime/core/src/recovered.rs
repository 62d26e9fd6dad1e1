//! What the file of a flight recorder holds, and why there may be no trace in it: plain data, also without feature
//! `enable`.

use std::fmt;
use std::io;

/// What was found in the file of a flight recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The process that wrote it.
    pub process_id: u32,
    /// Its name.
    pub process_name: String,
    /// Pieces that are whole and in the trace.
    pub pieces: u64,
    /// Zones in them.
    pub zones: u64,
    /// Zones that were recorded before them and made room.
    pub zones_before: u64,
    /// Zones that were open when the recorder looked last, or when something happened.
    pub open_zones: u64,
    /// The program told of something that happened: a panic, a stalled stream, a stream that failed.
    pub has_incident: bool,
    /// Pieces that are damaged, and left out.
    pub damaged: u64,
    /// Pieces that are beyond the end of the file: somebody has cut it.
    pub missing: u64,
    /// Bytes of the trace.
    pub bytes: u64,
    /// What the recorder of a program that runs could not write, or did not write in time for this trace, with the remedy. Only
    /// `Session::dump` fills it.
    pub problems: Vec<String>,
}

/// Why there is no trace.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecoverError {
    /// The file could not be read.
    Read(io::Error),
    /// The trace could not be written.
    Write(io::Error),
    /// There is nothing in the file.
    Empty,
    /// The file is something else.
    Foreign,
    /// The first bytes are those of a flight recorder, and what follows makes no sense.
    Damaged,
    /// No piece is whole.
    NoPiece {
        /// Pieces that are damaged.
        damaged: u64,
        /// Pieces that are beyond the end of the file.
        missing: u64,
    },
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoverError::Read(error) => write!(f, "cannot be read: {error}"),
            RecoverError::Write(error) => write!(f, "the trace cannot be written: {error}; choose another place"),
            RecoverError::Empty => f.write_str("is empty: the program ended before its session began; run it again"),
            RecoverError::Foreign => f.write_str(
                "is no flight recorder's file; name the one of the setting `flight=64MiB:FILE`, or warpline-PID.flight in the \
                 folder in which the program ran",
            ),
            RecoverError::Damaged => f.write_str(
                "begins as a flight recorder's file, and its header is damaged or of a newer warpline; update warpline-cli, or \
                 take an undamaged copy",
            ),
            RecoverError::NoPiece { damaged: 0, missing: 0 } => {
                f.write_str("has no zones: the program ended before the first were written; run it for longer")
            }
            RecoverError::NoPiece { damaged: 0, missing } => write!(
                f,
                "has no whole piece, and {missing} are cut off: the program was killed while its session began, or the file was cut; \
                 run it again, or take an undamaged copy"
            ),
            RecoverError::NoPiece { damaged, missing } => write!(
                f,
                "has no whole piece: {damaged} damaged, {missing} cut off; take an undamaged copy"
            ),
        }
    }
}

impl std::error::Error for RecoverError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RecoverError::Read(error) | RecoverError::Write(error) => Some(error),
            _ => None,
        }
    }
}
