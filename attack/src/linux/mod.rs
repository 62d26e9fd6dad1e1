//! The attacks: they kill, fork and listen as Linux has it.

mod child;
mod files;
mod forks;
mod harness;
mod inputs;
mod kills;
mod memory;
mod mutate;
mod program;
mod server;
mod sinks;
mod tables;
mod worker;

#[path = "../../../tests/support/trace.rs"]
mod trace;

use std::ffi::OsString;
use std::process::ExitCode;

use worker::AS_COMMAND;

pub use harness::{Attack, Failure, Outcome, Run};
pub use memory::Counting;

/// Every attack, in the order of the table.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "kill-perfetto",
        about: "SIGKILL while `perfetto=` starts, is written and finishes",
        run: kills::perfetto,
    },
    Attack { name: "kill-rotated", about: "the same with `rotate=`", run: kills::rotated },
    Attack { name: "kill-flight", about: "the same with `flight=`", run: kills::flight },
    Attack { name: "kill-chrome", about: "the same with `chrome=`", run: kills::chrome_file },
    Attack {
        name: "sinks",
        about: "sinks that fail, block and panic at random: every account is exact",
        run: sinks::attack,
    },
    Attack { name: "forks", about: "forks while other threads record: no child hangs or crashes", run: forks::attack },
    Attack { name: "client", about: "a hostile client of a program that listens", run: server::attack },
    Attack { name: "program", about: "a hostile program behind each command that asks", run: program::attack },
    Attack { name: "binary", about: "mutated binaries for `catalog` and `check`", run: inputs::binary },
    Attack { name: "catalog", about: "mutated sections of notes", run: inputs::catalog },
    Attack { name: "flight", about: "mutated files of flight recorders for `recover`", run: inputs::flight },
    Attack { name: "recover", about: "mutated Chrome traces for `recover`", run: inputs::recover },
    Attack { name: "pftrace", about: "mutated Perfetto traces for `stragglers`", run: inputs::pftrace },
    Attack { name: "annotate", about: "mutated Chrome traces and annotations for `annotate`", run: inputs::annotate },
    Attack { name: "gzip", about: "gzip bombs and broken gzip for `annotate`", run: inputs::gzip },
    Attack { name: "settings", about: "mutated settings of `WARPLINE=…`", run: inputs::settings },
    Attack { name: "request", about: "mutated requests to the control socket's decoder", run: inputs::request },
];

/// The attacks on `warpline-ranks`, a program of another workspace, which [`Run::on_ranks`] names.
pub const ON_RANKS: &[Attack] = &[Attack {
    name: "parquet",
    about: "damaged Parquet files behind each command of `warpline-ranks`",
    run: tables::attack,
}];

/// Attacks on deliberately broken variants, which must fail: they show that the attacks can.
pub const PLANTED: &[Attack] = &[
    Attack {
        name: "kill-perfetto",
        about: "a byte in the middle of the trace is changed",
        run: kills::planted_perfetto,
    },
    Attack { name: "kill-rotated", about: "the same of a rotated one", run: kills::planted_rotated },
    Attack { name: "kill-flight", about: "the header of the recorder's file is lost", run: kills::planted_flight },
    Attack { name: "kill-chrome", about: "the beginning of the document is lost", run: kills::planted_chrome },
    Attack { name: "kill-flushed", about: "most of the trace is lost", run: kills::planted_most },
    Attack { name: "kill-accounts", about: "a program that counts one zone too many", run: kills::planted_account },
    Attack { name: "sinks", about: "a sink that took one record more than it says", run: sinks::planted },
    Attack { name: "forks-hang", about: "a child that waits for ever", run: forks::planted_hang },
    Attack { name: "forks-crash", about: "a child that aborts", run: forks::planted_crash },
    Attack { name: "client", about: "a program that is stopped after some connections", run: server::planted },
    Attack { name: "program-escape", about: "a command that prints what it reads", run: program::planted_escape },
    Attack { name: "program-hang", about: "a command that waits for ever", run: program::planted_hang },
    Attack { name: "ranks-panic", about: "a reader of tables that panics", run: tables::planted_panic },
    Attack { name: "ranks-silence", about: "one that leaves out a file without a word", run: tables::planted_silence },
    Attack { name: "ranks-untouched", about: "one that damage does not reach", run: tables::planted_untouched },
    Attack { name: "ranks-loss", about: "a `compact` that loses rows", run: tables::planted_loss },
    Attack { name: "reader-panic", about: "a reader that panics", run: inputs::planted_panic },
    Attack { name: "reader-hang", about: "a reader that does not end", run: inputs::planted_hang },
    Attack { name: "reader-memory", about: "a reader that takes what a length says", run: inputs::planted_memory },
    Attack { name: "reader-stack", about: "a reader that recurses without a limit", run: inputs::planted_stack },
];

/// Whether this process is there as the command `warpline`, or as a broken variant of it.
pub fn is_command() -> Option<ExitCode> {
    let variant = std::env::var(AS_COMMAND).ok()?;
    Some(if variant.starts_with("ranks-") { tables::ranks_of(&variant) } else { program::command_of(&variant) })
}

/// Runs a worker with these arguments, which follow `worker`.
pub fn run_as_worker(arguments: &[OsString]) -> ExitCode {
    let arguments: Vec<_> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    match arguments.as_slice() {
        ["input", reader] => inputs::worker(reader),
        ["record", load, end] => kills::worker(load, end),
        ["sinks", variant] => sinks::worker(variant),
        ["forks", variant] => forks::worker(variant),
        ["listen"] => server::worker(),
        _ => {
            eprintln!("error: no worker has the arguments {arguments:?}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
