//! Which rank waits for which, by rules in this order. A rank in a transfer waits for the rank at its other end, unless
//! that one is in it, too. A rank that has entered a collective of a group, and has not completed it, waits for each
//! member that has not entered it. Where all have entered it, because their threads run ahead of their streams, it
//! waits for the members whose streams are still in an earlier collective, or in work of their own. Where there are
//! none, and another member has completed it, the rank is held up inside of it; otherwise all of them are, and nothing
//! says by whom.
//!
//! The waits lead from rank to rank, to a rank that waits for no other rank, or around a cycle.
//!
//! Half of a group may wait for the other half, so no wait is kept for itself: the members that a rank waits for are
//! the first ones of the group in the order of how far they are, and the graph has a node for each such beginning. Its
//! size grows with the members of the groups.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Serialize;

use warpline_judge::progress::Progress;

use super::cycles::components;
use super::groups::{Groups, Known, Waiting};

/// Ranks for which others wait that are followed, and cycles; more are counted.
pub(super) const MOST_NAMED: usize = 256;

/// The waits of a chain that are kept: those next to its end.
const MOST_WAITS: usize = 256;

/// One rank waits for another.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Wait {
    /// The rank that waits.
    pub rank: u32,
    /// The group in which it waits.
    pub comm: String,
    /// The number of the collective in the group.
    pub seq: i64,
    /// The rank that it waits for.
    pub waits_for: u32,
    /// The operation of a transfer between the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<String>,
}

impl Wait {
    /// In words.
    pub fn sentence(&self) -> String {
        let what = match &self.transfer {
            Some(kind) => format!("a {kind}"),
            None => format!("number {}", self.seq),
        };
        format!("rank {} waits in {what} of {} for rank {}", self.rank, self.comm, self.waits_for)
    }
}

/// Ranks that wait for each other.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Cycle {
    /// Each waits for the next, and the last for the first.
    pub waits: Vec<Wait>,
}

impl Cycle {
    /// In words.
    pub fn sentence(&self) -> String {
        const SHOWN: usize = 6;
        let mut parts: Vec<String> = self.waits.iter().take(SHOWN).map(Wait::sentence).collect();
        if self.waits.len() > SHOWN {
            parts.push(format!("and {} more", self.waits.len() - SHOWN));
        }
        let what = if self.waits.iter().any(|wait| wait.transfer.is_some()) {
            "the ranks wait for each other"
        } else {
            "the ranks call collectives in different orders"
        };
        format!("{what}: {}", parts.join(", "))
    }
}

/// A rank that waits for no other rank, and for which others wait.
#[derive(Debug, Clone)]
pub(super) struct Sink {
    pub(super) rank: u32,
    /// How many ranks wait for it, directly or through others.
    pub(super) waiting: usize,
    /// The shortest chain of waits from a rank that is as far from it as any.
    pub(super) chain: Vec<Wait>,
    /// The collective inside of which it is held up, which others have completed.
    pub(super) inside: Option<(String, i64)>,
}

/// Ranks that are held up together, and nothing says by whom.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Together {
    /// The group.
    pub comm: String,
    /// The number of the collective.
    pub seq: i64,
    /// It is a transfer between two ranks.
    pub is_transfer: bool,
    /// The ranks that are in it.
    pub ranks: Vec<u32>,
    /// How many ranks the group has.
    pub size: usize,
    /// Whether all members are known to have entered it. Otherwise they are not known, or their numbers do not compare.
    pub is_entered: bool,
}

/// The result of following the waits.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// The ranks that others wait for, those with the most waiting ranks first.
    pub(super) sinks: Vec<Sink>,
    /// The number of ranks for which fewer ranks wait directly, and that are not followed.
    pub(super) more_sinks: usize,
    pub(super) cycles: Vec<Cycle>,
    pub(super) more_cycles: usize,
    /// The ranks that are held up together, most ranks first by their oldest open zones.
    pub(super) together: Vec<Together>,
    pub(super) waiting: usize,
}

