//! The data that one collective moves, and its bandwidth.

use super::ledger::Call;
use super::{CollectiveKind, DataType, IntoDataType, ProcessGroup, ReduceOp};

/// The data that one collective, or one entry of a batch, moves. Unknown values are `None`: reports show a dash for figures that
/// depend on them, and traces leave the argument out.
///
/// `#[collective]` creates one for each call that records. To create one by hand:
///
/// ```
/// use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
///
/// let group = ProcessGroup::new("tp0", [0, 1], 0);
/// let message = Message::new(CollectiveKind::AllGather).count(1024).dtype(DataType::F32).group(&group);
/// assert_eq!(message.bytes(), Some(2 * 1024 * 4));
/// ```
#[derive(Clone, Debug)]
pub struct Message {
    /// The operation.
    pub kind: CollectiveKind,
    /// The type of the elements.
    pub dtype: Option<DataType>,
    /// The number of elements that this rank sends.
    pub count: Option<u64>,
    /// The number of elements that this rank receives, if given.
    pub count_out: Option<u64>,
    /// The participating ranks.
    pub group: Option<ProcessGroup>,
    /// The root's number in the group.
    pub root: Option<u32>,
    /// The peer's number in the group.
    pub peer: Option<u32>,
    /// How elements are combined.
    pub op: Option<ReduceOp>,
    /// The number of this collective in its group: equal on all ranks.
    pub seq: Option<u64>,
    /// The number of elements sent to each rank, if it differs between ranks.
    pub in_split: Option<Box<[u64]>>,
    /// The number of elements received from each rank, if it differs between ranks.
    pub out_split: Option<Box<[u64]>>,
    /// Whether the caller continues without waiting for it on its own stream.
    pub is_async: Option<bool>,
}

/// The bandwidth of a collective, in bytes per second, as NCCL's tests define it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// The size of the message divided by the time.
    pub algorithm: f64,
    /// The algorithm bandwidth multiplied by [`CollectiveKind::bus_factor`]. None for a group of one rank, which uses no bus.
    pub bus: Option<f64>,
}

impl Message {
    /// Creates a message of which only the kind is known.
    pub fn new(kind: CollectiveKind) -> Message {
        Message {
            kind,
            dtype: None,
            count: None,
            count_out: None,
            group: None,
            root: None,
            peer: None,
            op: None,
            seq: None,
            in_split: None,
            out_split: None,
            is_async: None,
        }
    }

    /// Sets the number of elements that this rank sends, or for `recv` receives.
    #[must_use]
    pub fn count(mut self, count: impl IntoCount) -> Message {
        self.count = Some(count.into_count());
        self
    }

    /// Sets the number of elements that this rank receives, if it does not follow from the kind and the group.
    #[must_use]
    pub fn count_out(mut self, count: impl IntoCount) -> Message {
        self.count_out = Some(count.into_count());
        self
    }

    /// Sets the type of the elements.
    #[must_use]
    pub fn dtype(mut self, dtype: impl IntoDataType) -> Message {
        self.dtype = dtype.into_data_type();
        self
    }

    /// Sets the participating ranks. A message without a number gets the group's next one when it begins.
    #[must_use]
    pub fn group(mut self, group: &ProcessGroup) -> Message {
        self.group = Some(group.clone());
        self
    }

    /// Sets the root's number in the group.
    #[must_use]
    pub fn root(mut self, rank: impl IntoCount) -> Message {
        self.root = u32::try_from(rank.into_count()).ok();
        self
    }

    /// Sets the peer's number in the group.
    #[must_use]
    pub fn peer(mut self, rank: impl IntoCount) -> Message {
        self.peer = u32::try_from(rank.into_count()).ok();
        self
    }

    /// Sets how elements are combined.
    #[must_use]
    pub fn op(mut self, op: ReduceOp) -> Message {
        self.op = Some(op);
        self
    }

    /// Sets the number of this collective in its group.
    #[must_use]
    pub fn seq(mut self, seq: impl IntoCount) -> Message {
        self.seq = Some(seq.into_count());
        self
    }

    /// Sets the number of elements sent to each rank. Allocates.
    #[must_use]
    pub fn in_split<C: IntoCount + Copy>(mut self, sizes: &[C]) -> Message {
        self.in_split = Some(sizes.iter().map(|size| size.into_count()).collect());
        self
    }

    /// Sets the number of elements received from each rank. Allocates.
    #[must_use]
    pub fn out_split<C: IntoCount + Copy>(mut self, sizes: &[C]) -> Message {
        self.out_split = Some(sizes.iter().map(|size| size.into_count()).collect());
        self
    }

    /// Sets whether the caller continues without waiting for it.
    #[must_use]
    pub fn is_async(mut self, is_async: bool) -> Message {
        self.is_async = Some(is_async);
        self
    }

    /// Returns the number of participating ranks, if the group is known.
    pub fn ranks(&self) -> Option<usize> {
        self.group.as_ref().map(ProcessGroup::size)
    }

    /// Returns the number of elements that this rank receives: as given, or derived from the kind and the group.
    pub fn elements_out(&self) -> Option<u64> {
        use CollectiveKind::{AllGather, Gather, PutSignal, ReduceScatter, Scatter, Send, Signal, WaitSignal};
        let derived = || {
            let (count, n) = (self.count?, self.ranks().map(|n| n as u64));
            match self.kind {
                Send | PutSignal | Signal | WaitSignal => Some(0),
                AllGather => Some(count.saturating_mul(n?)),
                Gather => Some(if self.is_root() { count.saturating_mul(n?) } else { 0 }),
                ReduceScatter | Scatter => Some(count / n?.max(1)),
                _ => Some(count),
            }
        };
        self.count_out.or_else(derived)
    }

