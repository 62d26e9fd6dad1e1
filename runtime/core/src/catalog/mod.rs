//! The static side: the ranges that can be recorded.
//!
//! The compiler has checked every range in this module. [`catalog`] lists those that are linked into this program; `Records` has
//! the same data in owned form, and can also be read from a binary. This module imports nothing from the crate.

pub(crate) mod declare;
#[doc(hidden)]
pub mod expansion;
#[cfg(feature = "export")]
pub mod export;
mod faults;
mod hash;
mod library;
pub mod name;
pub mod record;
pub(crate) mod shape;
pub mod spec;

pub use faults::CatalogFault;
pub use record::{ByteOrder, NamespaceRecord, NoteError, RangeRecord, Records};
pub use spec::{Kind, Level, NamespaceSpec, RangeId, RangeSpec};

use spec::{NAMESPACES, RANGES};

/// Returns the catalog of all ranges that are linked into this program.
pub fn catalog() -> Catalog {
    Catalog(())
}

/// A view of the ranges that are linked into this program, returned by [`catalog`]. It is free to create and copy.
#[derive(Clone, Copy, Debug)]
pub struct Catalog(());

impl Catalog {
    /// Returns the ranges, by id.
    pub fn iter(&self) -> std::slice::Iter<'static, RangeSpec> {
        RANGES.static_slice().iter()
    }

    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        RANGES.len()
    }

    /// Whether this program has no marks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the range with this id.
    pub fn get(&self, id: RangeId) -> Option<&'static RangeSpec> {
        // Miri does not link, so there is no slice.
        if cfg!(miri) {
            return None;
        }
        RANGES.static_slice().get(id.index())
    }

    /// Returns the range with this full name; of two versions of one crate, that of the newer one.
    pub fn find(&self, name: &str) -> Option<&'static RangeSpec> {
        self.iter().filter(|range| range.name() == name).max_by_key(|range| version_key(range.version()))
    }

    /// Returns the namespaces, in no particular order.
    pub fn namespaces(&self) -> std::slice::Iter<'static, NamespaceSpec> {
        NAMESPACES.static_slice().iter()
    }

    /// Returns the name of the shared library whose ranges these are; none if they are the program's, or where that is not known.
    #[doc(hidden)]
    pub fn library(&self) -> Option<String> {
        library::of_address(RANGES.static_slice().as_ptr().cast())
    }

    /// Returns the catalog as plain, sorted data.
    pub fn records(&self) -> Records {
        let mut records = Records {
            ranges: self.iter().map(RangeRecord::from).collect(),
            namespaces: self.namespaces().map(NamespaceRecord::from).collect(),
            unreadable: 0,
        };
        records.sort();
        records
    }
}

impl IntoIterator for Catalog {
    type Item = &'static RangeSpec;
    type IntoIter = std::slice::Iter<'static, RangeSpec>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<&RangeSpec> for RangeRecord {
    fn from(range: &RangeSpec) -> RangeRecord {
        RangeRecord {
            name: range.name().to_owned(),
            version: range.version().to_owned(),
            module: range.module().to_owned(),
            file: range.file().to_owned(),
            line: range.line(),
            namespace: range.namespace().to_owned(),
            description: range.description().to_owned(),
            kind: range.kind().as_str(),
            level: range.level().as_str(),
            lane: range.lane().map(str::to_owned),
            color: range.color(),
            fields: range.fields().iter().map(|&field| field.to_owned()).collect(),
            undescribed: range.undescribed().iter().map(|&option| option.to_owned()).collect(),
        }
    }
}

impl From<&NamespaceSpec> for NamespaceRecord {
    fn from(namespace: &NamespaceSpec) -> NamespaceRecord {
        NamespaceRecord {
            name: namespace.name.to_owned(),
            version: namespace.version.to_owned(),
            module: namespace.module.to_owned(),
            file: namespace.file.to_owned(),
            line: namespace.line,
            about: namespace.about.to_owned(),
            package: namespace.package.to_owned(),
        }
    }
}

/// Returns a version's leading numbers; good enough to pick the newer of two.
fn version_key(version: &str) -> [u64; 3] {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}
