//! The entries of batches of collectives, which share the time of their batch.

use warpline_core::record::Span;

use crate::trace::{Args, Kind, Message, Name, Names, Rows, Slice};

/// The most entries of one batch.
const ENTRIES: usize = 1 << 16;

/// The entries of the last batch, until all have come: they share the batch's time.
#[derive(Default)]
pub(super) struct Messages {
    batch: Vec<Entry>,
}

/// An entry of a batch.
pub(super) struct Entry {
    name: Name,
    span: Span,
    args: Args,
    pub(super) bytes: Option<u64>,
    pub(super) in_replay: bool,
    /// The number of the device, and the stream.
    pub(super) stream: Option<(u32, usize)>,
}

impl Entry {
    pub(super) fn slice(&self) -> Slice<'_> {
        Slice { kind: Kind::BatchEntry, name: self.name, row: 0, span: self.span, launch: None, args: &self.args }
    }

    /// Rows in which the entry's stream is not known any more.
    pub(super) fn rows(&self) -> Rows {
        Rows::default()
    }
}

impl Messages {
    /// Whether the slice belongs to the batch whose entries came last.
    pub(super) fn continues(&self, slice: &Slice<'_>) -> bool {
        self.batch.len() < ENTRIES && self.batch.first().is_none_or(|first| first.span == slice.span)
    }

    pub(super) fn add(&mut self, slice: &Slice<'_>, rows: &Rows, names: &Names) {
        let stream = rows.stream_of(slice.row).map(|(at, stream)| (stream.ordinal, at));
        self.batch.push(Entry {
            name: slice.name,
            span: slice.span,
            args: slice.args.clone(),
            bytes: Message::bytes_of(slice.args, names),
            in_replay: slice.args.has_correlation,
            stream,
        });
    }

    pub(super) fn take_batch(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.batch)
    }
}
