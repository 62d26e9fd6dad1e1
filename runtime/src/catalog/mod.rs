//! The static side: what can be recorded.
//!
//! The compiler has checked every range in here. [`catalog`] shows what is linked into this program; `Records` is the same
//! as plain data, and can also be read from a binary that does not run. This module imports nothing of the crate.

use std::fmt;

pub(crate) mod declare;
#[cfg(feature = "export")]
pub mod export;
pub mod name;
pub mod record;
pub mod spec;

pub use record::{NamespaceRecord, NoteError, RangeRecord, Records};
pub use spec::{Kind, Level, NamespaceSpec, RangeId, RangeSpec};

use spec::{WARPLINE_NAMESPACES_V1, WARPLINE_RANGES_V1};

/// Every range that is linked into this program.
pub fn catalog() -> Catalog {
    Catalog(())
}

/// A view of the ranges that are linked into this program; [`catalog`] makes one. It costs nothing to make or copy.
#[derive(Clone, Copy, Debug)]
pub struct Catalog(());

impl Catalog {
    /// The ranges, by id.
    pub fn iter(&self) -> std::slice::Iter<'static, RangeSpec> {
        WARPLINE_RANGES_V1.static_slice().iter()
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        WARPLINE_RANGES_V1.len()
    }

    /// Whether nothing is marked in this program.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The range with this id.
    pub fn get(&self, id: RangeId) -> Option<&'static RangeSpec> {
        WARPLINE_RANGES_V1.static_slice().get(id.index())
    }

    /// The range with this full name. Of two versions of one crate, the newer one's.
    pub fn find(&self, name: &str) -> Option<&'static RangeSpec> {
        self.iter().filter(|range| range.name() == name).max_by_key(|range| version_key(range.version()))
    }

    /// The namespaces, in no particular order.
    pub fn namespaces(&self) -> std::slice::Iter<'static, NamespaceSpec> {
        WARPLINE_NAMESPACES_V1.static_slice().iter()
    }

    /// The catalog as plain, sorted data.
    pub fn records(&self) -> Records {
        let mut records = Records {
            ranges: self.iter().map(RangeRecord::from).collect(),
            namespaces: self.namespaces().map(NamespaceRecord::from).collect(),
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
        }
    }
}

impl From<&NamespaceSpec> for NamespaceRecord {
    fn from(namespace: &NamespaceSpec) -> NamespaceRecord {
        NamespaceRecord {
            name: namespace.name.to_owned(),
            version: namespace.version.unwrap_or("").to_owned(),
            module: namespace.module.to_owned(),
            file: namespace.file.to_owned(),
            line: namespace.line,
            about: namespace.about.to_owned(),
        }
    }
}

/// What no `const` could see: a fault of the catalog as a whole, over all crates of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CatalogFault {
    /// A name or namespace breaks a rule. The macros do not let it through; a damaged or foreign file can hold it.
    Name {
        /// The error text: name, rule and remedy.
        text: String,
        /// Where it is declared.
        at: String,
    },
    /// A range says nothing of itself.
    NoDescription {
        /// The range.
        name: String,
        /// Where it is declared.
        at: String,
    },
    /// Two ranges have one name.
    Duplicate {
        /// The name.
        name: String,
        /// Where the first is declared.
        first: String,
        /// Where the other is declared.
        second: String,
    },
    /// Two crates have one namespace.
    SharedNamespace {
        /// The namespace.
        namespace: String,
        /// The first crate and where it declares the namespace.
        first: String,
        /// The other crate and where it declares the namespace.
        second: String,
    },
}

impl fmt::Display for CatalogFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CatalogFault::Name { text, at } => write!(f, "{text} ({at})"),
            CatalogFault::NoDescription { name, at } => {
                write!(f, "range `{name}` has no description ({at}); write a doc comment on the marked function")
            }
            CatalogFault::Duplicate { name, first, second } => {
                write!(f, "range `{name}` is declared twice: {first} and {second}; rename one of them")
            }
            CatalogFault::SharedNamespace { namespace, first, second } => {
                write!(f, "namespace `{namespace}` belongs to two crates: {first} and {second}; give each its own")
            }
        }
    }
}

impl Records {
    /// Checks what holds over all crates: rules of names, descriptions, unique names, one crate a namespace. Two
    /// versions of one crate in one program are not a fault: their ranges differ by version.
    pub fn faults(&self) -> Vec<CatalogFault> {
        let mut faults = Vec::new();
        for space in &self.namespaces {
            if let Err(fault) = name::check_namespace(&space.name) {
                let text = name::explain_namespace(&space.name, fault).as_str().to_owned();
                faults.push(CatalogFault::Name { text, at: place(&space.file, space.line) });
            }
        }
        for pair in self.namespaces.windows(2) {
            if pair[0].name == pair[1].name && !two_versions(pair[0].krate(), &pair[0].version, pair[1].krate(), &pair[1].version) {
                faults.push(CatalogFault::SharedNamespace {
                    namespace: pair[0].name.clone(),
                    first: format!("{} ({})", pair[0].krate(), place(&pair[0].file, pair[0].line)),
                    second: format!("{} ({})", pair[1].krate(), place(&pair[1].file, pair[1].line)),
                });
            }
        }
        for range in &self.ranges {
            let at = place(&range.file, range.line);
            if let Err(fault) = name::check(&range.namespace, &range.name) {
                let text = name::explain(&range.namespace, &range.name, fault).as_str().to_owned();
                faults.push(CatalogFault::Name { text, at });
            } else if range.description.is_empty() {
                faults.push(CatalogFault::NoDescription { name: range.name.clone(), at });
            }
        }
        for pair in self.ranges.windows(2) {
            if pair[0].name == pair[1].name && !two_versions(pair[0].krate(), &pair[0].version, pair[1].krate(), &pair[1].version) {
                faults.push(CatalogFault::Duplicate {
                    name: pair[0].name.clone(),
                    first: format!("{} ({})", place(&pair[0].file, pair[0].line), pair[0].krate()),
                    second: format!("{} ({})", place(&pair[1].file, pair[1].line), pair[1].krate()),
                });
            }
        }
        faults
    }
}

fn two_versions(a: &str, a_version: &str, b: &str, b_version: &str) -> bool {
    a == b && a_version != b_version
}

fn place(file: &str, line: u32) -> String {
    format!("{file}:{line}")
}

/// Orders versions by their leading numbers; good enough to pick the newer of two.
fn version_key(version: &str) -> [u64; 3] {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}
