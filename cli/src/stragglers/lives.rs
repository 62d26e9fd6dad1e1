//! A job that was started again: for each rank, the calls of its last process are judged.

use std::collections::BTreeMap;

use super::findings::Earlier;
use super::{Call, Calls};

/// A process that is one rank: the process, and when its calls began and ended, by the wall clock of its host.
struct Life<'a> {
    process: (&'a str, Option<&'a str>, i32),
    begin_ns: i64,
    end_ns: i64,
}

/// Removes the calls of processes that had ended when another one of their rank began. Counts them.
pub(super) fn keep_last(traces: &Calls, calls: &mut Vec<Call>) -> Earlier {
    let rank = |call: &Call| traces.groups[call.group as usize].in_job(call.rank);
    let mut lives: BTreeMap<u32, Vec<Life<'_>>> = BTreeMap::new();
    for call in &*calls {
        let Some(process) = traces.process(call) else { continue };
        let begin_ns = traces.begin_wall_ns(call);
        let end_ns = begin_ns.saturating_add(call.length_ns);
        let of_rank = lives.entry(rank(call)).or_default();
        match of_rank.iter_mut().find(|life| life.process == process) {
            Some(life) => {
                life.begin_ns = life.begin_ns.min(begin_ns);
                life.end_ns = life.end_ns.max(end_ns);
            }
            None => of_rank.push(Life { process, begin_ns, end_ns }),
        }
    }
    lives.values_mut().for_each(|of_rank| {
        // Two processes at one time are not a restart: the numbers that they share are reported as repeated.
        let last_begin_ns = of_rank.iter().map(|life| life.begin_ns).max().unwrap_or(i64::MIN);
        of_rank.retain(|life| life.end_ns < last_begin_ns);
    });
    let is_earlier = |call: &Call| {
        let process = traces.process(call);
        lives.get(&rank(call)).is_some_and(|earlier| earlier.iter().any(|life| Some(life.process) == process))
    };
    let all = calls.len();
    let processes = lives.values().map(Vec::len).sum::<usize>() as u64;
    if processes > 0 {
        calls.retain(|call| !is_earlier(call));
    }
    Earlier { processes, calls: (all - calls.len()) as u64 }
}

impl Calls {
    /// The process of a call: its host, the boot of that host, and its number.
    fn process(&self, call: &Call) -> Option<(&str, Option<&str>, i32)> {
        let session = &self.sessions[call.session as usize];
        Some((&session.host, session.boot_id.as_deref(), session.process?))
    }

    /// The begin of a call by the wall clock of its host.
    pub(super) fn begin_wall_ns(&self, call: &Call) -> i64 {
        let session = &self.sessions[call.session as usize];
        call.begin_ns.saturating_add(session.wall_ns.wrapping_sub(session.boot_ns))
    }
}
