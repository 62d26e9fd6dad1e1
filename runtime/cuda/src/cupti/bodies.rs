//! The kernels in bodies of conditional nodes: the replay to which each belongs, and its iteration.
//!
//! CUPTI reports such kernels without a launch (correlation 0). Replays of one executable graph never overlap, so a kernel belongs to the
//! replay whose other kernels are around it. Where it is between two replays, the graph says whether its node comes before or after the
//! others. `replays` calls this on the collector's thread, and nothing here calls the driver.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use crate::graph::ids::{BodyLevel, NodeLabels};
use warpline_core::record::{Span, StreamInfo};

/// The maximum number of kernels that wait for their replay.
const MOST: usize = if cfg!(test) { 64 } else { 1 << 17 };

/// A kernel in the body of a conditional node.
pub(super) struct BodyKernel {
    pub(super) labels: Arc<NodeLabels>,
    pub(super) gpu: Span,
    pub(super) stream: Arc<StreamInfo>,
}

/// The kernels that wait for their replay.
#[derive(Default)]
pub(super) struct Bodies {
    by_exec: HashMap<u32, Waiting>,
    count: usize,
    /// All such kernels of the session, and those that belong to no known replay.
    pub(super) seen: u64,
    pub(super) lost: u64,
}

struct Waiting {
    touched: Instant,
    kernels: Vec<BodyKernel>,
}

impl Bodies {
    /// Adds a kernel of this executable graph.
    pub(super) fn add(&mut self, exec: u32, kernel: BodyKernel, now: Instant) {
        self.seen += 1;
        if self.count >= MOST {
            self.lost += 1;
            return;
        }
        self.count += 1;
        let waiting = self.by_exec.entry(exec).or_insert_with(|| Waiting { touched: now, kernels: Vec::new() });
        waiting.touched = now;
        waiting.kernels.push(kernel);
    }

    pub(super) fn are_waiting(&self) -> bool {
        self.count > 0
    }

    pub(super) fn has(&self, exec: u32) -> bool {
        self.by_exec.contains_key(&exec)
    }

    /// Takes the kernels of the oldest replay of an executable graph, in the order in which they ran. `next` is the begin of the following
    /// one, if it is known.
    pub(super) fn take(&mut self, exec: u32, replay: Span, next: Option<i64>) -> Vec<BodyKernel> {
        let Some(mut waiting) = self.by_exec.remove(&exec) else { return Vec::new() };
        let mut taken = Vec::new();
        let mut left = Vec::new();
        for kernel in std::mem::take(&mut waiting.kernels) {
            let (at, is_first) = (kernel.gpu.begin_ns, kernel.labels.is_first);
            let is_of_next = next.is_some_and(|next| at >= next || (at > replay.end_ns && is_first));
            if is_of_next {
                left.push(kernel);
                continue;
            }
            self.count -= 1;
            // A node behind others runs after them: its replay is one whose record was complete too early.
            if at < replay.begin_ns && !is_first {
                self.lost += 1;
            } else {
                taken.push(kernel);
            }
        }
        if !left.is_empty() {
            self.by_exec.insert(exec, Waiting { kernels: left, ..waiting });
        }
        taken.sort_by_key(|kernel| (kernel.gpu.begin_ns, kernel.gpu.end_ns));
        taken
    }

    /// Gives up the kernels of executable graphs of which no replay is open.
    pub(super) fn give_up(&mut self, is_over: impl Fn(u32, Instant) -> bool) {
        let Bodies { by_exec, count, lost, .. } = self;
        by_exec.retain(|exec, waiting| {
            let is_over = is_over(*exec, waiting.touched);
            if is_over {
                *count -= waiting.kernels.len();
                *lost += waiting.kernels.len() as u64;
            }
            !is_over
        });
    }
}

/// The iterations of the bodies in one replay. Iterations of a body never overlap: one begins with the first kernel whose node has already
/// run in the current one, or after which another body in it has run.
#[derive(Default)]
pub(super) struct Iterations {
    bodies: HashMap<u32, Iteration>,
    last: u64,
}

struct Iteration {
    /// Identifies it among all iterations of the replay.
    id: u64,
    /// The iteration of the body around it.
    within: u64,
    seen: HashSet<u32>,
    latest: u32,
}

impl Iterations {
    /// Returns the iteration of each level for the next kernel, outermost first: the number of zones around the conditional node, and what
    /// identifies the iteration in the replay.
    pub(super) fn next(&mut self, levels: &[BodyLevel]) -> Vec<(usize, u64)> {
        let mut within = 0;
        let mut ids = Vec::with_capacity(levels.len());
        for level in levels {
            let body = self.bodies.get_mut(&level.conditional).filter(|body| {
                let has_run = body.seen.contains(&level.member) && (level.is_last || body.latest != level.member);
                body.within == within && !has_run
            });
            let id = match body {
                Some(body) => {
                    body.seen.insert(level.member);
                    body.latest = level.member;
                    body.id
                }
                None => {
                    self.last += 1;
                    let id = self.last;
                    let body = Iteration { id, within, seen: HashSet::from([level.member]), latest: level.member };
                    self.bodies.insert(level.conditional, body);
                    id
                }
            };
            ids.push((level.around, id));
            within = id;
        }
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(conditional: u32, member: u32, is_last: bool) -> BodyLevel {
        BodyLevel { conditional, member, around: 0, is_last }
    }

    fn innermost(iterations: &mut Iterations, levels: &[BodyLevel]) -> Vec<u64> {
        iterations.next(levels).into_iter().map(|(_, id)| id).collect()
    }

    #[test]
    fn an_iteration_begins_where_a_node_runs_again_and_bodies_inside_begin_anew() {
        let mut iterations = Iterations::default();
        // while { a; if { x }; b }
        let (a, b) = ([level(1, 10, true)], [level(1, 12, true)]);
        let x = [level(1, 11, false), level(11, 20, true)];
        let seen: Vec<_> =
            [&a[..], &x, &b, &a, &b, &a, &x, &b].map(|levels| innermost(&mut iterations, levels)).to_vec();
        let of_loop: Vec<_> = seen.iter().map(|ids| ids[0]).collect();
        assert_eq!(of_loop, [1, 1, 1, 3, 3, 4, 4, 4]);
        assert_ne!(seen[1][1], seen[6][1], "another run of the body inside");
        // while { while { x; y }; b }: the body inside runs twice in each iteration.
        let mut iterations = Iterations::default();
        let [x, y] = [20, 21].map(|node| [level(1, 10, false), level(10, node, true)]);
        let b = [level(1, 11, true)];
        let order = [&x[..], &y, &x, &y, &b, &x, &y, &b];
        let seen: Vec<_> = order.map(|levels| innermost(&mut iterations, levels)).to_vec();
        let outer: Vec<_> = seen.iter().map(|ids| ids[0]).collect();
        assert_eq!(outer, [1, 1, 1, 1, 1, 4, 4, 4]);
        let inner: Vec<_> = seen.iter().filter_map(|ids| ids.get(1)).collect();
        assert_eq!(inner, [&2, &2, &3, &3, &5, &5]);
    }
}
