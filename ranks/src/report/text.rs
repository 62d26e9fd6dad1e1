//! The report on a terminal: the verdict first, 80 columns, and no more lines than a screen and a half, whatever the
//! run's size.

use std::fmt::Write;

use warpline_core::plural::counted;
use warpline_core::text::printable;
use warpline_judge::own::{LEAST_STEPS, Verdict};
use warpline_report::duration as time;

use super::Report;
use crate::judge::{Called, Cause, Differs, LateRank, SlowRank};

/// Sentences about ranks of one kind.
const SENTENCES: usize = 3;

/// Rows of a table; the rest is counted.
const ROWS: usize = 8;

/// The width of a terminal.
const WIDTH: usize = 80;

impl Report {
    /// The verdict, in sentences.
    pub(super) fn sentences(&self, judged: &Verdict) -> Vec<String> {
        let mut all: Vec<String> = self.differs.iter().take(SENTENCES).map(how_differs).collect();
        let mut late: Vec<&LateRank> = self.late.iter().collect();
        for host in &self.late_hosts {
            let (of_host, others): (Vec<&LateRank>, _) = late.into_iter().partition(|late| late.host == *host);
            late = others;
            let Some(first) = of_host.first() else { continue };
            all.push(format!("host {host}: its {} ranks were late {}", of_host.len(), self.how_late(first)));
        }
        let as_late = late.iter().filter(|other| 2 * other.total_ns > late[0].total_ns).count();
        for (at, late) in late.iter().take(SENTENCES).enumerate() {
            let more = if at == 0 && as_late > SENTENCES {
                format!("; and {} more as late", as_late - 1)
            } else {
                String::new()
            };
            all.push(format!("rank {} was late {}{more}", late.rank, self.how_late(late)));
        }
        let of_host = |slow: &&SlowRank| !self.late_hosts.contains(&slow.host);
        for slow in self.slow.iter().filter(of_host).take(SENTENCES) {
            all.push(format!(
                "rank {} ({}) has a slow device since step {}: {:.1} % more than its peers",
                slow.rank,
                slow.host,
                slow.since_step,
                100.0 * slow.share,
            ));
        }
        all.extend(self.links.iter().take(SENTENCES).map(|link| {
            format!(
                "collectives of group {} take {:.1} times as long as those of its siblings: {} of {} bytes, {} in place of {}, {:.1} % of the run",
                link.comm,
                link.slow.median_ns as f64 / link.slow.usual_ns.max(1) as f64,
                link.slow.kind,
                link.slow.bytes,
                time(link.slow.median_ns as f64),
                time(link.slow.usual_ns as f64),
                100.0 * link.slow.share,
            )
        }));
        if !all.is_empty() {
            return all;
        }
        all.push(match (judged.ranks, judged.steps, judged.spread) {
            (0 | 1, _, _) if self.size.steps == 0 => "nothing could be judged: no step was read".to_owned(),
            (0 | 1, _, _) => "not enough to say who is late: no two ranks do the same work".to_owned(),
            (_, ..LEAST_STEPS, _) => format!("not enough to say who is late: {}", counted(judged.steps as u64, "step")),
            (_, _, Some(spread)) => spread.to_string(),
            (2 | 3, _, None) => {
                format!(
                    "no rank stands out; with {} ranks, one is named only if it takes more than 5 % of a step longer",
                    judged.ranks
                )
            }
            _ => "no rank stands out".to_owned(),
        });
        all
    }

    fn how_late(&self, late: &LateRank) -> String {
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
        let error = if late.err_ns > 0 { format!(" +- {}", time(late.err_ns as f64)) } else { String::new() };
        format!(
            "{range} by {}{error}, {:.1} % of the run: {what}{place}",
            time(late.median_ns as f64),
            100.0 * late.share,
        )
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
            }
            more(&mut out, self.late.len());
        }
        if !self.slow.is_empty() {
            let _ = writeln!(out, "\nslow     since       more      %  host");
            for slow in self.slow.iter().take(ROWS) {
                let line = format!(
                    "{:>6} {:>7} {:>10} {:>6.1}  {}",
                    slow.rank,
                    slow.since_step,
                    time(slow.more_ns as f64),
                    100.0 * slow.share,
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

fn how_differs(differs: &Differs) -> String {
    let call = |called: &Called| format!("{} of {} bytes", called.kind, called.bytes);
    let called = differs.called.as_ref().map_or_else(|| "something else, which is not kept,".to_owned(), call);
    let again =
        if differs.numbers > 1 { format!(", and at {} more numbers", differs.numbers - 1) } else { String::new() };
    let who = ranks(&differs.ranks, ROWS);
    let (at, others) = (format!("number {} of {}{again}", differs.seq, differs.comm), call(&differs.others));
    match differs.other_half.as_slice() {
        [] => {
            format!("{who} called {called} as {at}, where the others called {others}: the data may be wrong since then")
        }
        half => format!(
            "{who} called {called} as {at}, and {} {others}: one of the two is wrong, and the data may be wrong since then",
            ranks(half, ROWS)
        ),
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
