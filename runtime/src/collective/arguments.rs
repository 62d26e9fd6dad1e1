//! What a trace says of a message: the names that PyTorch's profiler gives to a collective's arguments, so that tools made
//! for its traces find them.

use super::{CollectiveKind, Message, ProcessGroup};
use crate::fields::Value;

impl Message {
    /// Names and values of what is known.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let group = self.group.as_ref();
        let rank = group.map(|group| u64::from(group.rank()));
        let (source, target) = self.ends(rank);
        let count = |count: Option<u64>| count.map(Value::U64);
        let text = |text: &str| Value::Text(text.into());
        let (start, stride) = group.and_then(|group| steps(group.ranks())).unzip();
        [
            ("Collective name", Some(Value::Str(self.kind.torch_name()))),
            ("dtype", self.dtype.map(|dtype| Value::Str(dtype.torch_name()))),
            ("In msg nelems", count(self.elements_in())),
            ("Out msg nelems", count(self.elements_out())),
            ("In split size", self.in_split.as_deref().map(list)),
            ("Out split size", self.out_split.as_deref().map(list)),
            ("Global rank start", count(start)),
            ("Global rank stride", count(stride)),
            ("Group size", group.map(|group| Value::U64(group.size() as u64))),
            ("Process Group Name", group.map(|group| text(group.name()))),
            (
                "Process Group Description",
                group.map(ProcessGroup::description).filter(|about| !about.is_empty()).map(text),
            ),
            ("Process Group Ranks", group.map(|group| list(group.ranks()))),
            ("Rank", count(rank)),
            ("Src Rank", count(source)),
            ("Dst Rank", count(target)),
            ("Seq", count(self.seq)),
            ("Is asynchronized op", self.is_async.map(Value::Bool)),
            ("Comms Id", count(group.and_then(ProcessGroup::comm_id))),
            ("op", self.op.map(|op| Value::Str(op.as_str()))),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }

    /// The ranks from which and to which it goes, where that is one rank.
    fn ends(&self, rank: Option<u64>) -> (Option<u64>, Option<u64>) {
        let (root, peer) = (self.root.map(u64::from), self.peer.map(u64::from));
        match self.kind {
            CollectiveKind::Broadcast | CollectiveKind::Scatter => (root, None),
            CollectiveKind::Reduce | CollectiveKind::Gather => (None, root),
            CollectiveKind::Send | CollectiveKind::SendRecv | CollectiveKind::PutSignal | CollectiveKind::Signal => {
                (rank, peer)
            }
            CollectiveKind::Recv | CollectiveKind::WaitSignal => (peer, rank),
            _ => (None, None),
        }
    }
}

fn list<T: ToString>(values: &[T]) -> Value {
    let values: Vec<_> = values.iter().map(T::to_string).collect();
    Value::Text(format!("[{}]", values.join(", ")).into())
}

/// The first rank and the distance from each to the next, where that is the same for all; as PyTorch says it.
fn steps(ranks: &[u32]) -> Option<(u64, u64)> {
    let (first, second) = (*ranks.first()?, ranks.get(1).copied());
    let stride = second.map_or(Some(1), |second| second.checked_sub(first)).filter(|stride| *stride > 0)?;
    let even = ranks.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(stride));
    even.then_some((u64::from(first), u64::from(stride)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::DataType;

    #[test]
    fn names_are_those_of_pytorchs_profiler() {
        let group = ProcessGroup::new("tp0", [2, 4, 6, 8], 1).with_description("tensor parallel").with_comm_id(7);
        let message =
            Message::new(CollectiveKind::AllToAll).count(8_u32).dtype(DataType::Bf16).group(&group).seq(3_u64);
        let message = message.in_split(&[1, 3, 2, 2]).out_split(&[2, 2, 2, 2]).is_async(true);
        let said: Vec<_> = message.arguments().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!(
            said,
            [
                "Collective name: all_to_all",
                "dtype: BFloat16",
                "In msg nelems: 8",
                "Out msg nelems: 8",
                "In split size: [1, 3, 2, 2]",
                "Out split size: [2, 2, 2, 2]",
                "Global rank start: 2",
                "Global rank stride: 2",
                "Group size: 4",
                "Process Group Name: tp0",
                "Process Group Description: tensor parallel",
                "Process Group Ranks: [2, 4, 6, 8]",
                "Rank: 1",
                "Seq: 3",
                "Is asynchronized op: true",
                "Comms Id: 7",
            ]
        );
    }

    #[test]
    fn one_rank_is_the_source_or_the_target() {
        let group = ProcessGroup::new("pp", [0, 5], 1);
        let ends = |kind| {
            let message = Message::new(kind).group(&group).root(0).peer(0);
            let find = |wanted| message.arguments().find(|(name, _)| *name == wanted).map(|(_, value)| value);
            (find("Src Rank"), find("Dst Rank"))
        };
        let rank = |rank| Some(Value::U64(rank));
        assert_eq!(ends(CollectiveKind::Send), (rank(1), rank(0)));
        assert_eq!(ends(CollectiveKind::Recv), (rank(0), rank(1)));
        assert_eq!(ends(CollectiveKind::Broadcast), (rank(0), None));
        assert_eq!(ends(CollectiveKind::Gather), (None, rank(0)));
        assert_eq!(ends(CollectiveKind::AllReduce), (None, None));
        assert_eq!((steps(&[0, 1, 3]), steps(&[3]), steps(&[])), (None, Some((3, 1)), None));
    }
}
