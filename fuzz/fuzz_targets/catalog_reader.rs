//! Any bytes as a section of notes: the reader, the checks and every export must come through.
//!
//! `cargo +nightly fuzz run catalog_reader fuzz/corpus/catalog_reader fuzz/seeds/catalog_reader`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| warpline_attack::readers::catalog(bytes));
