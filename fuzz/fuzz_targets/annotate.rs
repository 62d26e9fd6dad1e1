//! Any bytes as annotations and as a trace: the whole way of `warpline annotate`, but for the printing.
//!
//! The first byte says how they are joined and what is written, the next two how many bytes are annotations; the rest is the
//! trace. `fuzz/seeds/annotate.py` makes the seeds.
//!
//! `cargo +nightly fuzz run annotate fuzz/corpus/annotate fuzz/seeds/annotate`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| warpline_attack::readers::annotate(bytes));
