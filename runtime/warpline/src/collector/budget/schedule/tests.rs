//! The schedule against a program with its own clock.

use super::*;

/// A program with its own clock: its steps take `step_ns`, and are slower by `slowdown` in windows.
struct Program {
    step_ns: f64,
    slowdown: f64,
    zones: u64,
    now_ns: i64,
    /// The delay of the collector in each phase.
    late_ns: i64,
    /// The time until which the program waits.
    waits_until_ns: i64,
    done: f64,
    roots: Roots,
    begun: u64,
}

impl Program {
    fn new(step_ns: f64, slowdown: f64) -> Program {
        let roots = Roots::default();
        Program { step_ns, slowdown, zones: 10, now_ns: 1, late_ns: 0, waits_until_ns: 0, done: 0.0, roots, begun: 0 }
    }

    /// Works until then. Returns the number of steps that ended, and the time in which it did not wait.
    fn work(&mut self, until_ns: i64, slower: f64) -> (u64, f64) {
        let ns = (until_ns - self.now_ns.max(self.waits_until_ns)).max(0) as f64;
        let before = self.done.floor() as u64;
        self.done += ns / (self.step_ns * slower);
        self.now_ns = until_ns;
        (self.done.floor() as u64 - before, ns)
    }

    /// Works in a phase until then. Returns the time that the program lost.
    fn work_in_phase(&mut self, phase: Phase, until_ns: i64) -> f64 {
        let steps = self.work(until_ns, if phase == Phase::Open { 1.0 + self.slowdown } else { 1.0 });
        match phase {
            Phase::Open => {
                self.roots.recorded += steps.0;
                self.begun += steps.0 * self.zones;
                return steps.1 * overhead(self.slowdown);
            }
            Phase::Counting => self.roots.counted += steps.0,
            Phase::Closed | Phase::Closing => {}
        }
        0.0
    }

    /// Runs the session for `for_ns`, with a stop every `stop_ns`. Returns the time that the program lost, as a share of the time that it
    /// needs.
    fn run_with_stops(&mut self, schedule: &mut Schedule, for_ns: i64, stop_ns: i64) -> f64 {
        let (begin_ns, mut lost_ns) = (self.now_ns, 0.0);
        while self.now_ns - begin_ns < for_ns {
            let stop_at_ns = self.now_ns + stop_ns;
            while schedule.due_ns() < stop_at_ns {
                let due_ns = schedule.due_ns().max(self.now_ns + 1);
                lost_ns += self.work_in_phase(schedule.phase, due_ns);
                schedule.step(due_ns, Seen { roots: self.roots, begun: self.begun, zone_ns: Some(3_000) });
            }
            lost_ns += self.work_in_phase(schedule.phase, stop_at_ns);
            schedule.interrupt(stop_at_ns, self.roots);
        }
        let elapsed_ns = (self.now_ns - begin_ns) as f64;
        lost_ns / (elapsed_ns - lost_ns)
    }

    /// Runs the session's cycles for `for_ns`. Returns the time that the program lost, as a share of the time that it needs.
    fn run(&mut self, schedule: &mut Schedule, for_ns: i64) -> f64 {
        let (begin_ns, mut lost_ns) = (self.now_ns, 0.0);
        while self.now_ns - begin_ns < for_ns {
            let due_ns = schedule.due_ns().max(self.now_ns + 1);
            lost_ns += self.work_in_phase(schedule.phase, due_ns);
            let late = self.work(due_ns + self.late_ns, 1.0);
            self.roots.counted += if schedule.phase == Phase::Counting { late.0 } else { 0 };
            schedule.step(self.now_ns, Seen { roots: self.roots, begun: self.begun, zone_ns: Some(3_000) });
        }
        let elapsed_ns = (self.now_ns - begin_ns) as f64;
        lost_ns / (elapsed_ns - lost_ns)
    }
}

#[test]
fn the_gaps_keep_what_recording_costs_within_the_budget() {
    let late_ns = 20_000_000;
    let cases = [
        (0.31, 0.01, 0),
        (0.05, 0.01, 0),
        (2.0, 0.01, 0),
        (0.31, 0.05, 0),
        (0.1, 0.002, 0),
        (2.0, 0.01, late_ns),
        (0.1, 0.002, late_ns),
    ];
    for (slowdown, budget, late_ns) in cases {
        let mut program = Program::new(150_000.0, slowdown);
        program.late_ns = late_ns;
        let mut schedule = Schedule::new(budget, 0);
        program.run(&mut schedule, 30_000_000_000);
        let cost = program.run(&mut schedule, 120_000_000_000);
        assert!(cost <= budget * 1.05, "{cost} of {budget} for {slowdown}");
        assert!(cost >= budget * 0.6, "{cost} of {budget} is not spent for {slowdown}");
        let figures = schedule.figures();
        let said = figures.slowdown.expect("there were many windows");
        assert!((said - slowdown).abs() <= 3.0 * figures.slowdown_error.max(0.005), "{figures:?} for {slowdown}");
        assert!((figures.cost.expect("it is measured") - cost).abs() < 0.3 * budget, "{figures:?}, {cost}");
    }
}

