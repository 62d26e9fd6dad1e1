//! The report of a run: collects the judgements, and says what was not judged and why. `text` prints it for a terminal,
//! `page` writes it as HTML; its JSON is this structure.

mod cells;
mod heat;
mod page;
mod text;

pub use cells::Cells;
pub use heat::HeatMap;

pub(crate) use text::{ranks, wrap};

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use warpline_core::plural::counted_as;
use warpline_judge::own::{Own, Verdict};
use warpline_judge::tables::Table;

use crate::clocks::{ClockSummary, Inconsistent, Options, clocks};
use crate::engine::Engine;
use crate::error::{Error, Omission};
use crate::judge::{
    BlamedStep, Calls, Differs, Event, LateRank, SlowLink, SlowRank, after_clocks, before_clocks, blame, differs, late,
    links, margins, one_in, own,
};

/// A run, judged.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The form of this structure in JSON.
    pub version: u32,
    /// The run.
    pub run: String,
    /// The verdict, in sentences: the first thing to read.
    pub verdict: Vec<String>,
    /// Ranks that others waited for, the most costly first.
    pub late: Vec<LateRank>,
    /// Hosts all of whose ranks are in `late`.
    pub late_hosts: Vec<Arc<str>>,
    /// Ranks whose device is slow.
    pub slow: Vec<SlowRank>,
    /// Groups whose collectives take longer than those of their siblings, once all have come.
    pub links: Vec<SlowLink>,
    /// Ranks that called something else than the others.
    pub differs: Vec<Differs>,
    /// The steps in which ranks of `late` were late, in order, each with its cause.
    pub blame: Vec<BlamedStep>,
    /// Single late arrivals, the largest first.
    pub events: Vec<Event>,
    /// How many there are.
    pub events_in_all: usize,
    /// Bandwidths.
    pub bandwidth: Vec<Bandwidth>,
    /// The clocks.
    pub clocks: ClockSummary,
    /// The size of the run.
    pub size: Size,
    /// Whether there was enough to say who is late: two ranks that do the same, and six steps.
    pub is_judged: bool,
    /// The parts that were not judged, and why.
    pub not_judged: Vec<String>,
    /// Files that are not read.
    pub left_out: Vec<Omission>,
    /// The times of each rank in each step, for the page ([`Report::with_heat_map`]).
    #[serde(skip)]
    pub heat_map: Option<HeatMap>,
    /// The own time that was judged, of one in so many steps.
    #[serde(skip)]
    own: Own,
    #[serde(skip)]
    one_in: i64,
}

/// How large the run is.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Size {
    /// Ranks with a window.
    pub ranks: i64,
    /// Their hosts.
    pub hosts: i64,
    /// Steps of the rank that has most.
    pub steps: i64,
    /// Windows in time.
    pub windows: i64,
    /// Collectives that were begun.
    pub collectives_begun: i64,
    /// The collectives that were judged, each counted once for all its ranks.
    pub collectives_judged: usize,
    /// The mean of a step.
    pub step_ns: i64,
}

/// The bandwidth of collectives of one form.
#[derive(Debug, Clone, Serialize)]
pub struct Bandwidth {
    /// The operation.
    pub kind: Arc<str>,
    /// How many ranks.
    pub ranks: i64,
    /// The declared size.
    pub bytes: i64,
    /// How many.
    pub calls: i64,
    /// The slowest, in GB/s of the bus.
    pub least: f64,
    /// On average.
    pub mean: f64,
    /// The fastest.
    pub most: f64,
}

/// How many single events a report lists.
const EVENTS: usize = 50;

/// How many ranks a sentence lists.
const LISTED: usize = 8;

impl Report {
    /// Reads and judges a run of the folder.
    pub fn new(path: &Path, run: Option<&str>, options: Options) -> Result<Self, Error> {
        let engine = Engine::open(path, run)?;
        Self::of(&engine, options)
    }

