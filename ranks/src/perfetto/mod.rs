//! The traces of ranks for one step as one archive that Perfetto opens: all on one time line, cut to the step, each
//! process named by rank and host. For a rank without a trace, one is made from its tables, and is labelled as such.
//!
//! The time line is the `CLOCK_BOOTTIME` of one host. Clocks of other hosts are corrected by the estimates of `clocks`,
//! and the correction is in the archive with its error. Perfetto's manifest could say one fixed offset for each trace;
//! here the packets themselves get their times, so that drift is corrected as well and a reader that does not know
//! manifests shows the same. `find` looks for traces, `place` has the clocks, `cut` copies packets, `tables` makes
//! traces, `archive` packs them.

mod archive;
mod cut;
mod find;
mod place;
mod tables;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::clocks::Options;
use crate::engine::Engine;
use crate::error::Error;
use crate::progress::bar;
use crate::report::ranks;

use archive::Member;
use cut::{Cut, Gpus};
use find::{Found, Process};
use place::{Place, Places};
use warpline_core::text::printable;
use warpline_report::duration as time;

/// Ranks that a sentence lists.
const RANKS_SHOWN: usize = 8;

/// The steps that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first step.
    pub from: i64,
    /// The last one.
    pub to: i64,
}

impl std::str::FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let parsed = from.trim().parse().ok().zip(to.trim().parse().ok()).filter(|(from, to)| from <= to);
        parsed
            .map(|(from, to)| Window { from, to })
            .ok_or_else(|| "write a step, such as 400, or steps, such as 400-402".to_owned())
    }
}

/// Ranks that a user lists: `0-7,16`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks(Vec<(i64, i64)>);

impl std::str::FromStr for Ranks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |part: &str| part.parse::<Window>().ok().map(|window| (window.from, window.to));
        let parts: Option<Vec<_>> = text.split(',').map(part).collect();
        parts.map(Ranks).ok_or_else(|| "write ranks, such as 3 or 0-7,16".to_owned())
    }
}

impl Ranks {
    fn has(&self, rank: i64) -> bool {
        self.0.iter().any(|(from, to)| (*from..=*to).contains(&rank))
    }
}

/// The traces to merge.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The folder of the tables.
    pub folder: PathBuf,
    /// The run, if the folder has several.
    pub run: Option<String>,
    /// The steps.
    pub window: Window,
    /// These ranks; all without it.
    pub ranks: Option<Ranks>,
    /// The folder of the traces; without it, the folder of the tables and the one that it is in.
    pub traces: Option<PathBuf>,
    /// The archive.
    pub output: PathBuf,
    /// How clocks are compared.
    pub options: Options,
}

/// The contents of the archive.
#[derive(Debug)]
pub struct Merged {
    /// Ranks from their traces.
    pub from_traces: usize,
    /// Ranks from their tables.
    pub from_tables: usize,
    /// Slices.
    pub slices: u64,
    /// Other events.
    pub events: u64,
    /// The length of the window.
    pub length_ns: i64,
    /// The host whose clock is the time line.
    pub reference: String,
    /// The worst error of a corrected clock.
    pub worst_err_ns: f64,
    /// Hosts whose clock nothing compares with the others.
    pub apart: Vec<String>,
    /// Steps and ranks that were asked for and are not in the tables, in sentences.
    pub missing: Vec<String>,
    /// Files that were not used, with the reason.
    pub unused: Vec<(PathBuf, String)>,
    /// Packets that were left out because their clock is unknown.
    pub unplaced: u64,
    /// Packets that were left out because they are damaged or too large.
    pub damaged: u64,
    /// The archive's size.
    pub bytes: u64,
}

/// A rank in the window, on its own clock.
struct Span {
    process: Process,
    place: Place,
    begin_ns: i64,
    end_ns: i64,
}

