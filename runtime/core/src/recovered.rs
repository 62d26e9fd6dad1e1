//! The content of a flight recorder's file, or the reason why it has no trace: plain data, also without feature
//! `enable`.

use std::fmt;
use std::io;

/// The content of a flight recorder's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The process that wrote it.
    pub process_id: u32,
    /// The name of that process.
    pub process_name: String,
    /// The number of intact pieces, which are in the trace.
    pub pieces: u64,
    /// The number of zones in these pieces.
    pub zones: u64,
    /// The number of zones that were recorded earlier and removed to make room.
    pub zones_before: u64,
    /// The number of zones that were open at the recorder's last update, or when an incident occurred.
    pub open_zones: u64,
    /// Whether the program reported an incident: a panic, a stalled stream, a stream that failed.
    pub has_incident: bool,
    /// The number of damaged pieces, which are left out.
    pub damaged: u64,
    /// The number of pieces beyond the end of the file, which was truncated.
    pub missing: u64,
    /// The size of the trace, in bytes.
    pub bytes: u64,
    /// The data that the recorder of a running program could not write, or did not write in time for this trace, with
    /// the remedy. Only `Session::dump` sets it.
    pub problems: Vec<String>,
}

/// The reason why there is no trace.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecoverError {
    /// The file could not be read.
    Read(io::Error),
    /// The trace could not be written.
    Write(io::Error),
    /// The file is empty.
    Empty,
    /// The file has another format.
    Foreign,
    /// The file begins like that of a flight recorder, but the rest is invalid.
    Damaged,
    /// No piece is intact.
    NoPiece {
        /// The number of damaged pieces.
        damaged: u64,
        /// The number of pieces beyond the end of the file.
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
                "is not a flight recorder's file; name the one of the setting `flight=64MiB:FILE`, or warpline-PID.flight in the \
                 program's working directory",
            ),
            RecoverError::Damaged => f.write_str(
                "begins like a flight recorder's file, but its header is damaged or from a newer warpline; update warpline-cli, or \
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
