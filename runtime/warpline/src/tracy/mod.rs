//! Tracy's client, as much of it as warpline calls. Nothing else knows its C interface.
//!
//! `launch` shows launches and host zones on their own threads, live. `gpu` is what the sink (`sink/`) says of zones
//! on streams, from the collector's thread. Both take a range's place in the source from here: one a range, made once,
//! because Tracy keeps the pointer for as long as the process lives and counts at most 32,767 of them.
//!
//! What Tracy's client does besides (when it starts, whom it listens to, `ondemand`, sampling) the application chooses by
//! features of its own dependency on `tracy-client`. Nothing here depends on the choice, except that a build with
//! `ondemand` tells one viewer from the next.

pub(crate) mod gpu;
pub(crate) mod launch;
pub(crate) mod sink;

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use tracy_client::{Client, sys};

use warpline_core::catalog::{RangeSpec, catalog};

/// Ranges that get a place: half of what Tracy can hold, the other half is the application's own.
const MOST_LOCATIONS: usize = 16_384;

/// A range's place in the source, as Tracy wants it: an address that holds as long as the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location(u64);

/// Starts the client where it has not been started, and makes the places of all ranges.
pub(crate) fn start() {
    Client::start();
    places();
}

/// The place of a range; none before [`start`], and for ranges beyond those that Tracy can hold.
pub(crate) fn location(range: &'static RangeSpec) -> Option<Location> {
    let place = PLACES.get()?.get(range.id()?.index())?;
    Some(Location(std::ptr::from_ref(&place.0) as u64))
}

#[cfg(test)]
impl Location {
    /// A place for a double of Tracy.
    pub(crate) fn new(number: u64) -> Location {
        Location(number)
    }

    /// Which one it is.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

static PLACES: OnceLock<Box<[SourceLocation]>> = OnceLock::new();

struct SourceLocation(sys::___tracy_source_location_data);

// SAFETY: the pointers lead to text that nobody writes and that lives as long as the process.
#[allow(unsafe_code)]
unsafe impl Send for SourceLocation {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for SourceLocation {}

fn places() -> &'static [SourceLocation] {
    PLACES.get_or_init(|| catalog().iter().take(MOST_LOCATIONS).map(SourceLocation::new).collect())
}

impl SourceLocation {
    fn new(range: &'static RangeSpec) -> SourceLocation {
        SourceLocation(sys::___tracy_source_location_data {
            name: range.label().as_ptr(),
            function: forever(range.module()),
            file: forever(range.file()),
            line: range.line(),
            // Black is Tracy's word for "no color of its own".
            color: range.color().unwrap_or(0),
        })
    }
}

/// Text with a NUL, for as long as the process lives: a few bytes a range, once.
fn forever(text: &str) -> *const c_char {
    CString::new(text).unwrap_or_default().into_raw()
}