    /// The same with an engine.
    pub fn of(engine: &Engine, options: Options) -> Result<Self, Error> {
        before_clocks(engine);
        let account = engine.view("account")?;
        let one = |column: &str| Ok::<i64, Error>(account.ints(column)?.first().copied().unwrap_or(0));
        let mut size = Size {
            ranks: one("ranks")?,
            hosts: one("hosts")?,
            windows: one("times")?,
            collectives_begun: one("collectives_begun")?,
            ..Size::default()
        };
        let found = clocks(engine, options)?;
        after_clocks(engine)?;
        // All of them, also those whose device work is not known.
        let all = engine.query("cells", "SELECT COUNT(*) AS steps, COALESCE(SUM(wall_ns), 0) AS wall_ns FROM cells")?;
        let sum = |column: &str| Ok::<i64, Error>(all.ints(column)?.first().copied().unwrap_or(0));
        let (steps, wall) = (sum("steps")?, sum("wall_ns")?);
        size.step_ns = wall / steps.max(1);
        size.steps = steps / size.ranks.max(1);
        let late = late(engine)?;
        let calls = Calls::new(&late)?;
        drop(late);
        size.collectives_judged = calls.met.judged().len();
        let one_in = one_in(steps);
        let own = own(engine, one_in)?;
        let run_ns = wall / size.ranks.max(1);
        let judged = own.judge(run_ns / one_in);
        let blamed = blame(engine, &own, &judged, &calls)?;
        let events_in_all = blamed.arrivals.len();
        let mut events = calls.events(&blamed.arrivals[..events_in_all.min(EVENTS)]);
        margins(engine, &mut events)?;
        let mut report = Self {
            version: 1,
            run: engine.folder().run,
            verdict: Vec::new(),
            late: blamed.ranks,
            late_hosts: blamed.hosts,
            blame: blamed.steps,
            slow: blamed.slow,
            links: links(&calls, run_ns),
            differs: differs(engine)?,
            events,
            events_in_all,
            bandwidth: bandwidth(engine)?,
            clocks: found.summary(),
            size,
            is_judged: judged.is_enough(),
            not_judged: Vec::new(),
            left_out: Vec::new(),
            heat_map: None,
            own,
            one_in,
        };
        report.not_judged = report.omissions(engine, &account, &judged, &calls, found.one_in)?;
        report.left_out = engine.folder().left_out().0.to_vec();
        report.verdict = report.sentences(&judged);
        Ok(report)
    }

    /// Reads the heat map for the page. The engine is the one of [`Report::of`].
    pub fn with_heat_map(mut self, engine: &Engine) -> Result<Self, Error> {
        self.heat_map = Some(HeatMap::of(engine, &self.own, self.one_in)?);
        Ok(self)
    }

    /// Whether a rank is named.
    pub fn names_somebody(&self) -> bool {
        !self.late.is_empty() || !self.slow.is_empty() || !self.links.is_empty() || !self.differs.is_empty()
    }

