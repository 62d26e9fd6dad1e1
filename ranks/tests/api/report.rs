//! The report against generated jobs, whose truth is known.

use std::path::Path;
use std::sync::Arc;

use crate::command::{command, text};
use warpline_judge::SYNCHRONISING;
use warpline_judge::tables::Table;
use warpline_ranks::clocks::Options;
use warpline_ranks::generate::{Late, Plan, Slow, Stage, generate, write_table};
use warpline_ranks::judge::Cause;
use warpline_ranks::table::Schemas;
use warpline_ranks::{Engine, Report};

/// Small enough to be quick without optimising: 3 hosts, 4 ranks each, two windows.
fn plan(seed: u64) -> Plan {
    Plan { ranks: 12, hosts: 3, steps: 80, seed, ranks_per_file: 4, ..Plan::default() }
}

fn report(folder: &Path, plan: &Plan) -> Report {
    generate(folder, plan).unwrap();
    Report::new(folder, None, Options::default()).unwrap()
}

#[test]
fn nobody_is_named_in_clean_runs() {
    for seed in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let report = report(folder.path(), &plan(seed));
        assert!(!report.names_somebody(), "seed {seed}: {:?}", report.verdict);
        assert!(report.size.collectives_judged > 500, "{:?}", report.size);
    }
}

#[test]
fn with_exit_code_a_job_fails_if_a_rank_is_late_and_if_nothing_can_be_judged() {
    let late = Late { rank: 5, stage: Stage::Load, ns: 60_000_000, from: 20, to: 49 };
    let jobs = [
        ("clean", plan(1), 0),
        ("late", Plan { late: vec![late], ..plan(1) }, 3),
        ("short", Plan { steps: 4, ..plan(1) }, 1),
    ];
    for (name, plan, status) in jobs {
        let folder = tempfile::tempdir().unwrap();
        generate(folder.path(), &plan).unwrap();
        let place = folder.path().to_str().unwrap();
        for (options, expected) in [(&["--exit-code"][..], status), (&["--exit-code", "--json"], status), (&[], 0)] {
            let output = command(&[&["report", place], options].concat()).output().unwrap();
            assert_eq!(output.status.code(), Some(expected), "{name} {options:?}: {}", text(&output.stdout));
            assert!(!output.stdout.is_empty(), "the report is printed in each case");
        }
    }
}

#[test]
fn a_late_rank_is_named_20_of_20() {
    for seed in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let rank = seed as u32 * 7 % 12;
        let stage = [Stage::Load, Stage::Forward, Stage::Backward, Stage::Optimizer][seed as usize % 4];
        // The optimizer is followed by the input: the next step's collective is the late one.
        let late = Late { rank, stage, ns: 60_000_000, from: 20, to: 49 };
        let report = report(folder.path(), &Plan { late: vec![late], ..plan(seed) });
        let named: Vec<i64> = report.late.iter().map(|late| late.rank).collect();
        assert_eq!(named, [i64::from(rank)], "seed {seed}: {:#?}", report.late);
        let found = &report.late[0];
        assert!((50_000_000..70_000_000).contains(&found.median_ns), "seed {seed}: {found:#?}");
        // In three steps it is late to the barrier of all ranks, of which there are too few to know what is usual.
        assert!(found.steps >= 26 && found.first_step >= 20 && found.last_step <= 50, "seed {seed}: {found:#?}");
        if stage == Stage::Load {
            assert_eq!((found.cause, &*found.stage), (Cause::Idle, "demo.load"), "seed {seed}");
        }
        if stage != Stage::Load {
            assert_eq!((found.cause, &*found.stage), (Cause::Device, stage.range()), "seed {seed}");
        }
        assert!(report.verdict[0].starts_with(&format!("rank {rank} was late")), "{:?}", report.verdict);
    }
}

