//! Traces that are damaged or truncated, and files that are not traces.

use proptest::prelude::*;

use super::*;
use crate::trace::MAX_PACKET;
use warpline_trace::read::Skipped as Unread;

#[test]
fn what_is_no_trace_is_refused() {
    for bytes in [&b""[..], b"\n", b"\n\x05hello", b"[{\"ph\":\"X\"}]", b"\x1f\x8b\x08\0", &[0; 100], &[0x0A; 100]] {
        let refusal = read(bytes).unwrap_err();
        assert!(matches!(refusal, TraceError::NotATrace), "{bytes:?}: {refusal}");
    }
    let [a, _] = pair(0);
    // Without the first packet, the clocks are missing.
    let refusal = read(&a.bytes[usize::from(a.bytes[1]) + 2..]).unwrap_err();
    assert!(matches!(refusal, TraceError::NoClocks), "{refusal}");
}

#[test]
fn a_trace_that_is_cut_short_gives_what_is_whole() {
    let [a, _] = pair(0);
    let whole: Vec<_> = read(&a.bytes).unwrap().0.calls;
    let mut seen = 0;
    for end in 30..a.bytes.len() {
        let Ok((calls, skipped)) = read(&a.bytes[..end]) else { continue };
        let unread = skipped.unread;
        assert_eq!((unread.malformed, unread.damaged_at, skipped.calls), (0, None, 0));
        assert_eq!(calls.calls, whole[..calls.len()]);
        seen = seen.max(calls.len());
    }
    assert_eq!((seen, whole.len()), (3, 4));
}

#[test]
fn collectives_that_were_dropped_without_a_number_are_counted() {
    let [mut a, _] = pair(0);
    // Those that had begun have their numbers.
    a.end_with(&[("ring_full", 3), ("unfinished", 4), ("stream_failed", 1)], 0);
    let (_, skipped) = read(&a.bytes).unwrap();
    assert_eq!(skipped, Skipped { dropped: 3, ..whole() });
}

#[test]
fn damage_is_skipped_and_said() {
    let [mut a, _] = pair(0);
    let sound = a.bytes.len() as u64;
    // A packet with wrong wire types, one that is too large, a collective without a group, and one without a sequence number.
    a.bytes.extend(b"\x0A\x04\x55\0\0\0");
    a.bytes.push(0x0A);
    prost::encoding::encode_varint(MAX_PACKET as u64 + 1, &mut a.bytes);
    a.bytes.resize(a.bytes.len() + MAX_PACKET + 1, 0);
    let bare = vec![text("Collective name", "allreduce")];
    let grouped =
        [bare.clone(), vec![text("Process Group Name", "tp0"), text("Process Group Ranks", "[0, 1]")]].concat();
    for annotations in [bare, grouped] {
        for (kind, annotations) in [(SLICE_BEGIN, annotations), (SLICE_END, Vec::new())] {
            let event = Some(Event { kind, name_iid: 1, annotations, ..Event::default() });
            a.packet(Packet { timestamp: Some(MS as u64), event, ..packet() });
        }
    }
    let at = a.bytes.len() as u64;
    a.call("allreduce", 9, MS, MS, &[]);
    let (calls, skipped) = read(&a.bytes).unwrap();
    let damaged = |damaged_at| Unread { malformed: 2, damaged_at, ..whole().unread };
    let left_out = |damaged_at| Skipped { unread: damaged(damaged_at), ungrouped: 1, calls: 1, dropped: 0 };
    assert_eq!((calls.len(), skipped), (5, left_out(None)));
    a.bytes[at as usize] = 0xFF;
    let (calls, skipped) = read(&a.bytes).unwrap();
    assert_eq!((calls.len(), skipped), (4, left_out(Some(at))));
    // The length exceeds any file: the packet counts as truncated, and no memory is allocated for it.
    a.bytes.truncate(sound as usize);
    a.bytes.extend(b"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01");
    let (calls, skipped) = read(&a.bytes).unwrap();
    let cut = Unread { is_cut: true, ..whole().unread };
    assert_eq!((calls.len(), skipped), (4, Skipped { unread: cut, ..whole() }));
}

/// Produces everything that a user could see.
fn render(bytes: &[u8]) {
    if let Ok((calls, _)) = read(bytes) {
        let findings = calls.judge(3);
        assert!(findings.worst.len() <= 3);
        let _ = (findings.to_text(20, false), findings.to_json());
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        render(&bytes);
    }

    #[test]
    fn no_damage_makes_it_panic(damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..9)) {
        let [mut a, b] = pair(0);
        a.bytes.extend(b.bytes);
        for (at, byte) in damage {
            let at = at.index(a.bytes.len());
            a.bytes[at] = byte;
        }
        render(&a.bytes);
    }
}
