//! Why a job hangs, from the progress files of its ranks, from the processes of this machine, and from the flight recorders of dead ranks.
//!
//! `live` asks processes by their control sockets, and `dead` reads recorders.
//! `follow` follows the waits from rank to rank, to a rank that waits for no other rank, or around a cycle, in which ranks call collectives in
//! different orders. `differs` finds the first call of a group whose signature differs between ranks. A file that cannot be read is counted.

mod cycles;
mod dead;
mod differs;
mod follow;
mod groups;
mod live;
mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::error::{Error, Omission};
use crate::folder::runs;

pub use differs::Difference;
pub use follow::{Cycle, Wait};
pub use progress::{Call, Group, Open, Progress};

use follow::{Followed, Sink};
use groups::{Groups, MOST_IN_ALL};
use live::Life;

/// A rank whose file is older than this, beside the newest, has stopped writing: it is dead, or its host is.
const STALE: Duration = Duration::from_secs(10);

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Hang {
    /// The form of this structure in JSON.
    pub version: u32,
    /// The run.
    pub run: String,
    /// What it is about, in sentences.
    pub verdict: Vec<String>,
    /// Ranks that other ranks wait for, and that wait for no other rank: at most 256, for which most ranks wait directly.
    pub culprits: Vec<Culprit>,
    /// How many more there are.
    pub more_culprits: usize,
    /// Ranks that wait for each other: a cycle of each set of ranks, and at most 256.
    pub cycles: Vec<Cycle>,
    /// How many more there are.
    pub more_cycles: usize,
    /// Groups whose ranks called different operations.
    pub differences: Vec<Difference>,
    /// Ranks whose files are old: they died, or their host did.
    pub stale: Vec<u32>,
    /// Ranks that a group has and that wrote no file.
    pub missing: Vec<u32>,
    /// How many ranks wait in a collective.
    pub waiting: usize,
    /// How many ranks made progress between the two reads, and so do not wait.
    pub moved: usize,
    /// How many ranks wrote a file.
    pub ranks: usize,
    /// How many of them answered by their control sockets.
    pub answered: usize,
    /// Ranks whose processes have ended without the end of their sessions.
    pub gone: Vec<u32>,
    /// Files that had no room for all groups.
    pub truncated: usize,
    /// Files that were not read.
    pub left_out: Vec<Omission>,
    /// How many ranks of each host wrote a file.
    #[serde(skip)]
    of_host: BTreeMap<String, usize>,
}

/// A rank for which others wait.
#[derive(Debug, Clone, Serialize)]
pub struct Culprit {
    /// The rank.
    pub rank: u32,
    /// Its host, if it wrote a file.
    pub host: Option<String>,
    /// Its process.
    pub pid: Option<i64>,
    /// Its step.
    pub step: Option<i64>,
    /// How many ranks wait for it, directly or through others.
    pub waiting: usize,
    /// The waits that lead to it from a rank that waits: the last 256.
    pub chain: Vec<Wait>,
    /// Its oldest open zone.
    pub open: Option<Open>,
    /// Its thread has entered what the others are in: its device has not come to it.
    pub has_entered: bool,
    /// Its session has ended.
    pub has_ended: bool,
    /// Its file is there, and cannot be read.
    pub is_damaged: bool,
    /// Its process has ended, its file is missing, or its file is old and its process cannot be seen from here.
    pub is_dead: bool,
    /// Its process runs, and neither writes its file nor answers.
    pub is_silent: bool,
    /// The flight recorder that says what it did last.
    pub flight: Option<String>,
}

/// What there is of a run.
struct Look {
    run: String,
    files: BTreeMap<u32, Progress>,
    lives: BTreeMap<u32, Life>,
    left_out: Vec<Omission>,
}

impl Hang {
    /// Whether something hangs: a program that asks by the exit code wants to know this.
    pub fn is_one(&self) -> bool {
        !self.culprits.is_empty() || !self.cycles.is_empty() || !self.differences.is_empty()
    }

    /// Reads and judges the progress files of a run, once: right for a job that has ended or stands still. The files of a job that runs are up to a
    /// second apart, so that a rank may seem to wait: see [`Hang::watched`].
    pub fn new(path: &Path, run: Option<&str>) -> Result<Self, Error> {
        Ok(Self::judged(Self::look(path, run)?))
    }

