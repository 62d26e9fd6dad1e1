//! Timelines on in-process streams: the cases of IREE's conformance tests, by their names; what those leave open; and random
//! graphs of work.

mod memory;
#[cfg(feature = "enable")]
mod memory_trace;
mod rules;

use warpline_tests::alone;

use crate::timelines::device::Host;
use crate::timelines::graph;

macro_rules! tests {
    ($($suite:ident: $($case:ident)*;)*) => {
        $(
            #[allow(non_snake_case, reason = "the names are those of the other suite")]
            mod $suite {
                use warpline_tests::alone;

                $(
                    #[test]
                    fn $case() {
                        let _turn = alone();
                        crate::timelines::cases::$suite::$case(&super::Host);
                    }
                )*
            }
        )*
    };
}

with_timeline_cases!(tests);

#[test]
fn random_graphs_of_work_end_and_every_edge_holds() {
    let _turn = alone();
    graph::random_graphs(&Host, 64, 120);
}

#[test]
fn the_documentations_table_has_each_case_and_no_other() {
    macro_rules! names {
        ($($suite:ident: $($case:ident)*;)*) => {
            vec![$($(concat!(stringify!($suite), ".", stringify!($case))),*),*]
        };
    }
    let page = include_str!("../../support/timelines/README.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let names: Vec<_> = rows
        .filter_map(|row| row.split_once('`'))
        .map(|(name, _)| name)
        .filter(|name| name.contains("Test."))
        .collect();
    assert_eq!(names, with_timeline_cases!(names));
}
