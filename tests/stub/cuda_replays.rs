//! Replays of graphs in a session with `graph_timing`, on a stub driver: a batch of collectives has its entries, and a session that is
//! stopped asks the driver nothing while graphs are replayed.

use std::thread;
use std::time::{Duration, Instant};

use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::report::CollectiveStats;
use warpline::timing::{EndMode, GraphTiming};
use warpline_tests::this_test;

use crate::harness::driver::*;
use crate::harness::graphs::*;
use crate::harness::zones::*;

warpline::range! {
    ATTENTION = "stub.cuda_replays.attention": "Attention.", lane = "attention";
    GRADIENTS = "stub.cuda_replays.gradients": "Sums all gradients.", kind = collective;
    GRADIENT = "stub.cuda_replays.gradient": "Sums one gradient.", kind = collective;
    OUTER = "stub.cuda_replays.outer": "Work around a collective.";
    EAGER = "stub.cuda_replays.eager": "Work that is not captured.";
}

#[test]
fn a_batch_of_collectives_has_its_entries_in_every_timed_replay() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, sink) = start(|builder| builder.graph_timing(GraphTiming::Stamps));
        let (stream, group) = (driver.stream(), ProcessGroup::new("tp0", [0, 1], 0));
        let message =
            |count: u64| Message::new(CollectiveKind::AllReduce).count(count).dtype(DataType::F32).group(&group);
        let captured = Captured::new(driver, stream, || {
            let mut batch = GRADIENTS.batch(&raw(stream));
            (1..=3).for_each(|n| batch.add(&GRADIENT, || message(1_000 * n)));
            kernel(driver, stream, 30);
        });
        captured.launch(driver, stream, 4);
        for replay in wait_for_replays(&sink, 4) {
            assert_eq!((replay.kernels, replay.zones.len()), (1, 4));
            let [batch, entries @ ..] = &replay.zones[..] else { panic!("{replay:?}") };
            assert_eq!((batch.zone.range.name(), batch.lane.as_deref()), (GRADIENTS.name(), None));
            for (entry, index) in entries.iter().zip(0..) {
                let of = entry.zone.entry.expect("an entry of the batch");
                assert_eq!((of.index, of.of, of.share), (index, 3, f64::from(index + 1) / 6.0));
                assert_eq!((entry.zone.gpu, entry.zone.bracket_ns), (batch.zone.gpu, batch.zone.bracket_ns));
                assert_eq!((entry.lane.as_deref(), entry.kernels), (Some(group.lane()), 1));
                let said = entry.zone.message.as_ref().expect("what it moves");
                assert_eq!((said.count, said.seq), (Some(1_000 * u64::from(index + 1)), Some(index.into())));
                assert!(entry.zone.bandwidth().is_some_and(|bandwidth| bandwidth.algorithm > 0.0));
            }
        }
        let report = session.finish();
        assert_exact(&report);
        // As `begun` counts entries, so do the zones of replays.
        assert_eq!((report.captured, report.graph_timing.zones), (4, 16), "{report}");
    });
}