/// The members of a group in the order of how far they are: a rank waits for the first ones.
struct Line<'a> {
    comm: &'a str,
    /// The operation, if it is the other end of a transfer.
    transfer: Option<&'a str>,
    /// Nodes of ranks.
    members: Vec<u32>,
    /// The ranks that wait, each with the number of members that it waits for; the largest number first.
    waits: Vec<OfLine>,
}

struct OfLine {
    node: u32,
    seq: i64,
    first: u32,
}

/// The nodes of ranks are their places in `ranks`. Behind them, each line has a node for each of its beginnings, which
/// leads to its last member and to the beginning that is shorter by one.
pub(super) struct Graph<'a> {
    ranks: Vec<u32>,
    lines: Vec<Line<'a>>,
    /// The node of the beginning of no member of each line.
    bases: Vec<u32>,
    /// For each rank, the lines in which it waits, and the place of its wait there.
    waits: Lists,
    /// For each rank, the lines that have it, and its place there.
    places: Lists,
    waiting: usize,
    /// For nodes that are in a collective and wait for no rank: what holds them up.
    held: HashMap<u32, StuckCollective<'a>>,
}

/// A collective: its group and its number, or the ranks of the transfer.
type Place<'a> = (&'a str, i64, Option<[u32; 2]>);

/// The collective that holds up a rank that is in it and waits for no rank.
#[derive(Clone, Copy)]
struct StuckCollective<'a> {
    comm: &'a str,
    seq: i64,
    transfer: Option<(&'a str, u32)>,
    size: usize,
    /// It is held up alone: others have completed the collective.
    is_alone: bool,
    is_entered: bool,
    is_here: bool,
}

/// Pairs of a line and a place for each rank, in one piece of memory.
struct Lists {
    begins: Vec<u32>,
    all: Vec<(u32, u32)>,
}

impl Lists {
    fn new(ranks: usize, pairs: impl Iterator<Item = (u32, (u32, u32))> + Clone) -> Self {
        let mut begins = vec![0_u32; ranks + 1];
        pairs.clone().for_each(|(node, _)| begins[node as usize + 1] += 1);
        (0..ranks).for_each(|node| begins[node + 1] += begins[node]);
        let (mut next, mut all) = (begins.clone(), vec![(0, 0); begins[ranks] as usize]);
        for (node, pair) in pairs {
            all[next[node as usize] as usize] = pair;
            next[node as usize] += 1;
        }
        Self { begins, all }
    }

    fn pairs(&self, node: u32) -> &[(u32, u32)] {
        &self.all[self.begins[node as usize] as usize..self.begins[node as usize + 1] as usize]
    }
}

impl<'a> Graph<'a> {
    pub(super) fn new(files: &BTreeMap<u32, Progress>, groups: &Groups<'a>) -> Self {
        let mut ranks: Vec<u32> = files.keys().copied().collect();
        groups.all.iter().for_each(|group| ranks.extend(&group.members));
        ranks.extend(groups.all.iter().flat_map(|group| &group.waiting).filter_map(|of| Some(of.transfer?.1)));
        ranks.sort_unstable();
        ranks.dedup();
        let node = |rank: u32| ranks.binary_search(&rank).unwrap_or_default() as u32;
        let mut held = Vec::new();
        let lines: Vec<Line<'a>> = groups.all.iter().flat_map(|group| lines(files, group, &node, &mut held)).collect();
        let mut bases = Vec::new();
        let mut next = ranks.len() as u32;
        for line in &lines {
            bases.push(next);
            next += line.members.len() as u32 + 1;
        }
        let numbered = || (0_u32..).zip(&lines);
        let waits = numbered().flat_map(|(line, of)| (0..).zip(&of.waits).map(move |(at, of)| (of.node, (line, at))));
        let places = numbered().flat_map(|(line, of)| (0..).zip(&of.members).map(move |(at, of)| (*of, (line, at))));
        let (waits, places) = (Lists::new(ranks.len(), waits), Lists::new(ranks.len(), places));
        let mut waiting: Vec<u32> =
            groups.all.iter().flat_map(|group| &group.waiting).map(|waiting| waiting.rank).collect();
        waiting.sort_unstable();
        waiting.dedup();
        // If there are several collectives, a rank is in that of its oldest open zone.
        held.sort_by_key(|(node, held)| (*node, !held.is_here, !held.is_alone));
        held.dedup_by_key(|(node, _)| *node);
        held.retain(|(node, _)| waits.pairs(*node).is_empty());
        Self { ranks, lines, bases, waits, places, waiting: waiting.len(), held: held.into_iter().collect() }
    }

