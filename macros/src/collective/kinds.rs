//! The operations between ranks, and the options that apply to each.
//!
//! Only the operation itself is required. Every other option describes the message: an option that contradicts the
//! operation is an error, an option that is left out is unknown in every record, and the catalog lists it.

use proc_macro2::{Ident, Span};
use syn::LitStr;
use syn::ext::IdentExt;
use syn::parse::{Error, ParseStream, Result};

use crate::key::{Key, MESSAGE, edits};

/// One operation.
#[derive(Clone, Copy)]
pub struct Operation {
    /// As the user writes it: `all_reduce`.
    pub name: &'static str,
    /// The runtime's `CollectiveKind::…`.
    pub variant: &'static str,
    /// The options that together describe a message completely.
    describes: &'static [Key],
    /// Other options that apply.
    also: &'static [Key],
}

const MOVES: &[Key] = &[Key::Count, Key::Dtype, Key::Group];
const FROM_ROOT: &[Key] = &[Key::Count, Key::Dtype, Key::Group, Key::Root];
const WITH_PEER: &[Key] = &[Key::Count, Key::Dtype, Key::Group, Key::Peer];
const SIGNALS: &[Key] = &[Key::Group, Key::Peer];

/// Options that apply to every operation.
const ALWAYS: &[Key] = &[Key::Seq, Key::IsAsync];

const fn operation(
    name: &'static str,
    variant: &'static str,
    describes: &'static [Key],
    also: &'static [Key],
) -> Operation {
    Operation { name, variant, describes, also }
}

const OPERATIONS: [Operation; 15] = [
    operation("all_reduce", "AllReduce", MOVES, &[Key::Op]),
    operation("all_gather", "AllGather", MOVES, &[Key::CountOut]),
    operation("reduce_scatter", "ReduceScatter", MOVES, &[Key::Op, Key::CountOut]),
    operation("broadcast", "Broadcast", FROM_ROOT, &[]),
    operation("reduce", "Reduce", FROM_ROOT, &[Key::Op]),
    operation("all_to_all", "AllToAll", MOVES, &[Key::CountOut, Key::InSplit, Key::OutSplit]),
    operation("gather", "Gather", FROM_ROOT, &[Key::CountOut]),
    operation("scatter", "Scatter", FROM_ROOT, &[Key::CountOut]),
    operation("send", "Send", WITH_PEER, &[]),
    operation("recv", "Recv", WITH_PEER, &[]),
    operation("send_recv", "SendRecv", WITH_PEER, &[Key::CountOut]),
    operation("all_gather_v", "AllGatherV", MOVES, &[Key::CountOut, Key::OutSplit]),
    operation("put_signal", "PutSignal", WITH_PEER, &[]),
    operation("signal", "Signal", SIGNALS, &[]),
    operation("wait_signal", "WaitSignal", SIGNALS, &[]),
];

impl Operation {
    /// The operation after `kind =`, with quotes or without.
    pub fn parse(input: ParseStream) -> Result<Operation> {
        let span = input.span();
        let word = match input.parse::<LitStr>() {
            Ok(name) => name.value(),
            Err(_) => input.call(Ident::parse_any).map_err(|_| Error::new(span, missing()))?.to_string(),
        };
        let known = |operation: &Operation| operation.name == word || operation.name.replace('_', "") == word;
        OPERATIONS.into_iter().find(known).ok_or_else(|| {
            let distance = |operation: &Operation| edits(operation.name, &word);
            let near = OPERATIONS.into_iter().min_by_key(distance).filter(|near| distance(near) * 2 < near.name.len());
            let help = near.map_or_else(listed, |near| format!("did you mean `{}`?", near.name));
            Error::new(span, format!("there is no collective `{word}`; {help}"))
        })
    }

    /// Refuses options that contradict the operation.
    pub fn check(&self, seen: &[(Key, Span)]) -> Result<()> {
        let applies = |key: &Key| self.describes.contains(key) || self.also.contains(key) || ALWAYS.contains(key);
        match seen.iter().find(|(key, _)| MESSAGE.contains(key) && !applies(key)) {
            Some((key, span)) => {
                let text = format!("`{}` has no `{}`: {}; remove it", self.name, key.name(), why_not(*key));
                Err(Error::new(*span, text))
            }
            None => Ok(()),
        }
    }

    /// The names of the options that would describe its messages completely and are not among `seen`.
    pub fn undescribed(&self, seen: &[(Key, Span)]) -> Vec<&'static str> {
        let missing = |key: &&Key| !seen.iter().any(|(seen, _)| seen == *key);
        self.describes.iter().filter(missing).map(|key| key.name()).collect()
    }
}

/// The hint for a missing kind.
pub fn missing() -> String {
    format!("no collective is given; write `kind = \"all_reduce\"`; {}", listed())
}

fn listed() -> String {
    format!("there are {}", OPERATIONS.map(|operation| operation.name).join(", "))
}

fn why_not(key: Key) -> &'static str {
    match key {
        Key::Root => "no rank is different from the others",
        Key::Peer => "all ranks of the group take part",
        Key::Op => "nothing is reduced",
        Key::Count | Key::Dtype => "it moves no elements",
        Key::CountOut => "it follows from `count`",
        _ => "its parts have one size",
    }
}
