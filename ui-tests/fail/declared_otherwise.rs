use warpline::{HostStream, block, gpu_zone, host_zone};

warpline::namespace!("demo", "vector arithmetic");

mod ranges {
    warpline::range! {
        pub ADD = "demo.add": "Adds.", fields(n);
        pub LOAD = "demo.load": "Loads.", kind = host;
        pub WRONG = "demo.wrong", kind = host;
    }
}

use ranges::LOAD as RENAMED;

#[gpu_zone(RENAMED)]
fn of_another_kind(stream: &HostStream) {}

#[gpu_zone(ranges::ADD, fields(n = 1, rows = 2))]
fn one_field_more(stream: &HostStream) {}

#[gpu_zone(ranges::ADD)]
fn one_field_less(stream: &HostStream) {}

#[gpu_zone(ranges::WRONG)]
fn of_a_wrong_range(stream: &HostStream) {}

#[host_zone(RENAMED)]
fn right() {
    block::host_zone!(ranges::ADD, fields(n = 1), {});
}

fn main() {}
