//! What a user must know at once, on standard error.
//!
//! The mirror, the flight recorder and a session that is dropped come here, where nobody would read a report; what can wait is a
//! note of the report. It never panics, as `eprintln!` does where standard error cannot be written to.

use std::fmt;
use std::io::Write;

use crate::text::{printable, printable_lines};

/// Writes one line. An error of standard error is ignored.
pub fn line(text: impl fmt::Display) {
    put(&printable(&text.to_string()));
}

/// The same for a text of several lines.
pub fn lines(text: impl fmt::Display) {
    put(&printable_lines(&text.to_string()));
}

fn put(text: &str) {
    // One write, so that lines of several processes stay whole.
    let line = format!("warpline: {text}\n");
    let write = || std::io::stderr().write_all(line.as_bytes());
    // Standard error may be a file that may not grow, or a pipe that nobody reads.
    let _ = crate::signals::without_signals(write);
}
