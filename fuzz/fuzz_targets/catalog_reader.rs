//! Any bytes as a section of notes: the reader, the checks and every export must come through.
//!
//! `cargo +nightly fuzz run catalog_reader fuzz/corpus/catalog_reader fuzz/seeds/catalog_reader`
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpline::catalog::{ByteOrder, Records};

fuzz_target!(|bytes: &[u8]| {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let Ok(records) = Records::from_section(bytes, order) else { continue };
        for fault in records.faults() {
            assert!(!fault.to_string().is_empty());
        }
        let json = records.to_json();
        assert!(json.starts_with("{\n") && json.ends_with("\n}\n"));
        // One line a range, whatever the texts hold.
        assert!(records.to_markdown().lines().count() >= records.ranges.len());
        assert!(records.to_csv().lines().count() > records.ranges.len());
        assert!(records.to_ncu().lines().count() <= 1 + records.ranges.len());
        assert!(records.to_nsys().lines().count() <= 2);
    }
});
