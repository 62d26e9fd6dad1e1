//! What a collective moved, from the arguments of its slice.

use warpline_core::collective::{CollectiveKind, DataType, ProcessGroup};

use super::{Args, Name, Names, Slice};

/// A collective as its arguments describe it.
#[derive(Clone, Debug)]
pub struct Message {
    /// What it does.
    pub kind: CollectiveKind,
    /// Its group, with the ranks; empty if it is not given.
    pub group: String,
    /// The number of ranks; 0 if it is not given.
    pub size: usize,
    /// Its number in the group.
    pub seq: Option<u64>,
    /// The size of the message, as [`Message::bytes`](warpline_core::collective::Message::bytes) defines it.
    pub bytes: Option<u64>,
    /// The bus bandwidth, in bytes per second; none if the length is only a bound.
    pub bus: Option<f64>,
}

impl Message {
    /// Reads a collective; none if it does not say of which kind it is. `share` is its share of the slice's time.
    pub fn read(slice: &Slice<'_>, share: f64, names: &Names) -> Option<Message> {
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
            .filter(|_| ns >= 1.0 && size > 1 && !slice.is_bounded())
            .map(|bytes| bytes as f64 / (ns.trunc() * 1e-9) * kind.bus_factor(size));
        Some(Message { kind, group, size, seq: args.seq, bytes, bus })
    }

    /// Reads the size alone.
    pub fn bytes_of(args: &Args, names: &Names) -> Option<u64> {
        kind(args, names).and_then(|kind| bytes(kind, args, names))
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
