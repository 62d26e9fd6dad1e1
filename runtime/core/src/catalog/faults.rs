//! The faults that no `const` can detect: those of a whole catalog, across all crates of a program.
//!
//! The start of a session and `warpline check` call this module. The functions of `name.rs` check names, so that the
//! rules exist only once. Two versions of one crate in one program are never a fault: such a program must link and run.

use std::collections::{HashMap, HashSet, hash_map::Entry};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::name;
use super::record::{NamespaceRecord, RangeRecord, Records};
use super::{Catalog, catalog};

/// A fault of a catalog. Its text is one sentence that names the range and ends with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CatalogFault {
    /// A name or namespace breaks a rule. The macros reject it, but a damaged or foreign file can contain it.
    Name {
        /// The error text: name, rule and remedy.
        text: String,
        /// Where it is declared.
        at: String,
    },
    /// A range has no description.
    NoDescription {
        /// The range.
        name: String,
        /// Where it is declared.
        at: String,
    },
    /// The crate of a range does not declare the range's namespace. The macros reject this too.
    Undeclared {
        /// The range.
        name: String,
        /// Its namespace.
        namespace: String,
        /// Where the range is declared.
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
        /// A suggested name for the other.
        instead: String,
    },
    /// The mark of a collective leaves options out. No session refuses it; only [`Records::undescribed`] reports it.
    Undescribed {
        /// The range.
        name: String,
        /// The options, as in `count, dtype and group`.
        options: String,
        /// Where it is declared.
        at: String,
    },
    /// Two crates have one namespace.
    SharedNamespace {
        /// The namespace.
        namespace: String,
        /// The first crate and where it declares the namespace.
        first: String,
        /// The other crate and where it declares the namespace.
        second: String,
        /// A suggested namespace for one of them.
        instead: String,
    },
}

impl fmt::Display for CatalogFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CatalogFault::Name { text, at } => write!(f, "{text} ({at})"),
            CatalogFault::NoDescription { name, at } => {
                write!(f, "range `{name}` has no description ({at}); write a doc comment on the marked function")
            }
            CatalogFault::Undeclared { name, namespace, at } => write!(
                f,
                "range `{name}` is in namespace `{namespace}`, which its crate does not declare ({at}); write \
                 `warpline::namespace!(\"{namespace}\", \"what it is\")` at the crate root"
            ),
            CatalogFault::Duplicate { name, first, second, instead } => write!(
                f,
                "range `{name}` is declared twice: {first} and {second}; rename one of them, as in `{instead}`"
            ),
            CatalogFault::Undescribed { name, options, at } => write!(
                f,
                "collective `{name}` does not give {options} ({at}); reports and traces lack the figures that \
                 depend on them; add them to its mark"
            ),
            CatalogFault::SharedNamespace { namespace, first, second, instead } => write!(
                f,
                "namespace `{namespace}` belongs to two crates: {first} and {second}; give each its own, as in \
                 `warpline::namespace!(\"{instead}\", …)`"
            ),
        }
    }
}

impl std::error::Error for CatalogFault {}

impl Catalog {
    /// Returns the faults of this program's catalog. The compiler has checked each range alone; only duplicate names
    /// remain. A sound catalog is scanned once, without a copy, because every start of a session calls this.
    #[doc(hidden)]
    pub fn faults(&self) -> Vec<CatalogFault> {
        static IS_SOUND: AtomicBool = AtomicBool::new(false);
        if IS_SOUND.load(Ordering::Relaxed) || self.is_sound() {
            IS_SOUND.store(true, Ordering::Relaxed);
            return Vec::new();
        }
        self.records().faults()
    }

    fn is_sound(&self) -> bool {
        let ranges = catalog().iter().map(|range| Named {
            name: range.name(),
            owner: (Owner::Crate, range.krate()),
            version: range.version(),
        });
        let spaces = catalog().namespaces().map(|space| {
            let owner = owner(space.krate(), space.package);
            Named { name: space.name(), owner, version: space.version }
        });
        are_apart(ranges) && are_apart(spaces)
    }
}

/// The scope that declares a name: a crate in each of its versions, or a package in each of its crates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Crate,
    Package,
}

/// Returns the owner that may share a namespace: the crates of one package, or the versions of one crate if no package
/// is known.
fn owner<'a>(krate: &'a str, package: &'a str) -> (Owner, &'a str) {
    match package {
        "" => (Owner::Crate, krate),
        package => (Owner::Package, package),
    }
}

/// A name and the scope that declares it.
#[derive(Clone, Copy)]
struct Named<'a> {
    name: &'a str,
    owner: (Owner, &'a str),
    version: &'a str,
}