#[test]
fn a_slow_device_is_named_to_the_step_20_of_20() {
    for seed in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let (rank, from) = (seed as u32 * 5 % 12, 30 + seed as u32);
        let slow = Slow { rank, percent: 5.0, from };
        let report = report(folder.path(), &Plan { slow: vec![slow], ..plan(seed) });
        let named: Vec<i64> = report.slow.iter().map(|slow| slow.rank).collect();
        assert_eq!(named, [i64::from(rank)], "seed {seed}: {:#?}", report.slow);
        let found = &report.slow[0];
        assert_eq!(found.since_step, i64::from(from), "seed {seed}: {found:?}");
        let within = found.since_least..=found.since_most;
        assert!(within.contains(&i64::from(from)) && found.since_most - found.since_least <= 2, "{found:?}");
        // Of its worst window, which may begin before it was slow.
        assert!((0.025..0.07).contains(&found.share), "seed {seed}: {found:?}");
        // Whoever waited for it is not blamed.
        assert!(report.late.iter().all(|late| late.rank == i64::from(rank)), "seed {seed}: {:#?}", report.late);
        assert!(report.late.iter().all(|late| late.cause == Cause::Device), "seed {seed}: {:#?}", report.late);
    }
}

#[test]
fn the_blame_of_a_slow_rank_goes_to_it_in_every_step() {
    let folder = tempfile::tempdir().unwrap();
    // What it costs reaches every host through the groups across hosts, and comes back in the next step.
    let slow = Slow { rank: 13, percent: 5.0, from: 20 };
    let plan = Plan { ranks: 32, hosts: 8, steps: 120, ranks_per_file: 32, slow: vec![slow], ..plan(3) };
    let report = report(folder.path(), &plan);
    let named: Vec<(i64, usize)> = report.late.iter().map(|late| (late.rank, late.steps)).collect();
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(named[0].0 == 13 && named[0].1 >= 98, "{named:?}");
}

/// Two stages of a pipeline, each on four hosts of four ranks; the second one works a tenth longer.
fn pipeline(seed: u64) -> Plan {
    Plan { ranks: 32, hosts: 8, pipeline: 2, steps: 60, ranks_per_file: 8, ..plan(seed) }
}

#[test]
fn a_heavier_stage_of_a_pipeline_is_not_slow() {
    for seed in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let report = report(folder.path(), &pipeline(seed));
        assert!(!report.names_somebody(), "seed {seed}: {:?}", report.verdict);
    }
}

#[test]
fn a_slow_device_is_named_in_a_light_and_in_a_heavy_stage() {
    for seed in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let rank = [3, 21][seed as usize % 2];
        let slow = Slow { rank, percent: 5.0, from: 25 };
        let report = report(folder.path(), &Plan { slow: vec![slow], ..pipeline(seed) });
        let named: Vec<i64> = report.slow.iter().map(|slow| slow.rank).collect();
        assert_eq!(named, [i64::from(rank)], "seed {seed}: {:#?}", report.slow);
        assert_eq!(report.slow[0].since_step, 25, "seed {seed}: {:?}", report.slow);
    }
}

#[test]
fn two_faults_at_once_are_told_apart() {
    for seed in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (seed as u32 % 12, (seed as u32 + 5) % 12);
        let load = Late { rank: first, stage: Stage::Load, ns: 60_000_000, from: 20, to: 39 };
        let backward = Late { rank: second, stage: Stage::Backward, ns: 90_000_000, from: 30, to: 49 };
        let report = report(folder.path(), &Plan { late: vec![load, backward], ..plan(seed) });
        let mut named: Vec<(i64, Cause, &str)> =
            report.late.iter().map(|late| (late.rank, late.cause, &*late.stage)).collect();
        named.sort_by_key(|one| one.1);
        let expected = [(second.into(), Cause::Device, "demo.backward"), (first.into(), Cause::Idle, "demo.load")];
        assert_eq!(named, expected, "seed {seed}: {:#?}", report.late);
    }
}

