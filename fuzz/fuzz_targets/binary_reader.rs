//! Any bytes as a binary: the whole way of `warpline catalog` and `warpline check`, but for the printing.
//!
//! `cargo +nightly fuzz run binary_reader fuzz/corpus/binary_reader fuzz/seeds/binary_reader`
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| match warpline_cli::binary::read(Cursor::new(bytes)) {
    Ok(records) => {
        let _ = (records.faults(), records.to_json());
    }
    Err(error) => assert!(!error.to_string().is_empty()),
});
