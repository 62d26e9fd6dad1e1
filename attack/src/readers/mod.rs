//! What reads bytes from anybody, as functions that panic where a reader breaks its promise. The fuzz targets call the same ones.

pub(crate) mod annotate;
mod binary;
mod flight;
mod recover;
mod request;
mod trace;

pub use annotate::annotate;
pub use binary::{binary, catalog};
pub use flight::flight;
pub use recover::recover;
pub use request::request;
pub use trace::trace;

/// Any text as `WARPLINE=…`: the parser takes it or says in one line what to write instead.
pub fn settings(text: &str) {
    if let Err(error) = warpline::Session::builder().settings(text) {
        let said = error.to_string();
        assert!(said.starts_with("the program has a setting that cannot be used: `"), "{said}");
    }
    // A pattern that is none is kept for `start`; one that is must not take long.
    let _ = warpline::Session::builder().filter(text);
}
