//! Why a job hangs, from the progress files of its ranks, from the processes of this machine, and from the flight
//! recorders of dead ranks.
//!
//! `live` asks processes by their control sockets, and `dead` reads recorders. `follow` follows the waits from rank to
//! rank, to a rank that waits for no other rank, or around a cycle, in which ranks call collectives in different
//! orders. `differs` finds the first call of a group whose signature differs between ranks. `words` says it. A file
//! that cannot be read is counted.

mod cycles;
mod dead;
mod differs;
mod follow;
mod groups;
mod live;
mod progress;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::error::{Error, Omission};
use crate::folder::runs;

pub use differs::Difference;
pub use follow::{Cycle, Together, Wait};
pub use warpline_judge::progress::{Call, Group, Open, Progress};

use follow::{Followed, Graph, Sink};
use groups::{Groups, MOST_IN_ALL};
use live::Life;

/// A rank whose file is older than the newest one by more than this has stopped writing: it is dead, or its host is.
const STALE: Duration = Duration::from_secs(10);

/// The findings.
#[derive(Debug, Clone, Serialize)]
pub struct Hang {
    /// The form of this structure in JSON.
    pub version: u32,
    /// The run.
    pub run: String,
    /// The verdict, in sentences.
    pub verdict: Vec<String>,
    /// Ranks that other ranks wait for, and that wait for no other rank: at most 256, for which most ranks wait
    /// directly.
    pub culprits: Vec<Culprit>,
    /// How many more there are.
    pub more_culprits: usize,
    /// Ranks that wait for each other: a cycle of each set of ranks, and at most 256.
    pub cycles: Vec<Cycle>,
    /// How many more there are.
    pub more_cycles: usize,
    /// Ranks that are in a collective that all have entered and none has completed: those in which the most ranks are
    /// first. At most 256.
    pub together: Vec<Together>,
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
    /// No rank waits, and none has moved between the two reads.
    pub stood: bool,
    /// How many ranks wrote a file.
    pub ranks: usize,
    /// How many of them answered by their control sockets.
    pub answered: usize,
    /// Ranks whose processes have ended without the end of their sessions.
    pub gone: Vec<u32>,
    /// Files that had no room for all groups.
    pub truncated: usize,
    /// Files that had room for no group, so that nothing is known about their ranks.
    pub unjudged: usize,
    /// Files that were not read.
    pub left_out: Vec<Omission>,
    /// How many ranks of each host wrote a file.
    #[serde(skip)]
    of_host: BTreeMap<String, usize>,
    /// The zones that the ranks are in.
    #[serde(skip)]
    places: Option<String>,
    /// No process of the job runs any more.
    #[serde(skip)]
    is_over: bool,
    /// All ranks have ended their sessions.
    #[serde(skip)]
    has_ended: bool,
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
    /// The collective inside of which its device is, which others have completed.
    pub inside: Option<(String, i64)>,
    /// Its file is there, and cannot be read.
    pub is_damaged: bool,
    /// Its file had no room for the group in which others wait for it.
    pub is_truncated: bool,
    /// Its process has ended, its file is missing, or its file is old and its process cannot be seen from here.
    pub is_dead: bool,
    /// Its process runs, and neither writes its file nor answers.
    pub is_silent: bool,
    /// It has made progress between the two reads.
    pub is_late: bool,
    /// For how many seconds it has not written its file, if these are many.
    pub silent_s: Option<u64>,
    /// The flight recorder that says what it did last.
    pub flight: Option<String>,
}

/// The progress files of a run.
struct Snapshot {
    run: String,
    files: BTreeMap<u32, Progress>,
    lives: BTreeMap<u32, Life>,
    left_out: Vec<Omission>,
}

impl Hang {
    /// Whether something hangs: a program that asks by the exit code wants to know this.
    pub fn is_one(&self) -> bool {
        let is_named = !self.culprits.is_empty() || !self.cycles.is_empty() || !self.differences.is_empty();
        is_named || !self.together.is_empty() || !self.gone.is_empty() || self.stood
    }

