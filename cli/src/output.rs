//! Text for people and for pipes: what the commands print, where, and what they must not.
//!
//! Catalogs come from files that anybody may have made, so control characters never reach a terminal. A reader that
//! goes away (`| head`) is not an error and never a panic.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, ContentArrangement, Table};
use warpline::catalog::Records;

/// What can be done with a trace.
pub(crate) const OPEN_IT: &str = "open it at https://ui.perfetto.dev (the browser reads it; nothing is uploaded)\n";

/// Why the result could not be handed over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    #[error("cannot write {}: {error}; choose another file with `-o`", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("cannot write to standard output: {0}; write to a file with `-o`")]
    Stdout(io::Error),
}

/// Writes to `path`, or to standard output.
pub(crate) fn write(text: &str, path: Option<&Path>) -> Result<(), OutputError> {
    match path {
        Some(path) => fs::write(path, text).map_err(|error| OutputError::File { path: path.to_owned(), error }),
        None => {
            let mut out = io::stdout().lock();
            match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(OutputError::Stdout(error)),
                _ => Ok(()),
            }
        }
    }
}

/// One line on standard error. There is nobody to tell when that fails.
pub(crate) fn complain(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", printable(&text.to_string()));
}

/// The text on one line, with control characters and those that turn the direction of writing spelled out.
pub(crate) fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                line.extend(c.escape_unicode());
            }
            c if c.is_control() => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

/// The catalog for people: one line a range where it is not shown on a terminal, else as wide as that.
pub(crate) fn table(records: &Records, on_terminal: bool) -> String {
    let has_lanes = records.ranges.iter().any(|range| range.lane.is_some());
    let head = ["range", "kind", "level", "lane", "fields", "crate", "declared", "what it is"];
    let keep = |column: usize| has_lanes || head[column] != "lane";
    let columns = head.iter().enumerate().filter(|(column, _)| keep(*column)).map(|(_, text)| *text);
    let mut table = sheet(columns, on_terminal);
    for range in &records.ranges {
        let row = [
            printable(&range.name),
            range.kind.to_owned(),
            range.level.to_owned(),
            printable(range.lane.as_deref().unwrap_or("")),
            printable(&range.fields.join(", ")),
            printable(format!("{} {}", range.krate(), range.version).trim_end()),
            printable(&format!("{}:{}", range.file, range.line)),
            printable(&range.description.replace(['\r', '\n'], " ")),
        ];
        table.add_row(row.iter().enumerate().filter(|(column, _)| keep(*column)).map(|(_, text)| text));
    }
    format!("{}\n\n{}\n", table.trim_fmt(), count(records))
}

/// An empty table.
pub(crate) fn sheet<'a>(head: impl IntoIterator<Item = &'a str>, on_terminal: bool) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    if on_terminal {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    } else {
        table.set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    }
    let bold = on_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    table.set_header(head.into_iter().map(|text| {
        let cell = Cell::new(text);
        if bold { cell.add_attribute(Attribute::Bold) } else { cell }
    }));
    table
}

/// Whether tables may be as wide as the terminal and bold.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// "6 ranges in 2 namespaces".
pub(crate) fn count(records: &Records) -> String {
    let mut spaces: Vec<&str> = records.namespaces.iter().map(|space| space.name.as_str()).collect();
    spaces.dedup();
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let (ranges, spaces) = (records.ranges.len(), spaces.len());
    format!("{ranges} range{} in {spaces} namespace{}", plural(ranges), plural(spaces))
}

/// A time for people: three or four digits and a unit.
pub(crate) fn time(ns: f64) -> String {
    match ns.abs() {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.2} µs", ns / 1e3),
        ..1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.3} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_spelled_out() {
        assert_eq!(printable("a\u{1b}[31mb\nc\u{202e}d – ß"), "a\\u{1b}[31mb\\nc\\u{202e}d – ß");
    }
}
