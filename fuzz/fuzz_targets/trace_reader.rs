//! Any bytes as a trace: the whole way of `warpline stragglers`, but for the printing.
//!
//! `cargo +nightly fuzz run trace_reader fuzz/corpus/trace_reader fuzz/seeds/trace_reader`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| warpline_attack::readers::trace(bytes));
