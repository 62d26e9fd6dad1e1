//! What a collective moved, from the arguments of its slice.

use std::sync::Arc;

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
        let kind = Self::kind_of(args, names).ok()?;
        let text = |name: Option<Name>| name.map_or("", |name| names.text(name));
        let ranks: Vec<u32> =
            text(args.ranks).trim_matches(['[', ']']).split(", ").map_while(|rank| rank.parse().ok()).collect();
        let size = if args.group_size > 0 { args.group_size as usize } else { ranks.len() };
        let group = match args.group {
            // PyTorch's profiler lists the first 30 ranks.
            Some(_) if ranks.len() < size => format!("{} [{size} ranks]", text(args.group)),
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
        Self::kind_of(args, names).ok().and_then(|kind| bytes(kind, args, names))
    }

    /// Returns the kind of a collective.
    ///
    /// # Errors
    /// It is not known: its name.
    pub fn kind_of(args: &Args, names: &Names) -> Result<CollectiveKind, Arc<str>> {
        let name = args.collective.map_or_else(Default::default, |name| names.text(name).clone());
        kind(&name).ok_or(name)
    }
}

/// The kind of a collective by its name in PyTorch's profiler: that of ProcessGroupNCCL, which has several for one operation of NCCL, as in
/// `_allgather_base`, `allgather_into_tensor_coalesced` and `all_gather`.
fn kind(name: &str) -> Option<CollectiveKind> {
    let known =
        |name: &str| CollectiveKind::ALL.into_iter().find(|kind| [kind.torch_name(), kind.as_str()].contains(&name));
    let mut plain = name.trim_start_matches('_');
    for suffix in ["_coalesced", "_oop", "_base", "_sparse", "_tensor", "_into"] {
        plain = plain.strip_suffix(suffix).unwrap_or(plain);
    }
    match plain {
        "all_to_allv" | "alltoall" | "alltoallv" => Some(CollectiveKind::AllToAll),
        // NCCL has none: it is an all-reduce of one element.
        "barrier" => Some(CollectiveKind::AllReduce),
        plain => known(name).or_else(|| known(plain)),
    }
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