    /// Reads and judges the progress files of a run. If ranks wait, it reads them again after `between`: ranks that have made progress in the
    /// meantime do not wait. `between` should be longer than two seconds, because each rank writes its file once a second.
    pub fn watched(path: &Path, run: Option<&str>, between: Duration) -> Result<Self, Error> {
        let before = Self::look(path, run)?;
        let (run, files) = (before.run.clone(), before.files.clone());
        let first = Self::judged(before);
        if first.waiting == 0 && first.missing.is_empty() {
            return Ok(first);
        }
        std::thread::sleep(between);
        let mut now = Self::look(path, Some(&run))?;
        let mut moved = 0;
        for (rank, file) in &mut now.files {
            if files.get(rank).is_none_or(|before| file.has_moved_since(before)) {
                moved += 1;
                file.waits_for_nobody();
            }
        }
        Ok(Self { moved, ..Self::judged(now) })
    }

    /// Reads the progress files once.
    fn look(path: &Path, run: Option<&str>) -> Result<Look, Error> {
        std::fs::read_dir(path).map_err(|source| Error::Folder { path: path.to_owned(), source })?;
        let known = runs(path, &["progress"]);
        let run = match (run, known.first()) {
            (_, None) => return Err(Error::NoProgress { path: path.to_owned(), left_out: Vec::new() }),
            (Some(run), _) if !known.iter().any(|known| known == run) => {
                return Err(Error::NoRun { path: path.to_owned(), run: run.to_owned(), runs: known });
            }
            (Some(run), _) => run.to_owned(),
            // The newest: one asks about the job that hangs now.
            (None, Some(newest)) => newest.clone(),
        };
        let (mut files, left_out) = progress::read(path, &run);
        if files.is_empty() {
            return Err(Error::NoProgress { path: path.to_owned(), left_out });
        }
        let lives = live::look(&mut files);
        Ok(Look { run, files, lives, left_out })
    }

    /// The judgement of progress files alone.
    pub fn of(run: String, files: &BTreeMap<u32, Progress>, left_out: Vec<Omission>) -> Self {
        Self::judged(Look { run, files: files.clone(), lives: BTreeMap::new(), left_out })
    }

    fn judged(Look { run, mut files, lives, mut left_out }: Look) -> Self {
        let stale = stale(&files);
        let life = |rank: u32| lives.get(&rank).copied();
        leave_out_earlier(&mut files, &stale, &mut left_out);
        let is_dead = |rank: u32| life(rank) == Some(Life::Gone) || stale.contains(&rank) && life(rank).is_none();
        let mut alive = files.clone();
        // A job of which nobody writes any more is looked at as it was left.
        if files.keys().any(|rank| !is_dead(*rank)) {
            alive.iter_mut().filter(|(rank, _)| is_dead(**rank)).for_each(|(_, file)| file.is_dead());
        }
        let files = &files;
        let groups = Groups::of(&alive);
        if groups.left_out > 0 {
            let why =
                format!("have more members than the {MOST_IN_ALL} that are followed, with the groups before them");
            left_out.push(Omission { file: format!("{} groups", groups.left_out), why });
        }
        let Followed { sinks, more_sinks, cycles, more_cycles, waiting } = follow::follow(&alive, &groups);
        let members = groups.all.iter().flat_map(|group| &group.members).copied();
        let missing: BTreeSet<u32> = members.filter(|rank| !files.contains_key(rank)).collect();
        let culprit = |Sink { rank, waiting, chain }: Sink| {
            let file = files.get(&rank);
            let is_stale = stale.contains(&rank);
            let name = format!("rank-{rank:05}.json");
            let is_damaged = file.is_none() && left_out.iter().any(|one| one.file.ends_with(&name));
            let is_dead = file.is_none() && !is_damaged || file.is_some() && is_dead(rank);
            // A recorder is read after the death of its process alone: until then, its zones may have ended.
            let last = file.filter(|_| is_dead).and_then(dead::last_open);
            let mut open = file.and_then(|file| file.open.clone());
            let mut flight = None;
            if let (Some(last), Some(path)) = (last, file.and_then(|file| file.flight.clone())) {
                match last {
                    Ok(last) => (open, flight) = (Some(last), Some(path)),
                    Err(why) => left_out.push(Omission { file: path, why }),
                }
            }
            Culprit {
                rank,
                host: file.map(|file| file.host.clone()),
                pid: file.map(|file| file.pid),
                step: file.and_then(|file| file.step),
                waiting,
                has_entered: chain
                    .last()
                    .is_some_and(|last| file.is_some_and(|file| file.has_entered(&last.comm, last.seq))),
                has_ended: file.is_some_and(|file| file.ended),
                is_damaged,
                chain,
                open,
                is_dead,
                is_silent: is_stale && life(rank) == Some(Life::Runs),
                flight,
            }
        };
        let culprits: Vec<Culprit> = sinks.into_iter().map(culprit).collect();
        let with = |wanted: Life| lives.iter().filter(move |(_, life)| **life == wanted).map(|(rank, _)| *rank);
        let mut hang = Self {
            version: 1,
            run,
            verdict: Vec::new(),
            culprits,
            more_culprits: more_sinks,
            cycles,
            more_cycles,
            differences: differs::differences(files),
            stale: stale.into_iter().collect(),
            missing: missing.into_iter().collect(),
            waiting,
            moved: 0,
            ranks: files.len(),
            answered: with(Life::Answered).count(),
            gone: with(Life::Gone).collect(),
            truncated: files.values().filter(|file| file.truncated).count(),
            left_out,
            of_host: BTreeMap::new(),
        };
        for file in files.values() {
            *hang.of_host.entry(file.host.clone()).or_default() += 1;
        }
        hang.verdict = hang.sentences();
        hang
    }