    /// Follows every wait. Ranks of which it is unknown how far they are come behind those of which it is known.
    pub(super) fn follow(&self, is_unknown: impl Fn(u32) -> bool) -> Followed {
        let mut followed = Followed { waiting: self.waiting, ..Followed::default() };
        self.find_cycles(&mut followed);
        self.find_sinks(is_unknown, &mut followed);
        self.find_together(&mut followed);
        followed
    }

    /// How many ranks wait for any of these, directly or through others.
    pub(super) fn waiting_for(&self, ranks: impl Iterator<Item = u32>) -> usize {
        let nodes = ranks.filter_map(|rank| self.ranks.binary_search(&rank).ok()).map(|node| node as u32);
        Search::new(self).reach_back(nodes.collect()).1
    }

    fn nodes(&self) -> u32 {
        self.bases
            .last()
            .zip(self.lines.last())
            .map_or(self.ranks.len() as u32, |(base, line)| base + line.members.len() as u32 + 1)
    }

    /// The nodes to which edges lead: the `number`th of `node`.
    fn edge(&self, node: u32, number: u32) -> Option<u32> {
        if (node as usize) < self.ranks.len() {
            let (line, at) = *self.waits.pairs(node).get(number as usize)?;
            let (line, base) = (&self.lines[line as usize], self.bases[line as usize]);
            return Some(base + line.waits[at as usize].first);
        }
        let line = self.bases.partition_point(|base| *base <= node) - 1;
        let beginning = node - self.bases[line];
        match (beginning, number) {
            (0, _) => None,
            (_, 0) => Some(self.lines[line].members[beginning as usize - 1]),
            (_, 1) => Some(node - 1),
            _ => None,
        }
    }

    fn wait(&self, line: u32, wait: &OfLine, waits_for: u32) -> Wait {
        let Line { comm, transfer, .. } = self.lines[line as usize];
        let [rank, waits_for] = [wait.node, waits_for].map(|node| self.ranks[node as usize]);
        Wait { rank, comm: comm.to_owned(), seq: wait.seq, waits_for, transfer: transfer.map(str::to_owned) }
    }

    /// One cycle of each set of ranks of which each waits for each other.
    fn find_cycles(&self, followed: &mut Followed) {
        let component = components(self.nodes(), |node, number| self.edge(node, number));
        // The first rank of each, and how many there are.
        let mut ranks_of: HashMap<u32, (u32, usize)> = HashMap::new();
        for node in 0..self.ranks.len() as u32 {
            ranks_of.entry(component[node as usize]).or_insert((node, 0)).1 += 1;
        }
        let mut starts: Vec<u32> =
            ranks_of.into_values().filter(|(_, ranks)| *ranks > 1).map(|(first, _)| first).collect();
        starts.sort_unstable();
        followed.more_cycles = starts.len().saturating_sub(MOST_NAMED);
        let mut search = Search::new(self);
        for start in starts.into_iter().take(MOST_NAMED) {
            followed.cycles.extend(search.cycle(start, |node| component[node as usize] == component[start as usize]));
        }
    }

