//! The report on a terminal: the verdict first, 80 columns, and no more lines than a screen and a half, whatever the run's size.

use std::fmt::Write;

use warpline_core::text::printable;

use super::Report;
use crate::judge::Cause;

/// Rows of a table; the rest is counted.
const ROWS: usize = 8;

/// As wide as a terminal is.
const WIDTH: usize = 80;

impl Report {
    /// What to know, in sentences.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        for late in self.late.iter().take(3) {
            let what = match late.cause {
                Cause::Device => "its device worked longer",
                Cause::Idle => "its device had nothing to do",
                Cause::Launch => "its launches took longer",
                Cause::Unknown => "its own steps do not show why",
            };
            let place = if late.stage.is_empty() { String::new() } else { format!(" in `{}`", late.stage) };
            let range = match late.steps {
                1 => format!("in step {}", late.worst_step),
                steps => format!("in {steps} steps ({} to {})", late.first_step, late.last_step),
            };
            all.push(format!(
                "rank {} was late {range} by {} +- {}, {:.1} % of the run: {what}{place}",
                late.rank,
                time(late.median_ns as f64),
                time(late.err_ns as f64),
                100.0 * late.share,
            ));
        }
        for slow in self.slow.iter().take(3) {
            all.push(format!(
                "rank {} ({}) has a slow device since step {}: {:.1} % more than {} peers, z = {:.0}",
                slow.rank,
                slow.host,
                slow.since_step,
                100.0 * slow.share,
                slow.peers - 1,
                slow.z,
            ));
        }
        if all.is_empty() {
            all.push(match (self.size.collectives_judged, self.size.steps) {
                (0, 0) => "nothing could be judged: no collective and no step was read".to_owned(),
                (0, _) => "no rank is slow; no collective could be judged".to_owned(),
                _ => "no rank stands out".to_owned(),
            });
        }
        all
    }

    /// The report for a terminal.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for sentence in &self.verdict {
            wrap(&mut out, "", sentence);
        }
        let size = &self.size;
        let facts = format!(
            "run {}: {} ranks on {}, {} steps of {}, {} collectives judged",
            self.run,
            size.ranks,
            if size.hosts == 1 { "1 host".to_owned() } else { format!("{} hosts", size.hosts) },
            size.steps,
            time(size.step_ns as f64),
            size.collectives_judged,
        );
        out.push('\n');
        wrap(&mut out, "", &facts);
        if !self.late.is_empty() {
            let _ = writeln!(out, "\nlate     steps  first   last     median      worst  in step  cause   stage");
            for late in self.late.iter().take(ROWS) {
                let line = format!(
                    "{:>6} {:>7} {:>6} {:>6} {:>10} {:>10} {:>8}  {:7} {}",
                    late.rank,
                    late.steps,
                    late.first_step,
                    late.last_step,
                    time(late.median_ns as f64),
                    time(late.worst_ns as f64),
                    late.worst_step,
                    format!("{:?}", late.cause).to_lowercase(),
                    late.stage,
                );
                cut(&mut out, &line);
                if late.chain.len() > 1 {
                    let chain: Vec<String> = late
                        .chain
                        .iter()
                        .map(|link| format!("rank {} in {} {}", link.rank, link.comm, link.seq))
                        .collect();
                    wrap(&mut out, "       ", &format!("all waited for {}", chain.join(", which waited for ")));
                }
            }
            more(&mut out, self.late.len());
        }
        if !self.slow.is_empty() {
            let _ = writeln!(out, "\nslow   windows  since       more      %      z  host");
            for slow in self.slow.iter().take(ROWS) {
                let line = format!(
                    "{:>6} {:>7} {:>6} {:>10} {:>6.1} {:>6.0}  {}",
                    slow.rank,
                    slow.windows,
                    slow.since_step,
                    time(slow.more_ns),
                    100.0 * slow.share,
                    slow.z,
                    slow.host,
                );
                cut(&mut out, &line);
            }
            more(&mut out, self.slow.len());
        }
        if !self.bandwidth.is_empty() {
            let _ = writeln!(out, "\ncollectives      ranks         bytes    calls  GB/s least     mean     most");
            for row in self.bandwidth.iter().take(ROWS) {
                let line = format!(
                    "{:16} {:>5} {:>13} {:>8} {:>11.2} {:>8.2} {:>8.2}",
                    row.kind, row.ranks, row.bytes, row.calls, row.least, row.mean, row.most
                );
                cut(&mut out, &line);
            }
            more(&mut out, self.bandwidth.len());
        }
        let clocks = &self.clocks;
        out.push('\n');
        let known = match (clocks.hosts, clocks.worst_certified_ns) {
            (0 | 1, _) => "clocks: one, which all ranks share".to_owned(),
            (hosts, None) => format!("clocks: {hosts} hosts, none certified"),
            (hosts, Some(certified)) => format!(
                "clocks: {hosts} hosts, estimated to {}, certified to {} at worst ({} minutes of hosts not certified)",
                time(clocks.worst_err_ns),
                time(certified),
                clocks.not_certified,
            ),
        };
        wrap(&mut out, "", &known);
        if !self.not_judged.is_empty() {
            out.push_str("\nnot judged, or not read:\n");
            for line in &self.not_judged {
                wrap(&mut out, "  ", line);
            }
            for left_out in self.left_out.iter().take(3) {
                wrap(&mut out, "  ", &format!("{}: {}", left_out.file, left_out.why));
            }
        }
        out
    }
}

fn more(out: &mut String, all: usize) {
    if all > ROWS {
        let _ = writeln!(out, "  and {} more: `--json` has them", all - ROWS);
    }
}

fn cut(out: &mut String, line: &str) {
    out.extend(printable(line).chars().take(WIDTH));
    out.push('\n');
}

/// `rank 3`, `ranks 3, 7`, `ranks 1, 2, … and 5 more`: at most `most` of them.
pub(crate) fn ranks<T: std::fmt::Display>(ranks: &[T], most: usize) -> String {
    let shown: Vec<String> = ranks.iter().take(most).map(T::to_string).collect();
    let more = if ranks.len() > most { format!(" and {} more", ranks.len() - most) } else { String::new() };
    format!("rank{} {}{more}", if ranks.len() == 1 { "" } else { "s" }, shown.join(", "))
}

/// Breaks at spaces.
pub(crate) fn wrap(out: &mut String, indent: &str, text: &str) {
    let mut column = 0;
    // Names come from files: none may act on the terminal.
    for word in printable(text).split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > WIDTH {
            out.push('\n');
            column = 0;
        }
        if column == 0 {
            out.push_str(indent);
            column = indent.len();
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.push('\n');
}

/// A length of time with three digits.
fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        at if at >= 1e9 => (ns / 1e9, "s"),
        at if at >= 1e6 => (ns / 1e6, "ms"),
        at if at >= 1e3 => (ns / 1e3, "us"),
        _ => (ns, "ns"),
    };
    match value.abs() {
        at if at >= 100.0 => format!("{value:.0} {unit}"),
        at if at >= 10.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}
