#![allow(unused_variables)]

use warpline::{HostStream, collective, gpu_zone};
use warpline::collective::ProcessGroup;

warpline::namespace!("demo", "vector arithmetic");

/// Moves.
#[collective(kind = "all_redcue", count = 1, dtype = f32, group = group)]
fn first(stream: &HostStream, group: &ProcessGroup) {}

/// Moves.
#[collective(kind = "barrier", count = 1, dtype = f32, group = group)]
fn second(stream: &HostStream, group: &ProcessGroup) {}

/// Moves.
#[collective(count = 1, dtype = f32, group = group)]
fn third(stream: &HostStream, group: &ProcessGroup) {}

/// Moves.
#[collective(kind = "broadcast", peer = 1)]
fn fourth(stream: &HostStream) {}

/// Moves.
#[collective(kind = "send", root = 0)]
fn fifth(stream: &HostStream) {}

/// Moves.
#[collective(kind = "all_reduce", count = 1, dtype = f32, group = group, root = 0)]
fn sixth(stream: &HostStream, group: &ProcessGroup) {}

/// Moves.
#[collective(kind = "all_gather", count = 1, dtype = f32, group = group, op = "sum")]
fn seventh(stream: &HostStream, group: &ProcessGroup) {}

/// Moves.
#[collective(kind = "all_reduce", count = 1, dtype = f32, group = group, colour = 1)]
fn eighth(stream: &HostStream, group: &ProcessGroup) {}

/// Moves.
#[collective(kind = "all_reduce", count = 1, dtype = "float", group = group)]
fn ninth(stream: &HostStream, group: &ProcessGroup) {}

/// Moves.
#[collective(kind = "all_reduce", count = 1, dtype = bool, group = group)]
fn tenth(stream: &HostStream, group: &ProcessGroup) {}

/// Moves.
#[collective(kind = "all_reduce", count_out = 1)]
fn eleventh(stream: &HostStream) {}

/// Moves.
#[collective(kind = "broadcast", out_split = [1])]
fn twelfth(stream: &HostStream) {}

/// Moves.
#[collective(kind = "reduce", count = 1, dtype = f32, group = group, root = 0, op = "mean")]
fn thirteenth(stream: &HostStream, group: &ProcessGroup) {}

/// Moves.
#[collective(kind = "wait_signal", peer = 1, group = group, count = 4)]
fn fourteenth(stream: &HostStream, group: &ProcessGroup) {}

/// Adds.
#[gpu_zone("demo.add", root = 1)]
fn add(stream: &HostStream) {}

fn main() {}
