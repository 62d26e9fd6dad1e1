//! From a late arrival back to its cause: if the late rank had waited itself, to the rank that it waited for; until somebody did not wait. Then what
//! each rank at the end of such a chain cost the run.

use std::collections::{BTreeMap, HashMap};

use warpline_core::record::is_bound;

use crate::late::{Collectives, Form, Key, Met, SYNCHRONISING};

/// A chain is not longer: then the walk stops where it is.
const LONGEST: usize = 32;

/// A rank that takes less of the run is not named.
const LEAST_SHARE: f64 = 0.0005;

/// What the ranks did before an instant, from a reader's data.
pub trait History {
    /// How much longer than its peers this rank itself took, before it came to a collective at `at_ns` of its clock, in ns: 0 if that is not known. None
    /// if nothing is known of what it did, so that the walk ends there.
    fn own_ns(&self, rank: i64, at_ns: i64) -> Option<i64>;

    /// The collectives that this rank began before `at_ns` of its clock, the last one first, as far back as they may matter.
    fn calls_before(&self, rank: i64, at_ns: i64) -> impl Iterator<Item = Spent>;
}

/// A rank's time in a collective.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Which one.
    pub key: Key,
    /// Its form.
    pub form: Form,
    /// From the rank's begin to its end, in ns.
    pub dur_ns: i64,
    /// By how much the end may be earlier, in ns.
    pub early_ns: i64,
    /// How long the rank waited, at least and at most, as far as the arrivals tell, in ns.
    pub arrivals: Option<(i64, i64)>,
}

impl Spent {
    /// How long the rank waited for the last one, at least and at most. Its own clock shows it: longer than the last one took.
    fn waited_ns(&self, met: &Met) -> (i64, i64) {
        let early_ns = if is_bound(self.dur_ns, self.early_ns) { self.early_ns } else { 0 };
        let least_ns = self.dur_ns.saturating_sub(early_ns).saturating_sub(met.least_ns);
        let most_ns = self.dur_ns.saturating_sub(met.least_early_ns);
        // The arrivals narrow what an end that was not timed leaves open.
        match self.arrivals {
            Some((least, most)) => (least_ns.max(least), most_ns.min(most)),
            None => (least_ns, most_ns),
        }
    }
}

/// Why a walk does not end at a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Ends that were not timed do not show whether the rank waited.
    NotTimed,
    /// It may have waited in a collective that is not judged.
    NotJudged,
}

/// A rank that made others wait, and by how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The collective that it came late to.
    pub met: Met,
    /// How much of the late arrival it explains, in ns.
    pub late_ns: i64,
    /// The late arrival that was seen first, and those on the way back to the cause, which is the last one; each with how long the others, or the rank
    /// before it in the chain, waited, in ns.
    pub chain: Vec<(Met, i64)>,
}

/// A late arrival, followed.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    /// Where a rank was late in part because it took longer itself, and in part because it had waited, each of the two ranks is a cause.
    pub causes: Vec<Cause>,
    /// Why a part of it has no known cause.
    pub open: Option<Open>,
}

/// Goes back from the late arrival to the ranks that did not wait for another one.
pub fn follow(collectives: &Collectives, history: &impl History, event: &Met) -> Followed {
    let mut followed = Followed::default();
    let mut at = Cause { met: *event, late_ns: event.late_ns, chain: vec![(*event, event.late_ns)] };
    while at.chain.len() < LONGEST {
        let Some(own_ns) = history.own_ns(at.met.rank, at.met.begin_ns) else { break };
        // What it took longer itself explains that part; what it waited before may explain the rest.
        let own_ns = own_ns.clamp(0, at.late_ns.max(0));
        let rest_ns = at.late_ns.saturating_sub(own_ns);
        if rest_ns < at.late_ns / 4 {
            break;
        }
        let before = waited_before(collectives, history, &at, rest_ns / 2);
        if own_ns >= at.late_ns / 4 && !matches!(before, Before::Nothing) {
            followed.causes.push(Cause { late_ns: own_ns, ..at.clone() });
        }
        match before {
            Before::Nothing => break,
            Before::Open(why) => {
                followed.open = Some(why);
                return followed;
            }
            Before::Waited(met, wait_ns) => {
                // It cannot have cost more than the rank that was late because of it.
                at.late_ns = rest_ns.min(wait_ns);
                at.chain.push((met, wait_ns));
                at.met = met;
            }
        }
    }
    followed.causes.push(at);
    followed
}

