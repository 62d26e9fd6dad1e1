//! Formats the findings as text and as JSON.

use std::fmt::{self, Write};

use comfy_table::{CellAlignment, Table};
use warpline_judge::links::SlowGroup;

use super::findings::{Findings, Group, LeftOut, Rank, Verdict};
use crate::output::{self, printable, sheet, time};

impl Findings {
    /// Returns the findings as JSON.
    pub fn to_json(&self) -> String {
        output::json(self)
    }

    /// Returns the findings as text: the verdict, errors in the program, tables, and what was not judged, each with at
    /// most `top` lines.
    pub(crate) fn to_text(&self, top: usize, on_terminal: bool) -> String {
        let mut text = format!("{}\n", printable(&self.summary));
        self.write_mismatches(top, &mut text);
        if !self.worst.is_empty() && top > 0 {
            let _ = writeln!(text, "\n{}", self.worst_table(top, on_terminal).trim_fmt());
        }
        if self.ranks.iter().any(|rank| rank.late > 0) && top > 0 {
            self.write_ranks(top, &mut text, on_terminal);
        }
        let mut notes = Vec::new();
        if self.earlier.processes > 0 {
            let calls = output::counted(self.earlier.calls, "call");
            notes.push(format!(
                "ranks were started again: {calls} of earlier processes left out; the last process of each rank is judged"
            ));
        }
        notes.extend(self.groups.iter().flat_map(notes_of));
        notes.extend(self.likely_ranks(top));
        if self.worst.iter().any(|late| !late.one_clock) {
            notes.push(
                "`±` across hosts is how precisely the collectives themselves establish the offset of their clocks"
                    .to_owned(),
            );
        }
        let shown = notes.len().min(top);
        if shown > 0 {
            text.push('\n');
        }
        for note in &notes[..shown] {
            let _ = writeln!(text, "{note}");
        }
        if shown > 0 && shown < notes.len() {
            let _ = writeln!(text, "… and {}; `--format json` has all", counted(notes.len() - shown, "more note"));
        }
        text
    }

    fn write_mismatches(&self, top: usize, text: &mut String) {
        for mismatch in self.mismatches.iter().take(top) {
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
                 then give `seq` in the marks"
            );
        }
    }

    /// Ranks that came last as far as the ends tell, where nothing is certain.
    fn likely_ranks(&self, top: usize) -> Vec<String> {
        let mut ranks: Vec<&Rank> = self.ranks.iter().filter(|rank| rank.likely > 0).collect();
        ranks.sort_by_key(|rank| std::cmp::Reverse(rank.likely_ns));
        // The summary has the first one if nothing is certain.
        let is_said = self.worst.is_empty();
        let shown = ranks.iter().skip(usize::from(is_said)).take(top.min(LIKELY_ROWS));
        shown
            .map(|rank| {
                format!(
                    "{}: as far as the ends tell, rank {} came last in {} more, by {} on average",
                    printable(&rank.group),
                    rank.rank,
                    rank.likely,
                    time(rank.likely_ns as f64 / rank.likely as f64)
                )
            })
            .collect()
    }

    fn worst_table(&self, top: usize, on_terminal: bool) -> Table {
        let head = ["collective", "group", "seq", "late rank", "late by", "ends differ by", "range"];
        let rows = self.worst.iter().take(top).map(|late| {
            let late_rank = match late.as_late {
                0 => late.late_rank.to_string(),
                others => format!("{} (or {others} more)", late.late_rank),
            };
            [
                late.kind.to_owned(),
                printable(&late.group),
                late.replay.map_or_else(|| late.seq.to_string(), |replay| format!("{} (replay {replay})", late.seq)),
                late_rank,
                late_by(late.late_by_ns, late.uncertain_ns),
                format!("{}{}", if late.ends_differ_is_bound { "≤" } else { "" }, time(late.ends_differ_by_ns as f64)),
                printable(&late.range),
            ]
        });
        table(head, rows, 2..6, on_terminal)
    }

    /// Writes the late ranks, and other ranks up to the size of a small table. The JSON contains all ranks.
    fn write_ranks(&self, top: usize, text: &mut String, on_terminal: bool) {
        let (late, never): (Vec<&Rank>, Vec<&Rank>) =
            self.ranks.iter().filter(|rank| rank.judged > 0).partition(|rank| rank.late > 0);
        let shown = late.len().min(top);
        let filled = never.len().min(FEW_ROWS.min(top).saturating_sub(shown));
        let rows = late[..shown].iter().chain(&never[..filled]).map(|rank| {
            let (late, judged) = (rank.late.to_string(), rank.judged.to_string());
            [printable(&rank.group), rank.rank.to_string(), late, judged, time(rank.waited_ns as f64)]
        });
        let table = table(["group", "rank", "times late", "of", "others waited"], rows, 1..5, on_terminal);
        let _ = writeln!(text, "\n{}", table.trim_fmt());
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
    }
}