    fn omissions(
        &self,
        engine: &Engine,
        account: &crate::engine::Rows,
        judged: &Verdict,
        calls: &Calls,
        one_in: i64,
    ) -> Result<Vec<String>, Error> {
        let one = |column: &str| Ok::<i64, Error>(account.ints(column)?.first().copied().unwrap_or(0));
        let folder = engine.folder();
        let mut all = Vec::new();
        let mut say = |number: i64, one: &str, many: &str| {
            if number > 0 {
                all.push(counted_as(number.unsigned_abs(), one, many));
            }
        };
        say(
            folder.left_out().1 as i64,
            "file was left out: it is damaged, unfinished, foreign or a copy",
            "files were left out: they are damaged, unfinished, foreign or copies",
        );
        say(
            folder.unfinished() as i64,
            "file is under a temporary name: a rank writes it, or was killed then",
            "files are under a temporary name: a rank writes them, or was killed then",
        );
        // Ranks may have other sets of windows: what counts are the steps that others have.
        let sql = "SELECT c.rank AS rank, MIN(t.n) - COUNT(*) AS n FROM cells c \
                   CROSS JOIN (SELECT COUNT(DISTINCT step) AS n FROM cells) t GROUP BY c.rank ORDER BY c.rank";
        let seen = engine.query("cells", sql)?;
        let lacks: Vec<(i64, i64)> =
            seen.ints("rank")?.into_iter().zip(seen.ints("n")?).filter(|(_, n)| *n > 0).collect();
        let short = ranks(&lacks.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), LISTED);
        say(
            lacks.iter().map(|(_, n)| n).sum(),
            &format!("step that others have is missing, of {short}: it is not judged"),
            &format!("steps that others have are missing, of {short}: they are not judged"),
        );
        let sql = "SELECT COUNT(*) AS n FROM (SELECT DISTINCT rank, boot_id, pid FROM windows) w";
        say(
            engine.query("windows", sql)?.ints("n")?.first().copied().unwrap_or(0) - self.size.ranks,
            "earlier process of a rank is not judged: the rank was started again",
            "earlier processes of ranks are not judged: the ranks were started again",
        );
        let least = one("least_rank")?;
        say(
            one("most_rank")? - least + 1 - self.size.ranks,
            "rank between the lowest and the highest wrote nothing",
            "ranks between the lowest and the highest wrote nothing",
        );
        say(
            one("collectives_left_out")?,
            "collective was left out by sampling",
            "collectives were left out by sampling",
        );
        say(
            one("steps_dropped")?,
            "step has no row: the rank's steps were too short for its queue",
            "steps have no row: the ranks' steps were too short for their queues",
        );
        say(
            one("zones_dropped")?,
            "zone was dropped by the rank that recorded it",
            "zones were dropped by the ranks that recorded them",
        );
        say(
            one("coarsened")?,
            "window was coarsened to keep to the budget",
            "windows were coarsened to keep to the budget",
        );
        say(
            one("wrong")?,
            "window does not add up: kept and left out are not what was begun",
            "windows do not add up: kept and left out are not what was begun",
        );
        say(
            engine.view("twice")?.len() as i64,
            "rank was written by two processes at once: its rows are mixed",
            "ranks were written by two processes at once: their rows are mixed",
        );
        say(
            calls.met.unknown as i64,
            "collective is not judged: a rank that has no row of it may have come last",
            "collectives are not judged: a rank that has no row of them may have come last",
        );
        say(
            calls.met.bounded as i64,
            "collective has an end that is not timed: its length enters no bandwidth and no usual length",
            "collectives have an end that is not timed: their lengths enter no bandwidth and no usual length",
        );
        let sql = "SELECT COUNT(*) AS n FROM cells WHERE 20 * uncertain_ns > own_ns";
        say(
            engine.query("cells", sql)?.ints("n")?.first().copied().unwrap_or(0),
            "step of a rank has ends that are not timed: its time is compared with nothing",
            "steps of ranks have ends that are not timed: their time is compared with nothing",
        );
        say(
            judged.below as i64,
            "rank was late for less than 0.05 % of the run and is not named",
            "ranks were late for less than 0.05 % of the run and are not named",
        );
        say(
            self.clocks.apart.len() as i64,
            "group of hosts never met another in a collective: nothing compares them",
            "groups of hosts never met in a collective: nothing compares them",
        );
        let inconsistent = &self.clocks.inconsistent;
        all.extend(inconsistent.iter().take(3).map(Inconsistent::to_string));
        if inconsistent.len() > 3 {
            all.push(format!(
                "the bounds of other clocks contradict each other as well, of {} in all",
                inconsistent.len()
            ));
        }
        match self.size.ranks {
            1 => all.push("there is no other rank to compare the only one with".to_owned()),
            2 | 3 => all.push(format!(
                "{} ranks do not show by how much devices differ: a rank that takes up to 5 % of a step longer is not named",
                self.size.ranks
            )),
            _ => {}
        }
        if one_in > 1 {
            all.push(format!("one in {one_in} collectives was used for the clocks"));
        }
        if self.size.collectives_judged == 0 && self.size.ranks > 1 {
            all.push("no collective compares the clocks of the ranks".to_owned());
        }
        for table in folder.missing() {
            all.push(format!("the table `{table}` is missing: the parts of the report that need it are empty"));
        }
        if folder.files(Table::Windows).is_empty() {
            all.push("without `windows`, no rank has a clock: no collective is judged".to_owned());
        }
        if !folder.other_runs.is_empty() {
            all.push(format!("other runs in the folder: {}", folder.other_runs.join(", ")));
        }
        Ok(all)
    }
}

fn bandwidth(engine: &Engine) -> Result<Vec<Bandwidth>, Error> {
    let rows = engine.view("bandwidth")?;
    let (kind, ranks, bytes, calls) =
        (rows.texts("kind")?, rows.ints("ranks")?, rows.ints("bytes")?, rows.ints("calls")?);
    let (least, mean, most) = (rows.floats("least")?, rows.floats("mean")?, rows.floats("most")?);
    let one = |row: usize| Bandwidth {
        kind: kind[row].clone(),
        ranks: ranks[row],
        bytes: bytes[row],
        calls: calls[row],
        least: least[row],
        mean: mean[row],
        most: most[row],
    };
    let mut all: Vec<Bandwidth> = (0..rows.len()).map(one).collect();
    all.sort_by(|a, b| (&a.kind, a.ranks, a.bytes).cmp(&(&b.kind, b.ranks, b.bytes)));
    Ok(all)
}
