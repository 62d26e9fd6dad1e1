//! Formats the findings as text and as JSON.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table};

use super::judge::{Findings, Group, Late, LeftOut, Rank};
use crate::output::{self, printable, sheet, time};

impl Findings {
    /// Returns the findings as JSON.
    pub fn to_json(&self) -> String {
        output::json(self)
    }

    /// Returns the findings as text: errors in the program first, then tables, then what was not judged, and last the verdict.
    pub(crate) fn to_text(&self, on_terminal: bool) -> String {
        let mut text = String::new();
        self.write_mismatches(&mut text);
        if !self.worst.is_empty() {
            let _ = writeln!(text, "{}\n", self.worst_table(on_terminal).trim_fmt());
        }
        if self.ranks.iter().any(|rank| rank.late > 0) {
            self.write_ranks(&mut text, on_terminal);
        }
        let mut notes: Vec<String> = self.groups.iter().flat_map(notes_of).collect();
        if self.worst.iter().any(|late| !late.one_clock) {
            notes.push("`±` across hosts: how well the collectives themselves tell their clocks apart".to_owned());
        }
        for note in &notes {
            let _ = writeln!(text, "{note}");
        }
        if !notes.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "{}", self.verdict());
        text
    }

    fn write_mismatches(&self, text: &mut String) {
        for mismatch in &self.mismatches {
            let mut kinds: Vec<(&str, Vec<u32>)> = Vec::new();
            for call in &mismatch.calls {
                match kinds.iter_mut().find(|(kind, _)| *kind == call.kind) {
                    Some((_, ranks)) => ranks.push(call.rank),
                    None => kinds.push((call.kind, vec![call.rank])),
                }
            }
            let on = |(kind, ranks): &(&str, Vec<u32>)| format!("{kind} on {}", list(ranks));
            let calls = kinds.iter().map(on).collect::<Vec<_>>().join("; ");
            let group = printable(&mismatch.group);
            let _ = writeln!(text, "MISMATCH: number {} of {group}: {calls}", mismatch.seq);
        }
        let all: u64 = self.groups.iter().map(|group| group.left_out.mismatched).sum();
        if all > 0 {
            let _ = writeln!(
                text,
                "MISMATCH: {all} in all. The ranks' programs differ there, or began to count at different collectives: \
                 then give `seq` in the marks\n"
            );
        }
    }

    fn worst_table(&self, on_terminal: bool) -> Table {
        let head = ["collective", "group", "seq", "late rank", "late by", "ends differ by", "range"];
        let rows = self.worst.iter().map(|late| {
            let late_rank = match late.as_late {
                0 => late.late_rank.to_string(),
                others => format!("{} (or {others} more)", late.late_rank),
            };
            [
                late.kind.to_owned(),
                printable(&late.group),
                late.seq.to_string(),
                late_rank,
                late_by(late),
                time(late.ends_differ_by_ns as f64),
                printable(&late.range),
            ]
        });
        table(head, rows, 2..6, on_terminal)
    }

    /// Writes the late ranks, and other ranks up to the size of a small table. The JSON contains all ranks.
    fn write_ranks(&self, text: &mut String, on_terminal: bool) {
        let (late, never): (Vec<&Rank>, Vec<&Rank>) =
            self.ranks.iter().filter(|rank| rank.judged > 0).partition(|rank| rank.late > 0);
        let shown = late.len().min(LATE_ROWS);
        let filled = never.len().min(FEW_ROWS.saturating_sub(shown));
        let rows = late[..shown].iter().chain(&never[..filled]).map(|rank| {
            let (late, judged) = (rank.late.to_string(), rank.judged.to_string());
            [printable(&rank.group), rank.rank.to_string(), late, judged, time(rank.waited_ns as f64)]
        });
        let table = table(["group", "rank", "times late", "of", "others waited"], rows, 1..5, on_terminal);
        let _ = writeln!(text, "{}", table.trim_fmt());
        for (left, what) in [
            (late.len() - shown, "for which the others waited less"),
            (never.len() - filled, "that were never the last"),
        ] {
            match left {
                0 => {}
                1 => drop(writeln!(text, " … and 1 rank {}", what.replace("were", "was"))),
                left => drop(writeln!(text, " … and {left} ranks {what}")),
            }
        }
        text.push('\n');
    }

    fn verdict(&self) -> String {
        match self.ranks.first() {
            Some(Rank { group, rank, late: late @ 1.., judged, waited_ns }) => format!(
                "rank {rank} was last in {late} of {judged} collective{} of {}; the others waited {} for it",
                plural(*judged),
                printable(group),
                time(*waited_ns as f64)
            ),
            Some(_) => "no rank kept the others waiting in a collective that could be judged".to_owned(),
            None => "no group has traces of two ranks; give those of the other ranks too".to_owned(),
        }
    }
}

/// The most late ranks that the table shows.
const LATE_ROWS: usize = 20;

/// A table with fewer rows is filled with ranks that were never late.
const FEW_ROWS: usize = 8;

fn table<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    numbers: std::ops::Range<usize>,
    on_terminal: bool,
) -> Table {
    let mut table = sheet(head, on_terminal);
    table.add_rows(rows);
    for column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn late_by(late: &Late) -> String {
    match late.uncertain_ns {
        0 => time(late.late_by_ns as f64),
        ns => format!("{} ± {}", time(late.late_by_ns as f64), time(ns as f64)),
    }
}

/// Returns notes on the missing traces of a group and on its collectives that were not judged.
fn notes_of(group: &Group) -> Vec<String> {
    let LeftOut {
        batch_entries,
        too_close,
        uncertain,
        rooted,
        point_to_point,
        incomplete,
        repeated,
        failed,
        // Written by `write_mismatches`.
        mismatched: _,
    } = group.left_out;
    let (label, mut notes) = (printable(&group.group), Vec::new());
    if !group.missing.is_empty() {
        notes.push(format!("{label}: no trace of {}", list(&group.missing)));
    }
    let reasons = [
        (incomplete, "that not every rank has"),
        (repeated, "that one rank has twice (is a trace given twice, or does a group count twice?)"),
        (failed, "that failed"),
        (too_close, "in which all ranks came at the same time, as far as their clock tells"),
        (rooted, "with a root, in which not every rank waits"),
        (point_to_point, "to or from one peer"),
        (batch_entries, "in a batch with the one before"),
    ];
    let unsure = format!(
        "not certain: the ranks have no common clock, and their ends differ by up to {}",
        time(group.uncertain_ends_ns as f64)
    );
    let reasons = reasons.into_iter().chain([(uncertain, &*unsure)]);
    let reasons = reasons.filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}"));
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    if !reasons.is_empty() {
        notes.push(format!("{label}: not judged: {reasons}"));
    }
    notes
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Formats ranks as "ranks 1, 2, 3"; a long list is shortened.
fn list(ranks: &[u32]) -> String {
    const TOLD: usize = 8;
    let told: Vec<_> = ranks.iter().take(TOLD).map(u32::to_string).collect();
    let more = if ranks.len() > TOLD { format!(" and {} more", ranks.len() - TOLD) } else { String::new() };
    format!("rank{} {}{more}", plural(ranks.len() as u64), told.join(", "))
}