#[test]
fn a_late_rank_is_named_without_clocks_20_of_20() {
    for seed in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let rank = seed as u32 * 7 % 12;
        let stage = [Stage::Load, Stage::Forward, Stage::Backward, Stage::Optimizer][seed as usize % 4];
        let late = Late { rank, stage, ns: 60_000_000, from: 20, to: 49 };
        generate(folder.path(), &Plan { late: vec![late], ..plan(seed) }).unwrap();
        std::fs::remove_dir_all(folder.path().join("collectives")).unwrap();
        let report = Report::new(folder.path(), None, Options::default()).unwrap();
        let named: Vec<i64> = report.late.iter().map(|late| late.rank).collect();
        assert_eq!(named, [i64::from(rank)], "seed {seed}: {:#?}", report.late);
        let found = &report.late[0];
        let cause = if stage == Stage::Load { Cause::Idle } else { Cause::Device };
        assert_eq!((found.cause, &*found.stage), (cause, stage.range()), "seed {seed}: {found:?}");
        // In the barrier of all ranks every tenth step, at the end of the optimizer, its stage is as long as that of those that wait.
        assert!(found.steps >= 27 && found.first_step == 20 && found.last_step >= 48, "seed {seed}: {found:?}");
        assert!(
            report.not_judged.iter().any(|line| line.contains("no collective compares the clocks")),
            "{:?}",
            report.not_judged
        );
    }
}

#[test]
fn a_slow_rank_does_not_hide_one_that_is_late_in_other_steps() {
    let folder = tempfile::tempdir().unwrap();
    let late = Late { rank: 42, stage: Stage::Load, ns: 100_000_000, from: 30, to: 59 };
    // From then on, all collectives of all groups wait for it, also where they cross hosts.
    let slow = Slow { rank: 7, percent: 6.0, from: 60 };
    let plan =
        Plan { ranks: 64, hosts: 8, steps: 120, ranks_per_file: 64, late: vec![late], slow: vec![slow], ..plan(1) };
    let report = report(folder.path(), &plan);
    let mut named: Vec<(i64, usize)> = report.late.iter().map(|late| (late.rank, late.steps)).collect();
    named.sort_unstable();
    assert_eq!(named, [(7, 60), (42, 30)], "{}", report.to_text());
    assert_eq!(report.slow.iter().map(|slow| slow.rank).collect::<Vec<_>>(), [7], "{}", report.to_text());
}

#[test]
fn nobody_is_late_in_place_of_a_rank_whose_window_is_lost() {
    // Groups of four and of two on a host: of a pair, the one that waits is alone in the tables.
    for (seed, hosts) in [3, 6].into_iter().cycle().take(6).enumerate() {
        let of = |missing: Vec<(u32, u32)>| {
            let folder = tempfile::tempdir().unwrap();
            let late = Late { rank: 3, stage: Stage::Load, ns: 60_000_000, from: 66, to: 110 };
            let plan = Plan { hosts, steps: 120, late: vec![late], missing, ranks_per_file: 1, ..plan(seed as u64) };
            report(folder.path(), &plan)
        };
        if seed < 2 {
            let named: Vec<i64> = of(Vec::new()).late.iter().map(|late| late.rank).collect();
            assert_eq!(named, [3], "{hosts} hosts");
        }
        let report = of(vec![(3, 1)]);
        assert!(!report.names_somebody(), "seed {seed}, {hosts} hosts: {}", report.to_text());
        let says = |text: &str| report.not_judged.iter().any(|line| line.contains(text));
        assert!(says("missing, of rank 3: "), "{:?}", report.not_judged);
    }
}