/// What a rank waited for before it came late.
enum Before {
    /// For so long for the rank that came last to this collective.
    Waited(Met, i64),
    Nothing,
    /// It may have waited.
    Open(Open),
}

/// The last wait of at least `half_ns`, since the collective that had brought the ranks of the group together.
fn waited_before(collectives: &Collectives, history: &impl History, late: &Cause, half_ns: i64) -> Before {
    let (rank, group) = (late.met.rank, late.met.key.group);
    let mut open = None;
    for spent in history.calls_before(rank, late.met.begin_ns) {
        if spent.key.group == group && SYNCHRONISING.contains(&spent.form.kind) {
            break;
        }
        let Some(met) = collectives.get(&spent.key) else {
            if collectives.wait_ns(spent.form, spent.dur_ns) >= half_ns {
                open.get_or_insert(Open::NotJudged);
            }
            continue;
        };
        if met.rank == rank || late.chain.iter().any(|(link, _)| link.key == met.key) {
            continue;
        }
        let (least_ns, most_ns) = spent.waited_ns(met);
        if least_ns >= half_ns {
            return Before::Waited(*met, least_ns);
        }
        if most_ns >= half_ns {
            open.get_or_insert(Open::NotTimed);
        }
    }
    open.map_or(Before::Nothing, Before::Open)
}

/// What a rank cost others at one collective.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// The rank.
    pub rank: i64,
    /// The step in which it was late; one number for all where steps are not known.
    pub step: i64,
    /// The collective.
    pub key: Key,
    /// By how much it was late, in ns.
    pub late_ns: i64,
}

/// What each rank cost in each step, in ns. A collective counts once, however many late arrivals lead to it. Late arrivals to one group add up. Of several
/// groups, the one that it held up longest counts.
pub fn cost(losses: impl IntoIterator<Item = Loss>) -> BTreeMap<(i64, i64), i64> {
    let mut at: HashMap<(i64, i64, Key), i64> = HashMap::new();
    for Loss { rank, step, key, late_ns } in losses {
        let most = at.entry((rank, step, key)).or_insert(late_ns);
        *most = late_ns.max(*most);
    }
    let mut in_group: HashMap<(i64, i64, u32), i64> = HashMap::new();
    for ((rank, step, key), late_ns) in at {
        let sum = in_group.entry((rank, step, key.group)).or_default();
        *sum = sum.saturating_add(late_ns);
    }
    let mut cost = BTreeMap::new();
    for ((rank, step, _), sum) in in_group {
        let most = cost.entry((rank, step)).or_insert(sum);
        *most = sum.max(*most);
    }
    cost
}

/// A rank that cost the run enough to be named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Named {
    /// The rank.
    pub rank: i64,
    /// What it cost in all, in ns.
    pub total_ns: i64,
    /// Of the run's time.
    pub share: f64,
}

/// The ranks that are named, the most costly first, and how many are not because they cost too little. `run_ns` is the time of one rank in the run.
pub fn named(cost: &BTreeMap<(i64, i64), i64>, run_ns: i64) -> (Vec<Named>, usize) {
    let mut of_rank: BTreeMap<i64, i64> = BTreeMap::new();
    for ((rank, _), ns) in cost {
        let total = of_rank.entry(*rank).or_default();
        *total = total.saturating_add(*ns);
    }
    let all = of_rank.len();
    let share = |total_ns: i64| total_ns as f64 / run_ns.max(1) as f64;
    let named = of_rank.into_iter().map(|(rank, total_ns)| Named { rank, total_ns, share: share(total_ns) });
    let mut named: Vec<Named> = named.filter(|named| named.share >= LEAST_SHARE).collect();
    named.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then(a.rank.cmp(&b.rank)));
    let below = all - named.len();
    (named, below)
}
