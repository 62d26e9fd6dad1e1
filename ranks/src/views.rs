//! The queries of `ranks/sql/`, each the definition of a view with the file's name. They are listed in the order in
//! which they build on each other. `clocks` is not a file but a table that `warpline-ranks clocks` computes.

use std::collections::BTreeSet;

/// A query.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// Its name.
    pub name: &'static str,
    /// One `SELECT`, with a comment that begins with what it answers.
    pub sql: &'static str,
}

impl View {
    /// The first line of its comment.
    pub fn about(&self) -> &'static str {
        self.sql.lines().next().unwrap_or_default().trim_start_matches("--").trim()
    }
}

macro_rules! views {
    ($($name:literal),* $(,)?) => {
        &[$(View { name: $name, sql: include_str!(concat!("../sql/", $name, ".sql")) }),*]
    };
}

/// Every view.
pub const ALL: &[View] = views![
    "account",
    "twice",
    "placed",
    "meetings",
    "aligned",
    "late",
    "listed",
    "margins",
    "differs",
    "signatures",
    "bandwidth",
    "peers",
    "suspects",
    "cells",
    "suspect_steps",
    "suspect_stages",
    "suspect_calls",
];

/// The view of a name.
pub fn find(name: &str) -> Option<View> {
    ALL.iter().copied().find(|view| view.name == name)
}

/// The names of the views that a query reads, and of those below them.
pub fn below(sql: &str) -> BTreeSet<&'static str> {
    fn add(sql: &str, found: &mut BTreeSet<&'static str>) {
        let words: BTreeSet<&str> = sql.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        for view in ALL.iter().filter(|view| words.contains(view.name)) {
            if found.insert(view.name) {
                add(view.sql, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    add(&sql.to_ascii_lowercase(), &mut found);
    found
}

/// Whether a query reads the clocks, itself or through views.
pub fn reads_clocks(sql: &str) -> bool {
    below(sql).contains("aligned") || sql.to_ascii_lowercase().contains("clocks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_found_through_others() {
        let found = below("SELECT * FROM bandwidth");
        assert!(["bandwidth", "late", "aligned", "placed"].iter().all(|name| found.contains(name)), "{found:?}");
        assert!(!found.contains("peers") && below("SELECT 1 FROM late_rows").is_empty());
        assert!(["select * from LATE", "SELECT 1 FROM margins", "SELECT 1 FROM Clocks"].into_iter().all(reads_clocks));
        assert!(!reads_clocks("SELECT rank FROM steps"));
    }
}