#[test]
fn a_graphed_run_has_the_figures_of_the_eager_run() {
    const STEPS: u64 = 6;
    on_stub(this_test!(), |driver| {
        driver.start();
        let (compute, comm, group) = (driver.stream(), driver.stream(), ProcessGroup::new("tp0", [0, 1], 0));
        let message = || Message::new(CollectiveKind::AllReduce).count(1 << 20).dtype(DataType::F32).group(&group);
        // Two thirds of the collective are behind the compute zone of the other stream, and none is behind those of its own.
        let step = || {
            let forked = driver.record(compute);
            assert_eq!(driver.cuStreamWaitEvent(comm, forked, 0), SUCCESS);
            zone(driver, &ATTENTION, compute, 2_000);
            {
                let _outer = OUTER.zone(&raw(comm));
                let _gradient = GRADIENT.zone(&raw(comm)).message(message());
                kernel(driver, comm, 3_000);
            }
            let joined = driver.record(comm);
            assert_eq!(driver.cuStreamWaitEvent(compute, joined, 0), SUCCESS);
        };
        let (session, zones) = start(|builder| builder.ends(EndMode::Eager));
        // The host's pace is in no zone.
        let hold = driver.stub_hold(compute);
        (0..STEPS).for_each(|_| step());
        driver.stub_release(hold);
        wait_for(&zones, 3 * STEPS as usize);
        let eager = session.finish();

        let (session, sink) = start(|builder| builder.graph_timing(GraphTiming::Stamps));
        let captured = Captured::new(driver, compute, step);
        captured.launch(driver, compute, STEPS as usize);
        wait_for_replays(&sink, STEPS as usize);
        let graphed = session.finish();

        assert_eq!((eager.ranges.len(), graphed.ranges.len()), (3, 3), "{eager}\n{graphed}");
        for one in &eager.ranges {
            let other = graphed.ranges.iter().find(|other| other.name == one.name).expect("the same ranges");
            assert!(one.on_stream && other.on_stream && other.in_replays && !one.in_replays);
            assert_eq!((one.count, one.seen), (other.count, other.seen));
            // The median, because the stub's streams are as late as the machine's threads.
            let (of_one, of_other) = (one.p50_ns as f64, other.p50_ns as f64);
            assert!((of_other / of_one - 1.0).abs() < 0.05, "{}: {of_one} ns, in replays {of_other}", one.name);
            assert!(one.mean_launch_ns > 0 && other.mean_launch_ns == 0);
        }
        let [[one], [other]] = [&eager.collectives[..], &graphed.collectives[..]] else { panic!("{eager}\n{graphed}") };
        assert_eq!((one.count, one.bytes, &one.group), (other.count, other.bytes, &other.group));
        assert!((one.hidden - other.hidden).abs() < 0.05 && (one.hidden - 0.67).abs() < 0.05, "{one:?} {other:?}");
        let speed = |stats: &CollectiveStats| stats.bus_p50.expect("the bandwidth is known");
        assert!((speed(other) / speed(one) - 1.0).abs() < 0.05, "{one:?} {other:?}");
        assert!(graphed.to_string().contains("in replays of graphs"), "{graphed}");
        assert_exact(&graphed);
    });
}

#[test]
fn a_stopped_session_asks_the_driver_nothing_while_graphs_are_replayed() {
    on_stub(this_test!(), |driver| {
        const REPLAYS: u64 = 20;
        driver.start();
        let stream = driver.stream();
        let (session, sink) = start(|builder| builder.graph_timing(GraphTiming::Stamps));
        let captured = Captured::new(driver, stream, || {
            let _attention = ATTENTION.zone(&raw(stream));
            kernel(driver, stream, 5);
        });
        let mut launched = 0;
        for cycle in 0..6 {
            session.start();
            // By so much the clocks may be off: the first ones may be taken for such that began before.
            let since = Instant::now();
            while sink.take_replays().is_empty() {
                assert!(since.elapsed() < Duration::from_secs(20), "no replay is recorded");
                captured.launch(driver, stream, 1);
                launched += 1;
                thread::sleep(Duration::from_millis(2));
            }
            assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
            let open = EAGER.zone(&raw(stream));
            session.stop();
            drop(open);
            // What was open is read, and whoever read it has seen that the session is stopped.
            wait_for(&sink, 1);
            // Once long enough for the collector's rests, and for the clocks to be compared again.
            let during = Duration::from_millis(if cycle == 0 { 2_000 } else { 40 });
            let calls = driver.all_calls();
            for _ in 0..REPLAYS {
                captured.launch(driver, stream, 1);
                thread::sleep(during / REPLAYS as u32);
            }
            let others = driver.all_calls() - calls - REPLAYS;
            assert_eq!(others, 0, "calls that nobody asked for, among {:?}", driver.last_calls(40));
        }
        let report = session.finish();
        assert_exact(&report);
        // None of those in between is recorded.
        assert!((6..=launched).contains(&report.graph_timing.replays), "{launched} launched: {report}");
        assert_eq!(report.recorded, 6, "{report}");
        assert_eq!(driver.stub_misuse(), 0);
    });
}
