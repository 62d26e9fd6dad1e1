//! The schedule of windows: computes the lengths of a session's gaps and windows from earlier measurements.
//!
//! Callers pass in the time and the counts, so that tests can use their own clock.

use super::cost::{Cost, Estimate};
use warpline_core::sample::Sequence;
use warpline_core::windows::{LONGEST_ROOT, Phase, Roots};
use warpline_report::WindowFigures;

/// The minimum length of a window, which must also fit two roots.
const SHORTEST_NS: i64 = 2_000_000;
const ROOTS: f64 = 2.0;

/// The longest counting phase, and the longest time that a window waits for its last root.
const LONGEST_NS: i64 = LONGEST_ROOT.as_nanos() as i64;

/// The minimum length of the first counting phase: it discovers threads and learns which ranges nest.
const FIRST_COUNTING_NS: i64 = 10_000_000;

/// The number of roots of the program for which the first window waits, up to [`LONGEST_NS`] of counting: on a busy host, no thread may
/// have run before.
const FIRST_ROOTS: u64 = 16;

/// The time between two checks whether enough roots were counted, and the shortest rest of a counting phase that a stop has interrupted.
const COUNTING_NS: i64 = 1_000_000;

/// The time between two checks whether the last root of a window has ended.
const CLOSING_NS: i64 = 100_000;

/// The maximum share of time in windows. A gap, in which the last window is read, and counting take the rest.
const MOST_OPEN: f64 = 0.96;

/// The maximum length of a window, as a multiple of the time in earlier windows with roots: what is known of the cost comes from them.
const GROWTH: i64 = 4;

/// The maximum cost of recording, as a multiple of what zones cost their threads, unless the measurement shows more.
const MARGIN: f64 = 3.0;

/// The assumed share of a window's time that recording needs, before the first window.
const UNKNOWN_COST: f64 = 0.5;

/// The assumed cost of a zone for its thread, in ns, while nothing is known about the device.
const UNKNOWN_ZONE_NS: i64 = 4_000;

/// The weight of a cycle relative to the next one, for the gaps.
const KEEP: f64 = 0.97;

/// The minimum weight of the newest cycle in an average.
const LATEST: f64 = 0.1;

/// The counts of the session so far.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) roots: Roots,
    /// The number of zones that began.
    pub(super) begun: u64,
    /// The cost of a zone for its thread, if measured.
    pub(super) zone_ns: Option<i64>,
}

pub(super) struct Schedule {
    budget: f64,
    phase: Phase,
    /// The begin of the phase, and the time of the next step.
    since_ns: i64,
    due_ns: i64,
    /// The lengths of the next window and of the counting phase before it.
    open_ns: i64,
    count_ns: i64,
    cycle: Cycle,
    /// The counts at the begin of the phase.
    roots: Roots,
    begun: u64,
    /// The number of roots in the counting phase of this cycle, and the length of that phase in ns. A stop divides it into parts.
    counted: (u64, i64),
    /// The time in ns in which the program's roots were counted, also by earlier sessions: which ranges nest is known of the process.
    learned_ns: i64,
    /// The time of windows and counting phases, and its roots, weighted to the newest.
    pace: (f64, f64),
    /// The time of windows, and the zones in it.
    zones: (f64, f64),
    zone_ns: i64,
    /// The time of windows in which roots were recorded.
    shown_ns: i64,
    /// The time from the end of a window until the next cycle begins: its last root ends, and the collector may be late.
    closing_ns: Average,
    recent: Cost,
    all: Cost,
    total: Total,
    random: Sequence,
}

/// The current cycle, in ns.
#[derive(Clone, Copy, Default)]
struct Cycle {
    begin_ns: i64,
    /// The time before the window, which is known when it opens.
    before_ns: i64,
    /// The end of the window.
    closed_ns: i64,
}

/// An average over cycles, of all while they are few, then with the most weight on the newest.
#[derive(Clone, Copy, Default)]
struct Average {
    value: f64,
    cycles: f64,
}

impl Average {
    /// Sets the value that applies until the first cycle is added.
    fn expect(&mut self, value: f64) {
        if self.cycles == 0.0 {
            self.value = value;
        }
    }

    fn add(&mut self, value: f64) {
        self.cycles += 1.0;
        self.value += (value - self.value) * LATEST.max(1.0 / self.cycles);
    }
}

#[derive(Clone, Copy, Default)]
struct Total {
    windows: u64,
    open_ns: i64,
    /// The time of all completed phases.
    all_ns: i64,
    /// The number of windows that closed before their last root ended.
    cut: u64,
}

