//! The operations between ranks, and their names in NCCL and PyTorch.

use std::fmt;

/// An operation between the ranks of a group: those of NCCL up to 2.30.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CollectiveKind {
    /// Every rank gets the reduction of all.
    AllReduce,
    /// Every rank gets the data of all ranks.
    AllGather,
    /// Every rank gets its part of the reduction of all.
    ReduceScatter,
    /// Every rank gets the data of the root.
    Broadcast,
    /// The root gets the reduction of all.
    Reduce,
    /// Every rank gets a part from each.
    AllToAll,
    /// The root gets the data of all ranks.
    Gather,
    /// Every rank gets its part of the root's data.
    Scatter,
    /// Sends to one peer.
    Send,
    /// Receives from one peer.
    Recv,
    /// Sends to one peer and receives from it.
    SendRecv,
    /// Every rank gets the data of all ranks, whose sizes may differ.
    AllGatherV,
    /// Writes into the memory of a peer, which receives a signal.
    PutSignal,
    /// Signals a peer.
    Signal,
    /// Waits for a peer's signal.
    WaitSignal,
}

/// Each kind with its word and its name in NCCL, in the order of [`CollectiveKind`].
const KINDS: [(CollectiveKind, &str, &str); 15] = [
    (CollectiveKind::AllReduce, "all_reduce", "AllReduce"),
    (CollectiveKind::AllGather, "all_gather", "AllGather"),
    (CollectiveKind::ReduceScatter, "reduce_scatter", "ReduceScatter"),
    (CollectiveKind::Broadcast, "broadcast", "Broadcast"),
    (CollectiveKind::Reduce, "reduce", "Reduce"),
    (CollectiveKind::AllToAll, "all_to_all", "AllToAll"),
    (CollectiveKind::Gather, "gather", "Gather"),
    (CollectiveKind::Scatter, "scatter", "Scatter"),
    (CollectiveKind::Send, "send", "Send"),
    (CollectiveKind::Recv, "recv", "Recv"),
    (CollectiveKind::SendRecv, "send_recv", "SendRecv"),
    (CollectiveKind::AllGatherV, "all_gather_v", "AllGatherV"),
    (CollectiveKind::PutSignal, "put_signal", "PutSignal"),
    (CollectiveKind::Signal, "signal", "Signal"),
    (CollectiveKind::WaitSignal, "wait_signal", "WaitSignal"),
];

impl CollectiveKind {
    /// Every kind.
    pub const ALL: [CollectiveKind; 15] = {
        let mut all = [CollectiveKind::AllReduce; 15];
        let mut i = 0;
        while i < all.len() {
            all[i] = KINDS[i].0;
            i += 1;
        }
        all
    };

    /// Returns the operation's word in marks, reports and exports.
    pub const fn as_str(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// Returns the name in NCCL's kernels: tools recognize communication by `ncclDevKernel_…`.
    pub const fn nccl_name(self) -> &'static str {
        KINDS[self as usize].2
    }

    /// Returns the name in PyTorch's profiler, if it has one.
    pub const fn torch_name(self) -> &'static str {
        match self {
            CollectiveKind::AllReduce => "allreduce",
            CollectiveKind::AllGather => "allgather",
            other => other.as_str(),
        }
    }

    /// Returns whether two ranks of the group take part, whose calls differ.
    #[doc(hidden)]
    pub fn is_between_two(self) -> bool {
        use CollectiveKind::{PutSignal, Recv, Send, SendRecv, Signal, WaitSignal};
        matches!(self, Send | Recv | SendRecv | PutSignal | Signal | WaitSignal)
    }

    /// Returns the factor from the algorithm bandwidth to the bus bandwidth among `ranks` ranks, as NCCL's tests define it. The bus
    /// bandwidth is comparable with the hardware's speed for any number of ranks.
    pub fn bus_factor(self, ranks: usize) -> f64 {
        let n = ranks.max(1) as f64;
        match self {
            CollectiveKind::AllReduce => 2.0 * (n - 1.0) / n,
            CollectiveKind::AllGather
            | CollectiveKind::AllGatherV
            | CollectiveKind::ReduceScatter
            | CollectiveKind::AllToAll
            | CollectiveKind::Gather
            | CollectiveKind::Scatter => (n - 1.0) / n,
            _ => 1.0,
        }
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a reduction combines two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The larger element.
    Max,
    /// The smaller element.
    Min,
    /// The mean.
    Avg,
    /// The sum of scaled elements.
    PreMulSum,
}

impl ReduceOp {
    /// Returns the operation's word in marks and traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Avg => "avg",
            ReduceOp::PreMulSum => "pre_mul_sum",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_kind_in_its_place() {
        assert!(CollectiveKind::ALL.iter().enumerate().all(|(place, kind)| *kind as usize == place));
    }
}
