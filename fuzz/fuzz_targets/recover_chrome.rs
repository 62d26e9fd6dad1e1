//! Any bytes as a Chrome trace that was not finished: what `warpline recover` does, without the files.
//!
//! `cargo +nightly fuzz run recover_chrome fuzz/corpus/recover_chrome fuzz/seeds/recover_chrome`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| warpline_attack::readers::recover(bytes));
