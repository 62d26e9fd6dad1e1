//! Each attack catches a fault that is made on purpose: a program that is broken, a reader that panics, a trace that is damaged.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::time::Duration;

use warpline_attack::{Outcome, PLANTED, Run};

fn planted(name: &str, patience: Duration) -> Outcome {
    let attack = PLANTED.iter().find(|attack| attack.name == name).expect("there is such an attack");
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted");
    // Failures end it early.
    let run =
        Run::new(attack.name, 1, Duration::from_secs(20), Path::new(env!("CARGO_BIN_EXE_warpline-attack")), &kept);
    run.planted(patience).finish(attack)
}

macro_rules! planted {
    ($($test:ident: $name:literal, $patience_s:literal s, $what:literal;)*) => {
        $(#[test]
        fn $test() {
            let outcome = planted($name, Duration::from_secs($patience_s));
            let is_noticed = outcome.failures.iter().any(|failure| failure.what.contains($what));
            assert!(is_noticed, "{} tries: {:?}", outcome.tries, outcome.failures);
        })*

        #[test]
        fn every_planted_fault_is_a_test() {
            assert!([$($name),*].into_iter().eq(PLANTED.iter().map(|attack| attack.name)));
        }
    };
}

planted! {
    a_damaged_perfetto_trace_is_noticed: "kill-perfetto", 60 s, "t.pftrace: ";
    a_damaged_piece_of_a_rotated_trace_is_noticed: "kill-rotated", 60 s, ".pftrace: ";
    a_damaged_flight_recorder_is_noticed: "kill-flight", 60 s, "t.flight: `recover` refuses it";
    a_damaged_chrome_trace_is_noticed: "kill-chrome", 60 s, "t.json: ";
    a_trace_that_lacks_what_was_flushed_is_noticed: "kill-flushed", 60 s, "zones were flushed, and";
    a_program_that_counts_wrong_is_noticed: "kill-accounts", 60 s, "zones began, and the report has";
    a_sink_that_counts_wrong_is_noticed: "sinks", 60 s, "a sink took";
    a_forked_child_that_hangs_is_noticed: "forks-hang", 60 s, "does not end within";
    a_forked_child_that_crashes_is_noticed: "forks-crash", 60 s, "was ended by signal 6";
    a_program_that_stands_still_is_noticed: "client", 3 s, "nobody is answered within";
    a_command_that_prints_escapes_is_noticed: "program-escape", 60 s, "it prints '\\u{1b}'";
    a_command_that_hangs_is_noticed: "program-hang", 2 s, "does not end within";
    a_reader_of_tables_that_panics_is_noticed: "ranks-panic", 60 s, "panicked at";
    a_reader_of_tables_that_hides_a_file_is_noticed: "ranks-silence", 60 s, "it is named: false";
    a_reader_of_tables_that_no_damage_reaches_is_noticed: "ranks-untouched", 60 s, "the damage reaches no reader";
    a_compact_that_loses_rows_is_noticed: "ranks-loss", 60 s, "lines before `compact`, and";
    a_reader_that_panics_is_noticed: "reader-panic", 60 s, "it panics: a planted fault";
    a_reader_that_hangs_is_noticed: "reader-hang", 3 s, "a try does not end within";
    a_reader_that_takes_all_memory_is_noticed: "reader-memory", 60 s, "bytes of memory, more than";
    a_reader_that_overflows_its_stack_is_noticed: "reader-stack", 60 s, "the process ended with signal";
}
