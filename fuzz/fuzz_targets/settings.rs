//! Any text as `WARPLINE=…`: the parser takes it or says in one line what to write instead.
//!
//! `cargo +nightly fuzz run settings fuzz/corpus/settings fuzz/seeds/settings`
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| warpline_attack::readers::settings(text));