    /// Whether it is known that nothing hangs, or what does. Files may have no room for the groups that show it.
    pub fn is_known(&self) -> bool {
        self.is_one() || self.unjudged == 0
    }

    /// Reads and judges the progress files of a run, once: right for a job that has ended or does not progress. The
    /// files of a job that runs are up to a second apart, so that a rank may seem to wait: see [`Hang::watched`].
    pub fn new(path: &Path, run: Option<&str>) -> Result<Self, Error> {
        Ok(Self::judged(Self::read(path, run)?, Some(path), None))
    }

    /// Reads and judges the progress files of a run, and reads them again after `between`: ranks that have made
    /// progress in the meantime do not wait. `between` should be longer than two seconds, because each rank writes its
    /// file once a second.
    pub fn watched(path: &Path, run: Option<&str>, between: Duration) -> Result<Self, Error> {
        let before = Self::read(path, run)?;
        if before.files.values().all(|file| file.ended) {
            return Ok(Self::judged(before, Some(path), None));
        }
        std::thread::sleep(between);
        let now = Self::read(path, Some(&before.run))?;
        Ok(Self::judged(now, Some(path), Some(&before.files)))
    }

    /// Reads the progress files once.
    fn read(path: &Path, run: Option<&str>) -> Result<Snapshot, Error> {
        std::fs::read_dir(path).map_err(|source| Error::Folder { path: path.to_owned(), source })?;
        let known = runs(path, &["progress"]);
        let run = match (run, known.first()) {
            (_, None) => return Err(Error::NoProgress { path: path.to_owned(), left_out: Vec::new() }),
            (Some(run), _) if !known.iter().any(|known| known == run) => {
                return Err(Error::NoRun { path: path.to_owned(), run: run.to_owned(), runs: known });
            }
            (Some(run), _) => run.to_owned(),
            // The newest: the question is about the job that hangs now.
            (None, Some(newest)) => newest.clone(),
        };
        let (mut files, left_out) = progress::read(path, &run);
        if files.is_empty() {
            return Err(Error::NoProgress { path: path.to_owned(), left_out });
        }
        let lives = live::poll(&mut files);
        Ok(Snapshot { run, files, lives, left_out })
    }

    /// The judgement of progress files alone.
    pub fn of(run: String, files: &BTreeMap<u32, Progress>, left_out: Vec<Omission>) -> Self {
        Self::judged(Snapshot { run, files: files.clone(), lives: BTreeMap::new(), left_out }, None, None)
    }