/// Whether each name is declared by one scope only, and by a crate once per version: [`Records::faults`] then finds
/// neither duplicates nor shared namespaces.
fn are_apart<'a>(all: impl ExactSizeIterator<Item = Named<'a>>) -> bool {
    let mut first = HashMap::with_capacity(all.len());
    // Of each repeated name, all but the first.
    let mut more = HashSet::new();
    all.into_iter().all(|it| match first.entry(it.name) {
        Entry::Vacant(vacant) => {
            vacant.insert((it.owner, it.version));
            true
        }
        Entry::Occupied(first) => {
            let (owner, version) = *first.get();
            let mut is_other = || version != it.version && more.insert((it.name, it.version));
            owner == it.owner && (owner.0 == Owner::Package || is_other())
        }
    })
}

impl Records {
    /// Checks the rules across all crates: names, descriptions, unique names, one package per namespace. Two versions
    /// of one crate in one program are not a fault: their ranges differ by version. A package's library may share its
    /// namespace with a binary, test, example or benchmark of the package.
    ///
    /// Namespaces come first, since a shared one explains the duplicates that follow.
    pub fn faults(&self) -> Vec<CatalogFault> {
        let mut faults = Vec::new();
        faults.extend(self.namespaces.iter().filter_map(namespace_fault));
        faults.extend(self.namespaces.windows(2).filter_map(|pair| shared(&pair[0], &pair[1])));
        faults.extend(self.ranges.iter().filter_map(|range| self.range_fault(range)));
        faults.extend(self.ranges.windows(2).filter_map(|pair| duplicate(&pair[0], &pair[1])));
        faults
    }

    /// Returns one fault for each collective whose mark leaves options out. They are not in [`faults`](Self::faults),
    /// since such a mark is valid, but figures that depend on these options are unknown. A collective of `range!` is
    /// never among them: its marks are not in the catalog.
    pub fn undescribed(&self) -> Vec<CatalogFault> {
        let ranges = self.ranges.iter().filter(|range| !range.undescribed.is_empty());
        let fault = |range: &RangeRecord| CatalogFault::Undescribed {
            name: range.name.clone(),
            options: and(&range.undescribed),
            at: place(&range.file, range.line),
        };
        ranges.map(fault).collect()
    }

    fn range_fault(&self, range: &RangeRecord) -> Option<CatalogFault> {
        let at = place(&range.file, range.line);
        if let Err(fault) = name::check(&range.namespace, &range.name) {
            let text = name::explain(&range.namespace, &range.name, fault).as_str().to_owned();
            return Some(CatalogFault::Name { text, at });
        }
        if range.description.is_empty() {
            return Some(CatalogFault::NoDescription { name: range.name.clone(), at });
        }
        if !self.declares(range.krate(), &range.namespace) {
            let (name, namespace) = (range.name.clone(), range.namespace.clone());
            return Some(CatalogFault::Undeclared { name, namespace, at });
        }
        None
    }

    fn declares(&self, krate: &str, namespace: &str) -> bool {
        let first = self.namespaces.partition_point(|space| space.name.as_str() < namespace);
        let same = self.namespaces[first..].iter().take_while(|space| space.name == namespace);
        // More than a few declarations of one namespace are already a fault; the bound keeps a hostile file from making
        // this quadratic.
        same.take(64).any(|space| space.krate() == krate)
    }
}

fn namespace_fault(space: &NamespaceRecord) -> Option<CatalogFault> {
    let fault = name::check_namespace(&space.name).err()?;
    let text = name::explain_namespace(&space.name, fault).as_str().to_owned();
    Some(CatalogFault::Name { text, at: place(&space.file, space.line) })
}

/// Compares neighbours, which is enough here and in [`duplicate`]: records are sorted by name, then version, so if
/// every neighbour of one name is another version of the same crate, all of them are.
fn shared(a: &NamespaceRecord, b: &NamespaceRecord) -> Option<CatalogFault> {
    let owners = [a, b].map(|space| owner(space.krate(), &space.package));
    let may_share = owners[0] == owners[1] && (owners[0].0 == Owner::Package || a.version != b.version);
    if a.name != b.name || may_share {
        return None;
    }
    // Two crates of one name are told apart by their packages.
    let has_one_name = a.krate() == b.krate();
    let site = |space: &NamespaceRecord| match has_one_name && !space.package.is_empty() {
        true => format!("{} of package `{}` ({})", space.krate(), space.package, place(&space.file, space.line)),
        false => format!("{} ({})", space.krate(), place(&space.file, space.line)),
    };
    let is_free = |name: &String| *name != a.name && name::check_namespace(name).is_ok();
    let of_packages = [b, a].map(|space| space.package.replace('-', "_"));
    let mut names = [b, a].map(|space| space.krate().to_owned()).into_iter().chain(of_packages);
    let instead = names.find(is_free).unwrap_or_else(|| format!("{}_2", a.name));
    Some(CatalogFault::SharedNamespace { namespace: a.name.clone(), first: site(a), second: site(b), instead })
}