    fn find_sinks(&self, is_unknown: impl Fn(u32) -> bool, followed: &mut Followed) {
        // Those that others wait for directly: for each line, how many do. Ranks with one such list are waited for by
        // the same ranks.
        let direct = |node: u32| -> Vec<(u32, u32)> {
            let in_line = |(line, at): &(u32, u32)| {
                let waits = self.lines[*line as usize].waits.partition_point(|wait| wait.first > *at);
                (waits > 0).then_some((*line, waits as u32))
            };
            self.places.pairs(node).iter().filter_map(in_line).collect()
        };
        let mut sinks: Vec<(u64, u32)> = Vec::new();
        for node in (0..self.ranks.len() as u32).filter(|node| self.waits.pairs(*node).is_empty()) {
            let waiting: u64 = direct(node).iter().map(|(_, waits)| u64::from(*waits)).sum();
            let held = self.held.get(&node);
            if held.map_or(waiting > 0, |held| held.is_alone) {
                sinks.push((waiting, node));
            }
        }
        let order =
            |(waiting, node): &(u64, u32)| (is_unknown(self.ranks[*node as usize]), std::cmp::Reverse(*waiting), *node);
        sinks.sort_unstable_by_key(order);
        followed.more_sinks = sinks.len().saturating_sub(MOST_NAMED);
        let mut known: HashMap<Vec<(u32, u32)>, Sink> = HashMap::new();
        let mut search = Search::new(self);
        for (_, node) in sinks.into_iter().take(MOST_NAMED) {
            let rank = self.ranks[node as usize];
            let like = known.entry(direct(node)).or_insert_with(|| search.sink(node));
            let held = self.held.get(&node);
            let inside = held.map(|held| (held.comm.to_owned(), held.seq));
            let mut sink = Sink { rank, inside, ..like.clone() };
            if let Some(last) = sink.chain.last_mut() {
                last.waits_for = rank;
            }
            followed.sinks.push(sink);
        }
        followed.sinks.sort_by_key(|sink| (is_unknown(sink.rank), std::cmp::Reverse(sink.waiting), sink.rank));
    }

    fn find_together(&self, followed: &mut Followed) {
        let mut all: BTreeMap<Place<'_>, (usize, Together)> = BTreeMap::new();
        let mut held: Vec<_> = self.held.iter().filter(|(_, held)| !held.is_alone).collect();
        held.sort_unstable_by_key(|(node, _)| **node);
        for (node, StuckCollective { comm, seq, transfer, size, is_entered, is_here, .. }) in held {
            let rank = self.ranks[*node as usize];
            let pair = transfer.map(|(_, peer)| [rank.min(peer), rank.max(peer)]);
            let key = (*comm, if *is_entered && pair.is_none() { *seq } else { 0 }, pair);
            let (here, together) = all.entry(key).or_insert_with(|| {
                let (comm, is_transfer) = ((*comm).to_owned(), transfer.is_some());
                let (seq, size, is_entered) = (*seq, *size, *is_entered);
                (0, Together { comm, seq, is_transfer, ranks: Vec::new(), size, is_entered })
            });
            *here += usize::from(*is_here);
            together.ranks.push(rank);
        }
        let mut all: Vec<(usize, Together)> = all.into_values().collect();
        all.sort_by_key(|(here, together)| (std::cmp::Reverse((*here, together.ranks.len())), together.comm.clone()));
        followed.together = all.into_iter().map(|(_, together)| together).take(MOST_NAMED).collect();
    }
}

