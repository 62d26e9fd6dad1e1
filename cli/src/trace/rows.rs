//! The rows of traces: which stream of which device, or which thread, a track belongs to.

use std::sync::Arc;

/// The most rows of all traces together. Slices on further rows are left out and counted.
pub(super) const MAX_ROWS: usize = 1 << 20;

/// A stream of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) name: Arc<str>,
    pub(crate) device: Arc<str>,
    /// The number in the device's name.
    pub(crate) ordinal: u32,
}

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// An index into [`Rows::streams`].
    Stream(usize),
    /// A thread, by its id.
    Thread(u64),
    Other,
}

/// A row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) place: Place,
    pub(crate) name: Arc<str>,
}

/// All rows that have slices.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    rows: Vec<Row>,
    streams: Vec<Stream>,
}

impl Rows {
    pub(crate) fn row(&self, at: usize) -> Option<&Row> {
        self.rows.get(at)
    }

    pub(crate) fn stream(&self, at: usize) -> Option<&Stream> {
        self.streams.get(at)
    }

    /// Returns the stream of a row, with its index; none if the row is of no stream.
    pub(crate) fn stream_of(&self, row: usize) -> Option<(usize, &Stream)> {
        let Place::Stream(at) = self.row(row)?.place else { return None };
        Some((at, self.stream(at)?))
    }

    pub(super) fn add(&mut self, row: Row) -> Option<usize> {
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

/// The name and the number of a device, from `NVIDIA H100 (device 0)`.
pub(super) fn device_of(text: &str) -> (Arc<str>, u32) {
    let numbered = text.strip_suffix(')').and_then(|text| text.rsplit_once(" (device "));
    match numbered.and_then(|(name, number)| Some((name, number.parse().ok()?))) {
        Some((name, number)) => (name.into(), number),
        None => (text.into(), 0),
    }
}
