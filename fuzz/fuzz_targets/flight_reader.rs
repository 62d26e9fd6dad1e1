//! Any bytes as the file of a flight recorder: the whole way of `warpline recover`, but for the files.
//!
//! What begins as such a file does is one. Anything else is the parts of one, as no mutation finds a checksum and no input is as
//! long as a ring: a byte that says whether checksums are mended, then of each part the place (a byte: the header, the areas, the
//! segments), its length (two bytes) and its bytes. `fuzz/seeds/flight_reader.py` makes the seeds.
//!
//! `cargo +nightly fuzz run flight_reader fuzz/corpus/flight_reader fuzz/seeds/flight_reader`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| warpline_attack::readers::flight(bytes));
