//! Timelines on in-process streams: the cases of IREE's conformance tests, by their names; what those leave open; and random
//! graphs of work.

#[path = "timeline/cases.rs"]
#[macro_use]
mod cases;
#[path = "timeline/device.rs"]
mod device;
#[path = "timeline/graph.rs"]
mod graph;
#[path = "timeline/rules.rs"]
mod rules;

use device::Host;

macro_rules! tests {
    ($($suite:ident: $($case:ident)*;)*) => {
        $(
            #[allow(non_snake_case, reason = "the names are those of the other suite")]
            mod $suite {
                $(#[test] fn $case() { crate::cases::$suite::$case(&super::Host); })*
            }
        )*
    };
}

with_timeline_cases!(tests);

#[test]
fn random_graphs_of_work_end_and_every_edge_holds() {
    graph::random_graphs(&Host, 64, 120);
}