impl fmt::Display for Verdict {
    /// One sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { rank, group, times, judged, since_seq, seq, .. } = self;
        let arrived = Arrived {
            rank: *rank,
            seq: *seq,
            replay: self.replay,
            group,
            kind: self.kind,
            range: &self.range,
            bytes: self.bytes.unwrap_or(0),
            late_by_ns: self.late_by_ns,
            uncertain_ns: self.uncertain_ns,
        };
        if let Some(ranks) = self.host_ranks {
            write!(f, "host {}: its {ranks} ranks came late, most of all ", self.host)?;
        }
        write!(f, "rank {rank}")?;
        if !self.host.is_empty() && self.host_ranks.is_none() {
            write!(f, " on {}", self.host)?;
        }
        let since = format!("{} after the first session began", time(self.since_ns as f64));
        if *times > 1 {
            let collectives = plural(*judged);
            write!(
                f,
                " came late to {times} of {judged} collective{collectives} of {group}, since number {since_seq} ({since}): "
            )?;
            write!(
                f,
                "by {} in the median, at most {} to number {}",
                time(self.median_ns as f64),
                arrived.by(),
                arrived.number()
            )?;
            write!(f, " ({})", arrived.what())?;
        } else {
            write!(
                f,
                " came {} late to number {} of {group} ({}), {since}; ",
                arrived.by(),
                arrived.number(),
                arrived.what()
            )?;
            write!(f, "nothing else stands out in {judged} collective{}", plural(*judged))?;
        }
        Ok(())
    }
}

/// A late arrival in a sentence.
pub(super) struct Arrived<'a> {
    pub(super) rank: u32,
    pub(super) seq: u64,
    pub(super) replay: Option<u64>,
    pub(super) group: &'a str,
    pub(super) kind: &'static str,
    pub(super) range: &'a str,
    /// 0 if it is not known.
    pub(super) bytes: u64,
    pub(super) late_by_ns: i64,
    pub(super) uncertain_ns: i64,
}

impl Arrived<'_> {
    fn by(&self) -> String {
        late_by(self.late_by_ns, self.uncertain_ns)
    }

    fn number(&self) -> String {
        self.replay.map_or_else(|| self.seq.to_string(), |replay| format!("{} (replay {replay})", self.seq))
    }

    fn what(&self) -> String {
        let of = if self.bytes > 0 { format!(" of {}", bytes(self.bytes)) } else { String::new() };
        let range = if self.range.is_empty() { String::new() } else { format!("{}, ", self.range) };
        format!("{range}{}{of}", self.kind)
    }
}

/// The sentence if no rank stands out among `judged` collectives; `is_enough` says whether they show what is usual.
pub(super) fn none_stands_out(latest: &Arrived<'_>, judged: usize, is_enough: bool) -> String {
    let (rank, by, number, group) = (latest.rank, latest.by(), latest.number(), latest.group);
    let collectives = counted(judged, "judged collective");
    let latest = format!("rank {rank} came {by} late to number {number} of {group} ({})", latest.what());
    match is_enough {
        true => format!("no rank stands out in {collectives}; at most, {latest}"),
        false => format!("not enough to say who is late: in {collectives}, at most, {latest}"),
    }
}

/// The sentence if a group has a slow link.
pub(super) fn slow_group(group: &str, slow: &SlowGroup) -> String {
    format!(
        "collectives of {group} take {:.1} times as long as those of its siblings: {} of {}, {} in place of {}, {:.1} % of the run",
        slow.median_ns as f64 / slow.usual_ns.max(1) as f64,
        slow.kind,
        bytes(slow.bytes),
        time(slow.median_ns as f64),
        time(slow.usual_ns as f64),
        100.0 * slow.share
    )
}

/// The sentence if there is no collective of which it is certain who came last.
pub(super) fn nothing_is_certain(findings: &Findings) -> String {
    let likely = findings.ranks.iter().max_by_key(|rank| rank.likely_ns).filter(|rank| rank.likely > 0);
    let Some(rank) = likely else {
        return match findings.ranks.is_empty() {
            true => "no group has traces of two ranks; give those of the other ranks too".to_owned(),
            false => "no rank kept the others waiting in a collective that could be judged".to_owned(),
        };
    };
    let group = findings.groups.iter().find(|group| group.group == rank.group);
    let uncertain = group.map_or(0, |group| group.left_out.uncertain);
    format!(
        "no rank is certain to be late, because nothing establishes the offset of the hosts' clocks; as far as the ends \
         tell, rank {} came last in {} of {uncertain} collective{} of {}, by {} on average",
        rank.rank,
        rank.likely,
        plural(uncertain),
        rank.group,
        time(rank.likely_ns as f64 / rank.likely.max(1) as f64)
    )
}

/// A size with three digits and a decimal unit.
fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        ..1e3 => format!("{bytes} B"),
        size @ ..1e6 => format!("{:.2} kB", size / 1e3),
        size @ ..1e9 => format!("{:.2} MB", size / 1e6),
        size => format!("{:.2} GB", size / 1e9),
    }
}

/// The most notes on ranks that are late as far as the ends tell.
const LIKELY_ROWS: usize = 5;

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

fn late_by(late_by_ns: i64, uncertain_ns: i64) -> String {
    match uncertain_ns {
        0 => time(late_by_ns as f64),
        ns => format!("{} ± {}", time(late_by_ns as f64), time(ns as f64)),
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
        "not certain: nothing establishes the offset of the ranks' clocks, and their ends differ by up to {}",
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

fn counted(count: usize, what: &'static str) -> String {
    output::counted(count as u64, what)
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
