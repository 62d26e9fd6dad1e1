//! Timelines on in-process streams: the cases of IREE's conformance tests, by their names; what those leave open; and random
//! graphs of work.

#[path = "timeline/cases.rs"]
#[macro_use]
mod cases;
#[path = "timeline/device.rs"]
mod device;

use device::Host;

fn run(_: &str, case: fn(&Host)) {
    case(&Host);
}

timeline_cases!(run);