    /// Returns the number of elements that this rank sends.
    pub fn elements_in(&self) -> Option<u64> {
        if self.kind == CollectiveKind::Recv { Some(0) } else { self.count }
    }

    fn is_root(&self) -> bool {
        self.group.as_ref().is_some_and(|group| Some(group.rank()) == self.root)
    }

    /// Returns the size of the message in bytes, as NCCL's tests define it: what all ranks together gather or scatter, or otherwise
    /// what each rank sends.
    pub fn bytes(&self) -> Option<u64> {
        use CollectiveKind::{AllGather, AllGatherV, Gather};
        let elements = match self.kind {
            AllGather | Gather => self.count?.saturating_mul(self.ranks()? as u64),
            AllGatherV => self.elements_out()?,
            _ => self.count?,
        };
        Some(elements.saturating_mul(self.dtype?.bytes()))
    }

    /// Returns the bandwidth for a time in ns, or none if the size or the group is unknown.
    pub fn bandwidth(&self, ns: i64) -> Option<Bandwidth> {
        let seconds = ns as f64 * 1e-9;
        let algorithm = self.bytes().filter(|_| ns > 0)? as f64 / seconds;
        let ranks = self.ranks()?;
        let bus = (ranks > 1).then(|| algorithm * self.kind.bus_factor(ranks));
        Some(Bandwidth { algorithm, bus })
    }

    /// Returns the number of elements, if all ranks of the group say the same.
    #[doc(hidden)]
    pub fn equal_items(&self) -> Option<u64> {
        let differs = self.in_split.is_some() || self.out_split.is_some() || self.kind == CollectiveKind::AllGatherV;
        self.count.filter(|_| !differs && !self.kind.is_between_two())
    }

    /// Begins the message and assigns its number.
    pub(crate) fn begin(&mut self) {
        if let (None, Some(group)) = (self.seq, &self.group) {
            self.seq = group.next_seq();
        }
        if let Some(group) = &self.group {
            group.enter(|| self.call());
        }
    }

    /// Returns what the group's ledger keeps of the call; none without a number.
    fn call(&self) -> Option<Call> {
        let Message { kind, dtype, root, .. } = *self;
        Some(Call { seq: self.seq?, kind, dtype, items: self.equal_items(), root, signature: 0 })
    }
}

/// An integer of any type, converted to a non-negative count. A negative value counts as 0.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a number of elements or ranks", label = "not an integer")]
pub trait IntoCount {
    /// Returns the value.
    fn into_count(self) -> u64;
}

macro_rules! counts {
    ($($integer:ty)*) => {
        $(
            impl IntoCount for $integer {
                #[inline]
                fn into_count(self) -> u64 {
                    u64::try_from(self).unwrap_or(0)
                }
            }
        )*
    };
}

counts!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: CollectiveKind, count: u64) -> Message {
        Message::new(kind).count(count).dtype(DataType::F32).group(&ProcessGroup::new("g", 0..4, 1))
    }

    #[test]
    fn sizes_and_bandwidths_are_those_of_nccls_tests() {
        use CollectiveKind::*;
        // For 4 ranks, 1000 floats per rank and 1 µs: bytes, elements out, bus bandwidth divided by algorithm bandwidth.
        let cases = [
            (AllReduce, 4_000, 1_000, 1.5),
            (AllGather, 16_000, 4_000, 0.75),
            (ReduceScatter, 4_000, 250, 0.75),
            (Broadcast, 4_000, 1_000, 1.0),
            (Reduce, 4_000, 1_000, 1.0),
            (AllToAll, 4_000, 1_000, 0.75),
            (Gather, 16_000, 0, 0.75),
            (Scatter, 4_000, 250, 0.75),
            (Send, 4_000, 0, 1.0),
            (Recv, 4_000, 1_000, 1.0),
            (SendRecv, 4_000, 1_000, 1.0),
        ];
        for (kind, bytes, out, factor) in cases {
            let message = message(kind, 1_000);
            assert_eq!((message.bytes(), message.elements_out()), (Some(bytes), Some(out)), "{kind}");
            let bandwidth = message.bandwidth(1_000).expect("all is known");
            assert!((bandwidth.algorithm - bytes as f64 * 1e6).abs() < 1.0, "{kind}: {bandwidth:?}");
            let bus = bandwidth.bus.expect("there are four ranks");
            assert!((bus / bandwidth.algorithm - factor).abs() < 1e-9, "{kind}: {bandwidth:?}");
            let alone = message.group(&ProcessGroup::new("solo", [0], 0)).bandwidth(1_000).expect("all is known");
            assert!(alone.algorithm > 0.0 && alone.bus.is_none(), "{kind}: {alone:?}");
        }
        assert_eq!(message(Gather, 1_000).root(1).elements_out(), Some(4_000), "the root gets it all");
        assert_eq!(message(AllGatherV, 10).out_split(&[1, 2, 3, 4]).count_out(10).bytes(), Some(40));
    }

    #[test]
    fn what_is_not_known_gives_no_figure() {
        let message = Message::new(CollectiveKind::AllReduce).count(-1).dtype(99);
        assert_eq!((message.count, message.dtype, message.bytes(), message.bandwidth(1)), (Some(0), None, None, None));
        assert_eq!(crate::collective::dtype::DataType::from_nccl(9), Some(DataType::Bf16));
    }

    #[test]
    fn a_message_takes_the_groups_next_number_unless_it_says_one() {
        let group = ProcessGroup::new("g", [0, 1], 0);
        let numbers = [None, Some(70_u64), None].map(|seq| {
            let mut message = Message::new(CollectiveKind::Broadcast).group(&group);
            message.seq = seq;
            message.begin();
            message.seq
        });
        assert_eq!(numbers, [Some(0), Some(70), Some(1)]);
    }
}
