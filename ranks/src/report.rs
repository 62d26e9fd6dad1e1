//! The report of a run: collects what is judged, and says what was not and why. `text` prints it for a terminal, `page` writes it as HTML;
//! as JSON it is this structure.

mod cells;
mod heat;
mod page;
mod text;

pub use cells::Cells;
pub use heat::HeatMap;

pub(crate) use text::{ranks, wrap};

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use warpline_core::suggest::counted_as;
use warpline_judge::clocks::Clock;
use warpline_judge::own::{Own, Verdict};
use warpline_judge::tables::Table;

use crate::clocks::{Options, clocks};
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
    /// What it is about, in sentences: the first thing to read.
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
    /// What was not judged, and why.
    pub not_judged: Vec<String>,
    /// Files that are not read.
    pub left_out: Vec<Omission>,
    /// What each rank did in each step, for the page ([`Report::with_heat_map`]).
    #[serde(skip)]
    pub heat_map: Option<HeatMap>,
    /// What was judged, of one in so many steps.
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
    /// Those that were judged, with all their ranks together.
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

/// A host whose bounds contradict each other: a clock was stepped, drifts by more than stated, or a collective did not synchronise.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Inconsistent {
    /// The host.
    pub host: Arc<str>,
    /// The minutes since the run's begin.
    pub minutes: Vec<i64>,
}

impl fmt::Display for Inconsistent {
    /// A sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, minutes } = self;
        write!(
            f,
            "the bounds of the clock of {host} contradict each other in minute {}",
            minutes.first().unwrap_or(&0)
        )?;
        if minutes.len() > 1 {
            write!(f, " and {} more", minutes.len() - 1)?;
        }
        write!(f, ": it was stepped, or drifts by more than `--max-drift-ppm`")
    }
}

/// How well the clocks are known.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ClockSummary {
    /// Hosts.
    pub hosts: usize,
    /// The worst error of an estimate.
    pub worst_err_ns: f64,
    /// The widest certified interval: half of it.
    pub worst_certified_ns: Option<f64>,
    /// Intervals without a certified one.
    pub not_certified: usize,
    /// Hosts whose bounds contradict each other, and in which minutes of the run.
    pub inconsistent: Vec<Inconsistent>,
    /// Groups of hosts that never met, by their first host.
    pub apart: Vec<Arc<str>>,
    /// Each host that met another one.
    pub by_host: Vec<ClockOfHost>,
}

/// How well the clock of a host is known, over all minutes in which it met others.
#[derive(Debug, Clone, Serialize)]
pub struct ClockOfHost {
    /// The host.
    pub host: Arc<str>,
    /// The host that it is compared with.
    pub beside: Arc<str>,
    /// In how many minutes.
    pub minutes: usize,
    /// Collectives in which it met others.
    pub meetings: usize,
    /// How far it is ahead, on average.
    pub offset_ns: f64,
    /// By how much it is faster, on average, in parts per million.
    pub drift_ppm: f64,
    /// The estimate's error in the worst minute, 99 of 100 times.
    pub err_ns: f64,
    /// Half the certified interval of the worst minute; none if a minute is not certified.
    pub certified_ns: Option<f64>,
    /// Its bounds contradict each other in some minute.
    pub is_inconsistent: bool,
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
            clocks: ClockSummary {
                hosts: found.hosts.len(),
                worst_err_ns: found.worst_err_ns(),
                worst_certified_ns: found
                    .clocks
                    .iter()
                    .filter(|clock| clock.meetings > 1 && !clock.is_inconsistent)
                    .filter_map(|clock| clock.certified.map(|(least, most)| (most - least) / 2.0))
                    .max_by(f64::total_cmp),
                not_certified: found
                    .clocks
                    .iter()
                    .filter(|clock| clock.meetings > 0 && clock.certified.is_none())
                    .count(),
                inconsistent: inconsistent(&found.hosts, &found.clocks),
                apart: match found.apart() {
                    one if one.len() < 2 => Vec::new(),
                    many => many.iter().map(|hosts| found.hosts[hosts[0]].clone()).collect(),
                },
                by_host: by_host(&found.hosts, &found.clocks),
            },
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
            "collective has an end that is not timed: its length is in no bandwidth, and in nothing that is usual",
            "collectives have an end that is not timed: their lengths are in no bandwidth, and in nothing that is usual",
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
            all.push(format!("the table `{table}` is missing: what needs it is empty"));
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

fn inconsistent(hosts: &[Arc<str>], clocks: &[Clock]) -> Vec<Inconsistent> {
    let mut minutes: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
    for clock in clocks.iter().filter(|clock| clock.is_inconsistent) {
        minutes.entry(clock.host).or_default().push(clock.segment);
    }
    minutes.into_iter().map(|(host, minutes)| Inconsistent { host: hosts[host].clone(), minutes }).collect()
}

fn by_host(hosts: &[Arc<str>], clocks: &[Clock]) -> Vec<ClockOfHost> {
    let mut of_host: BTreeMap<usize, Vec<&Clock>> = BTreeMap::new();
    for clock in clocks.iter().filter(|clock| clock.meetings > 0) {
        of_host.entry(clock.host).or_default().push(clock);
    }
    let one = |(host, clocks): (usize, Vec<&Clock>)| {
        let minutes = clocks.len();
        let mean = |of: fn(&Clock) -> f64| clocks.iter().map(|clock| of(clock)).sum::<f64>() / minutes.max(1) as f64;
        let half = clocks.iter().map(|clock| clock.certified.map(|(least, most)| (most - least) / 2.0));
        let certified: Option<Vec<f64>> = half.collect();
        ClockOfHost {
            host: hosts[host].clone(),
            beside: clocks.first().map_or_else(|| hosts[host].clone(), |clock| hosts[clock.beside].clone()),
            minutes,
            meetings: clocks.iter().map(|clock| clock.meetings).sum(),
            offset_ns: mean(|clock| clock.offset_ns),
            drift_ppm: mean(|clock| clock.drift * 1e6),
            err_ns: clocks.iter().map(|clock| clock.err_ns).fold(0.0, f64::max),
            certified_ns: certified.map(|all| all.into_iter().fold(0.0, f64::max)),
            is_inconsistent: clocks.iter().any(|clock| clock.is_inconsistent),
        }
    };
    of_host.into_iter().map(one).collect()
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
