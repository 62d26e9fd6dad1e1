//! Tests on traces made by hand: limits, damage, and what is missing.

use std::io::{Cursor, Write};

use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use warpline_trace::write::perfetto::proto::{Buffer, annotation, event, packet};

/// An argument of an instant.
type Arg<'a> = (&'a str, &'a str);

fn instant(name: &str, texts: &[Arg<'_>], counts: &[(&str, u64)], trace: &mut Buffer) {
    trace.packet(|packet| {
        packet.uint(packet::SEQUENCE_ID, 7);
        packet.message(packet::TRACK_EVENT, |event| {
            event.text(event::NAME, name);
            event.text(event::CATEGORIES, "catalog");
            for (name, value) in texts {
                event.message(event::ANNOTATIONS, |said| {
                    said.text(annotation::NAME, name);
                    said.text(annotation::STRING, value);
                });
            }
            for (name, value) in counts {
                event.message(event::ANNOTATIONS, |said| {
                    said.text(annotation::NAME, name);
                    said.uint(annotation::UINT, *value);
                });
            }
        });
    });
}

const ADD: [Arg<'_>; 4] = [("name", "demo.add"), ("namespace", "demo"), ("kind", "gpu"), ("level", "fine")];

fn add(change: Arg<'_>, trace: &mut Buffer) {
    let texts: Vec<_> = ADD.iter().filter(|(name, _)| *name != change.0).copied().chain([change]).collect();
    instant("range", &texts, &[("line", 9)], trace);
}

fn of_packets(trace: &Buffer) -> Result<(Records, u64), CatalogError> {
    read(Cursor::new(trace.as_bytes()))
}

#[test]
fn repeated_entries_are_one_and_missing_ones_are_counted() {
    let mut trace = Buffer::default();
    for _ in 0..3 {
        instant("catalog", &[], &[("ranges", 5), ("namespaces", 1)], &mut trace);
        add(("color", "#76b900"), &mut trace);
        instant("namespace", &[("name", "demo")], &[], &mut trace);
    }
    let (records, missing) = of_packets(&trace).unwrap();
    assert_eq!((records.ranges.len(), records.namespaces.len(), missing), (1, 1, 4));
    assert_eq!((records.ranges[0].color, records.ranges[0].line), (Some(0x76_b900), 9));
}

#[test]
fn a_truncated_trace_gives_what_it_has() {
    let mut trace = Buffer::default();
    instant("catalog", &[], &[("ranges", 2)], &mut trace);
    add(("file", "a.rs"), &mut trace);
    let whole = trace.len();
    add(("file", "b.rs"), &mut trace);
    let bytes = trace.as_bytes();
    for end in whole..bytes.len() {
        let (records, missing) = read(Cursor::new(&bytes[..end])).unwrap();
        assert_eq!((records.ranges.len(), missing), (1, 1), "{end}");
    }
}

#[test]
fn wrong_facts_are_refused() {
    let long = "x".repeat(2_000);
    for (change, what) in [
        (("name", ""), "an entry without a name"),
        (("name", &*long), "a name of more than 1,024 bytes"),
        (("name", "other.add"), "a range outside of its namespace"),
        (("kind", "cpu"), "an unknown kind of range"),
        (("level", ""), "an unknown level"),
        (("color", "#+12345"), "a color that is not `#rrggbb`"),
        (("description", &*long.repeat(40)), "a text of more than 64 KiB"),
    ] {
        let mut trace = Buffer::default();
        add(change, &mut trace);
        let refusal = of_packets(&trace).unwrap_err().to_string();
        assert_eq!(refusal, format!("the catalog in the trace is damaged: {what}; name the program's binary"));
    }
}

#[test]
fn more_ranges_than_a_binary_may_have_are_refused() {
    let mut trace = Buffer::default();
    for n in 0..=MAX_RANGES {
        add(("name", &format!("demo.{n}")), &mut trace);
    }
    assert!(of_packets(&trace).unwrap_err().to_string().contains("more than 65,536 ranges or namespaces"));
}

#[test]
fn texts_are_bounded() {
    let text = "x".repeat(65_000);
    let mut trace = Buffer::default();
    for n in 0..1_100 {
        add(("description", &format!("{n}{text}")), &mut trace);
    }
    assert!(of_packets(&trace).unwrap_err().to_string().contains("more than 64 MiB of texts"));
}

#[test]
fn json_without_a_catalog_is_refused_with_the_reason() {
    for json in
        ["[", "[{}]", r#"{"traceEvents":[]}"#, r#"{"otherData":{"begun":1}}"#, r#"{"otherData":[1],"traceEvents":[]}"#]
    {
        let refusal = read(Cursor::new(json)).unwrap_err();
        assert!(matches!(refusal, CatalogError::NotInChrome), "{json}: {refusal}");
    }
    let refusal = read(Cursor::new(r#"{"otherData":{"catalog":{"ranges":1}},"traceEvents":[]}"#)).unwrap_err();
    assert!(matches!(refusal, CatalogError::Damaged(_)), "{refusal}");
}

#[test]
fn bytes_that_only_begin_like_a_trace_are_refused() {
    for bytes in [&b"\n"[..], b"\nhello, world\n", b"\n\x02\x08\x01", &[10; 100]] {
        assert!(matches!(read(Cursor::new(bytes)).unwrap_err(), CatalogError::NotATrace(_)), "{bytes:?}");
    }
}

#[test]
fn a_packed_file_that_is_damaged_is_refused() {
    let mut trace = Buffer::default();
    add(("file", "a.rs"), &mut trace);
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(trace.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.pftrace.gz");
    std::fs::write(&path, &packed).unwrap();
    assert!(is_trace(&path) && open(&path).unwrap().0.ranges.len() == 1);
    std::fs::write(&path, &packed[..packed.len() / 2]).unwrap();
    assert!(matches!(open(&path).unwrap_err(), CatalogError::Io(_)));
}
