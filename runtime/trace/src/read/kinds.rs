//! What a slice is, and the arguments that figures need.

use serde_json::Value;
use warpline_core::record::{SAMPLED, WINDOW};
use warpline_core::work::Work;

use warpline_report::names::Name;

/// The kind of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A zone on a stream, also in the replay of a graph.
    Zone,
    /// A collective on a stream, also in the replay of a graph.
    Collective,
    /// A part of a batch of collectives.
    BatchEntry,
    /// A zone on a thread.
    HostZone,
    /// What a thread did to launch a zone.
    Launch,
    /// A replay of a graph.
    Replay,
    /// A zone in a replay, which `warpline annotate` found. Visitors get it as a [`Zone`](Kind::Zone) of a replay.
    GraphZone,
    /// A kernel.
    Kernel,
    /// A copy or a fill of memory.
    Copy,
    /// A wait of a stream or a thread for a semaphore.
    Wait,
    /// A call with which a thread waits for the device.
    Sync,
    /// The signal that ended a wait.
    Signal,
    /// A call of another tool's trace that may have submitted work. Visitors do not get it.
    Call,
    /// A step.
    Step,
    /// What the session says of itself.
    Session,
    /// Anything else. The time in which a zone may have ended is a slice of its own in Perfetto traces, and is no zone.
    Other,
}

impl Kind {
    /// The kind of a category in Perfetto traces.
    pub(super) fn of_category(category: &str) -> Kind {
        match category {
            "zone" | "gpu_user_annotation" => Kind::Zone,
            "collective" => Kind::Collective,
            "batch_entry" => Kind::BatchEntry,
            "host_zone" | "user_annotation" | "cpu_op" => Kind::HostZone,
            "launch" => Kind::Launch,
            "replay" | "graph_replay" => Kind::Replay,
            "graph_zone" => Kind::GraphZone,
            "kernel" => Kind::Kernel,
            "memcpy" | "memset" | "gpu_memcpy" | "gpu_memset" => Kind::Copy,
            "wait" => Kind::Wait,
            "cuda_sync" => Kind::Sync,
            "signal" => Kind::Signal,
            "step" => Kind::Step,
            "session" => Kind::Session,
            _ => Kind::Other,
        }
    }
}

/// The arguments of a slice.
#[derive(Clone, Debug, Default)]
pub struct Args {
    /// The zone did not complete.
    pub has_failed: bool,
    /// How much earlier the end may have been, in ns, if it was found in another way than by an event of the zone's own.
    pub end_early_by_ns: Option<i64>,
    /// The length without the time of the zone's own events, in ns.
    pub corrected_ns: Option<i64>,
    /// The share of the range's zones that were recorded; 0 if it is not given.
    pub sampled_share: f64,
    /// The number of the budget's window in which the zone was recorded; 0 without a budget.
    pub window: u32,
    /// Zones in replays, kernels and replays have it.
    pub has_correlation: bool,
    /// The number that a call and the work that it submitted have in common.
    pub correlation: Option<u64>,
    /// A collective is its kernel, as PyTorch's profiler has it.
    pub is_kernel: bool,
    /// The name that PyTorch's profiler gives the collective.
    pub collective: Option<Name>,
    /// Its process group.
    pub group: Option<Name>,
    /// The ranks of the group, such as `[0, 1]`.
    pub ranks: Option<Name>,
    /// The number of ranks in the group; 0 if it is not given.
    pub group_size: u64,
    /// The number of the collective in its group.
    pub seq: Option<u64>,
    /// The rank within the group.
    pub rank: Option<u64>,
    /// The identity of the communicator.
    pub comm_id: Option<u64>,
    /// The type of its elements, as PyTorch names it.
    pub dtype: Option<Name>,
    /// The elements that this rank gives.
    pub elements_in: Option<u64>,
    /// The elements that this rank gets.
    pub elements_out: Option<u64>,
    /// The declared bytes that a zone moves.
    pub bytes: Option<u64>,
    /// The declared floating-point operations of a zone.
    pub flops: Option<u64>,
    /// The range of the zone that a kernel or a wait belongs to.
    pub zone: Option<Name>,
    /// The range that ended a wait, or the thread.
    pub signalled_by: Option<Name>,
    /// What a wait waited for.
    pub semaphore: Option<Name>,
    /// The stream, where a row does not tell.
    pub stream: Option<Name>,
    /// The number of a step.
    pub step: Option<u64>,
    /// Whether the trace has the rate of the declared bytes. Without it, `bytes` is a field of the program.
    pub has_byte_rate: bool,
    /// Whether the trace has the rate of the declared operations. Without it, `flops` is a field of the program.
    pub has_flop_rate: bool,
    /// The arguments that may be fields, and whether their name in the trace says that they are.
    pub(super) fields: Vec<(Name, bool, Value)>,
}

