//! The table of settings, in groups, each in a file of its own. A new setting changes only its group and the code that acts on it.
//!
//! An entry defines the field of [`Config`], the key in `WARPLINE=…` with its parser and its checks, the suggestions for misspelt keys, the
//! line in the help, the row in docs/sessions.md and the methods of [`SessionBuilder`]. After a change here,
//! `WARPLINE_WRITE_DOCS=1 cargo test -p warpline --lib the_page` rewrites the rows of the page.

#[macro_use]
mod devices;
#[macro_use]
mod files;
#[macro_use]
mod outputs;
#[macro_use]
mod session;
#[macro_use]
mod shares;
#[macro_use]
mod zones;

use std::path::PathBuf;
use std::time::Duration;

use super::addresses::*;
use super::filter::Filter;
use super::setting::{self, needs};
use super::values::*;
use warpline_core::catalog::Level;
use warpline_core::timing::{EndMode, GraphTiming, Timing};

/// An entry of the table.
pub(super) type Setting = setting::Setting<Config>;

// In the order in which the help and docs/sessions.md list them.
outputs! { {} zones shares devices files session settings }

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/sessions.md");

    /// The row of the builder's method that has no setting.
    const SINK: &str = "| | `.sink(sink)` | none | also hand the records to a sink of your own |";

    fn rows() -> String {
        let cell = |text: &str| if text.is_empty() { String::new() } else { format!("{text} ") };
        let row = |setting: &Setting| {
            let [builder, default, means] = setting.row.map(cell);
            format!("| `{}` | {builder}| {default}| {means}|\n", setting.form)
        };
        SETTINGS.iter().map(row).chain([format!("{SINK}\n")]).collect()
    }

    /// Compares the page with the table. With `WARPLINE_WRITE_DOCS` set, it writes the rows to the page.
    #[test]
    fn the_page_has_the_rows_of_the_table() {
        let page = std::fs::read_to_string(PAGE).expect("the guide is part of the package");
        let head = "| `WARPLINE` | builder | default | means |\n|---|---|---|---|\n";
        let (before, rest) = page.split_once(head).expect("the page has the table");
        let (rows_there, after) = rest.split_once("\n\n").expect("the table ends");
        if std::env::var_os("WARPLINE_WRITE_DOCS").is_some() {
            let page = format!("{before}{head}{}\n{after}", rows());
            return std::fs::write(PAGE, page).expect("the page can be written");
        }
        let remedy = "`WARPLINE_WRITE_DOCS=1 cargo test -p warpline --lib the_page` writes the rows";
        assert_eq!(format!("{rows_there}\n"), rows(), "{remedy}");
    }

    #[test]
    fn each_setting_has_a_row_and_a_key_of_its_own() {
        for (index, setting) in SETTINGS.iter().enumerate() {
            assert!(!setting.row[2].is_empty() && setting.form.starts_with(setting.key), "{}", setting.key);
            assert!(SETTINGS[..index].iter().all(|other| other.key != setting.key), "{}", setting.key);
        }
    }
}
