//! Any bytes on the socket of a program that listens, in pieces of any size: a request, or a refusal in one line, and never more
//! memory than a frame.
//!
//! `cargo +nightly fuzz run control_request fuzz/corpus/control_request fuzz/seeds/control_request`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| warpline_attack::readers::request(bytes));
