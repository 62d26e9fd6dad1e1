//! Any text as `WARPLINE=…`: the parser takes it or says in one line what to write instead.
//!
//! `cargo +nightly fuzz run settings fuzz/corpus/settings fuzz/seeds/settings`
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpline::Session;

fuzz_target!(|text: &str| {
    if let Err(error) = Session::builder().settings(text) {
        let said = error.to_string();
        assert!(said.starts_with("the program has a setting that cannot be used: `"), "{said}");
    }
    // A pattern that is none is kept for `start`; one that is must not take long.
    let _ = Session::builder().filter(text);
});
