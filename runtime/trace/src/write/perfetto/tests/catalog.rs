//! Tests of the catalog in a trace: every range is there with its facts, once in a file and once in each piece.

use super::decode::{Message, next_packet};
use super::*;
use crate::write::catalog::Catalog;
use crate::write::perfetto::proto::{annotation, event, packet};
use warpline_core::catalog::spec::RangeMeta;
use warpline_core::catalog::{Kind, Level};
use warpline_report::sink::{Progress, SessionInfo};

/// The name of an instant of the catalog, and its arguments as text.
type Entry = (String, Vec<(String, String)>);

/// Returns the catalog in a trace, instant by instant.
fn entries(mut trace: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    while let Some(bytes) = next_packet(&mut trace) {
        let Some(said) = Message::read(bytes).message(packet::TRACK_EVENT) else { continue };
        if said.text(event::CATEGORIES).as_deref() != Some("catalog") {
            continue;
        }
        let args = said.messages(event::ANNOTATIONS).map(|said| {
            let one = |said: &Message| said.text(annotation::STRING);
            let number = || said.int(annotation::UINT).map(|number| number.to_string());
            let list = || {
                said.messages(annotation::ARRAY_VALUES).filter_map(|value| one(&value)).collect::<Vec<_>>().join(" ")
            };
            (said.text(annotation::NAME).expect("a name"), one(&said).or_else(number).unwrap_or_else(list))
        });
        entries.push((said.text(event::NAME).expect("a name"), args.collect()));
    }
    entries
}

fn named(entries: &[Entry], name: &str) -> usize {
    entries.iter().filter(|(said, _)| said == name).count()
}

static FULL: RangeSpec = RangeSpec::new(RangeMeta {
    namespace: "demo",
    label: "demo.full\0",
    description: "Has every fact: \"größe\"\n.",
    kind: Kind::Collective,
    level: Level::Fine,
    lane: Some("copies"),
    color: Some(0x0076_b900),
    fields: &["n", "half"],
    undescribed: &["count"],
    module: "demo::model",
    version: "1.0.0",
    file: "demo/src/model.rs",
    line: 70,
});

#[test]
fn the_catalog_has_every_fact_of_every_range() {
    static RANGES: [&RangeSpec; 2] = [&STEP, &FULL];
    let memory = Memory::default();
    let mut sink = PerfettoSink::new(memory.clone());
    sink.start(&SessionInfo { ranges: Some(&RANGES), ..fixture::session() }).expect("room");
    assert_eq!(entries(&memory.bytes()), [], "the start of a session does not wait for the catalog");
    sink.progress(&Progress::default()).expect("room");
    let entries = entries(&memory.bytes());
    let args = |said: &[(&str, &str)]| said.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>();
    let head = args(&[("hash", "0x0123456789abcdef"), ("ranges", "2"), ("namespaces", "0")]);
    let full = args(&[
        ("name", "demo.full"),
        ("namespace", "demo"),
        ("description", "Has every fact: \"größe\"\n."),
        ("kind", "collective"),
        ("level", "fine"),
        ("lane", "copies"),
        ("color", "#76b900"),
        ("fields", "n half"),
        ("undescribed", "count"),
        ("module", "demo::model"),
        ("version", "1.0.0"),
        ("file", "demo/src/model.rs"),
        ("line", "70"),
    ]);
    assert_eq!(entries[..2], [("catalog".to_owned(), head), ("range".to_owned(), full)]);
    assert_eq!(entries[2].1[0], ("name".to_owned(), "demo.step".to_owned()));
    assert_eq!(entries.len(), 3);
}

#[test]
fn a_file_has_the_catalog_once() {
    let entries = entries(&trace(&records()));
    assert_eq!((named(&entries, "catalog"), named(&entries, "range")), (1, 4));
}

#[test]
fn a_session_without_ranges_has_no_row_for_them() {
    let memory = Memory::default();
    let mut sink = PerfettoSink::new(memory.clone());
    sink.start(&SessionInfo { ranges: Some(&[]), ..fixture::session() }).expect("room");
    sink.finish(&fixture::report()).expect("room");
    assert_eq!(entries(&memory.bytes()), []);
}

#[test]
fn each_piece_has_the_catalog_and_stays_within_its_size() {
    let pieces = InPieces::default();
    let mut sink = PieceSink::to(pieces.clone(), String::new(), Default::default());
    sink.start(&fixture::session()).expect("room");
    for _ in 0..200 {
        for batch in records() {
            sink.write(Batch::Zones(&batch)).expect("room");
        }
    }
    sink.finish(&fixture::report()).expect("room");
    let pieces = pieces.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(pieces.len() > 3, "{} pieces", pieces.len());
    for piece in &pieces {
        let entries = entries(piece);
        assert_eq!((named(&entries, "catalog"), named(&entries, "range")), (1, 4));
        assert!(piece.len() <= InPieces::default().size());
    }
}

#[test]
fn the_packets_are_not_longer_than_what_the_catalog_may_take() {
    static RANGES: [&RangeSpec; 500] = [&FULL; 500];
    let info = SessionInfo { ranges: Some(&RANGES), ..fixture::session() };
    for most in [2 << 10, 100 << 10] {
        let memory = Memory::default();
        let mut sink = PerfettoSink::new(memory.clone());
        sink.start(&info).expect("room");
        let before = memory.bytes().len();
        let mut buffer = Buffer::default();
        sink.trace.as_ref().expect("it was started").catalog(most, &mut buffer);
        assert!(buffer.len() <= most, "{} of {most} bytes, after {before}", buffer.len());
        let entries = entries(buffer.as_bytes());
        let held = Catalog::of(&info, most).records.ranges.len();
        assert!((1..500).contains(&held) && named(&entries, "range") == held);
        let left_out = entries[0].1.iter().find(|(name, _)| name == "left_out").expect("it is counted");
        assert_eq!(left_out.1, (500 - held).to_string());
    }
}
