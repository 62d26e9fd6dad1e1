//! The output of the commands. Every command writes through this module.
//!
//! Names come from binaries, traces and programs that are not trusted. [`write`](write()) and [`complain`] therefore
//! escape control characters and characters that change the direction of writing. A name passes through [`printable`]
//! before it becomes a part of a longer text, so that it cannot start a line of its own; JSON passes through [`json`].
//! A reader that closes the pipe (`| head`) causes neither an error nor a panic.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, ColumnConstraint, ContentArrangement, Table, Width};
use serde::Serialize;
use warpline_core::catalog::Records;

use crate::runtime::{printable_json, printable_lines};

pub(crate) use crate::runtime::{counted, counted_as};
pub(crate) use warpline_report::duration as time;

/// Returns the line that tells the user how to view a trace.
pub(crate) fn open_it(path: &Path) -> String {
    let path = printable(&path.display().to_string());
    format!(
        "open it with `warpline open {path}` or at https://ui.perfetto.dev (the browser reads it; nothing is uploaded)\n"
    )
}

/// Why the output could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    #[error("cannot write {}: {error}; {}", path.display(), remedy(error, "choose another file with `-o`"))]
    File { path: PathBuf, error: io::Error },
    #[error("cannot write {}: {error}; {}", path.display(), remedy(error, "choose another file with `--html`"))]
    Page { path: PathBuf, error: io::Error },
    #[error("cannot write to standard output: {0}; write to a file with `-o`")]
    Stdout(io::Error),
}

/// Writes to `path`, or to standard output.
pub(crate) fn write(text: &str, path: Option<&Path>) -> Result<(), OutputError> {
    let text = match path.is_none() && stdout_is_terminal() {
        true => printable_with_bold(text),
        false => printable_lines(text).into_owned(),
    };
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

/// Writes a page. Its names are escaped already.
pub(crate) fn write_page(page: &str, path: &Path) -> Result<(), OutputError> {
    fs::write(path, page).map_err(|error| OutputError::Page { path: path.to_owned(), error })
}

/// Writes a script of ours to standard output as it is.
pub(crate) fn write_script(script: &[u8]) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    match out.write_all(script).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(OutputError::Stdout(error)),
        _ => Ok(()),
    }
}

/// The text for a terminal: table headers stay bold, all other control characters are escaped.
fn printable_with_bold(text: &str) -> String {
    let plain = |text: &str| printable_lines(text).into_owned();
    let parts =
        text.split("\u{1b}[1m").map(|part| part.split("\u{1b}[0m").map(plain).collect::<Vec<_>>().join("\u{1b}[0m"));
    parts.collect::<Vec<_>>().join("\u{1b}[1m")
}

/// Writes one line to standard error, and ignores an error.
pub(crate) fn complain(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", printable(&text.to_string()));
}

/// The text on one line, with control characters and characters that change the direction of writing escaped.
pub(crate) fn printable(text: &str) -> String {
    crate::runtime::printable(text).into_owned()
}

/// A value as indented JSON with a line end. The same characters are escaped.
pub(crate) fn json(value: &impl Serialize) -> String {
    printable_json(&serde_json::to_string_pretty(value).unwrap_or_default()).into_owned() + "\n"
}

/// The same on one line.
#[cfg(target_os = "linux")]
pub(crate) fn json_line(value: &impl Serialize) -> String {
    printable_json(&serde_json::to_string(value).unwrap_or_default()).into_owned() + "\n"
}

/// The catalog as a table: as wide as the terminal, or with one line per range if the output is not a terminal.
pub(crate) fn table(records: &Records, on_terminal: bool) -> String {
    let has_lanes = records.ranges.iter().any(|range| range.lane.is_some());
    let columns = [
        Column::whole("range"),
        Column::whole("kind").left_out(5),
        Column::whole("level").left_out(2),
        Column::whole("lane").left_out(6),
        Column::words("fields").left_out(4),
        Column::whole("crate").left_out(1),
        Column::whole("declared").left_out(3),
        Column::words("what it is"),
    ];
    let rows = records.ranges.iter().map(|range| {
        vec![
            range.name.clone(),
            range.kind.to_owned(),
            range.level.to_owned(),
            range.lane.clone().unwrap_or_default(),
            range.fields.join(", "),
            format!("{} {}", range.krate(), range.version).trim_end().to_owned(),
            format!("{}:{}", range.file, range.line),
            range.description.replace(['\r', '\n'], " "),
        ]
    });
    let (mut columns, mut rows) = (columns.to_vec(), rows.collect::<Vec<_>>());
    if !has_lanes {
        remove(&mut columns, &mut rows, 3);
    }
    let (table, without) = fitted(columns, rows, on_terminal);
    format!("{table}\n\n{}{without}\n", count(records))
}