#[test]
fn before_anything_is_measured_the_known_cost_of_a_zone_keeps_the_budget() {
    // Zones take half of the time: 10 zones of 3 µs in a step of 30 µs.
    let mut program = Program::new(30_000.0, 1.0);
    let mut schedule = Schedule::new(0.01, 0);
    let cost = program.run(&mut schedule, 1_500_000_000);
    assert!(cost <= 0.012, "{cost}");
    assert!(schedule.figures().windows >= 2, "{:?}", schedule.figures());
    let young = Schedule::new(0.01, 0).figures();
    assert_eq!((young.slowdown, young.cost), (None, None), "nothing is said of what was not measured");
}

#[test]
fn a_root_stands_for_those_of_its_cycle_also_where_windows_slow_the_program() {
    let mut program = Program::new(150_000.0, 0.6);
    let mut schedule = Schedule::new(0.05, 0);
    program.run(&mut schedule, 10_000_000_000);
    let (begin, mut estimate) = (program.done, 0.0);
    for _ in 0..2_000 {
        let before = program.roots.recorded;
        program.run(&mut schedule, 1);
        if schedule.phase == Phase::Closing {
            estimate += (program.roots.recorded - before) as f64 / schedule.share();
        }
    }
    let ran = program.done - begin;
    assert!((estimate / ran - 1.0).abs() < 0.05, "{estimate} of {ran}");
}

#[test]
fn the_first_windows_stand_for_their_cycles_also_where_the_collector_is_late() {
    for (slowdown, late_ns) in [(0.0, 0), (6.0, 0), (0.0, 20_000_000), (6.0, 20_000_000)] {
        let mut program = Program::new(15_000.0, slowdown);
        program.late_ns = late_ns;
        let mut schedule = Schedule::new(0.02, 0);
        let mut estimate = 0.0;
        while schedule.total.windows < 12 || schedule.phase == Phase::Open {
            let before = program.roots.recorded;
            let share = schedule.share();
            program.run(&mut schedule, 1);
            estimate += (program.roots.recorded - before) as f64 / share;
        }
        let ran = program.done;
        assert!((0.9..1.1).contains(&(estimate / ran)), "{estimate} of {ran} for {slowdown} and {late_ns} ns");
    }
}

#[test]
fn what_is_frequent_and_slow_to_record_is_recorded_seldom_and_counts_for_all() {
    // 200 zones and a pause of a ms, which recording makes longer by a fifth.
    let mut program = Program::new(1_020_000.0 / 200.0, 0.2);
    program.zones = 1;
    let mut schedule = Schedule::new(0.02, 0);
    let mut estimate = 0.0;
    while program.now_ns < 2_500_000_000 || schedule.phase == Phase::Open {
        let (before, share) = (program.roots.recorded, schedule.share());
        program.run(&mut schedule, 1);
        estimate += (program.roots.recorded - before) as f64 / share;
    }
    let (recorded, ran) = (program.roots.recorded as f64, program.done);
    assert!(recorded > 0.0 && recorded * 4.0 < ran, "{recorded} of {ran}");
    assert!((0.9..1.1).contains(&(estimate / ran)), "{estimate} of {ran}");
}

#[test]
fn a_program_that_has_waited_is_not_slowed_for_longer_than_a_window() {
    let longest_s = LONGEST_NS as f64 / 1e9;
    for (before_s, wait_s, window_s) in [(0, 0.05, 0.01), (0, 0.2, 0.05), (0, 1.0, longest_s), (60, 1.0, longest_s)] {
        let mut program = Program::new(15_000.0, 6.0);
        let mut schedule = Schedule::new(0.02, 0);
        program.run(&mut schedule, before_s * 1_000_000_000);
        let wait_ns = (wait_s * 1e9) as i64;
        program.waits_until_ns = program.now_ns + wait_ns;
        program.run(&mut schedule, wait_ns);
        let cost = program.run(&mut schedule, 2_500_000_000);
        assert!(cost <= 0.025 + window_s / 2.5, "{cost} after {before_s} and {wait_s} s");
    }
}

