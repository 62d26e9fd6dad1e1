//! The arguments of a message in a trace, with the names that PyTorch's profiler uses, so that tools for its traces find them.

use super::group::list;
use super::{CollectiveKind, Message, ProcessGroup};
use crate::fields::Value;

/// PyTorch's profiler writes at most this many elements of a list, as do formats that repeat the list with every collective.
const FEW: usize = 30;

/// The names of all arguments, in their order.
pub const NAMES: [&str; 19] = [
    "Collective name",
    "dtype",
    "In msg nelems",
    "Out msg nelems",
    "In split size",
    "Out split size",
    "Global rank start",
    "Global rank stride",
    "Group size",
    "Process Group Name",
    "Process Group Description",
    "Process Group Ranks",
    "Rank",
    "Src Rank",
    "Dst Rank",
    "Seq",
    "Is asynchronized op",
    "Comms Id",
    "op",
];

/// The value of an argument.
pub enum ArgumentValue<'a> {
    /// A value of this call.
    Value(Value),
    /// A value of the group: the same text in all its collectives. `which` numbers the texts of one group, from 0.
    OfGroup { group: &'a ProcessGroup, which: u64, text: &'a str },
    /// All ranks of the group.
    Ranks(&'a ProcessGroup),
    /// The number of elements for or from each rank.
    Sizes(&'a [u64]),
}

impl<'a> ArgumentValue<'a> {
    /// Returns the complete value.
    pub fn value(self) -> Value {
        match self {
            ArgumentValue::Value(value) => value,
            ArgumentValue::OfGroup { text, .. } => Value::Text(text.into()),
            ArgumentValue::Ranks(group) => Value::Text(group.listed().into()),
            ArgumentValue::Sizes(sizes) => Value::Text(list(sizes, usize::MAX).into()),
        }
    }

    /// Returns the value with as many list elements as PyTorch's profiler writes: `[0, 1, 2, ...]`.
    pub fn short(self) -> Value {
        match self {
            ArgumentValue::Ranks(group) => Value::Text(list(group.ranks(), FEW).into()),
            ArgumentValue::Sizes(sizes) => Value::Text(list(sizes, FEW).into()),
            other => other.value(),
        }
    }

    /// Returns a text that all collectives of a group share, and its number, which is unique in the process.
    pub fn shared(&self) -> Option<(u64, &'a str)> {
        /// A bound above the number of a group's texts.
        const TEXTS: u64 = 4;
        match *self {
            ArgumentValue::OfGroup { group, which, text } => Some((group.id() * TEXTS + which, text)),
            ArgumentValue::Ranks(group) => Some((group.id() * TEXTS + TEXTS - 1, group.listed())),
            ArgumentValue::Value(_) | ArgumentValue::Sizes(_) => None,
        }
    }
}

impl Message {
    /// Returns the names and values of the known arguments.
    #[doc(hidden)]
    pub fn arguments(&self) -> impl Iterator<Item = (&'static str, ArgumentValue<'_>)> {
        let group = self.group.as_ref();
        let rank = group.map(|group| u64::from(group.rank()));
        let (source, target) = self.ends(rank);
        let word = |word: &'static str| ArgumentValue::Value(Value::Str(word));
        let count = |count: Option<u64>| count.map(|count| ArgumentValue::Value(Value::U64(count)));
        let of_group = |which, text: fn(&ProcessGroup) -> &str| {
            group.map(|group| ArgumentValue::OfGroup { group, which, text: text(group) })
        };
        let described = group.is_some_and(|group| !group.description().is_empty());
        let (start, stride) = group.and_then(|group| steps(group.ranks())).unzip();
        let values = [
            Some(word(self.kind.torch_name())),
            self.dtype.map(|dtype| word(dtype.torch_name())),
            count(self.elements_in()),
            count(self.elements_out()),
            self.in_split.as_deref().map(ArgumentValue::Sizes),
            self.out_split.as_deref().map(ArgumentValue::Sizes),
            count(start),
            count(stride),
            count(group.map(|group| group.size() as u64)),
            of_group(0, ProcessGroup::name),
            of_group(1, ProcessGroup::description).filter(|_| described),
            group.map(ArgumentValue::Ranks),
            count(rank),
            count(source),
            count(target),
            count(self.seq),
            self.is_async.map(|is_async| ArgumentValue::Value(Value::Bool(is_async))),
            count(group.and_then(ProcessGroup::comm_id)),
            self.op.map(|op| word(op.as_str())),
        ];
        NAMES.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?)))
    }

    /// Returns the source and destination rank, if there is only one.
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

/// Returns the first rank and the stride, if it is constant, in PyTorch's format.
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
        let said: Vec<_> = message.arguments().map(|(name, said)| format!("{name}: {}", said.value())).collect();
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
    fn a_long_list_is_cut_as_pytorch_cuts_it() {
        let group = ProcessGroup::new("dp", 0..1024, 0);
        let message =
            Message::new(CollectiveKind::AllToAll).group(&group).in_split(&[7_u64; 31]).out_split(&[1_u64; 30]);
        let short = |wanted| {
            let found = message.arguments().find(|(name, _)| *name == wanted);
            found.map(|(_, said)| said.short().to_string()).expect("it is known")
        };
        let ranks = short("Process Group Ranks");
        assert!(ranks.starts_with("[0, 1, 2, ") && ranks.ends_with(", 28, 29, ...]"), "{ranks}");
        assert_eq!(short("In split size").matches('7').count(), 30);
        assert!(short("Out split size").ends_with("1, 1]"), "thirty are not too many");
    }

    #[test]
    fn one_rank_is_the_source_or_the_target() {
        let group = ProcessGroup::new("pp", [0, 5], 1);
        let ends = |kind| {
            let message = Message::new(kind).group(&group).root(0).peer(0);
            let find = |wanted| message.arguments().find(|(name, _)| *name == wanted).map(|(_, said)| said.value());
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