/// The lines of a group: for ranks in a collective that members have not entered, for ranks in one that all have
/// entered, and for each transfer. What holds up ranks that wait for nobody goes to `held`.
fn lines<'a>(
    files: &BTreeMap<u32, Progress>,
    group: &Known<'a>,
    node: &impl Fn(u32) -> u32,
    held: &mut Vec<(u32, StuckCollective<'a>)>,
) -> Vec<Line<'a>> {
    let entered = |rank: u32| group.reported_by(rank).and_then(|of| of.entered);
    let mut behind: Vec<(Option<i64>, u32)> = group.members.iter().map(|rank| (entered(*rank), *rank)).collect();
    let mut elsewhere: Vec<(Option<i64>, u32)> =
        group.members.iter().filter_map(|rank| Some((elsewhere(files, group, *rank)?, *rank))).collect();
    behind.sort_unstable();
    elsewhere.sort_unstable();
    let line = |members: &[(Option<i64>, u32)]| {
        let members = members.iter().map(|(_, rank)| node(*rank)).collect();
        Line { comm: group.comm, transfer: None, members, waits: Vec::new() }
    };
    let before = |line: &[(Option<i64>, u32)], seq: i64| line.partition_point(|(at, _)| *at < Some(seq)) as u32;
    let mut lines = vec![line(&behind), line(&elsewhere)];
    let mut alone = Vec::new();
    for Waiting { rank, seq, is_here, transfer } in &group.waiting {
        let (rank, seq, here) = (*rank, *seq, node(*rank));
        let held_up = |is_entered: bool| {
            let (comm, transfer, size) = (group.comm, *transfer, group.members.len());
            (here, StuckCollective { comm, seq, transfer, size, is_alone: false, is_entered, is_here: *is_here })
        };
        if let Some((kind, peer)) = transfer {
            if is_at_the_other_end(files.get(peer), group.comm, rank, kind) {
                held.push(held_up(true));
            } else {
                let waits = vec![OfLine { node: here, seq, first: 1 }];
                lines.push(Line { comm: group.comm, transfer: Some(kind), members: vec![node(*peer)], waits });
            }
            continue;
        }
        if group.counts_apart {
            held.extend(is_here.then(|| held_up(false)));
            continue;
        }
        let (line, first) = match before(&behind, seq) {
            0 if *is_here => (1, before(&elsewhere, seq)),
            first => (0, first),
        };
        if first > 0 {
            lines[line].waits.push(OfLine { node: here, seq, first });
            continue;
        }
        if group.most_completed >= Some(seq) {
            alone.push(held.len());
        }
        held.push(held_up(!group.members.is_empty()));
    }
    // Where most ranks are held up, the others have left it early, as the root of a broadcast does.
    if 2 * alone.len() < group.members.len() {
        alone.into_iter().for_each(|at| held[at].1.is_alone = true);
    }
    lines.iter_mut().for_each(|line| line.waits.sort_by_key(|wait| (std::cmp::Reverse(wait.first), wait.node)));
    lines
}

/// Whether a rank is in the transfer with the rank that says this of it, and calls the other half of it.
fn is_at_the_other_end(file: Option<&Progress>, comm: &str, rank: u32, kind: &str) -> bool {
    let Some(open) = file.and_then(|file| file.open.as_ref()) else { return false };
    let is_half = match kind {
        "send" => open.kind.as_deref() == Some("recv"),
        "recv" => open.kind.as_deref() == Some("send"),
        _ => open.kind.is_some(),
    };
    is_half && open.peer == Some(rank) && open.comm.as_deref() == Some(comm)
}

/// The last number of the group that a rank does not hold up, if its oldest open zone is another collective, or work of
/// its own on its device, behind which the next ones are queued. Work of a thread holds up nothing that its rank has
/// entered.
fn elsewhere(files: &BTreeMap<u32, Progress>, group: &Known<'_>, rank: u32) -> Option<Option<i64>> {
    let open = files.get(&rank).filter(|file| !file.ended)?.open.as_ref()?;
    let completed = group.reported_by(rank).and_then(|of| of.completed);
    match open.comm.as_deref() {
        Some(comm) if comm == group.comm => Some(completed.max(open.seq)),
        Some(_) => Some(completed),
        None => open.launched.then_some(completed),
    }
}

