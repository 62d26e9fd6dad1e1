//! The catalog in a trace: which of its ranges and namespaces fit into the bytes that a format grants it.
//!
//! The sinks call it on the collector's thread, once for each file. The cost is proportional to what fits.

use warpline_core::catalog::{NamespaceRecord, RangeRecord, Records};
use warpline_report::sink::SessionInfo;

/// The maximum size of the catalog in a trace, in bytes: well above 10,000 ranges with usual descriptions.
pub(crate) const MOST: usize = 6 << 20;

/// The bytes of a range or a namespace beside its texts: names of its facts, numbers, and the frame of the format.
const FRAME: usize = 352;

/// The bytes of an element of a list beside its text.
const ELEMENT: usize = 16;

/// A catalog, or as much of it as fits.
pub(crate) struct Catalog {
    pub(crate) records: Records,
    /// The number of ranges in the whole catalog.
    pub(crate) ranges: u64,
    /// The number of namespaces in the whole catalog.
    pub(crate) namespaces: u64,
}

impl Catalog {
    /// Returns the namespaces and ranges of the session's catalog, in the order of their names, that fit into `most` bytes.
    pub(crate) fn of(info: &SessionInfo, most: usize) -> Catalog {
        let (ranges, namespaces) = info.catalog();
        let mut catalog =
            Catalog { records: Records::default(), ranges: ranges.len() as u64, namespaces: namespaces.len() as u64 };
        let mut left = most;
        for space in namespaces {
            let space = NamespaceRecord::from(space);
            let texts = [&space.name, &space.about, &space.module, &space.file, &space.version, &space.package];
            if !spend(&mut left, texts.map(String::len).iter().sum()) {
                return catalog;
            }
            catalog.records.namespaces.push(space);
        }
        for range in ranges {
            let texts = [
                range.name(),
                range.namespace(),
                range.description(),
                range.lane().unwrap_or_default(),
                range.module(),
                range.file(),
                range.version(),
            ];
            let lists = range.fields().iter().chain(range.undescribed()).map(|name| name.len() + ELEMENT);
            if !spend(&mut left, texts.map(str::len).iter().sum::<usize>() + lists.sum::<usize>()) {
                return catalog;
            }
            catalog.records.ranges.push(RangeRecord::from(range));
        }
        catalog
    }

    /// Returns the number of ranges and namespaces that did not fit.
    pub(crate) fn left_out(&self) -> u64 {
        let held = self.records.ranges.len() + self.records.namespaces.len();
        self.ranges + self.namespaces - held as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges + self.namespaces == 0
    }
}

/// Spends the bytes of one entry. Returns whether they were left.
fn spend(left: &mut usize, texts: usize) -> bool {
    match left.checked_sub(texts + FRAME) {
        Some(rest) => {
            *left = rest;
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_report::fixture::session;

    #[test]
    fn what_does_not_fit_is_counted() {
        let whole = Catalog::of(&session(), MOST);
        let names: Vec<_> = whole.records.ranges.iter().map(|range| &*range.name).collect();
        assert_eq!(names, ["demo.attention", "demo.copy", "demo.load", "demo.step"]);
        assert_eq!((whole.ranges, whole.left_out()), (4, 0));
        let part = Catalog::of(&session(), 3 * FRAME);
        assert_eq!((part.records.ranges.len(), part.ranges, part.left_out()), (2, 4, 2));
        assert_eq!(Catalog::of(&session(), 0).left_out(), 4);
    }
}
