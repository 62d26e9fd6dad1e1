//! Any bytes as the file of a flight recorder: the whole way of `warpline recover`, but for the files.
//!
//! `cargo +nightly fuzz run flight_reader fuzz/corpus/flight_reader fuzz/seeds/flight_reader`
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpline::recover;

fuzz_target!(|bytes: &[u8]| {
    let mut trace = Vec::new();
    match recover(&mut std::io::Cursor::new(bytes), &mut trace) {
        Ok(found) => assert_eq!(found.bytes, trace.len() as u64),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
