#![allow(unused_variables)]

use warpline::{HostStream, collective};
use warpline::collective::ProcessGroup;

warpline::namespace!("demo", "vector arithmetic");

/// The type of the elements is a text.
#[collective(kind = "all_reduce", count = 1, dtype = name, group = group)]
fn text_as_type(stream: &HostStream, name: &str, group: &ProcessGroup) {}

/// The type of the elements is one that NCCL does not move.
#[collective(kind = "all_reduce", count = 1, dtype = <char>, group = group)]
fn char_as_type(stream: &HostStream, group: &ProcessGroup) {}

/// The count is a float.
#[collective(kind = "all_reduce", count = 1.5, dtype = f32, group = group)]
fn float_as_count(stream: &HostStream, group: &ProcessGroup) {}

/// The group is a list of ranks.
#[collective(kind = "all_reduce", count = 1, dtype = f32, group = ranks)]
fn ranks_as_group(stream: &HostStream, ranks: &[u32]) {}

fn main() {}
