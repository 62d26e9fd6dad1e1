//! The command `warpline`, started as its users start it. Each file is a part of it.
//!
//! All tests share one process, and there is one session at a time in a process: a test that starts one, or begins zones, holds
//! `support::alone`. A test that needs a program of its own is a target of its own in `Cargo.toml`, which says why.

warpline::namespace!("cli", "what the tests of the command record");

#[path = "../../tests/support/programs.rs"]
mod programs;
mod support;

mod annotate;
mod catalog_traces;
mod command;
mod compare;
mod control;
mod control_arm;
mod control_bounds;
mod control_descriptors;
mod control_hostile;
mod control_pids;
mod control_silent;
mod control_traces;
mod doctor;
mod equal;
mod foreign;
mod formats;
mod golden;
mod hostile_names;
mod hostile_traces;
mod inputs;
mod large_inputs;
mod messages;
mod narrow;
mod open;
mod open_hostile;
mod places;
mod record_open;
mod recover;
mod recover_chrome;
mod report;
mod report_bounds;
mod report_page;
mod report_shown;
mod shell;
mod top;