    /// Judges the progress files of the run in a folder, compared with those that its ranks wrote before.
    fn judged(snapshot: Snapshot, path: Option<&Path>, before: Option<&BTreeMap<u32, Progress>>) -> Self {
        let Snapshot { run, mut files, lives, mut left_out } = snapshot;
        let life = |rank: u32| lives.get(&rank).copied();
        let silent = silent(&files);
        let mut dead: BTreeSet<u32> = silent.keys().filter(|rank| life(**rank).is_none()).copied().collect();
        dead.extend(lives.iter().filter(|(_, life)| **life == Life::Gone).map(|(rank, _)| *rank));
        leave_out_earlier(&mut files, &silent.keys().chain(&dead).copied().collect(), &mut left_out);
        dead.retain(|rank| files.contains_key(rank));
        let moved: BTreeSet<u32> = match before {
            Some(before) => {
                let has_moved = |file: &Progress| before.get(&file.rank).is_none_or(|before| has_moved(before, file));
                files.values().filter(|file| has_moved(file)).map(|file| file.rank).collect()
            }
            None => BTreeSet::new(),
        };
        // Of a job of which nobody runs any more, those that died before the others are the dead ones among those that
        // waited.
        let is_over = !dead.is_empty() && files.values().all(|file| file.ended || dead.contains(&file.rank));
        let died: BTreeSet<u32> = dead.iter().filter(|rank| !is_over || silent.contains_key(rank)).copied().collect();
        let mut alive = files.clone();
        for file in alive.values_mut() {
            if died.contains(&file.rank) {
                // It does not wait, and others wait for it, also in what it has begun.
                file.comms.iter_mut().for_each(|group| group.entered = group.completed);
            }
            if died.contains(&file.rank) || moved.contains(&file.rank) {
                file.open = None;
            }
        }
        let files = &files;
        let groups = Groups::of(&alive, &moved);
        if groups.left_out > 0 {
            let why =
                format!("have, with the groups before them, more members than the {MOST_IN_ALL} that are followed");
            left_out.push(Omission { file: format!("{} groups", groups.left_out), why });
        }
        // A file that is missing, cut or old says nothing of how far its rank is, unless the rank is dead.
        let is_unknown =
            |rank: u32| !dead.contains(&rank) && (silent.contains_key(&rank) || files.get(&rank).is_none_or(may_lack));
        let graph = Graph::new(&alive, &groups);
        let Followed { sinks, more_sinks, cycles, more_cycles, together, waiting } = graph.follow(is_unknown);
        let members = groups.all.iter().flat_map(|group| &group.members).copied();
        let missing: BTreeSet<u32> = members.filter(|rank| !files.contains_key(rank)).collect();
        let culprit = |Sink { rank, waiting, chain, inside }: Sink| {
            let file = files.get(&rank);
            let name = format!("rank-{rank:05}.json");
            let is_dead = dead.contains(&rank);
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
            let last = chain.last();
            Culprit {
                rank,
                host: file.map(|file| file.host.clone()),
                pid: file.map(|file| file.pid),
                step: file.and_then(|file| file.step),
                waiting,
                has_entered: last.zip(file).is_some_and(|(last, file)| has_entered(file, last)),
                has_ended: file.is_some_and(|file| file.ended),
                is_damaged: file.is_none() && left_out.iter().any(|one| one.file.ends_with(&name)),
                is_truncated: !is_dead
                    && last.zip(file).is_some_and(|(last, file)| may_lack(file) && !has(file, &last.comm)),
                is_dead: is_dead || missing.contains(&rank),
                is_silent: !is_dead && silent.contains_key(&rank),
                is_late: moved.contains(&rank),
                silent_s: silent.get(&rank).copied(),
                inside,
                chain,
                open,
                flight,
            }
        };
        let culprits: Vec<Culprit> = sinks.into_iter().map(culprit).collect();
        let stands = |file: &Progress| {
            let before = before.and_then(|before| before.get(&file.rank));
            file.ended || before.is_some_and(|before| before.open == file.open)
        };
        let has_ended = files.values().all(|file| file.ended);
        let cannot_be_judged = |file: &&Progress| file.truncated && file.comms.is_empty() && !file.ended;
        let differences = differs::differences(files, path.map(|path| (path, run.as_str())), &mut left_out);
        let mut hang = Self {
            version: 1,
            differences,
            run,
            verdict: Vec::new(),
            culprits,
            more_culprits: more_sinks,
            cycles,
            more_cycles,
            together,
            stale: silent.into_keys().filter(|rank| files.contains_key(rank)).collect(),
            missing: missing.into_iter().collect(),
            waiting,
            moved: moved.len(),
            stood: waiting == 0 && moved.is_empty() && !has_ended && files.values().all(stands),
            ranks: files.len(),
            answered: lives.values().filter(|life| **life == Life::Answered).count(),
            gone: dead.iter().filter(|rank| life(**rank) == Some(Life::Gone)).copied().collect(),
            truncated: files.values().filter(|file| file.truncated).count(),
            unjudged: files.values().filter(cannot_be_judged).count(),
            left_out,
            of_host: BTreeMap::new(),
            places: words::places(files.values()),
            is_over,
            has_ended,
        };
        for file in files.values().filter(|file| !file.ended) {
            *hang.of_host.entry(file.host.clone()).or_default() += 1;
        }
        hang.verdict = hang.sentences(|ranks| graph.waiting_for(ranks.iter().copied()));
        hang
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

/// Whether a rank has begun a step, or begun or completed a collective, since it wrote the other file.
fn has_moved(before: &Progress, now: &Progress) -> bool {
    let of = |file: &Progress| -> BTreeMap<String, (Option<i64>, Option<i64>)> {
        file.comms.iter().map(|group| (group.comm.clone(), (group.entered, group.completed))).collect()
    };
    now.pid != before.pid || now.step != before.step || of(now) != of(before)
}

fn has(file: &Progress, comm: &str) -> bool {
    file.comms.iter().any(|group| group.comm == comm)
}

/// Whether a rank has entered the collective in which another waits for it.
fn has_entered(file: &Progress, wait: &Wait) -> bool {
    wait.transfer.is_none() && file.comms.iter().any(|group| group.comm == wait.comm && group.entered >= Some(wait.seq))
}

/// Whether a file may lack a group in which its rank is. It has the unfinished ones first, so what it lacks is finished
/// if it has a finished one.
fn may_lack(file: &Progress) -> bool {
    file.truncated && file.comms.iter().all(|group| group.entered != group.completed)
}

/// Leaves out files of ranks that write no more and are in no group of those that still write: of an earlier, larger
/// job under the same id.
fn leave_out_earlier(files: &mut BTreeMap<u32, Progress>, old: &BTreeSet<u32>, left_out: &mut Vec<Omission>) {
    if old.is_empty() {
        return;
    }
    let fresh = files.values().filter(|file| !old.contains(&file.rank)).flat_map(|file| &file.comms);
    // Lists of a million ranks are short as ranges: by their first ranks, with the last one of all that begin there or
    // before.
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
        let is_earlier = old.contains(rank) && !is_member(*rank);
        if is_earlier {
            let why =
                "is old, and its rank is in no group of the others: it is from an earlier job with this id".to_owned();
            left_out.push(Omission { file: format!("rank-{rank:05}.json"), why });
        }
        !is_earlier
    });
}