impl Schedule {
    pub(super) fn new(budget: f64, now_ns: i64) -> Schedule {
        let roots = Roots::default();
        let mut schedule = Schedule {
            budget,
            phase: Phase::Closed,
            since_ns: now_ns,
            due_ns: now_ns,
            open_ns: SHORTEST_NS,
            count_ns: SHORTEST_NS,
            cycle: Cycle::default(),
            roots,
            begun: 0,
            counted: (0, 0),
            learned_ns: 0,
            pace: (0.0, 0.0),
            zones: (0.0, 0.0),
            zone_ns: UNKNOWN_ZONE_NS,
            shown_ns: 0,
            closing_ns: Average::default(),
            recent: Cost::default(),
            all: Cost::default(),
            total: Total::default(),
            random: Sequence::seeded(now_ns as u64),
        };
        schedule.begin_gap(now_ns);
        schedule
    }

    /// Ends the phase, because the session stops. Its time stands still until it starts again: then the gap goes on, or the counting
    /// phase. A window is over, and a gap follows it.
    pub(super) fn interrupt(&mut self, now_ns: i64, roots: Roots) {
        // The stop may have come long before.
        let ran_ns = now_ns.min(self.due_ns) - self.since_ns;
        match self.phase {
            Phase::Closed => {}
            Phase::Counting => {
                self.add_counted(roots, ran_ns);
                self.due_ns = now_ns;
            }
            Phase::Open => {
                self.total.open_ns += ran_ns;
                self.begin_gap(now_ns);
            }
            Phase::Closing => self.begin_gap(now_ns),
        }
        self.total.all_ns += now_ns - self.since_ns;
        (self.phase, self.since_ns) = (Phase::Closed, now_ns);
    }

    /// Returns the time in which the program's roots were counted, for the next session.
    pub(super) fn learned_ns(&self) -> i64 {
        self.learned_ns
    }

    /// Sets the time in which earlier sessions counted the program's roots.
    pub(super) fn set_learned_ns(&mut self, learned_ns: i64) {
        self.learned_ns = learned_ns;
    }

    /// Returns the time at which [`step`](Self::step) is due.
    pub(super) fn due_ns(&self) -> i64 {
        self.due_ns
    }

    /// Returns the next phase, if it is due.
    pub(super) fn step(&mut self, now_ns: i64, seen: Seen) -> Option<Phase> {
        if now_ns < self.due_ns {
            return None;
        }
        self.zone_ns = seen.zone_ns.unwrap_or(self.zone_ns);
        let elapsed_ns = (now_ns - self.since_ns).max(1);
        let next = match self.phase {
            Phase::Closed => {
                let first_ns = if self.total.windows == 0 { FIRST_COUNTING_NS } else { 0 };
                let left_ns = self.count_ns.max(first_ns) - self.counted.1;
                self.due_ns = now_ns + left_ns.max(COUNTING_NS);
                Phase::Counting
            }
            Phase::Counting if self.is_learning(seen.roots, elapsed_ns) => {
                self.due_ns = now_ns + COUNTING_NS;
                return None;
            }
            Phase::Counting => {
                self.add_counted(seen.roots, elapsed_ns);
                self.see_pace(self.counted.0, self.counted.1);
                self.closing_ns.expect((now_ns - self.due_ns) as f64);
                self.cycle.before_ns = now_ns - self.cycle.begin_ns;
                self.shorten_window();
                self.due_ns = now_ns + self.open_ns;
                self.total.windows += 1;
                Phase::Open
            }
            Phase::Open => {
                self.end_window(seen);
                self.cycle.closed_ns = self.due_ns;
                self.due_ns = now_ns + CLOSING_NS;
                Phase::Closing
            }
            Phase::Closing if seen.roots.under_way > 0 && elapsed_ns < LONGEST_NS => {
                self.due_ns = now_ns + CLOSING_NS;
                return None;
            }
            Phase::Closing => {
                self.total.cut += u64::from(seen.roots.under_way > 0);
                self.closing_ns.add((now_ns - self.cycle.closed_ns) as f64);
                self.begin_gap(now_ns);
                Phase::Closed
            }
        };
        self.total.all_ns += elapsed_ns;
        (self.phase, self.since_ns) = (next, now_ns);
        (self.roots, self.begun) = (seen.roots, seen.begun);
        Some(next)
    }

    /// Returns the probability with which a root is recorded in the window that opens. Roots come faster outside windows.
    pub(super) fn share(&self) -> f64 {
        let open_ns = self.open_ns as f64;
        let rest_ns = self.cycle.before_ns as f64 + self.closing_ns.value;
        let faster = self.recent.ratio().max(1.0);
        open_ns / (open_ns + rest_ns * faster)
    }

    /// Returns the figures so far, with cost and slowdown only if there is enough data for them.
    pub(super) fn figures(&self) -> WindowFigures {
        let Total { windows, open_ns, all_ns, cut } = self.total;
        let recorded = open_ns as f64 / all_ns.max(1) as f64;
        let slowdown = self.all.slowdown();
        // Relative to the time that the program would have needed without the session.
        let lost = |slowdown: f64| recorded * overhead(slowdown);
        let cost = slowdown.map(|Estimate { value, .. }| lost(value) / (1.0 - lost(value)));
        WindowFigures {
            windows,
            recorded,
            slowdown: slowdown.map(|slowdown| slowdown.value),
            slowdown_error: slowdown.map_or(0.0, |slowdown| slowdown.error),
            cost,
            cut,
        }
    }