/// Number, operation, bytes, and how long it takes from when the last of the ranks has come, rank 3, 5 us after rank 0; and how many come.
type Call = (i64, &'static str, i64, i64, i64);

/// A job of four ranks that has these collectives alone, 10 ms after one another. `kind` is what a rank calls of one.
fn job_of(folder: &Path, made: &[Call], kind: impl Fn(i64, &Call) -> &'static str) {
    use datafusion::arrow::array::{ArrayRef, Int32Array, Int64Array, StringArray};
    generate(folder, &Plan { ranks: 4, hosts: 1, steps: 20, ..Plan::default() }).unwrap();
    let engine = Engine::open(folder, None).unwrap();
    let rows = engine.query("comms", "SELECT MIN(comm) AS comm, MIN(win) AS win FROM comms WHERE size = 4").unwrap();
    let (comm, win) = (rows.texts("comm").unwrap()[0].to_string(), rows.ints("win").unwrap()[0]);
    let begins = engine.query("windows", "SELECT rank, MIN(begin_ns) AS begin_ns FROM windows GROUP BY rank").unwrap();
    let begin = begins.ints("begin_ns").unwrap()[0];
    let all: Vec<(i64, Call)> = made.iter().flat_map(|call| (0..call.4).map(move |rank| (rank, *call))).collect();
    let ints = |of: &dyn Fn(&(i64, Call)) -> i64| {
        Arc::new(all.iter().map(|one| Some(of(one))).collect::<Int64Array>()) as ArrayRef
    };
    let texts =
        |of: &dyn Fn(usize) -> String| Arc::new(StringArray::from_iter_values((0..all.len()).map(of))) as ArrayRef;
    let early = |rank: i64| 5_000 - rank * 5_000 / 3;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(all.iter().map(|one| Some(one.0 as i32)).collect::<Int32Array>()),
        texts(&|_| "node0000".to_owned()),
        texts(&|_| comm.clone()),
        ints(&|one| one.1.0),
        texts(&|row| kind(all[row].0, &all[row].1).to_owned()),
        ints(&|one| one.1.2),
        ints(&|one| begin + (one.1.0 + 1) * 10_000_000 - early(one.0)),
        ints(&|one| one.1.3 + early(one.0)),
        ints(&|_| 0),
        ints(&|_| 100),
        ints(&|_| 0),
        texts(&|_| "demo.tp".to_owned()),
        texts(&|_| "sample".to_owned()),
    ];
    let table = Table::Collectives;
    let batch = datafusion::arrow::array::RecordBatch::try_new(table.written(), columns).unwrap();
    std::fs::remove_dir_all(folder.join("collectives")).unwrap();
    let path = folder.join(format!("collectives/run=generated/win={win}/rank-00000-00003.parquet"));
    write_table(&path, table, &[batch], Vec::new()).unwrap();
}

#[test]
fn ranks_meet_in_what_all_wait_for_and_not_in_different_operations() {
    let folder = tempfile::tempdir().unwrap();
    let kinds = ["all_reduce", "all_gather", "all_gather_v", "reduce_scatter", "all_to_all", "barrier", "broadcast"];
    let made: Vec<Call> = (0..).zip(kinds).map(|(seq, kind)| (seq, kind, 1 << 20, 1 << 20, 4)).collect();
    // Of number 1, one rank reduces.
    job_of(folder.path(), &made, |rank, call| if (rank, call.0) == (2, 1) { "all_reduce" } else { call.1 });
    let engine = Engine::open(folder.path(), None).unwrap();
    warpline_ranks::clocks::clocks(&engine, Options::default()).unwrap();
    engine.define("aligned").unwrap();
    let rows = engine.view("late").unwrap();
    let mut met = rows.ints("seq").unwrap();
    met.sort_unstable();
    assert_eq!(met, [0, 2, 3, 4, 5]);
    assert_eq!(SYNCHRONISING.len(), 6);
    assert!(rows.texts("kind").unwrap().iter().all(|kind| SYNCHRONISING.contains(&&**kind)));
}

