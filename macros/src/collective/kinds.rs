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
    payload: Payload,
}

/// The buffer whose length is the number of elements, among the parameters of a function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// The one that is sent, a shared reference.
    Sent,
    /// The one that is sent, or the only one: the operation may work in place.
    InPlace,
    /// The one that receives, an exclusive reference.
    Received,
    /// Neither: its length depends on the rank or on the other ranks' sizes.
    Unknown,
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
    payload: Payload,
) -> Operation {
    Operation { name, variant, describes, also, payload }
}

const OPERATIONS: [Operation; 15] = [
    operation("all_reduce", "AllReduce", MOVES, &[Key::Op], Payload::InPlace),
    operation("all_gather", "AllGather", MOVES, &[Key::CountOut], Payload::Sent),
    operation("reduce_scatter", "ReduceScatter", MOVES, &[Key::Op, Key::CountOut], Payload::Sent),
    operation("broadcast", "Broadcast", FROM_ROOT, &[], Payload::Received),
    operation("reduce", "Reduce", FROM_ROOT, &[Key::Op], Payload::InPlace),
    operation("all_to_all", "AllToAll", MOVES, &[Key::CountOut, Key::InSplit, Key::OutSplit], Payload::Sent),
    operation("gather", "Gather", FROM_ROOT, &[Key::CountOut], Payload::Sent),
    operation("scatter", "Scatter", FROM_ROOT, &[Key::CountOut], Payload::Unknown),
    operation("send", "Send", WITH_PEER, &[], Payload::InPlace),
    operation("recv", "Recv", WITH_PEER, &[], Payload::Received),
    operation("send_recv", "SendRecv", WITH_PEER, &[Key::CountOut], Payload::Sent),
    operation("all_gather_v", "AllGatherV", MOVES, &[Key::CountOut, Key::OutSplit], Payload::Unknown),
    operation("put_signal", "PutSignal", WITH_PEER, &[], Payload::Sent),
    operation("signal", "Signal", SIGNALS, &[], Payload::Unknown),
    operation("wait_signal", "WaitSignal", SIGNALS, &[], Payload::Unknown),
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

    /// Whether an option of the message applies.
    pub fn takes(&self, key: Key) -> bool {
        self.describes.contains(&key) || self.also.contains(&key) || ALWAYS.contains(&key)
    }

    /// The buffer whose length is the number of elements.
    pub fn payload(&self) -> Payload {
        self.payload
    }

    /// Whether the buffer that receives is as long as what arrives.
    pub fn receives_all(&self) -> bool {
        self.name == "send_recv"
    }

    /// Refuses options that contradict the operation.
    pub fn check(&self, seen: &[(Key, Span)]) -> Result<()> {
        match seen.iter().find(|(key, _)| MESSAGE.contains(key) && !self.takes(*key)) {
            Some((key, span)) => {
                let text = format!("`{}` has no `{}`: {}; remove it", self.name, key.name(), why_not(*key));
                Err(Error::new(*span, text))
            }
            None => Ok(()),
        }
    }

    /// The names of the options that would describe its messages completely and are not `known`.
    pub fn undescribed(&self, known: &[Key]) -> Vec<&'static str> {
        let missing = |key: &&Key| !known.contains(key);
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
