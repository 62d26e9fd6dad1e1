//! What moved, and what hid it, from zones and kernels whose times are known.

use proptest::prelude::*;

use super::*;
use warpline_core::catalog::spec::RangeMeta;
use warpline_core::collective::{DataType, Message, ProcessGroup};
use warpline_core::fixture::{self, COPY, STEP, span, stream, thread, zone};
use warpline_core::record::EndSource;

proptest! {
    #[test]
    fn compute_covers_what_it_covers(
        compute in prop::collection::vec((0_i64..300, 0_i64..40, 0_u32..3), 0..60),
        span in (0_i64..300, 0_i64..80),
    ) {
        let mut device = Device::default();
        let mut busy = [false; 400];
        for (begin_ns, length, stream) in compute {
            let span = Span { begin_ns, end_ns: begin_ns + length };
            device.zones.0.entry(Lane::from_stream(stream)).or_default().add(span);
            if stream != 0 {
                busy[begin_ns as usize..(begin_ns + length) as usize].fill(true);
            }
        }
        let (begin_ns, end_ns) = (span.0, span.0 + span.1);
        let covered = busy[begin_ns as usize..end_ns as usize].iter().filter(|busy| **busy).count();
        prop_assert_eq!(device.zones.covered_ns(Span { begin_ns, end_ns }, |lane| lane != Lane::from_stream(0)), covered as i64);
    }
}

#[test]
fn a_lazy_zone_hides_nothing_that_its_stream_may_have_waited_for() {
    let (compute, comm, main) = (stream(1, "compute"), stream(2, "comm"), thread(1, None));
    let mut sum = zone(&COPY, Some(&comm), &main, span(0, 1), Some(span(100, 200)));
    sum.message = Some(Box::new(Message::new(CollectiveKind::AllReduce)));
    // It ran until 110 at least; its recorded end lies behind the stream's wait for the collective.
    let mut lazy = zone(&STEP, Some(&compute), &main, span(0, 1), Some(span(90, 200)));
    (lazy.end, lazy.end_early_by_ns) = (EndSource::Boundary, 90);
    let mut traffic = Traffic::default();
    traffic.add(&[lazy]);
    traffic.add(&[sum]);
    assert_eq!(traffic.stats()[0].hidden, 0.1);
}

#[test]
fn a_collective_whose_length_is_only_a_bound_has_no_bandwidth_and_hides_nothing() {
    let (compute, comm, main) = (stream(1, "compute"), stream(2, "comm"), thread(1, None));
    let group = ProcessGroup::new("dp", [0, 1], 0);
    let sum = |begin, end, early_by_ns| {
        let mut sum = zone(&COPY, Some(&comm), &main, span(0, 1), Some(span(begin, end)));
        let message = Message::new(CollectiveKind::AllReduce).count(1_000).dtype(DataType::F32).group(&group);
        sum.message = Some(Box::new(message));
        (sum.end, sum.end_early_by_ns) = (EndSource::Observed, early_by_ns);
        sum
    };
    let mut traffic = Traffic::default();
    traffic.add(&[zone(&STEP, Some(&compute), &main, span(0, 1), Some(span(0, 500)))]);
    traffic.add(&[zone(&STEP, Some(&compute), &main, span(0, 1), Some(span(3_000, 9_000)))]);
    // 4,000 bytes in 1 us: 4 GB/s. The end of the first is known within 5 %.
    traffic.add(&[sum(0, 1_000, 50), sum(2_000, 52_000, 49_000)]);
    let [stats] = &traffic.stats()[..] else { panic!("one group") };
    assert_eq!((stats.count, stats.bounded, stats.sized, stats.bytes), (2, 1, 2, 8_000));
    assert_eq!((stats.total_ns, stats.total_early_ns, stats.hidden), (51_000, 49_000, 0.5));
    assert!(stats.total_is_bound());
    assert!(stats.bus_p50.is_some_and(|bus| (bus / 4e9 - 1.0).abs() < 0.02) && stats.bus_p99 == stats.bus_p50);
    let mut none = Traffic::default();
    none.add(&[sum(2_000, 52_000, 49_000)]);
    let [stats] = &none.stats()[..] else { panic!("one group") };
    assert_eq!((stats.bus_p50, stats.bus_p99, stats.hidden, stats.bounded), (None, None, 0.0, 1));
}

#[test]
fn compute_on_ever_new_streams_is_kept_together_and_hides_what_it_hides() {
    let (mut traffic, main) = (Traffic::default(), thread(1, None));
    let sums = stream(1, "comm");
    for n in 0..5 * STREAMS as i64 {
        // Compute on a stream that is gone afterwards covers half of each collective. There are few collectives, so all wait.
        let compute = stream(2 + n as u32, "compute");
        traffic.add(&[zone(&COPY, Some(&compute), &main, span(0, 1), Some(span(100 * n, 100 * n + 20)))]);
        if n % 8 == 0 {
            let mut sum = zone(&COPY, Some(&sums), &main, span(0, 1), Some(span(100 * n, 100 * n + 40)));
            sum.message = Some(Box::new(Message::new(CollectiveKind::AllReduce)));
            traffic.add(&[sum]);
        }
        let known = traffic.devices.values().next().expect("a device");
        assert!(known.zones.0.len() <= STREAMS + known.waiting.len(), "{} streams", known.zones.0.len());
    }
    assert!((traffic.stats()[0].hidden - 0.5).abs() < 1e-9, "{:?}", traffic.stats());
}

