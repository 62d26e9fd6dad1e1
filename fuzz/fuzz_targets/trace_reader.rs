//! Any bytes as a trace: the whole way of `warpline stragglers`, but for the printing.
//!
//! `cargo +nightly fuzz run trace_reader fuzz/corpus/trace_reader fuzz/seeds/trace_reader`
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpline_cli::stragglers::Calls;

fuzz_target!(|bytes: &[u8]| {
    let mut calls = Calls::default();
    match calls.read(bytes) {
        Ok(_) => assert!(calls.judge(3).to_json().len() > 2),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