    /// Returns whether the first window has to wait: too little is known about which ranges nest.
    fn is_learning(&self, roots: Roots, counting_ns: i64) -> bool {
        self.total.windows == 0 && roots.counted < FIRST_ROOTS && self.learned_ns + counting_ns < LONGEST_NS
    }

    /// Adds a part of the counting phase, which began with the phase.
    fn add_counted(&mut self, roots: Roots, counting_ns: i64) {
        let counted = roots.counted.saturating_sub(self.roots.counted);
        self.counted = (self.counted.0 + counted, self.counted.1 + counting_ns);
        self.learned_ns += counting_ns;
    }

    fn end_window(&mut self, seen: Seen) {
        let recorded = seen.roots.recorded.saturating_sub(self.roots.recorded);
        self.see_pace(recorded, self.open_ns);
        let zones = seen.begun.saturating_sub(self.begun);
        self.zones = (self.zones.0 * KEEP + self.open_ns as f64, self.zones.1 * KEEP + zones as f64);
        let (counted, in_ns) = self.counted;
        let counted = counted as f64 * self.open_ns as f64 / in_ns.max(1) as f64;
        self.recent.add(counted, recorded as f64, KEEP);
        self.all.add(counted, recorded as f64, 1.0);
        self.shown_ns += if recorded > 0 { self.open_ns } else { 0 };
        self.total.open_ns += self.open_ns;
    }

    fn see_pace(&mut self, roots: u64, in_ns: i64) {
        self.pace = (self.pace.0 * KEEP + in_ns as f64, self.pace.1 * KEEP + roots as f64);
    }

    /// Returns the time in which two roots come.
    fn two_roots_ns(&self) -> i64 {
        let (ns, roots) = self.pace;
        ((ROOTS * ns / roots.max(1.0)) as i64).clamp(SHORTEST_NS, LONGEST_NS)
    }

    /// Chooses the lengths of the next cycle.
    fn begin_gap(&mut self, now_ns: i64) {
        self.count_ns = self.two_roots_ns();
        let open = self.open_share(self.zones_cost());
        // A window is as long as its counting phase. It is longer where the gap is at its minimum, which is the length of the counting
        // phase, too.
        let length = (2.0 * open / (1.0 - open)).max(1.0);
        let known_ns = self.shown_ns.saturating_mul(GROWTH).max(self.count_ns);
        self.open_ns = ((self.count_ns as f64 * length) as i64).min(known_ns);
        let rest_ns = self.open_ns as f64 * (1.0 - open) / open - self.closing_ns.value;
        let gap_ns = (rest_ns as i64 - self.count_ns).max(self.count_ns);
        self.due_ns = now_ns + (gap_ns as f64 * (0.5 + self.random.share())) as i64;
        self.cycle = Cycle { begin_ns: now_ns, ..Cycle::default() };
        self.counted = (0, 0);
    }

    /// Shortens the window that is about to open, if roots come faster now than in the windows for which it was planned.
    fn shorten_window(&mut self) {
        let (roots, in_ns) = self.counted;
        let zones = roots as f64 * (self.zones.1 / self.recent.recorded().max(1.0)).max(1.0);
        let cost = overhead(MARGIN * zones * self.zone_ns as f64 / in_ns.max(1) as f64);
        if cost > self.zones_cost() {
            let open = self.open_share(cost);
            let open_ns = self.cycle.before_ns as f64 * open / (1.0 - open);
            self.open_ns = self.open_ns.min((open_ns as i64).max(self.two_roots_ns()));
        }
    }

    /// Returns the share of a window's time that zones cost: an upper bound, from the known cost of a zone.
    fn zones_cost(&self) -> f64 {
        let (ns, zones) = self.zones;
        if ns > 0.0 { MARGIN * zones * self.zone_ns as f64 / ns } else { UNKNOWN_COST }
    }

    /// Returns the share of time in windows at which the lost time is the budget's share of the rest. The zones of a window cost at most
    /// `zones_cost` of its time, unless the measurement shows more.
    fn open_share(&self, zones_cost: f64) -> f64 {
        let cost = match self.recent.slowdown() {
            None => zones_cost,
            Some(Estimate { value, error }) => {
                let most = overhead(value.max(0.0) + error);
                let exceeds_zones = overhead(value - 2.0 * error) > zones_cost;
                if exceeds_zones { most } else { most.min(zones_cost) }
            }
        };
        (self.budget / (1.0 + self.budget) / cost.clamp(1e-4, 1.0)).min(MOST_OPEN)
    }
}

/// Returns the share of the time that a program loses if it is slower by `slowdown`.
fn overhead(slowdown: f64) -> f64 {
    let slowdown = slowdown.max(0.0);
    slowdown / (1.0 + slowdown)
}

#[cfg(test)]
mod tests;
