#![allow(unused_variables)]

use warpline::{HostStream, block, collective};
use warpline::collective::{CollectiveKind, Message};

warpline::namespace!("demo", "vector arithmetic");

/// Sums over all ranks.
#[collective(kind = "all_reduce")]
fn sum(stream: &HostStream) {
    stream.launch(|| ());
}

/// From one rank to all.
#[collective(kind = "broadcast")]
fn weights(stream: &HostStream) {}

/// To the next rank.
#[collective(kind = "send", count = 8)]
fn pass_on(stream: &HostStream) {}

/// A flag.
#[collective(kind = "signal")]
fn flag(stream: &HostStream) {}

fn main() {
    let stream = HostStream::new("s");
    sum(&stream);
    weights(&stream);
    pass_on(&stream);
    flag(&stream);
    block::collective!("demo.part", &stream, kind = "all_to_all", description = "To each its part.", {
        stream.launch(|| ())
    });
    let message = Message::new(CollectiveKind::AllReduce);
    assert_eq!((message.count, message.dtype, message.bytes()), (None, None, None));
}
