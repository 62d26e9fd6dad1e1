//! Source locations of what is no range: kernels, waits, replays, and collectives by their operation.
//!
//! A GPU zone of Tracy has no text and no name of its own; it shows the name and the function of its source location. What a zone is called is
//! therefore a location, which is created once and never freed. Tracy accepts 32,767 of them, so the texts in the place of the function must
//! be few: sizes and names, no values that grow. When half of the locations are used up, names get no text any more; when all are, a new
//! name cannot be shown.

use std::collections::HashMap;
use std::sync::Mutex;

use tracy_client::sys;

use super::{Location, MOST_LOCATIONS, SourceLocation, forever, places};
use warpline_core::catalog::RangeSpec;
use warpline_core::fields;
use warpline_core::lock::lock;

/// The largest length of a name or a text, in bytes: names of C++ kernels can be many kB long.
const LONGEST: usize = 512;

/// The name of a zone, and the text beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
    /// The range that gives the place in the source and the color.
    pub(crate) range: Option<&'static RangeSpec>,
}

/// The names of a process. The key is the name, the text and the range's number.
struct Names<L> {
    known: HashMap<Box<str>, L>,
    /// The key of a look-up. Kept for its memory.
    key: String,
    /// The number of names with a text.
    texts: usize,
    most: usize,
}

/// Returns the location of a name, or none if Tracy can hold no more. Only the collector's thread calls it.
pub(crate) fn location(name: &Name<'_>) -> Option<Location> {
    static NAMES: Mutex<Option<Names<Location>>> = Mutex::new(None);
    let mut names = lock(&NAMES);
    let names = names.get_or_insert_with(|| Names::new(MOST_LOCATIONS - places().len()));
    names.get(name, create)
}

/// Creates a location that lives as long as the process.
fn create(name: &Name<'_>) -> Location {
    let (text, function) = (forever(name.name), forever(name.text));
    let place = match name.range {
        Some(range) => SourceLocation::named(text, function, range),
        None => SourceLocation(sys::___tracy_source_location_data {
            name: text,
            function,
            file: c"".as_ptr(),
            line: 0,
            color: 0,
        }),
    };
    let place: &'static SourceLocation = Box::leak(Box::new(place));
    Location(std::ptr::from_ref(&place.0) as u64)
}

impl<L: Copy> Names<L> {
    fn new(most: usize) -> Names<L> {
        Names { known: HashMap::new(), key: String::new(), texts: 0, most }
    }

    /// Returns what is known under this name. A new name is created, without its text and its range where there is no room for them.
    fn get(&mut self, name: &Name<'_>, create: impl Fn(&Name<'_>) -> L) -> Option<L> {
        let name = Name { name: fields::cut(name.name, LONGEST), text: fields::cut(name.text, LONGEST), ..*name };
        let plain = Name { text: "", range: None, ..name };
        let is_plain = name.text.is_empty() && name.range.is_none();
        self.find(&name)
            .or_else(|| (!is_plain && self.texts < self.most / 2).then(|| self.add(&name, &create)))
            .or_else(|| self.find(&plain))
            .or_else(|| (self.known.len() < self.most).then(|| self.add(&plain, &create)))
    }

    fn find(&mut self, name: &Name<'_>) -> Option<L> {
        let number = name.range.map_or(u32::MAX, RangeSpec::number);
        self.key.clear();
        for part in [name.name, "\0", name.text, "\0"] {
            self.key.push_str(part);
        }
        // The number is a part of the key as a character per byte, without formatting.
        self.key.extend(number.to_ne_bytes().map(char::from));
        self.known.get(self.key.as_str()).copied()
    }

    /// Adds the name that was looked for, under its key.
    fn add(&mut self, name: &Name<'_>, create: impl Fn(&Name<'_>) -> L) -> L {
        self.find(name);
        self.texts += usize::from(!name.text.is_empty() || name.range.is_some());
        let created = create(name);
        self.known.insert(self.key.as_str().into(), created);
        created
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use warpline_report::fixture::STEP;

    #[test]
    fn a_name_has_one_location_and_loses_its_text_when_they_run_out() {
        let mut names = Names::new(8);
        let created = Cell::new(0);
        let create = |_: &Name<'_>| {
            created.set(created.get() + 1);
            created.get()
        };
        let name = |name, text| Name { name, text, range: None };
        let first = names.get(&name("all_reduce tp0", "count 8"), create);
        assert_eq!((first, names.get(&name("all_reduce tp0", "count 8"), create)), (Some(1), Some(1)));
        assert_eq!(names.get(&Name { range: Some(&STEP), ..name("all_reduce tp0", "count 8") }, create), Some(2));
        assert_eq!(names.get(&name("all_reduce", "tp0"), create), Some(3));
        assert_eq!(names.get(&name("all_reduce tp0", "count 9"), create), Some(4));
        // Half of the room is used up.
        let without_text = names.get(&name("all_reduce tp0", "count 10"), create);
        assert_eq!((without_text, names.get(&name("all_reduce tp0", "count 11"), create)), (Some(5), Some(5)));
        assert_eq!(names.get(&name("all_reduce tp0", "count 8"), create), Some(1), "what is known stays");
        let others = ["a", "b", "c", "d"].map(|other| names.get(&name(other, "text"), create));
        assert_eq!(others, [Some(6), Some(7), Some(8), None]);
        assert_eq!(names.get(&name("a", "another"), create), Some(6));
    }
}