fn duplicate(a: &RangeRecord, b: &RangeRecord) -> Option<CatalogFault> {
    if a.name != b.name || are_two_versions((a.krate(), &a.version), (b.krate(), &b.version)) {
        return None;
    }
    let site = |range: &RangeRecord| format!("{} ({})", place(&range.file, range.line), range.krate());
    Some(CatalogFault::Duplicate { name: a.name.clone(), first: site(a), second: site(b), instead: renamed(b) })
}

/// Returns a name that contains the range's location: its file, as in `demo.main.step`, or its crate.
fn renamed(range: &RangeRecord) -> String {
    let stem = Path::new(&range.file).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let own = range.name.strip_prefix(&range.namespace).unwrap_or_default();
    let with = |part: &str| format!("{}.{part}{own}", range.namespace);
    let is_good = |part: &&str| !matches!(*part, "lib" | "mod") && name::check(&range.namespace, &with(part)).is_ok();
    [stem, range.krate()].into_iter().find(is_good).map_or_else(|| format!("{}_2", range.name), with)
}

fn are_two_versions(a: (&str, &str), b: (&str, &str)) -> bool {
    a.0 == b.0 && a.1 != b.1
}

/// Returns the words as a list in a sentence: `count, dtype and group`, each as code.
fn and(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        words => words.concat(),
    }
}