/// A column of a table that fits the terminal.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    head: &'static str,
    /// The text may wrap between words.
    has_words: bool,
    /// If the table is too wide, the column with the lowest number is left out first. A column without a number always
    /// stays.
    left_out: Option<u8>,
}

impl Column {
    /// A column of names or numbers, which never wrap.
    pub(crate) fn whole(head: &'static str) -> Column {
        Column { head, has_words: false, left_out: None }
    }

    /// A column of text, which wraps between words.
    pub(crate) fn words(head: &'static str) -> Column {
        Column { has_words: true, ..Column::whole(head) }
    }

    /// Sets when the column is left out of a table that is too wide: the lowest number first.
    pub(crate) fn left_out(self, turn: u8) -> Column {
        Column { left_out: Some(turn), ..self }
    }

    /// The minimum width, with the space between columns.
    fn least<'a>(&self, cells: impl Iterator<Item = &'a String>, some_words: usize) -> usize {
        let width = |text: &str| {
            let longest_word = || text.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
            let all = text.chars().count();
            if self.has_words { longest_word().max(all.min(some_words)) } else { all }
        };
        cells.map(|cell| width(cell)).chain([self.head.chars().count()]).max().unwrap_or(0) + 2
    }
}

/// The minimum width of a text column while other columns can be left out.
const SOME_WORDS: usize = 20;

fn remove(columns: &mut Vec<Column>, rows: &mut [Vec<String>], at: usize) {
    columns.remove(at);
    rows.iter_mut().for_each(|row| drop(row.remove(at)));
}

/// A table that fits the terminal, and a text that names the columns that were left out. Names never wrap: a row of
/// names that are wider than the terminal is cut at its edge.
pub(crate) fn fitted(mut columns: Vec<Column>, mut rows: Vec<Vec<String>>, on_terminal: bool) -> (String, String) {
    rows.iter_mut().flatten().for_each(|cell| *cell = printable(cell));
    let width = sheet([], on_terminal).width().map_or(usize::MAX, usize::from);
    let least = |columns: &[Column], rows: &[Vec<String>], some_words: usize| -> Vec<usize> {
        let of = |(at, column): (usize, &Column)| column.least(rows.iter().map(|row| &row[at]), some_words);
        columns.iter().enumerate().map(of).collect()
    };
    let fits = |least: &[usize]| !on_terminal || least.iter().sum::<usize>() <= width;
    let mut without = Vec::new();
    while !fits(&least(&columns, &rows, SOME_WORDS)) {
        let next = columns.iter().enumerate().filter_map(|(at, column)| Some((column.left_out?, at))).min();
        let Some((_, at)) = next else { break };
        without.push(columns[at].head);
        remove(&mut columns, &mut rows, at);
    }
    let mut table = sheet(columns.iter().map(|column| column.head), on_terminal);
    let some = least(&columns, &rows, SOME_WORDS);
    let least = if fits(&some) { some } else { least(&columns, &rows, 0) };
    table.add_rows(rows);
    if on_terminal {
        table.set_constraints(columns.iter().zip(least).map(|(column, least)| match column.has_words {
            true => ColumnConstraint::LowerBoundary(Width::Fixed(u16::try_from(least).unwrap_or(u16::MAX))),
            false => ColumnConstraint::ContentWidth,
        }));
    }
    let without = match &without[..] {
        [] => String::new(),
        [head] => format!("; the terminal is too narrow for the column `{head}`"),
        heads => format!("; the terminal is too narrow for the columns `{}`", heads.join("`, `")),
    };
    (table.trim_fmt(), without)
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

/// Whether tables are fitted to a terminal and may be bold.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// "6 ranges in 2 namespaces".
pub(crate) fn count(records: &Records) -> String {
    let mut spaces: Vec<&str> = records.namespaces.iter().map(|space| space.name.as_str()).collect();
    spaces.dedup();
    let counted = |count: usize, what| counted(count as u64, what);
    format!("{} in {}", counted(records.ranges.len(), "range"), counted(spaces.len(), "namespace"))
}

/// The verb for this count.
pub(crate) fn is_or_are(count: u64) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// The remedy for an error of the system: raise the limit if no descriptor is left, otherwise `otherwise`.
pub(crate) fn remedy<'a>(error: &io::Error, otherwise: &'a str) -> &'a str {
    #[cfg(target_os = "linux")]
    let text = crate::runtime::socket_peer::out_of_descriptors(error);
    #[cfg(not(target_os = "linux"))]
    let text = {
        let _ = error;
        None
    };
    text.unwrap_or(otherwise)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_terminal_heads_are_bold_and_nothing_else_acts() {
        let head = "\u{1b}[1mrange\u{1b}[0m\nevil\u{1b}[31m\u{202e}\n";
        assert_eq!(printable_with_bold(head), "\u{1b}[1mrange\u{1b}[0m\nevil\\u{1b}[31m\\u{202e}\n");
    }
}
