//! Any bytes as a binary: the whole way of `warpline catalog` and `warpline check`, but for the printing.
//!
//! `cargo +nightly fuzz run binary_reader fuzz/corpus/binary_reader fuzz/seeds/binary_reader`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| warpline_attack::readers::binary(bytes));