#[test]
fn a_zone_around_a_replay_hides_none_of_its_collectives_and_its_kernels_do() {
    let device = (DeviceKind::Cuda, 0);
    let lane = |captured_on| Lane { stream: 1, graph: 7, captured_on };
    let hidden_by = |compute: &[(Lane, Span)], kernels: &[(Span, bool)]| {
        let mut traffic = Traffic::default();
        compute.iter().for_each(|(lane, span)| traffic.compute(device, *lane, *span));
        kernels.iter().for_each(|(span, computes)| {
            traffic.kernel(device, Lane::from_stream(1), *span, *computes);
        });
        let moved =
            Moved { group: "tp0", kind: CollectiveKind::AllReduce, bytes: None, bus: None, share: 1.0, early_by_ns: 0 };
        traffic.collective(device, lane(2), span(100, 200), &moved);
        traffic.stats()[0].hidden
    };
    let hidden = |compute: &[(Lane, Span)]| hidden_by(compute, &[]);
    assert_eq!(hidden(&[(Lane::from_stream(1), span(0, 300))]), 0.0);
    // Another stream that was captured, and another one beside the graph.
    assert_eq!(hidden(&[(Lane::from_stream(1), span(0, 300)), (lane(3), span(50, 150))]), 0.5);
    assert_eq!(hidden(&[(Lane::from_stream(2), span(50, 125))]), 0.25);
    // Kernels of a replay are on the stream on which it ran: they are no zone around it, and ran when they ran.
    assert_eq!(
        hidden_by(&[(Lane::from_stream(1), span(0, 300))], &[(span(100, 200), false), (span(120, 160), true)]),
        0.4
    );
}

#[test]
fn kernels_hide_and_zones_around_them_and_kernels_of_collectives_do_not() {
    let (compute, comm, main) = (stream(1, "compute"), stream(2, "comm"), thread(1, None));
    let kernel = |name: &str, on: &_, begin, end| fixture::kernel(name, on, span(begin, end));
    let mut sum = zone(&COPY, Some(&comm), &main, span(0, 1), Some(span(100, 200)));
    sum.message = Some(Box::new(Message::new(CollectiveKind::AllReduce)));
    let around = zone(&STEP, Some(&compute), &main, span(0, 1), Some(span(0, 1_000)));
    let figures_in = |range, batches: &[&[KernelRecord]]| {
        let mut traffic = Traffic::default();
        traffic.add(std::slice::from_ref(&around));
        batches.iter().copied().flatten().for_each(|kernel| traffic.add_kernel(kernel, range));
        traffic.add(std::slice::from_ref(&sum));
        let stats = &traffic.stats()[0];
        (stats.hidden, stats.hidden_by_kernels)
    };
    let gemm = kernel("gemm", &compute, 90, 130);
    let copy = KernelRecord {
        work: KernelWork::Memcpy { bytes: 1, kind: "HtoD", from: "Pinned", to: "Device" },
        ..kernel("Memcpy HtoD", &compute, 130, 200)
    };
    let nccl = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", &compute, 150, 200);
    let figures = |batches: &[&[KernelRecord]]| figures_in(None, batches);
    assert_eq!(figures(&[]), (1.0, false));
    static SUM: RangeSpec = RangeSpec::new(RangeMeta { kind: Kind::Collective, ..RangeMeta::EMPTY });
    let own = kernel("my_all_reduce", &compute, 100, 200);
    assert_eq!(figures_in(Some(&SUM), &[&[own]]), (0.0, true), "a collective's kernel of any name");
    assert_eq!(figures(&[&[gemm, copy]]), (0.3, true));
    assert_eq!(figures(&[&[nccl]]), (0.0, true), "the device's kernels are known, and none computes");
}

#[test]
fn collectives_of_ever_new_groups_are_counted_together() {
    let (mut traffic, main, comm) = (Traffic::default(), thread(1, None), stream(1, "comm"));
    for n in 0..2 * GROUPS as u32 {
        let mut sum = zone(&COPY, Some(&comm), &main, span(0, 1), Some(span(0, 10)));
        let group = ProcessGroup::new(format!("step {n}"), [0, 1], 0);
        sum.message = Some(Box::new(Message::new(CollectiveKind::AllReduce).group(&group)));
        traffic.add(&[sum]);
    }
    let stats = traffic.stats();
    assert_eq!((stats.len(), stats[0].group.as_str(), stats[0].count), (GROUPS + 1, MORE, GROUPS as u64));
    assert_eq!(stats.iter().map(|group| group.count).sum::<u64>(), 2 * GROUPS as u64);
}

#[test]
fn what_waits_and_what_is_kept_for_it_is_bounded() {
    const HOST: (DeviceKind, u32) = (DeviceKind::Host, 0);
    let mut traffic = Traffic::default();
    let sum = Moved { group: "g", kind: CollectiveKind::AllReduce, bytes: None, bus: None, share: 1.0, early_by_ns: 0 };
    for n in 0..10 * WAITING as i64 {
        // Half of each collective is covered; every one ends before the next begins.
        traffic.compute(HOST, Lane::from_stream(1), Span { begin_ns: 100 * n, end_ns: 100 * n + 20 });
        traffic.collective(HOST, Lane::from_stream(2), Span { begin_ns: 100 * n, end_ns: 100 * n + 40 }, &sum);
        let device = &traffic.devices[&HOST];
        assert!(device.waiting.len() <= WAITING && device.zones.0.values().all(|compute| compute.len() <= WAITING + 1));
    }
    traffic.devices.get_mut(&HOST).expect("it has a collective").settle(0, &mut traffic.groups);
    assert_eq!(traffic.groups[0].hidden_ns, 10 * WAITING as i64 * 20);
}