/// Merges the traces of ranks for some steps into one archive.
///
/// # Errors
/// The tables cannot be read, the steps are not in them, or the archive cannot be written.
pub fn merge(plan: &Plan) -> Result<Merged, Error> {
    let engine = Engine::open(&plan.folder, plan.run.as_deref())?;
    let processes = find::processes(&engine)?;
    let boots: HashMap<i64, &str> = processes.iter().rev().map(|process| (process.rank, &*process.boot_id)).collect();
    let lowest = processes.iter().map(|process| process.rank).find(|rank| is_asked(plan, *rank));
    let boot = lowest.and_then(|rank| boots.get(&rank).copied()).unwrap_or_default();
    let places = Places::new(&engine, plan.options, boot)?;
    let spans = spans(&engine, plan, &processes, &places)?;
    let on_line = |span: &Span| (span.place.timeline_ns(span.begin_ns), span.place.timeline_ns(span.end_ns));
    let from = spans.iter().map(|span| on_line(span).0).min().unwrap_or_default();
    let to = spans.iter().map(|span| on_line(span).1).max().unwrap_or_default();
    let Found { mut traces, unused } = find::traces(&plan.folder, plan.traces.as_deref(), &processes)?;
    let lacking: BTreeMap<i64, (i64, i64)> = spans
        .iter()
        .filter(|span| !traces.contains_key(&span.process))
        .map(|span| {
            (span.process.rank, (span.begin_ns - (on_line(span).0 - from), span.end_ns + (to - on_line(span).1)))
        })
        .collect();
    let made = tables::read(&engine, plan.window, &lacking)?;
    let pids = pids(spans.iter().map(|span| &span.process));
    let mut merged = Merged {
        missing: missing(&engine, plan, &processes, &spans)?,
        from_traces: 0,
        from_tables: 0,
        slices: 0,
        events: 0,
        length_ns: to - from,
        reference: places.reference().to_owned(),
        worst_err_ns: 0.0,
        apart: Vec::new(),
        unused,
        unplaced: 0,
        damaged: 0,
        bytes: 0,
    };
    let (mut members, mut gpus) = (Vec::new(), Gpus::new());
    let mut facts = vec![
        ("warpline.run".to_owned(), engine.folder().run),
        ("warpline.steps".to_owned(), format!("{} to {}", plan.window.from, plan.window.to)),
        ("warpline.time_line".to_owned(), format!("CLOCK_BOOTTIME of {}", places.reference())),
    ];
    let left_out = engine.folder();
    let (shown, _) = left_out.left_out();
    merged.unused.extend(shown.iter().map(|omission| (omission.file.clone().into(), omission.why.clone())));
    let bar = bar(spans.len(), "merging ranks");
    for span in &spans {
        let Process { rank, host, boot_id, .. } = &span.process;
        let Some(known) = places.known(boot_id, span.begin_ns) else { continue };
        merged.worst_err_ns = merged.worst_err_ns.max(known.err_ns);
        if known.is_apart && !merged.apart.iter().any(|apart| **apart == **host) {
            merged.apart.push(host.to_string());
        }
        let mut labels = vec![known.label(places.reference())];
        let fact = (format!("warpline.clock.{host}"), labels[0].clone());
        if !facts.contains(&fact) {
            facts.push(fact);
        }
        let attributes = [
            ("warpline.clock.time_line".to_owned(), format!("CLOCK_BOOTTIME of {}", places.reference())),
            ("warpline.clock.ahead_ns".to_owned(), format!("{:.0}", known.ahead_ns)),
            (
                "warpline.clock.err_ns".to_owned(),
                if known.is_apart { "unknown".to_owned() } else { format!("{:.0}", known.err_ns.ceil()) },
            ),
        ];
        let files = traces.remove(&span.process).unwrap_or_default();
        if files.is_empty() {
            labels.push("made from the tables, because no trace of the rank was found".to_owned());
        }
        let pid = pids[&span.process];
        if pid != span.process.pid {
            labels.push(format!("process id: {}, which another rank has as well", span.process.pid));
        }
        let name = format!("rank {rank} · {host}");
        let place = |own_ns| span.place.timeline_ns(own_ns);
        let (wall_ns, window) = (places.wall_ns(), (from, to));
        let rank_of =
            cut::Rank { place: &place, wall_ns, window, pid, name: &name, labels: &labels, attributes: &attributes };
        let mut add = |suffix: &str, cut: Cut| {
            merged.slices += cut.slices;
            merged.events += cut.events;
            merged.unplaced += cut.unplaced;
            merged.damaged += cut.damaged;
            if cut.slices + cut.events > 0 {
                members.push(Member {
                    name: format!("rank-{rank:05}{suffix}.pftrace"),
                    machine: host.to_string(),
                    trace: cut.trace.into_bytes(),
                });
            }
        };
        if files.is_empty() {
            if let Some(tables) = made.get(rank) {
                add(".tables", tables::write(tables, &rank_of));
                merged.from_tables += 1;
            }
        } else {
            for (number, file) in files.iter().enumerate() {
                match find::open(file).and_then(|trace| cut::cut(trace, &rank_of, &mut gpus)) {
                    Ok(cut) => add(&if number == 0 { String::new() } else { format!(".{}", number + 1) }, cut),
                    Err(error) => merged.unused.push((file.clone(), format!("cannot be read: {error}"))),
                }
            }
            merged.from_traces += 1;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if members.is_empty() {
        return Err(Error::Asked("no trace and no table has anything in these steps; nothing is written".to_owned()));
    }
    let mut whole = Vec::new();
    archive::write(&mut whole, &members, &facts).map_err(|error| Error::write(&plan.output, error))?;
    merged.bytes = whole.len() as u64;
    crate::generate::replace_file(&plan.output, &whole)?;
    Ok(merged)
}

fn is_asked(plan: &Plan, rank: i64) -> bool {
    plan.ranks.as_ref().is_none_or(|ranks| ranks.has(rank))
}

/// The time of the steps on each rank's clock. A window's files are of the processes that wrote it, and the times of a
/// process say which steps are its own. Windows do not: a step may be filed in the one after its end.
fn spans(engine: &Engine, plan: &Plan, processes: &[Process], places: &Places) -> Result<Vec<Span>, Error> {
    let Window { from, to } = plan.window;
    let sql = format!(
        "SELECT s.rank, p.boot_id, p.pid, MIN(s.begin_ns) AS begin_ns, MAX(s.begin_ns + s.wall_ns) AS end_ns FROM steps s \
         JOIN windows w ON s.run = w.run AND s.win = w.win AND s.rank = w.rank AND s.host = w.host \
         JOIN (SELECT run, rank, boot_id, pid, MIN(begin_ns) AS begin_ns, MAX(end_ns) AS end_ns FROM windows \
               GROUP BY run, rank, boot_id, pid) p \
           ON w.run = p.run AND w.rank = p.rank AND w.boot_id = p.boot_id AND w.pid = p.pid \
           AND s.begin_ns < p.end_ns AND s.begin_ns + s.wall_ns > p.begin_ns \
         WHERE s.step BETWEEN {from} AND {to} GROUP BY s.rank, p.boot_id, p.pid ORDER BY s.rank"
    );
    let rows = engine.query("steps", &sql)?;
    let (rank, boot, pid) = (rows.ints("rank")?, rows.texts("boot_id")?, rows.ints("pid")?);
    let (begin, end) = (rows.ints("begin_ns")?, rows.ints("end_ns")?);
    let of = |row: usize| {
        let is_it =
            |process: &&Process| (process.rank, process.pid, &process.boot_id) == (rank[row], pid[row], &boot[row]);
        let process = processes.iter().find(is_it)?.clone();
        Some(Span { place: places.place(&process.boot_id)?, process, begin_ns: begin[row], end_ns: end[row] })
    };
    let spans: Vec<Span> = (0..rows.len()).filter(|row| is_asked(plan, rank[*row])).filter_map(of).collect();
    if !spans.is_empty() {
        return Ok(spans);
    }
    if !rows.is_empty() {
        return Err(Error::Asked(
            "the tables have none of these ranks in these steps; `--ranks` lists ranks as 0-7,16".to_owned(),
        ));
    }
    let rows = engine.query("steps", "SELECT MIN(step) AS first, MAX(step) AS last FROM steps")?;
    let of = |column| Ok::<_, Error>(rows.maybe_ints(column)?.first().copied().flatten());
    Err(Error::Asked(match (of("first")?, of("last")?) {
        (Some(first), Some(last)) => {
            format!("the tables have no step in {from} to {to}; they have steps from {first} to {last}")
        }
        _ => "the tables have no steps: mark them with `warpline::step` or `step` in a mark".to_owned(),
    }))
}

/// The steps and ranks that were asked for and are not in the tables, in sentences.
fn missing(engine: &Engine, plan: &Plan, processes: &[Process], spans: &[Span]) -> Result<Vec<String>, Error> {
    let Window { from, to } = plan.window;
    let sql = format!(
        "SELECT COUNT(DISTINCT step) AS steps, MIN(step) AS first, MAX(step) AS last FROM steps WHERE step BETWEEN {from} AND {to}"
    );
    let rows = engine.query("steps", &sql)?;
    let of = |column| Ok::<_, Error>(rows.ints(column)?.first().copied().unwrap_or(0));
    let (found, first, last) = (of("steps")?, of("first")?, of("last")?);
    let asked = to.saturating_sub(from).saturating_add(1);
    let mut missing = Vec::new();
    if found < asked {
        missing.push(format!(
            "{} of the {asked} steps; they have steps from {first} to {last}",
            asked.saturating_sub(found)
        ));
    }
    let has_span = |rank: i64| spans.iter().any(|span| span.process.rank == rank);
    let mut without: Vec<i64> = processes.iter().map(|process| process.rank).collect();
    without.retain(|rank| is_asked(plan, *rank) && !has_span(*rank));
    without.dedup();
    if !without.is_empty() {
        missing.push(format!("these steps of {}", ranks(&without, RANKS_SHOWN)));
    }
    Ok(missing)
}

/// A process id for each process that no other one has, its own where that is free.
fn pids<'a>(processes: impl Iterator<Item = &'a Process>) -> HashMap<Process, i64> {
    const FREE: i64 = 1_000_000_000;
    let (mut taken, mut pids) = (HashSet::new(), HashMap::new());
    for process in processes {
        let free = (FREE..).find(|pid| !taken.contains(pid)).unwrap_or(FREE);
        let pid = if process.pid > 0 && taken.insert(process.pid) { process.pid } else { free };
        taken.insert(pid);
        pids.insert(process.clone(), pid);
    }
    pids
}

impl Merged {
    /// The description of the archive, for people.
    pub fn to_text(&self, output: &Path) -> String {
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let mut text = format!(
            "{}: {} from traces and {} from tables, {} in {}; open it at https://ui.perfetto.dev\n",
            printable(&output.display().to_string()),
            count(self.from_traces, "rank"),
            count(self.from_tables, "rank"),
            count(self.slices as usize, "slice"),
            time(self.length_ns as f64)
        );
        text +=
            &format!("time line: the clock of {}; corrected clocks are wrong by at most ", printable(&self.reference));
        text += &format!("{}, where hosts leave collectives within 30 µs of one another\n", time(self.worst_err_ns));
        if !self.apart.is_empty() {
            text += &format!(
                "never compared with it, and placed by their wall clocks: {}{}\n",
                self.apart.iter().take(8).map(|host| printable(host)).collect::<Vec<_>>().join(", "),
                if self.apart.len() > 8 { format!(" and {} more", self.apart.len() - 8) } else { String::new() }
            );
        }
        for missing in &self.missing {
            text += &format!("not in the tables: {missing}\n");
        }
        if self.unplaced > 0 {
            text += &format!("{} left out: their clock is unknown\n", count(self.unplaced as usize, "packet"));
        }
        if self.damaged > 0 {
            text += &format!("{} left out: damaged or too large\n", count(self.damaged as usize, "packet"));
        }
        for (file, why) in self.unused.iter().take(5) {
            text += &format!("not used: {}\n", printable(&format!("{} {why}", file.display())));
        }
        if self.unused.len() > 5 {
            text += &format!("not used: {} more\n", self.unused.len() - 5);
        }
        text
    }
}
