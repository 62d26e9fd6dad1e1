//! The sentences: first the rank, then what it does and where, so that the person on call knows where to look. A
//! sentence says what cannot be told, with the reason.

use std::collections::BTreeMap;

use warpline_judge::progress::{Open, Progress};

use super::follow::Together;
use super::{Culprit, Hang};

/// The most parts of a list of ranks that are shown.
const SHOWN: usize = 6;

/// A list of ranks: `rank 3`, `ranks 0-3, 9`.
pub(super) fn listed(ranks: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match parts.last_mut() {
            Some((_, last)) if *rank == *last + 1 => *last = *rank,
            _ => parts.push((*rank, *rank)),
        }
    }
    let part = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    let shown: Vec<String> = parts.iter().take(SHOWN).map(part).collect();
    let more: u32 = parts.iter().skip(SHOWN).map(|(first, last)| last - first + 1).sum();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("rank{} {}{more}", if ranks.len() == 1 { "" } else { "s" }, shown.join(", "))
}

/// A time that has passed.
fn passed(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// One of two words, for one rank or for several.
fn number(is_one: bool, one: &'static str, several: &'static str) -> &'static str {
    if is_one { one } else { several }
}

/// The zones of the ranks whose sessions have not ended.
pub(super) fn places<'a>(files: impl Iterator<Item = &'a Progress>) -> Option<String> {
    let mut places: BTreeMap<Option<String>, Vec<u32>> = BTreeMap::new();
    for file in files.filter(|file| !file.ended) {
        places.entry(file.open.as_ref().map(Open::place)).or_default().push(file.rank);
    }
    let mut places: Vec<(Option<String>, Vec<u32>)> = places.into_iter().collect();
    places.sort_by_key(|(_, ranks)| std::cmp::Reverse(ranks.len()));
    let part = |(place, ranks): &(Option<String>, Vec<u32>)| {
        let is = number(ranks.len() == 1, "is", "are");
        format!("{} {is} in {}", listed(ranks), place.as_deref().unwrap_or("no zone"))
    };
    let parts: Vec<String> = places.iter().take(3).map(part).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

impl Hang {
    /// The verdict. `waiting_for` is the number of ranks that wait for each of some ranks.
    pub(super) fn sentences(&self, waiting_for: impl Fn(&[u32]) -> usize) -> Vec<String> {
        let different =
            |is_open: bool| self.differences.iter().filter(move |one| one.is_open == is_open).map(|one| one.sentence());
        let mut all: Vec<String> = different(true).collect();
        all.extend(self.cycles.iter().map(|cycle| cycle.sentence()));
        // Ranks of one host in one state are one finding.
        let mut alike: Vec<(_, Vec<&Culprit>)> = Vec::new();
        for culprit in &self.culprits {
            let key = (&culprit.host, &culprit.inside, self.state(culprit, true, 0));
            match alike.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => known.push(culprit),
                None => alike.push((key, vec![culprit])),
            }
        }
        all.extend(alike.iter().map(|(_, culprits)| self.named(culprits, &waiting_for)));
        for (more, what) in
            [(self.more_cycles, "sets of ranks wait for each other"), (self.more_culprits, "ranks are waited for")]
        {
            if more > 0 {
                all.push(format!("{more} more {what}"));
            }
        }
        let is_known = !all.is_empty();
        all.extend(different(false));
        if !is_known {
            all.extend(self.together.iter().map(|together| self.held_up(together)));
        }
        let is_named = |rank: &&u32| !self.culprits.iter().any(|culprit| culprit.rank == **rank);
        let gone: Vec<u32> = self.gone.iter().filter(is_named).copied().collect();
        if !gone.is_empty() && !self.is_over {
            let is_one = gone.len() == 1;
            let [is, its, it] = [("is", "are"), ("its process has", "their processes have"), ("it", "them")]
                .map(|(one, several)| number(is_one, one, several));
            all.push(format!("{} {is} dead: {its} ended, and no rank waits for {it}", listed(&gone)));
        }
        if self.is_over {
            let all_of = if all.is_empty() { ", and no rank waited for another" } else { "" };
            all.push(format!("no process of the job runs any more{all_of}"));
        }
        if all.is_empty() {
            all.push(self.nothing());
        }
        all
    }

    /// Where no rank waits.
    fn nothing(&self) -> String {
        let places = self.places.as_ref().map(|places| format!(": {places}")).unwrap_or_default();
        if self.unjudged > 0 {
            format!(
                "it is unknown whether a rank waits: the files of {} of {} ranks had no room for any of their groups",
                self.unjudged, self.ranks
            )
        } else if self.has_ended {
            format!("all {} ranks have ended their sessions", self.ranks)
        } else if self.stood {
            format!("no rank waits for another, and none has moved between two reads of the files{places}")
        } else {
            format!("no rank waits in a collective{places}")
        }
    }

    /// Ranks of one host and in one state, for which others wait.
    fn named(&self, culprits: &[&Culprit], waiting_for: impl Fn(&[u32]) -> usize) -> String {
        let ranks: Vec<u32> = culprits.iter().map(|culprit| culprit.rank).collect();
        let (first, is_one) = (culprits[0], culprits.len() == 1);
        let waiting = if is_one { first.waiting } else { waiting_for(&ranks) };
        let place = |culprit: &Culprit| self.missing(culprit, is_one);
        let is_same = culprits.iter().all(|culprit| place(culprit) == place(first));
        let missing = place(first).filter(|_| is_same);
        if first.is_damaged || first.is_truncated {
            let why = number(first.is_damaged, "cannot be read", "had no room for the group");
            let last = first.chain.last().map(|last| format!(" in number {} of {}", last.seq, last.comm));
            let files = number(is_one, "the file of", "the files of");
            return format!(
                "the rank that {waiting} {} {} for{} is unknown: {files} {} {why}",
                number(waiting == 1, "rank", "ranks"),
                number(waiting == 1, "waits", "wait"),
                last.unwrap_or_default(),
                listed(&ranks),
            );
        }
        let who = match &first.host {
            Some(host) if !is_one && self.of_host.get(host) == Some(&ranks.len()) => {
                format!("all {} ranks of host {host}", ranks.len())
            }
            Some(host) if !host.is_empty() => format!("{} on {host}", listed(&ranks)),
            _ => listed(&ranks),
        };
        let pid = first.pid.filter(|pid| is_one && *pid > 0).map(|pid| format!(" (process {pid})")).unwrap_or_default();
        let silent_s = culprits.iter().filter_map(|culprit| culprit.silent_s).min().unwrap_or_default();
        let state = self.state(first, !is_one, silent_s);
        let state = if is_one { state + &last_in(first) } else { state };
        let clause = match missing {
            Some(missing) => format!("{missing} {state}").trim_end().to_owned(),
            None if state.starts_with("and whose") => state.trim_start_matches("and ").to_owned(),
            None => format!("which {}", state.trim_start_matches("and ")),
        };
        match waiting {
            0 => format!("no rank waits yet for {who}{pid}, {clause}"),
            _ => {
                let waits = match (waiting, self.is_over) {
                    (_, true) => "waited",
                    (1, _) => "waits",
                    _ => "wait",
                };
                format!("{waiting} {} {waits} for {who}{pid}, {clause}", number(waiting == 1, "rank", "ranks"))
            }
        }
    }

    /// The missing action of a rank for which others wait.
    fn missing(&self, culprit: &Culprit, is_one: bool) -> Option<String> {
        let has = number(is_one, "has", "have");
        if let Some((comm, seq)) = &culprit.inside {
            let device = number(is_one, "device is", "devices are");
            return Some(format!("whose {device} still in number {seq} of {comm}, which others have completed"));
        }
        let last = culprit.chain.last().filter(|_| culprit.host.is_some())?;
        let place = format!("number {} of {}", last.seq, last.comm);
        Some(match &last.transfer {
            Some(_) => {
                let is = number(is_one, "is", "are");
                format!("which {is} not in the transfer with rank {} in {}", last.rank, last.comm)
            }
            None if culprit.is_dead && culprit.has_entered => format!("which {has} not completed {place}"),
            None if culprit.has_entered => {
                let thread = number(is_one, "thread has", "threads have");
                format!("whose {thread} entered {place}")
            }
            None => format!("which {has} not entered {place}"),
        })
    }

    /// The current or last action of a rank for which others wait. It has written nothing for `silent_s`.
    fn state(&self, culprit: &Culprit, are_several: bool, silent_s: u64) -> String {
        let is_one = !are_several;
        let [is, has, it, its, their] = [
            ("is", "are"),
            ("has", "have"),
            ("it", "they"),
            ("its process has", "their processes have"),
            ("its", "their"),
        ]
        .map(|(one, several)| number(is_one, one, several));
        let silent = passed(silent_s);
        match &culprit.open {
            _ if culprit.is_damaged || culprit.is_truncated => String::new(),
            _ if culprit.host.is_none() => {
                format!(
                    "and {has} written no file: {it} never started, or {} to another folder",
                    number(is_one, "writes", "write")
                )
            }
            _ if culprit.is_dead && self.gone.contains(&culprit.rank) => format!("and {is} dead: {its} ended"),
            _ if culprit.is_dead => format!("and {has} written nothing for {silent}: {it} or {their} host died"),
            _ if culprit.is_silent => {
                let runs = number(
                    is_one,
                    "its process runs: it is stopped, or its disk stalls",
                    "their processes run: they are stopped, or their disk stalls",
                );
                format!("and {has} written nothing for {silent}, although {runs}")
            }
            _ if culprit.is_late => format!(
                "and {} progress: {it} {is} late, and {} not hang",
                number(is_one, "makes", "make"),
                number(is_one, "does", "do")
            ),
            _ if culprit.has_ended => format!("and {has} ended {their} session{}", number(is_one, "", "s")),
            // It is in that collective.
            Some(_) if culprit.inside.is_some() => String::new(),
            Some(open) => {
                let what = if is_one { open.sentence() } else { open.place() };
                match culprit.has_entered {
                    true => format!("and whose {} in {what}", number(is_one, "device is", "devices are")),
                    false => format!("and {is} in {what}"),
                }
            }
            None => {
                format!("and {is} in no zone: a debugger on {their} process{} shows where", number(is_one, "", "es"))
            }
        }
    }

    /// Ranks that are held up together.
    fn held_up(&self, together: &Together) -> String {
        let Together { comm, seq, is_transfer, ranks, size, is_entered } = together;
        let whose = "the network, a device, or work that is in no zone holds them up";
        match is_transfer {
            true => format!(
                "no rank can be named: {} are at both ends of a transfer in {comm}, and it does not complete; {whose}",
                listed(ranks)
            ),
            false if !is_entered && *size > 0 => format!(
                "the rank that {} wait for in {comm} is unknown: the ranks of the group also send to each other, and number their calls separately",
                listed(ranks)
            ),
            false if !is_entered => {
                format!(
                    "the rank that {} wait for in {comm} is unknown: the members of the group are not known",
                    listed(ranks)
                )
            }
            false => {
                let rest = match size - ranks.len() {
                    0 => "none has completed it".to_owned(),
                    _ => format!("{} {} not completed it", listed(ranks), number(ranks.len() == 1, "has", "have")),
                };
                format!(
                    "no rank can be named: all {size} ranks have entered number {seq} of {comm}, and {rest}; {whose}"
                )
            }
        }
    }
}

/// Where a rank that is dead or silent was last.
fn last_in(culprit: &Culprit) -> String {
    let Some(open) = culprit.open.as_ref().filter(|_| culprit.is_dead || culprit.is_silent) else {
        return String::new();
    };
    let source = culprit.flight.as_ref().map(|path| format!(", as its flight recorder `{path}` says"));
    format!("; it was last in {}{}", open.sentence(), source.unwrap_or_default())
}