#[test]
fn a_program_that_is_not_slowed_is_recorded_almost_all_of_the_time() {
    let mut program = Program::new(100_000.0, 0.0);
    let mut schedule = Schedule::new(0.05, 0);
    program.run(&mut schedule, 60_000_000_000);
    let figures = schedule.figures();
    assert!((0.9..=0.96).contains(&figures.recorded), "{figures:?}");
}

#[test]
fn cheap_zones_are_recorded_almost_all_of_the_time_although_the_measurement_is_not_exact() {
    // 10 zones of 3 µs in a step of 20 ms: 0.15 %. A few windows cannot show such a small cost.
    let mut program = Program::new(20_000_000.0, 0.0015);
    let mut schedule = Schedule::new(0.01, 0);
    program.run(&mut schedule, 2_000_000_000);
    let before = schedule.total;
    program.run(&mut schedule, 20_000_000_000);
    let open_ns = schedule.total.open_ns - before.open_ns;
    assert!(open_ns as f64 > 0.9 * (schedule.total.all_ns - before.all_ns) as f64, "{:?}", schedule.figures());
}

#[test]
fn the_gaps_follow_a_program_that_changes() {
    let mut program = Program::new(150_000.0, 0.05);
    let mut schedule = Schedule::new(0.01, 0);
    program.run(&mut schedule, 60_000_000_000);
    program.slowdown = 1.0;
    program.run(&mut schedule, 60_000_000_000);
    let cost = program.run(&mut schedule, 60_000_000_000);
    assert!(cost <= 0.011, "{cost}");
}

#[test]
fn a_window_has_room_for_two_steps_and_waits_for_the_last() {
    let mut program = Program::new(20_000_000.0, 0.1);
    program.zones = 400;
    let mut schedule = Schedule::new(0.01, 0);
    program.run(&mut schedule, 60_000_000_000);
    assert!((36_000_000..60_000_000).contains(&schedule.open_ns), "{}", schedule.open_ns);
    let mut schedule = Schedule::new(0.01, 0);
    let mut seen = Seen { roots: Roots { under_way: 1, ..Roots::default() }, begun: 0, zone_ns: None };
    while schedule.step(schedule.due_ns(), seen) != Some(Phase::Closing) {}
    let closing = schedule.due_ns();
    assert_eq!(schedule.step(closing, seen), None, "a root is under way");
    seen.roots.under_way = 0;
    assert_eq!(schedule.step(schedule.due_ns(), seen), Some(Phase::Closed));
    assert_eq!(schedule.figures().cut, 0);
}

#[test]
fn a_root_that_does_not_end_keeps_no_window_open() {
    let mut schedule = Schedule::new(0.01, 0);
    let seen = Seen { roots: Roots { under_way: 1, ..Roots::default() }, begun: 0, zone_ns: None };
    while schedule.step(schedule.due_ns(), seen) != Some(Phase::Closing) {}
    let begin_ns = schedule.due_ns();
    while schedule.phase == Phase::Closing {
        schedule.step(schedule.due_ns(), seen);
    }
    assert!(schedule.since_ns - begin_ns <= LONGEST_NS && schedule.figures().cut == 1);
}

#[test]
fn the_first_window_waits_for_threads_that_have_not_run_and_no_other_does() {
    let mut schedule = Schedule::new(0.01, 0);
    let mut seen = Seen { roots: Roots::default(), begun: 0, zone_ns: None };
    assert_eq!(schedule.step(schedule.due_ns(), seen), Some(Phase::Counting));
    let begin_ns = schedule.since_ns;
    while schedule.due_ns() < begin_ns + LONGEST_NS / 2 {
        assert_eq!(schedule.step(schedule.due_ns(), seen), None, "no thread has run");
    }
    seen.roots.counted = FIRST_ROOTS;
    assert_eq!(schedule.step(schedule.due_ns(), seen), Some(Phase::Open));
    for phase in [Phase::Closing, Phase::Closed, Phase::Counting, Phase::Open] {
        assert_eq!(schedule.step(schedule.due_ns(), seen), Some(phase));
    }
    let mut idle = Schedule::new(0.01, 0);
    idle.step(idle.due_ns(), Seen { roots: Roots::default(), ..seen });
    while idle.phase == Phase::Counting {
        idle.step(idle.due_ns(), Seen { roots: Roots::default(), ..seen });
    }
    assert!(idle.since_ns - idle.cycle.begin_ns >= LONGEST_NS, "{}", idle.since_ns);
    assert_eq!(idle.phase, Phase::Open);
}

