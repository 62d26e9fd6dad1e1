//! Messages that a user must see at once, on standard error.
//!
//! The mirror, the flight recorder and a dropped session write here, because nobody would read a report of theirs. A message that
//! can wait is a note in the report. These functions never panic, unlike `eprintln!`, which panics if standard error cannot be
//! written to.

use std::fmt;
use std::io::Write;

use crate::text::{printable, printable_lines};

/// Writes one line. Errors of standard error are ignored.
pub fn line(text: impl fmt::Display) {
    put(&printable(&text.to_string()));
}

/// Writes a text of several lines. Errors of standard error are ignored.
pub fn lines(text: impl fmt::Display) {
    put(&printable_lines(&text.to_string()));
}

/// Writes a report, which is printable and needs no mark of its origin. Errors of standard error are ignored.
pub fn report(report: impl fmt::Display) {
    write(&format!("{report}\n"));
}

fn put(text: &str) {
    write(&format!("warpline: {text}\n"));
}

/// Writes the text in one call, so that lines of several processes are not mixed.
fn write(text: &str) {
    let write = || std::io::stderr().write_all(text.as_bytes());
    // Standard error may be a file that cannot grow, or a pipe without a reader.
    let _ = crate::signals::without_signals(write);
}