/// Breadth first, over the waits forwards or backwards. The marks of one search are those of its number, so that the
/// next one clears none.
struct Search<'a> {
    graph: &'a Graph<'a>,
    number: u32,
    /// The search that has reached a rank, and the wait by which it did: line, place of the wait, and the rank at its
    /// other end.
    reached: Vec<(u32, (u32, u32, u32))>,
    /// The search that has used a line, and how much of it.
    used: Vec<(u32, u32)>,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph<'a>) -> Self {
        let (reached, used) = (vec![(0, (0, 0, 0)); graph.ranks.len()], vec![(0, 0); graph.lines.len()]);
        Self { graph, number: 0, reached, used }
    }

    fn begin(&mut self, start: u32) {
        self.number += 1;
        self.reached[start as usize].0 = self.number;
    }

    /// The part of a line up to `until` that this search has not used.
    fn unused(&mut self, line: u32, until: u32) -> std::ops::Range<u32> {
        let used = &mut self.used[line as usize];
        if used.0 != self.number {
            *used = (self.number, 0);
        }
        let from = used.1;
        used.1 = from.max(until);
        from..until.max(from)
    }

    fn reach(&mut self, node: u32, by: (u32, u32, u32)) -> bool {
        let reached = &mut self.reached[node as usize];
        let is_new = reached.0 != self.number;
        if is_new {
            *reached = (self.number, by);
        }
        is_new
    }

    /// The shortest cycle through a rank, over ranks that `is_in` takes.
    fn cycle(&mut self, start: u32, is_in: impl Fn(u32) -> bool) -> Option<Cycle> {
        self.begin(start);
        let graph = self.graph;
        let mut next = VecDeque::from([start]);
        while let Some(at) = next.pop_front() {
            for (line, wait) in graph.waits.pairs(at) {
                let of = &graph.lines[*line as usize];
                for place in self.unused(*line, of.waits[*wait as usize].first) {
                    let node = of.members[place as usize];
                    if node == start {
                        return Some(self.round(start, (*line, *wait, at)));
                    }
                    if is_in(node) && self.reach(node, (*line, *wait, at)) {
                        next.push_back(node);
                    }
                }
            }
        }
        None
    }

    /// The cycle that the last wait closes.
    fn round(&self, start: u32, last: (u32, u32, u32)) -> Cycle {
        let (mut waits, mut to, mut by) = (Vec::new(), start, last);
        loop {
            let (line, wait, from) = by;
            waits.push(self.graph.wait(line, &self.graph.lines[line as usize].waits[wait as usize], to));
            if from == start {
                waits.reverse();
                return Cycle { waits };
            }
            (to, by) = (from, self.reached[from as usize].1);
        }
    }

    /// Who waits for these nodes, directly or through others: the first of those that are furthest away, and how many
    /// they are.
    fn reach_back(&mut self, nodes: Vec<u32>) -> (u32, usize) {
        self.number += 1;
        nodes.iter().for_each(|node| self.reached[*node as usize].0 = self.number);
        let graph = self.graph;
        let (mut furthest, mut waiting) = (nodes.first().copied().unwrap_or_default(), 0);
        let mut level = nodes;
        while !level.is_empty() {
            furthest = level.iter().copied().min().unwrap_or(furthest);
            let mut further = Vec::new();
            for at in &level {
                for (line, place) in graph.places.pairs(*at) {
                    let waits = &graph.lines[*line as usize].waits;
                    let of = waits.partition_point(|wait| wait.first > *place) as u32;
                    for wait in self.unused(*line, of) {
                        let node = waits[wait as usize].node;
                        if self.reach(node, (*line, wait, *at)) {
                            further.push(node);
                        }
                    }
                }
            }
            waiting += further.len();
            level = further;
        }
        (furthest, waiting)
    }

    /// The ranks that wait for a rank, directly or through others.
    fn sink(&mut self, sink: u32) -> Sink {
        let graph = self.graph;
        let (furthest, waiting) = self.reach_back(vec![sink]);
        let mut chain = VecDeque::new();
        let mut at = furthest;
        while at != sink {
            let (line, wait, to) = self.reached[at as usize].1;
            chain.push_back(graph.wait(line, &graph.lines[line as usize].waits[wait as usize], to));
            if chain.len() > MOST_WAITS {
                chain.pop_front();
            }
            at = to;
        }
        Sink { rank: graph.ranks[sink as usize], waiting, chain: chain.into(), inside: None }
    }
}