#[test]
fn a_call_that_differs_is_the_first_finding_and_of_two_halves_both_are_named() {
    let made: Vec<Call> = (0..8).map(|seq| (seq, "all_reduce", 1 << 20, 1 << 20, 4)).collect();
    let said = |odd: &[i64]| {
        let folder = tempfile::tempdir().unwrap();
        job_of(
            folder.path(),
            &made,
            |rank, call| if odd.contains(&rank) && call.0 == 5 { "all_gather" } else { call.1 },
        );
        let report = Report::new(folder.path(), None, Options::default()).unwrap();
        assert!(report.names_somebody());
        report.verdict[0].clone()
    };
    let call = |kind: &str| format!("{kind} of 1048576 bytes");
    let (gather, reduce) = (call("all_gather"), call("all_reduce"));
    let first = said(&[1]);
    let expected = format!(
        "rank 1 called {gather} as number 5 of tp0#4e1c6318, where the others called {reduce}: the data may be wrong since then"
    );
    assert_eq!(first, expected);
    // Ranks that send to each other count their calls apart: number 5 of one is another call of another one.
    let folder = tempfile::tempdir().unwrap();
    job_of(folder.path(), &made, |rank, call| match (rank, call.0) {
        (1, 2) => "send",
        (2, 2) => "recv",
        (1, 5) => "broadcast",
        _ => call.1,
    });
    let report = Report::new(folder.path(), None, Options::default()).unwrap();
    assert!(report.differs.is_empty(), "{:?}", report.differs);
    let (low, high) = (said(&[0, 1]), said(&[2, 3]));
    let half = |high: &str, low: &str| {
        format!(
            "ranks 2, 3 called {high} as number 5 of tp0#4e1c6318, and ranks 0, 1 {low}: one of the two is wrong, and the data may be wrong since then"
        )
    };
    assert_eq!((low, high), (half(&reduce, &gather), half(&gather, &reduce)));
}

#[test]
fn bandwidths_are_those_computed_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let made = [
        (0, "all_reduce", 1 << 20, 1 << 20, 4),
        (1, "all_reduce", 1 << 20, 1 << 19, 4),
        (2, "all_gather", 4 << 20, 1 << 20, 4),
        // Rank 3 is missing, which came last: how long it took is not known.
        (3, "all_reduce", 1 << 20, 1 << 10, 3),
    ];
    job_of(folder.path(), &made, |_, call| call.1);
    let report = Report::new(folder.path(), None, Options::default()).unwrap();
    let found: Vec<_> = report
        .bandwidth
        .iter()
        .map(|row| (&*row.kind, row.ranks, row.bytes, row.calls, row.least, row.mean, row.most))
        .collect();
    // 4 MiB in 1,048,576 ns are 4 GB/s, of which each rank takes in three quarters; a reduction passes its bytes around twice.
    let expected = [("all_gather", 4, 4 << 20, 1, 3.0, 3.0, 3.0), ("all_reduce", 4, 1 << 20, 2, 1.5, 2.25, 3.0)];
    assert_eq!(found, expected);
}

#[test]
fn a_short_last_minute_has_a_clock_as_good_as_the_others() {
    let mut errors = Vec::new();
    for seed in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        // The second minute has four steps.
        let plan = Plan { ranks: 6, hosts: 6, steps: 64, ..plan(seed) };
        let truth = generate(folder.path(), &plan).unwrap();
        let engine = Engine::open(folder.path(), None).unwrap();
        let found = warpline_ranks::clocks::clocks(&engine, Options::default()).unwrap();
        let of = |host: usize| truth.clocks.iter().find(|clock| clock.host == *found.hosts[host]).unwrap();
        for clock in found.clocks.iter().filter(|clock| clock.host != clock.beside && clock.meetings > 0) {
            let true_ns = of(clock.host).error_ns(clock.mid_ns) - of(clock.beside).error_ns(clock.mid_ns);
            errors.push((clock.offset_ns - true_ns).abs());
            assert!(clock.err_ns < 40_000.0, "seed {seed}: {clock:?}");
            let (least, most) = clock.certified.unwrap();
            assert!(least <= true_ns && true_ns <= most, "seed {seed}: {true_ns} not in {clock:?}");
        }
    }
    errors.sort_by(f64::total_cmp);
    assert!(errors.len() >= 60, "{}", errors.len());
    assert!(errors[errors.len() * 99 / 100] <= 20_000.0, "{errors:?}");
}

