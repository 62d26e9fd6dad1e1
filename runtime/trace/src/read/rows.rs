//! The rows of traces: which stream of which device, or which thread, a track belongs to.

use std::sync::Arc;

/// The most rows of all traces together. Slices on further rows are left out and counted.
pub(super) const MAX_ROWS: usize = 1 << 20;

/// A stream of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its name.
    pub name: Arc<str>,
    /// The device's name.
    pub device: Arc<str>,
    /// The number of the device: that in its name, or one that no other device of the trace has.
    pub ordinal: u32,
}

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The index of the stream among those of all rows.
    Stream(usize),
    /// A thread, by its id.
    Thread(u64),
    /// Neither.
    Other,
}

/// A row.
#[derive(Clone, Debug)]
pub struct TraceRow {
    /// Where it is.
    pub place: Place,
    /// Its name; empty if it has none.
    pub name: Arc<str>,
    /// Rows with the same number are one row, of which the others have what overlaps: their slices may be within one another.
    pub group: u64,
}

/// All rows that have slices.
#[derive(Debug, Default)]
pub struct Rows {
    rows: Vec<TraceRow>,
    streams: Vec<Stream>,
}

impl Rows {
    /// The row of this index.
    pub fn row(&self, at: usize) -> Option<&TraceRow> {
        self.rows.get(at)
    }

    /// The stream of this index.
    pub fn stream(&self, at: usize) -> Option<&Stream> {
        self.streams.get(at)
    }

    /// Returns the group of a row.
    pub fn group(&self, at: usize) -> u64 {
        self.row(at).map_or(at as u64, |row| row.group)
    }

    /// Returns the stream of a row, with its index; none if the row is of no stream.
    pub fn stream_of(&self, row: usize) -> Option<(usize, &Stream)> {
        let Place::Stream(at) = self.row(row)?.place else { return None };
        Some((at, self.stream(at)?))
    }

    pub(super) fn add(&mut self, row: TraceRow) -> Option<usize> {
        (self.rows.len() < MAX_ROWS).then(|| {
            self.rows.push(row);
            self.rows.len() - 1
        })
    }

    pub(super) fn add_stream(&mut self, stream: Stream) -> usize {
        self.streams.push(stream);
        self.streams.len() - 1
    }
}

/// The name of a device, and its number if the name has one, as in `NVIDIA H100 (device 0)` and `GPU 0`.
pub(super) fn device_of(text: &str) -> (Arc<str>, Option<u32>) {
    if let Some(number) = text.strip_prefix("GPU ").and_then(|number| number.parse().ok()) {
        return (text.into(), Some(number));
    }
    let numbered = text.strip_suffix(')').and_then(|text| text.rsplit_once(" (device "));
    match numbered.and_then(|(name, number)| Some((name, number.parse().ok()?))) {
        Some((name, number)) => (name.into(), Some(number)),
        None => (text.into(), None),
    }
}