/// The time between stops in the tests of sessions that stop.
const STOP_NS: i64 = 20_000_000;

#[test]
fn a_session_that_stops_every_20_ms_records_within_its_budget() {
    for (slowdown, budget) in [(0.31, 0.01), (2.0, 0.01), (0.05, 0.05)] {
        let mut program = Program::new(150_000.0, slowdown);
        let mut schedule = Schedule::new(budget, 0);
        program.run_with_stops(&mut schedule, 30_000_000_000, STOP_NS);
        let cost = program.run_with_stops(&mut schedule, 120_000_000_000, STOP_NS);
        assert!(cost <= budget * 1.05, "{cost} of {budget} for {slowdown}");
        assert!(cost >= budget * 0.5, "{cost} of {budget} is not spent for {slowdown}");
    }
}

#[test]
fn the_first_window_opens_soon_also_if_each_part_of_the_session_counts_few_roots() {
    // From four roots in the time between stops to none.
    for step_ms in [5, 30, 500] {
        let mut program = Program::new(f64::from(step_ms) * 1e6, 0.1);
        let mut schedule = Schedule::new(0.01, 0);
        while schedule.total.windows == 0 {
            program.run_with_stops(&mut schedule, STOP_NS, STOP_NS);
            // A gap of at most 150 ms, counting of at most 250 ms, and a part of the time between two stops.
            assert!(program.now_ns <= 420_000_000, "no window for steps of {step_ms} ms");
        }
    }
}

#[test]
fn a_session_that_begins_with_what_others_counted_does_not_count_it_again() {
    let seen = |counted| Seen { roots: Roots { counted, ..Roots::default() }, begun: 0, zone_ns: None };
    let first_window_ns = |learned_ns, counted| {
        let mut schedule = Schedule::new(0.01, 0);
        schedule.set_learned_ns(learned_ns);
        schedule.step(schedule.due_ns(), seen(counted));
        let begin_ns = schedule.since_ns;
        while schedule.phase == Phase::Counting {
            schedule.step(schedule.due_ns(), seen(counted));
        }
        assert_eq!(schedule.learned_ns(), learned_ns + schedule.since_ns - begin_ns);
        schedule.since_ns - begin_ns
    };
    assert_eq!(first_window_ns(0, FIRST_ROOTS), FIRST_COUNTING_NS);
    assert_eq!(first_window_ns(LONGEST_NS, 0), FIRST_COUNTING_NS);
    let rest_ns = first_window_ns(LONGEST_NS - 50_000_000, FIRST_ROOTS - 1);
    assert!((50_000_000..=51_000_000).contains(&rest_ns), "{rest_ns}");
}

#[test]
fn a_stop_leaves_a_gap_and_its_counting_as_they_were_and_ends_a_window() {
    let mut schedule = Schedule::new(0.01, 0);
    let mut seen = Seen { roots: Roots::default(), begun: 0, zone_ns: None };
    let gap_ns = schedule.due_ns();
    schedule.interrupt(gap_ns / 2, seen.roots);
    assert_eq!((schedule.phase, schedule.due_ns()), (Phase::Closed, gap_ns), "the gap goes on");
    assert_eq!(schedule.step(gap_ns, seen), Some(Phase::Counting));
    seen.roots.counted = 7;
    schedule.interrupt(gap_ns + 6_000_000, seen.roots);
    assert_eq!((schedule.phase, schedule.counted), (Phase::Closed, (7, 6_000_000)));
    assert_eq!(schedule.step(schedule.due_ns(), seen), Some(Phase::Counting), "it goes on at once");
    assert_eq!(schedule.due_ns(), gap_ns + FIRST_COUNTING_NS);
    seen.roots.counted = FIRST_ROOTS;
    assert_eq!(schedule.step(schedule.due_ns(), seen), Some(Phase::Open));
    let opened_ns = schedule.since_ns;
    schedule.interrupt(opened_ns + 500_000, seen.roots);
    let figures = schedule.figures();
    assert_eq!((schedule.phase, figures.windows, schedule.total.open_ns), (Phase::Closed, 1, 500_000));
    assert!((figures.recorded - 500_000.0 / (opened_ns + 500_000) as f64).abs() < 1e-9, "{figures:?}");
    assert!(schedule.due_ns() > opened_ns + 40_000_000, "a gap follows a window");
    assert_eq!(schedule.counted, (0, 0));
}
