//! Binaries and the notes in them.

use std::io::Cursor;

use warpline::catalog::{ByteOrder, Records};

/// Any bytes as a binary: the whole way of `warpline catalog` and `warpline check`, but for the printing.
pub fn binary(bytes: &[u8]) {
    match warpline_cli::binary::read(Cursor::new(bytes)) {
        Ok(records) => {
            let _ = (records.faults(), records.to_json());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Any bytes as a section of notes: the reader, the checks and every export must come through.
pub fn catalog(bytes: &[u8]) {
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
        assert!(records.to_perfetto().lines().all(|line| !line.contains('\u{1b}')));
        let page = records.to_html();
        assert_eq!((page.matches("<tr><td>").count(), page.matches("<script>").count()), (records.ranges.len(), 1));
    }
}