impl Args {
    /// Returns the work that the zone's mark declares.
    pub fn work(&self) -> Work {
        let declared = |amount: Option<u64>, has_rate: bool| amount.filter(|_| has_rate);
        Work::new(declared(self.bytes, self.has_byte_rate), declared(self.flops, self.has_flop_rate))
    }
}

/// The name of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Status,
    EndEarly,
    Corrected,
    Sampled,
    Window,
    Correlation,
    Collective,
    Group,
    Ranks,
    GroupSize,
    Seq,
    Rank,
    CommId,
    Dtype,
    ElementsIn,
    ElementsOut,
    Bytes,
    Flops,
    Zone,
    SignalledBy,
    Semaphore,
    Stream,
    Step,
    ByteRate,
    FlopRate,
    Other,
}

impl Key {
    pub(super) fn of(name: &str) -> Key {
        match name {
            "status" => Key::Status,
            "end_early_by_ns" => Key::EndEarly,
            "gpu_ns_corrected" => Key::Corrected,
            SAMPLED => Key::Sampled,
            WINDOW => Key::Window,
            "correlation" => Key::Correlation,
            "Collective name" => Key::Collective,
            "Process Group Name" => Key::Group,
            "Process Group Ranks" => Key::Ranks,
            "Group size" => Key::GroupSize,
            "Seq" => Key::Seq,
            "Rank" => Key::Rank,
            "Comms Id" => Key::CommId,
            "dtype" => Key::Dtype,
            "In msg nelems" => Key::ElementsIn,
            "Out msg nelems" => Key::ElementsOut,
            "bytes" => Key::Bytes,
            "flops" => Key::Flops,
            "zone" => Key::Zone,
            "signalled_by" => Key::SignalledBy,
            "semaphore" => Key::Semaphore,
            "stream" => Key::Stream,
            "step" => Key::Step,
            "gb_per_s" => Key::ByteRate,
            "tflop_per_s" => Key::FlopRate,
            _ => Key::Other,
        }
    }

    /// Whether its value is a number. PyTorch writes the numbers of its annotations as texts.
    pub(super) fn is_number(self) -> bool {
        matches!(self, Key::GroupSize | Key::Seq | Key::ElementsIn | Key::ElementsOut)
    }
}

/// The value of an argument.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    Number(i64),
    /// A number that is no integer.
    Real(f64),
    Text(Name),
}

impl Args {
    /// Sets an argument. A user's fields come first, so the last of two arguments with one name is used.
    pub(super) fn set(&mut self, key: Key, said: Said) {
        match (key, said) {
            (Key::Status, Said::Text(_)) => self.has_failed = true,
            (Key::EndEarly, Said::Number(ns)) => self.end_early_by_ns = Some(ns.max(0)),
            (Key::Corrected, Said::Number(ns)) => self.corrected_ns = Some(ns),
            (Key::Sampled, Said::Real(share)) => self.sampled_share = share.clamp(0.0, 1.0),
            (Key::Window, Said::Number(number)) => self.window = u32::try_from(number).unwrap_or(0),
            (Key::Correlation, Said::Number(number)) => {
                self.has_correlation = true;
                self.correlation = u64::try_from(number).ok();
            }
            (Key::Collective, Said::Text(text)) => self.collective = Some(text),
            (Key::Group, Said::Text(text)) => self.group = Some(text),
            (Key::Ranks, Said::Text(text)) => self.ranks = Some(text),
            (Key::GroupSize, Said::Number(size)) => self.group_size = size.max(0) as u64,
            (Key::Seq, Said::Number(seq)) => self.seq = u64::try_from(seq).ok(),
            (Key::Rank, Said::Number(rank)) => self.rank = u64::try_from(rank).ok(),
            // Any number of 64 bits.
            (Key::CommId, Said::Number(id)) => self.comm_id = Some(id as u64),
            (Key::Dtype, Said::Text(text)) => self.dtype = Some(text),
            (Key::ElementsIn, Said::Number(count)) => self.elements_in = u64::try_from(count).ok(),
            (Key::ElementsOut, Said::Number(count)) => self.elements_out = u64::try_from(count).ok(),
            (Key::Bytes, Said::Number(bytes)) => self.bytes = u64::try_from(bytes).ok(),
            (Key::Flops, Said::Number(flops)) => self.flops = u64::try_from(flops).ok(),
            (Key::Zone, Said::Text(text)) => self.zone = Some(text),
            (Key::SignalledBy, Said::Text(text)) => self.signalled_by = Some(text),
            (Key::Semaphore, Said::Text(text)) => self.semaphore = Some(text),
            (Key::Stream, Said::Text(text)) => self.stream = Some(text),
            (Key::Step, Said::Number(number)) => self.step = u64::try_from(number).ok(),
            (Key::ByteRate, Said::Number(_) | Said::Real(_)) => self.has_byte_rate = true,
            (Key::FlopRate, Said::Number(_) | Said::Real(_)) => self.has_flop_rate = true,
            _ => {}
        }
    }
}
