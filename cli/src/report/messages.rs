//! What collectives moved, from the arguments of their slices.

use warpline_core::collective::{CollectiveKind, DataType, ProcessGroup};
use warpline_core::record::Span;
use warpline_core::report::traffic::Moved;

use crate::trace::{Args, Kind, Name, Names, Rows, Slice};

/// The most entries of one batch.
const ENTRIES: usize = 1 << 16;

/// A collective as its arguments describe it.
pub(super) struct Message {
    kind: CollectiveKind,
    group: String,
    bytes: Option<u64>,
    bus: Option<f64>,
    share: f64,
}

impl Message {
    pub(super) fn moved(&self) -> Moved<'_> {
        let Message { kind, group, bytes, bus, share } = self;
        Moved { kind: *kind, group, bytes: *bytes, bus: *bus, share: *share }
    }
}

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
            bytes: kind(slice.args, names).and_then(|kind| bytes(kind, slice.args, names)),
            in_replay: slice.args.has_correlation,
            stream,
        });
    }

    pub(super) fn take_batch(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.batch)
    }

    /// Reads a collective; none if it does not say of which kind it is. `share` is its share of the slice's time.
    pub(super) fn read(slice: &Slice<'_>, share: f64, names: &Names) -> Option<Message> {
        let args = slice.args;
        let kind = kind(args, names)?;
        let text = |name: Option<Name>| name.map_or("", |name| names.text(name));
        let ranks: Vec<u32> =
            text(args.ranks).trim_matches(['[', ']']).split(", ").map_while(|rank| rank.parse().ok()).collect();
        let size = if args.group_size > 0 { args.group_size as usize } else { ranks.len() };
        let group = match args.group {
            Some(_) => {
                ProcessGroup::new(text(args.group).to_owned(), ranks, 0).lane().trim_start_matches("comm: ").to_owned()
            }
            None => String::new(),
        };
        let bytes = bytes(kind, args, names);
        let ns = args.corrected_ns.unwrap_or_else(|| slice.span.duration_ns()) as f64 * share;
        let bus = bytes
            .filter(|_| ns >= 1.0 && size > 1)
            .map(|bytes| bytes as f64 / (ns.trunc() * 1e-9) * kind.bus_factor(size));
        Some(Message { kind, group, bytes, bus, share })
    }
}

/// The kind of a collective. PyTorch's profiler has further names for some.
fn kind(args: &Args, names: &Names) -> Option<CollectiveKind> {
    let name = names.text(args.collective?);
    let plain = name.trim_start_matches('_').trim_end_matches("_base").replace("allgather_into_tensor", "allgather");
    CollectiveKind::ALL
        .into_iter()
        .find(|kind| **name == *kind.torch_name())
        .or_else(|| CollectiveKind::ALL.into_iter().find(|kind| plain == kind.torch_name()))
}

/// The size of a message, as [`Message::bytes`](warpline_core::collective::Message::bytes) defines it.
fn bytes(kind: CollectiveKind, args: &Args, names: &Names) -> Option<u64> {
    use CollectiveKind::{AllGather, AllGatherV, Gather, Recv};
    let name = names.text(args.dtype?);
    let dtype = (0..64).filter_map(DataType::from_nccl).find(|dtype| dtype.torch_name() == &**name)?;
    let elements = match kind {
        AllGather | Gather => args.elements_in?.saturating_mul(args.group_size.max(1)),
        AllGatherV | Recv => args.elements_out?,
        _ => args.elements_in?,
    };
    Some(elements.saturating_mul(dtype.bytes()))
}