#[test]
fn bounds_that_contradict_each_other_are_said_by_host_and_minute() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan { ranks: 8, hosts: 4, steps: 80, ..Plan::default() };
    generate(folder.path(), &plan).unwrap();
    // The clocks drift apart by up to 62 ppm.
    let report = Report::new(folder.path(), None, Options { max_drift_ppm: 10.0 }).unwrap();
    let said = "the bounds of the clock of node0001 contradict each other in minute 0";
    assert!(report.not_judged.iter().any(|line| line.starts_with(said)), "{:?}", report.not_judged);
    let text = report.to_text();
    assert!(
        text.contains("the bounds of other clocks contradict each other as well, of 4 in all")
            && !text.contains("certified to -"),
        "{text}"
    );
    let report = Report::new(folder.path(), None, Options::default()).unwrap();
    assert_eq!(report.clocks.inconsistent, []);
}

#[test]
fn the_estimated_clocks_are_right_and_the_certified_bounds_hold() {
    let mut errors = Vec::new();
    for seed in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan { ranks: 6, hosts: 6, steps: 120, ..plan(seed) };
        let truth = generate(folder.path(), &plan).unwrap();
        let engine = Engine::open(folder.path(), None).unwrap();
        let found = warpline_ranks::clocks::clocks(&engine, Options::default()).unwrap();
        assert_eq!(found.hosts.len(), 6);
        for clock in found.clocks.iter().filter(|clock| clock.host != clock.beside && clock.certified.is_some()) {
            let of = |host: usize| {
                let name = &*found.hosts[host];
                truth.clocks.iter().find(|clock| clock.host == name).unwrap()
            };
            // The segment's time counts from the run's begin, as the hosts' clocks have it: within a millisecond.
            let at = clock.mid_ns;
            let true_ns = of(clock.host).error_ns(at) - of(clock.beside).error_ns(at);
            let (least, most) = clock.certified.unwrap();
            assert!(least <= true_ns && true_ns <= most, "seed {seed}: {true_ns} not in {clock:?}");
            assert!(!clock.is_inconsistent, "{clock:?}");
            if clock.meetings >= 20 {
                errors.push((clock.offset_ns - true_ns).abs());
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    assert!(errors.len() >= 100, "{}", errors.len());
    let p99 = errors[errors.len() * 99 / 100];
    assert!(p99 <= 20_000.0, "p99 {p99} ns");
}

#[test]
fn one_host_has_one_clock() {
    let folder = tempfile::tempdir().unwrap();
    let late = Late { rank: 1, stage: Stage::Load, ns: 40_000_000, from: 30, to: 30 };
    let report = report(folder.path(), &Plan { ranks: 4, hosts: 1, late: vec![late], ..plan(1) });
    assert_eq!(report.clocks.worst_err_ns, 0.0);
    assert_eq!(report.late.len(), 1, "{:#?}", report.late);
    assert_eq!((report.late[0].rank, report.late[0].worst_step, report.late[0].steps), (1, 30, 1));
}

#[test]
fn the_text_fits_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let late = (0..12).map(|rank| Late { rank, stage: Stage::Load, ns: 90_000_000, from: 20, to: 50 });
    let report = report(folder.path(), &Plan { ranks: 48, hosts: 12, late: late.collect(), ..plan(2) });
    assert!(report.late.len() >= 10, "{:#?}", report.late);
    let text = report.to_text();
    assert!(text.starts_with("host "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.lines().count() <= 60, "{text}");
    assert!(text.contains("more: `--json` has them"), "{text}");
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    assert_eq!(json["late"].as_array().unwrap().len(), report.late.len());
}