    fn sentences(&self) -> Vec<String> {
        let mut all = Vec::new();
        for different in &self.differences {
            all.push(different.sentence());
        }
        for cycle in &self.cycles {
            all.push(cycle.sentence());
        }
        // A host that is dead is one finding.
        let mut dead: BTreeMap<&str, usize> = BTreeMap::new();
        for host in self.culprits.iter().filter(|culprit| culprit.is_dead).filter_map(|culprit| culprit.host.as_deref())
        {
            *dead.entry(host).or_default() += 1;
        }
        dead.retain(|host, ranks| *ranks > 1 && self.of_host.get(*host) == Some(ranks));
        for (host, ranks) in &dead {
            let of_host = self.culprits.iter().filter(|culprit| culprit.host.as_deref() == Some(host));
            let waiting = of_host.map(|culprit| culprit.waiting).max().unwrap_or(0);
            all.push(format!(
                "{waiting} ranks wait for host {host}: none of its {ranks} ranks writes progress any more; it died, or is cut off"
            ));
        }
        let is_alone = |culprit: &&Culprit| culprit.host.as_deref().is_none_or(|host| !dead.contains_key(host));
        for culprit in self.culprits.iter().filter(is_alone) {
            let rank = match &culprit.host {
                Some(host) => format!("rank {} on {host}", culprit.rank),
                None if culprit.is_damaged => format!("rank {}, whose file cannot be read,", culprit.rank),
                None => format!("rank {}, which wrote no file,", culprit.rank),
            };
            let missing = culprit.chain.last().filter(|_| !culprit.is_damaged).map_or(String::new(), |last| {
                let what = match culprit.has_entered {
                    true if culprit.is_dead => "it has not completed",
                    true => "its thread has entered, and its device has not come to",
                    false => "it has not entered",
                };
                format!(": {what} number {} of {}", last.seq, last.comm)
            });
            all.push(format!("{} ranks wait for {rank}{missing}", culprit.waiting));
            if !culprit.is_damaged {
                all.push(self.state(culprit));
            }
        }
        for (more, what) in
            [(self.more_cycles, "sets of ranks wait for each other"), (self.more_culprits, "ranks are waited for")]
        {
            if more > 0 {
                all.push(format!("{more} more {what}"));
            }
        }
        if all.is_empty() {
            all.push(match self.waiting {
                0 if self.truncated > 0 => format!(
                    "no rank is known to wait in a collective; {} files had no room for all groups",
                    self.truncated
                ),
                0 => "no rank waits in a collective".to_owned(),
                waiting => format!("{waiting} ranks are in a collective that all its ranks have entered"),
            });
        }
        all
    }

    /// What a rank for which others wait does, or did last.
    fn state(&self, culprit: &Culprit) -> String {
        let Culprit { rank, pid, open, is_dead, is_silent, flight, .. } = culprit;
        let zone = open.as_ref().map(Open::sentence);
        let gone = || match pid {
            Some(pid) if self.gone.contains(rank) => format!("rank {rank} is dead: its process {pid} has ended"),
            _ => format!("rank {rank} writes no progress any more: it died, or its host did"),
        };
        match (is_dead, is_silent, zone) {
            (true, _, None) => gone(),
            (true, _, Some(zone)) => {
                let source = flight.as_ref().map(|path| format!(", as its flight recorder `{path}` says"));
                format!("{}; it was last in {zone}{}", gone(), source.unwrap_or_default())
            }
            (_, true, zone) => {
                let zone = zone.map(|zone| format!("; it was last in {zone}")).unwrap_or_default();
                format!(
                    "the process of rank {rank} runs, and writes no progress: it is stopped, or its disk stalls{zone}"
                )
            }
            (_, _, Some(zone)) => format!("rank {rank} is in {zone}"),
            (_, _, None) if culprit.has_ended => format!("the session of rank {rank} has ended"),
            (_, _, None) => format!("rank {rank} is in no zone"),
        }
    }

