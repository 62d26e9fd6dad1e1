//! Collectives: their groups, and the entries of a batch in a replay.

use super::*;

/// Returns how many bytes each further all-reduce of a group of `ranks` ranks adds to a trace.
fn bytes_a_collective(ranks: u32) -> usize {
    let (comm, main) = (stream(1, "comm"), thread(1, None));
    let group = ProcessGroup::new("dp", 0..ranks, 1).with_description("data parallel").with_comm_id(99);
    let len = |count: i64| {
        let batch = (0..count).map(|seq| {
            let (begin, end) = (1_000 * seq, 1_000 * seq + 500);
            let mut sum = zone(&COPY, Some(&comm), &main, span(begin, end), Some(span(begin, end)));
            let message = Collective::new(CollectiveKind::AllReduce).count(1_024).dtype(DataType::F32);
            sum.message = Some(Box::new(message.group(&group).seq(100_u64)));
            sum
        });
        trace(&[batch.collect()]).len()
    };
    (len(200) - len(100)) / 100
}

#[test]
fn the_ranks_of_a_group_are_written_once() {
    let [few, many] = [2, 1_024].map(bytes_a_collective);
    assert!(many <= few + 8 && few < 300, "{few} bytes at 2 ranks, {many} at 1,024");
}

#[test]
fn the_entries_of_a_replayed_batch_are_drawn_within_one_another_on_the_lane_of_their_group() {
    const MANY: usize = 20;
    let (main, compute) = (thread(1, None), stream(1, "compute"));
    let batch = zone(&STEP, Some(&compute), &main, span(0, 1), Some(span(100, 200)));
    let entries = vec![(&ATTENTION as &'static RangeSpec, Collective::new(CollectiveKind::AllReduce)); MANY];
    let shares = Shares::new(&entries);
    let entries = entries.into_iter().enumerate().map(|(index, (range, moved))| ReplayedZone {
        zone: shares.entry(index, range, moved, &batch),
        lane: Some("comm: tp0".into()),
        kernels: 1,
        captured_on: 1,
    });
    let whole = ReplayedZone { zone: batch.clone(), lane: None, kernels: 1, captured_on: 1 };
    let zones = std::iter::once(whole).chain(entries).collect();
    let replay =
        ReplayRecord { kernels: 4, unplaced: 3, name: None, ..fixture::replay(&compute, span(100, 200), zones) };
    let memory = Memory::default();
    let mut sink = PerfettoSink::new(memory.clone());
    sink.start(&fixture::session()).expect("memory takes everything");
    sink.write(Batch::Replays(&[replay])).expect("memory takes everything");
    sink.finish(&fixture::report()).expect("memory takes everything");
    let slices = slices(&memory.bytes());
    let of = |name: &str| slices.iter().filter(|slice| slice.name == name).collect::<Vec<_>>();
    let entries = of(ATTENTION.name());
    assert!(entries.iter().all(|entry| entry.track == "comm: tp0" && entry.end_ns == BEGIN_NS + 200));
    let mut depths: Vec<_> = entries.iter().map(|entry| entry.depth).collect();
    depths.sort_unstable();
    assert_eq!(depths, (0..MANY).collect::<Vec<_>>());
    let said = |name: &str| of("graph 1")[0].annotations.iter().find(|said| said.0 == name).map(|said| said.1.clone());
    assert_eq!((said("kernels").as_deref(), said("unplaced").as_deref()), (Some("uint 4"), Some("uint 3")));
}
