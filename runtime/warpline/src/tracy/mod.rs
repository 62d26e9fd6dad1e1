//! The calls of Tracy's client that warpline makes. No other module uses its C interface.
//!
//! `launch` shows launches, host zones and threads' waits live on their own threads. `gpu` has the calls of the sink (`sink/`) for zones
//! on streams, on the collector's thread. Both get the source location of a range from here. Each range has one, which is created once,
//! because Tracy keeps the pointer for the lifetime of the process and accepts at most 32,767 of them. `names` creates those of what is no
//! range: kernels, waits, and collectives by their operation. `text` writes fields and messages as text.
//!
//! The application chooses the other behaviour of Tracy's client (when it starts, where it listens, `ondemand`, sampling) by
//! the features of its own dependency on `tracy-client`. Nothing here depends on that choice, except that a build with
//! `ondemand` distinguishes viewers.

pub(crate) mod gpu;
pub(crate) mod launch;
mod names;
pub(crate) mod sink;
mod text;

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use tracy_client::{Client, sys};

use warpline_core::catalog::{RangeSpec, catalog};
use warpline_core::ranges::RangeTable;
use warpline_core::signals::with_signals_blocked;

/// The number of ranges that get a source location: half of Tracy's limit. The other half is for the application.
const MOST_LOCATIONS: usize = 16_384;

/// The largest number of bytes of one text; older viewers misread longer ones.
const TEXT_BYTES: usize = 32 << 10;

/// The source location of a range in Tracy's form: an address that is valid for the lifetime of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location(u64);

/// Starts the client if it has not been started, and creates the source locations of all ranges.
pub(crate) fn start() {
    // Tracy's threads take no signal of the program, as ours do not.
    with_signals_blocked(Client::start);
    places();
}

/// Returns the source location of a range; none before [`start`], and for ranges beyond Tracy's limit.
pub(crate) fn location(range: &'static RangeSpec) -> Option<Location> {
    let of_catalog = PLACES.get()?;
    let place = match range.id() {
        Some(id) => of_catalog.get(id.index())?,
        // Its number is after those of the catalog.
        None if range.number() as usize >= MOST_LOCATIONS => return None,
        None => NAMED.get(range).get_or_init(|| SourceLocation::new(range)),
    };
    Some(Location(std::ptr::from_ref(&place.0) as u64))
}

/// The source locations of ranges that were named at run time.
static NAMED: RangeTable<OnceLock<SourceLocation>> = RangeTable::new();

static PLACES: OnceLock<Box<[SourceLocation]>> = OnceLock::new();

struct SourceLocation(sys::___tracy_source_location_data);

// SAFETY: the pointers lead to text that no code writes and that lives as long as the process.
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
        SourceLocation::named(range.label().as_ptr(), forever(range.module()), range)
    }

    /// A location in the source and a color of a range, under a name. Both pointers are valid for the lifetime of the process.
    fn named(name: *const c_char, function: *const c_char, range: &RangeSpec) -> SourceLocation {
        SourceLocation(sys::___tracy_source_location_data {
            name,
            function,
            file: forever(range.file()),
            line: range.line(),
            // In Tracy, black stands for no color.
            color: range.color().unwrap_or(0),
        })
    }
}

/// Returns NUL-terminated text that lives as long as the process: a few bytes for each range, once.
fn forever(text: &str) -> *const c_char {
    CString::new(text).unwrap_or_default().into_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use warpline_core::catalog::spec::RangeMeta;
    use warpline_core::catalog::{Kind, Level};
    use warpline_report::fixture::STEP;

    #[allow(unsafe_code)]
    fn text(pointer: *const c_char) -> &'static str {
        // SAFETY: the texts of a location are NUL-terminated and live as long as the process.
        unsafe { CStr::from_ptr(pointer) }.to_str().expect("UTF-8")
    }

    #[test]
    fn a_location_has_the_place_and_the_color_of_its_range() {
        let place = SourceLocation::new(&STEP).0;
        assert_eq!(
            (text(place.name), text(place.function), text(place.file)),
            ("demo.step", "demo::model", "demo/src/model.rs")
        );
        assert_eq!((place.line, place.color), (10, 0));
        static COLORED: RangeSpec = RangeSpec::new(RangeMeta {
            namespace: "demo",
            label: "demo.colored\0",
            description: "",
            kind: Kind::Gpu,
            level: Level::Coarse,
            lane: None,
            color: Some(0x0020_60c0),
            fields: &[],
            undescribed: &[],
            module: "demo",
            version: "",
            file: "a.rs",
            line: 3,
        });
        assert_eq!(SourceLocation::new(&COLORED).0.color, 0x0020_60c0);
    }
}