    /// For a terminal.
    pub fn to_text(&self) -> String {
        const SHOWN: usize = 12;
        let mut out = String::new();
        let (wrap, ranks) = (crate::report::wrap, crate::report::ranks);
        for sentence in self.verdict.iter().take(SHOWN) {
            wrap(&mut out, "", sentence);
        }
        if self.verdict.len() > SHOWN {
            wrap(&mut out, "", &format!("and {} more sentences: `--json` has them", self.verdict.len() - SHOWN));
        }
        for culprit in self.culprits.iter().take(3).filter(|culprit| culprit.chain.len() > 1) {
            let mut chain: Vec<String> = culprit.chain.iter().take(SHOWN).map(Wait::sentence).collect();
            if culprit.chain.len() > SHOWN {
                chain.push(format!("and {} more: `--json` has the last of them", culprit.chain.len() - SHOWN));
            }
            wrap(&mut out, "  ", &chain.join("; "));
        }
        out.push('\n');
        let answered = match self.answered {
            0 => String::new(),
            answered => format!(", {answered} of them answered by their sockets"),
        };
        let facts =
            format!("run {}: {} ranks wrote their progress{answered}, {} wait", self.run, self.ranks, self.waiting);
        wrap(&mut out, "", &facts);
        if self.moved > 0 {
            wrap(
                &mut out,
                "",
                &format!("{} ranks made progress between two reads of the files, and do not wait", self.moved),
            );
        }
        if !self.stale.is_empty() {
            wrap(&mut out, "", &format!("no longer written by {}", ranks(&self.stale, SHOWN)));
        }
        if !self.missing.is_empty() {
            wrap(&mut out, "", &format!("never written by {}", ranks(&self.missing, SHOWN)));
        }
        for left_out in self.left_out.iter().take(5) {
            wrap(&mut out, "", &format!("not read: {}: {}", left_out.file, left_out.why));
        }
        out
    }
}

/// Leaves out old files of ranks that are in no group of those that still write: of an earlier, larger job under the same id.
fn leave_out_earlier(files: &mut BTreeMap<u32, Progress>, stale: &BTreeSet<u32>, left_out: &mut Vec<Omission>) {
    if stale.is_empty() {
        return;
    }
    let fresh = files.values().filter(|file| !stale.contains(&file.rank)).flat_map(|file| &file.comms);
    // Lists of a million ranks are short as ranges: by their first ranks, with the last one of all that begin there or before.
    let mut members: BTreeMap<u32, u32> = BTreeMap::new();
    for (first, last) in fresh.filter_map(Group::ranges).flatten() {
        let known = members.entry(first).or_insert(last);
        *known = last.max(*known);
    }
    let mut furthest = 0;
    members.values_mut().for_each(|last| {
        furthest = furthest.max(*last);
        *last = furthest;
    });
    if members.is_empty() {
        return;
    }
    let is_member = |rank: u32| members.range(..=rank).next_back().is_some_and(|(_, last)| rank <= *last);
    files.retain(|rank, _| {
        let is_earlier = stale.contains(rank) && !is_member(*rank);
        if is_earlier {
            let why =
                "is old, and of a rank that is in no group of the others: of an earlier job under this id".to_owned();
            left_out.push(Omission { file: format!("rank-{rank:05}.json"), why });
        }
        !is_earlier
    });
}

/// The ranks whose files are old. Files of one boot are compared by its clock, which no step of a wall clock moves; boots are compared by the
/// clock of the file system.
fn stale(files: &BTreeMap<u32, Progress>) -> BTreeSet<u32> {
    let mut newest_of: BTreeMap<&str, (i64, Option<SystemTime>)> = BTreeMap::new();
    for file in files.values() {
        let newest = newest_of.entry(&file.boot_id).or_insert((i64::MIN, None));
        *newest = (newest.0.max(file.updated_boottime_ns), newest.1.max(file.changed));
    }
    let newest = newest_of.values().filter_map(|(_, changed)| *changed).max();
    let is_old = |file: &Progress| {
        let (boottime_ns, changed) = newest_of.get(file.boot_id.as_str()).copied().unwrap_or((i64::MIN, None));
        let boot_is_old = newest
            .zip(changed)
            .is_some_and(|(newest, changed)| newest.duration_since(changed).is_ok_and(|behind| behind > STALE));
        boottime_ns.saturating_sub(file.updated_boottime_ns) > STALE.as_nanos() as i64 || boot_is_old
    };
    files.iter().filter(|(_, file)| !file.ended && is_old(file)).map(|(rank, _)| *rank).collect()
}

/// Whether all ranks of a run have written that their session is over. A rank that was killed has not.
pub fn has_ended(path: &Path, run: &str) -> bool {
    let (files, left_out) = progress::read(path, run);
    left_out.is_empty() && !files.is_empty() && files.values().all(|file| file.ended)
}