fn place(file: &str, line: u32) -> String {
    format!("{file}:{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(name: &str, krate: &str, version: &str) -> NamespaceRecord {
        NamespaceRecord {
            name: name.into(),
            version: version.into(),
            module: krate.into(),
            file: format!("{krate}/lib.rs"),
            line: 1,
            about: "what it is".into(),
            package: String::new(),
        }
    }

    fn range(name: &str, krate: &str, version: &str, line: u32) -> RangeRecord {
        RangeRecord {
            name: name.into(),
            version: version.into(),
            module: format!("{krate}::kernels"),
            file: format!("{krate}/kernels.rs"),
            line,
            namespace: name.split('.').next().unwrap_or("").into(),
            description: "does it".into(),
            kind: "gpu",
            level: "coarse",
            lane: None,
            color: None,
            fields: Vec::new(),
            undescribed: Vec::new(),
        }
    }

    fn faults(namespaces: &[NamespaceRecord], ranges: &[RangeRecord]) -> Vec<String> {
        let mut records = Records { ranges: ranges.to_vec(), namespaces: namespaces.to_vec(), unreadable: 0 };
        records.sort();
        records.faults().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_quick_look_finds_what_the_whole_check_finds() {
        // Tries all ways to declare one name up to three times, in two crates and two versions.
        let places = [("one", "1.0.0"), ("one", "2.0.0"), ("two", "1.0.0"), ("two", "2.0.0")];
        let mut sets: Vec<Vec<(&str, &str)>> = vec![Vec::new()];
        for _ in 0..3 {
            let longer = sets.iter().flat_map(|set| places.map(|place| [set.as_slice(), &[place]].concat()));
            sets.extend(longer.collect::<Vec<_>>());
        }
        for set in sets {
            let ranges: Vec<_> =
                (1..).zip(&set).map(|(line, (krate, version))| range("a.x", krate, version, line)).collect();
            let has_duplicate = faults(&[], &ranges).iter().any(|fault| fault.contains("declared twice"));
            let named = set.iter().map(|(krate, version)| Named { name: "a.x", owner: (Owner::Crate, krate), version });
            assert_eq!(are_apart(named), !has_duplicate, "{set:?}");
        }
    }

    #[test]
    fn a_sound_catalog_has_none() {
        let spaces = [namespace("a", "a", "1.0.0"), namespace("b", "b", "1.0.0")];
        assert!(faults(&spaces, &[range("a.x", "a", "1.0.0", 3), range("b.x", "b", "1.0.0", 3)]).is_empty());
    }

    #[test]
    fn two_versions_of_one_crate_are_sound() {
        let spaces = ["1.0.0", "2.0.0", "10.0.0"].map(|version| namespace("a", "a", version));
        let ranges = ["1.0.0", "2.0.0", "10.0.0"].map(|version| range("a.x", "a", version, 3));
        assert!(faults(&spaces, &ranges).is_empty());
    }

    #[test]
    fn two_crates_with_one_namespace_are_named_with_both_places() {
        let spaces = [namespace("a", "one", "1.0.0"), namespace("a", "two", "1.0.0")];
        assert_eq!(
            faults(&spaces, &[range("a.x", "one", "1.0.0", 3), range("a.x", "two", "1.0.0", 4)]),
            [
                "namespace `a` belongs to two crates: one (one/lib.rs:1) and two (two/lib.rs:1); give each its own, as in \
                 `warpline::namespace!(\"two\", …)`",
                "range `a.x` is declared twice: one/kernels.rs:3 (one) and two/kernels.rs:4 (two); rename one of them, as in \
                 `a.kernels.x`",
            ]
        );
    }

    #[test]
    fn crates_of_one_package_share_a_namespace_and_no_name() {
        let of_package = |krate: &str, package: &str, version: &str| NamespaceRecord {
            package: package.into(),
            ..namespace("demo", krate, version)
        };
        // The binary has the library's name or another one, and there are two versions of the package.
        for krate in ["demo", "demo_app"] {
            let spaces = [
                of_package("demo", "demo", "1.0.0"),
                of_package(krate, "demo", "1.0.0"),
                of_package("demo", "demo", "2.0.0"),
                of_package(krate, "demo", "2.0.0"),
            ];
            let mut main = range("demo.step", krate, "1.0.0", 3);
            assert!(faults(&spaces, &[range("demo.run", "demo", "1.0.0", 3), main.clone()]).is_empty());
            main.file = "src/main.rs".into();
            let duplicate = faults(&spaces, &[range("demo.step", "demo", "1.0.0", 3), main]);
            assert_eq!(duplicate.len(), 1, "{duplicate:?}");
            assert!(duplicate[0].ends_with("; rename one of them, as in `demo.main.step`"), "{duplicate:?}");
        }
        let spaces = [of_package("demo", "demo", "1.0.0"), of_package("demo", "other", "1.0.0")];
        assert_eq!(
            faults(&spaces, &[]),
            [
                "namespace `demo` belongs to two crates: demo of package `demo` (demo/lib.rs:1) and demo of package `other` (demo/lib.rs:1); \
              give each its own, as in `warpline::namespace!(\"other\", …)`"
            ]
        );
        let spaces = [of_package("demo", "demo", "1.0.0"), of_package("demo", "my-demo", "1.0.0")];
        assert!(faults(&spaces, &[])[0].ends_with("as in `warpline::namespace!(\"my_demo\", …)`"));
        let spaces = [of_package("demo", "demo", "1.0.0"), of_package("demo", "Demo", "1.0.0")];
        assert!(faults(&spaces, &[])[0].ends_with("as in `warpline::namespace!(\"demo_2\", …)`"));
    }

    #[test]
    fn a_third_crate_between_two_versions_is_found() {
        let spaces = [namespace("a", "one", "1.0.0"), namespace("a", "two", "1.5.0"), namespace("a", "one", "2.0.0")];
        assert_eq!(faults(&spaces, &[]).len(), 2);
    }

    #[test]
    fn one_crate_with_one_name_twice_is_found_even_in_one_version() {
        let ranges = [range("a.x", "a", "1.0.0", 3), range("a.x", "a", "1.0.0", 9), range("a.x", "a", "2.0.0", 3)];
        let spaces = [namespace("a", "a", "1.0.0"), namespace("a", "a", "2.0.0")];
        assert_eq!(
            faults(&spaces, &ranges),
            [
                "range `a.x` is declared twice: a/kernels.rs:3 (a) and a/kernels.rs:9 (a); rename one of them, as in `a.kernels.x`"
            ]
        );
    }

    #[test]
    fn damaged_facts_are_named() {
        let nameless = RangeRecord { description: String::new(), ..range("a.y", "a", "1.0.0", 5) };
        let spaces = [namespace("a", "a", "1.0.0"), namespace("Bad Space", "b", "1.0.0")];
        assert_eq!(
            faults(&spaces, &[range("a.X", "a", "1.0.0", 3), nameless, range("c.z", "a", "1.0.0", 7)]),
            [
                "namespace `Bad Space` has a character that is not one of a-z, 0-9, `_`, with `.` between segments; \
                 write `bad_space` (b/lib.rs:1)",
                "range name `a.X` has a character that is not one of a-z, 0-9, `_`, with `.` between segments; write \
                 `a.x` (a/kernels.rs:3)",
                "range `a.y` has no description (a/kernels.rs:5); write a doc comment on the marked function",
                "range `c.z` is in namespace `c`, which its crate does not declare (a/kernels.rs:7); write \
                 `warpline::namespace!(\"c\", \"what it is\")` at the crate root",
            ]
        );
    }
}
