//! A report as JSON, Markdown and CSV. The setting `summary=FILE` and the command `warpline report` write it; `page` makes HTML of the same
//! JSON.

use serde_json::{Map, Value, json};

use super::tables::{Cell, Table};
use super::text::Account;
use super::{LeftOut, Report};
use warpline_core::record::is_bound;
use warpline_core::text::{csv, printable, printable_json};

/// The version of the JSON form. A new member does not change it.
const VERSION: u64 = 1;

/// Returns a JSON object with these members.
///
/// A map that is collected is sorted by code that the compiler generates for each iterator, about 6 kB; `insert` exists once.
pub fn json_object<N: Into<String>, V: Into<Value>>(members: impl IntoIterator<Item = (N, V)>) -> Value {
    let mut object = Map::new();
    for (name, value) in members {
        object.insert(name.into(), value.into());
    }
    Value::Object(object)
}

impl Report {
    /// Returns the report as JSON. Times are in ns, sizes in bytes, and shares from 0 to 1; `docs/report.md` describes the members.
    pub fn to_json(&self) -> String {
        printable_json(&serde_json::to_string_pretty(&self.members()).unwrap_or_default()).into_owned() + "\n"
    }

    /// Returns the members of the JSON.
    pub(super) fn members(&self) -> Value {
        let LeftOut { ranges, of_ranges, while_stopped } = self.left_out;
        let mut all = json!({
            "version": VERSION,
            "complete": self.is_complete(),
            "duration_ns": u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX),
            "zones": {
                "begun": self.begun,
                "recorded": self.recorded,
                "captured": self.captured,
                "dropped": self.dropped.total(),
                "dropped_by": json_object(self.dropped.reasons()),
                "not_sampled": self.not_sampled,
            },
            "ends": {
                "on_streams": self.ends.on_streams,
                "found": self.ends.found,
                "latest_ns": self.ends.latest_ns,
                "bounded": self.ends.bounded,
            },
            "left_out": {"ranges": ranges, "of_ranges": of_ranges, "while_stopped": while_stopped},
            "notes": self.notes,
            "account": Account(self).statements(),
        });
        if let Some(path) = &self.critical_path {
            let length_ns = path.to_ns - path.from_ns;
            all["critical_path_ns"] = length_ns.into();
            all["critical_path_is_bound"] = is_bound(length_ns, path.early_by_ns).into();
            all["critical_path_is_assumed"] = path.is_assumed.into();
        }
        for Table { key, columns, rows, .. } in self.tables() {
            let object = |row: Vec<Cell>| json_object(columns.iter().copied().zip(row.into_iter().map(value)));
            all[key] = rows.into_iter().map(object).collect();
        }
        all
    }

    /// Returns the report as Markdown, with a table for each kind of figure.
    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        for Table { title, columns, rows, .. } in self.tables() {
            // Columns without a value for anything only take room.
            let is_used = |at: &usize| {
                rows.iter().any(|row| !matches!(row[*at], Cell::None | Cell::Ns(0) | Cell::Count(0) | Cell::Flag(_)))
            };
            let used: Vec<usize> = (0..columns.len()).filter(is_used).collect();
            let head = used.iter().map(|at| columns[*at].trim_end_matches("_ns").replace('_', " "));
            let rule = used.iter().map(|at| if rows.iter().all(|row| row[*at].is_number()) { "---:" } else { "---" });
            text += &format!("## {title}\n\n{}{}", line(head), line(rule.map(str::to_owned)));
            for row in &rows {
                text += &line(used.iter().map(|at| markdown(&row[*at].shown())));
            }
            text.push('\n');
        }
        text += &Account(self).statements().iter().map(|line| format!("* {}\n", markdown(line))).collect::<String>();
        text
    }

    /// Returns the tables of the report as one table in CSV (RFC 4180). The first column is the name of the table, and the others are those
    /// of all tables. Times are in ns.
    pub fn to_csv(&self) -> String {
        let tables = self.tables();
        let mut columns: Vec<&str> = Vec::new();
        for column in tables.iter().flat_map(|table| table.columns) {
            if !columns.contains(column) {
                columns.push(column);
            }
        }
        let mut text = format!("table,{}\r\n", columns.join(","));
        for table in &tables {
            for row in &table.rows {
                let cell = |column: &&str| {
                    let at = table.columns.iter().position(|known| known == column);
                    at.map_or_else(String::new, |at| csv(&row[at].exact()).into_owned())
                };
                let cells: Vec<String> = columns.iter().map(cell).collect();
                text += &format!("{},{}\r\n", table.key, cells.join(","));
            }
        }
        text
    }
}

fn value(cell: Cell) -> Value {
    match cell {
        Cell::Text(text) => text.into(),
        Cell::Count(number) | Cell::Bytes(number) => number.into(),
        Cell::Ns(ns) => ns.into(),
        Cell::Share(number) | Cell::BytesPerSecond(number) | Cell::FlopsPerSecond(number) | Cell::Number(number) => {
            number.into()
        }
        Cell::Flag(is_so) => is_so.into(),
        Cell::AtMost(cell) | Cell::AtLeast(cell) => value(*cell),
        Cell::Bound(_) | Cell::None => Value::Null,
    }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

fn markdown(text: &str) -> String {
    let mut escaped = String::new();
    for c in printable(text).chars() {
        if matches!(c, '|' | '<' | '>' | '*' | '_' | '`' | '[' | ']' | '\\' | '&') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