/// The ranks whose files are old although their sessions have not ended, and by how many seconds. Files of one boot are
/// compared by its clock, which no step of a wall clock moves; boots are compared by the clock of the file system.
fn silent(files: &BTreeMap<u32, Progress>) -> BTreeMap<u32, u64> {
    let mut newest_of: BTreeMap<&str, (i64, Option<SystemTime>)> = BTreeMap::new();
    for file in files.values() {
        let newest = newest_of.entry(&file.boot_id).or_insert((i64::MIN, None));
        *newest = (newest.0.max(file.updated_boottime_ns), newest.1.max(file.changed));
    }
    let newest = newest_of.values().filter_map(|(_, changed)| *changed).max();
    let age = |file: &Progress| {
        let (boottime_ns, changed) = newest_of.get(file.boot_id.as_str()).copied().unwrap_or((i64::MIN, None));
        let of_boot = newest.zip(changed).and_then(|(newest, changed)| newest.duration_since(changed).ok());
        let of_file = boottime_ns.saturating_sub(file.updated_boottime_ns).max(0).unsigned_abs();
        Duration::from_nanos(of_file) + of_boot.filter(|age| *age > STALE).unwrap_or_default()
    };
    let ages = files.values().filter(|file| !file.ended).map(|file| (file.rank, age(file)));
    ages.filter(|(_, age)| *age > STALE).map(|(rank, age)| (rank, age.as_secs())).collect()
}

/// Whether all ranks of a run have written that their session is over. A rank that was killed has not.
pub fn has_ended(path: &Path, run: &str) -> bool {
    let (files, left_out) = progress::read(path, run);
    left_out.is_empty() && !files.is_empty() && files.values().all(|file| file.ended)
}
