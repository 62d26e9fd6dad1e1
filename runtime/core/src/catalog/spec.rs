//! A range as checked by the compiler, before anything is recorded.
//!
//! The marks create a [`RangeSpec`] from a [`RangeMeta`], checked at compile time, put it into the linkme slice
//! [`RANGES`], and write the same facts, without pointers, into the binary's own section (`record`). Nothing here
//! runs before `main`.

use std::ffi::CStr;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use linkme::distributed_slice;

use super::name;

// The names of linkme slices are global in a program, and linkme panics if one occurs twice. They contain this crate's
// version, so that a program may contain two versions of warpline. For a new version, replace `V0_1` here and in
// `observer.rs`.
const _: () = {
    let version = concat!("V", env!("CARGO_PKG_VERSION_MAJOR"), "_", env!("CARGO_PKG_VERSION_MINOR"));
    assert!(
        name::equal(b"V0_1", version.as_bytes()),
        "the linkme slices carry another version: rename them here and in observer.rs"
    );
};

/// Every range that is linked into this program.
#[distributed_slice]
#[linkme(crate = linkme)]
pub static WARPLINE_RANGES_V0_1: [RangeSpec];

/// Every namespace that is linked into this program.
#[distributed_slice]
#[linkme(crate = linkme)]
pub static WARPLINE_NAMESPACES_V0_1: [NamespaceSpec];

pub use {WARPLINE_NAMESPACES_V0_1 as NAMESPACES, WARPLINE_RANGES_V0_1 as RANGES};

/// What a range times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Work on a GPU stream.
    Gpu,
    /// Work of a host thread, with no stream.
    Host,
    /// Communication between ranks on a GPU stream.
    Collective,
}

impl Kind {
    /// Returns the word for the kind in all exports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Gpu => "gpu",
            Kind::Host => "host",
            Kind::Collective => "collective",
        }
    }

    pub(crate) fn named(word: &str) -> Option<Kind> {
        [Kind::Gpu, Kind::Host, Kind::Collective].into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The level of detail of a range: a session that records `coarse` leaves `fine` ranges out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// A section of the program: recorded by every session.
    #[default]
    Coarse,
    /// A part of a section: recorded unless the session asks for `level=coarse`.
    Fine,
}

impl Level {
    /// Returns the word for the level in all exports and in `WARPLINE`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::Coarse => "coarse",
            Level::Fine => "fine",
        }
    }

    pub(crate) fn named(word: &str) -> Option<Level> {
        [Level::Coarse, Level::Fine].into_iter().find(|level| level.as_str() == word)
    }
}

/// A mark's facts about its range. The macros fill it in; it is public only for them.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct RangeMeta {
    pub namespace: &'static str,
    /// The range's name and a NUL, which can only be its end: no valid name contains one.
    pub label: &'static str,
    pub description: &'static str,
    pub kind: Kind,
    pub level: Level,
    pub lane: Option<&'static str>,
    pub color: Option<u32>,
    pub fields: &'static [&'static str],
    /// Options that a collective's mark leaves out.
    pub undescribed: &'static [&'static str],
    pub module: &'static str,
    /// The version of the package; empty when it was not built by Cargo.
    pub version: &'static str,
    pub file: &'static str,
    pub line: u32,
}

impl RangeMeta {
    /// A host range that declares nothing, for ranges that declare only a part.
    #[doc(hidden)]
    pub const EMPTY: RangeMeta = RangeMeta {
        namespace: "",
        label: "",
        description: "",
        kind: Kind::Host,
        level: Level::Coarse,
        lane: None,
        color: None,
        fields: &[],
        undescribed: &[],
        module: "",
        version: "",
        file: "",
        line: 0,
    };

    /// Fails to compile if the name breaks a rule. The error points to the caller's span.
    #[track_caller]
    pub const fn check(&self) {
        let label = self.label.as_bytes();
        // An invalid namespace has an error of its own.
        if let Err(fault) = name::check_range(self.namespace.as_bytes(), label, label.len() - 1)
            && name::check_namespace(self.namespace).is_ok()
        {
            panic!("{}", name::explain(self.namespace, self.name(), fault).as_str());
        }
        if self.description.is_empty() {
            panic!("a range needs a description: write a doc comment or `description = \"…\"`");
        }
    }

    pub(crate) const fn name(&self) -> &'static str {
        // Splitting is cheap in const evaluation; searching for the NUL is not.
        match self.label.len() {
            0 => "",
            len => self.label.split_at(len - 1).0,
        }
    }
}

/// The position of a range in this program's catalog. It is stable while the program runs and has no meaning in another
/// program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RangeId(#[doc(hidden)] pub u32);

impl RangeId {
    /// Returns the index in the order of [`Catalog::iter`](super::Catalog::iter).
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One range of the catalog: all its static facts.
///
/// `Sync` and `'static`; reading it costs nothing.
pub struct RangeSpec {
    facts: RangeMeta,
    /// The range's number plus one; 0 before its first use.
    number: AtomicU32,
}

/// The number of ranges outside of the slice that have a number.
static UNLISTED: AtomicU32 = AtomicU32::new(0);

impl RangeSpec {
    #[doc(hidden)]
    pub const fn new(facts: RangeMeta) -> RangeSpec {
        RangeSpec { facts, number: AtomicU32::new(0) }
    }

    /// Returns the full name: `namespace.rest`.
    pub const fn name(&self) -> &'static str {
        self.facts.name()
    }

    /// Returns the full name, NUL-terminated, for C interfaces.
    pub const fn label(&self) -> &'static CStr {
        match CStr::from_bytes_with_nul(self.facts.label.as_bytes()) {
            Ok(label) => label,
            Err(_) => c"",
        }
    }

    /// Returns the namespace of the crate that declared the range.
    pub const fn namespace(&self) -> &'static str {
        self.facts.namespace
    }

    /// Returns the description of the range, from its mark.
    pub const fn description(&self) -> &'static str {
        self.facts.description
    }

    /// Returns what the range times.
    pub const fn kind(&self) -> Kind {
        self.facts.kind
    }

    /// Returns the range's level of detail.
    pub const fn level(&self) -> Level {
        self.facts.level
    }

    /// Returns the lane that a trace shows the range on, if the range has its own.
    pub const fn lane(&self) -> Option<&'static str> {
        self.facts.lane
    }

    /// Returns the range's color as `0xRRGGBB`, if it has one.
    pub const fn color(&self) -> Option<u32> {
        self.facts.color
    }

    /// Returns the names of the fields that the range declares.
    pub const fn fields(&self) -> &'static [&'static str] {
        self.facts.fields
    }

    /// Returns the options of `#[collective]` that would describe its messages completely but that the mark leaves out,
    /// such as `count`. Empty for other kinds, and for a collective of `range!`: its marks describe the messages.
    pub const fn undescribed(&self) -> &'static [&'static str] {
        self.facts.undescribed
    }

    /// Returns the crate that declared the range, as written in paths.
    pub fn krate(&self) -> &'static str {
        crate_of(self.facts.module)
    }

    /// Returns the version of the package that declared the range; empty when it was not built by Cargo.
    pub const fn version(&self) -> &'static str {
        self.facts.version
    }

    /// Returns the module path of the declaration.
    pub const fn module(&self) -> &'static str {
        self.facts.module
    }

    /// Returns the source file of the declaration, as passed to the compiler.
    pub const fn file(&self) -> &'static str {
        self.facts.file
    }

    /// Returns the line of the declaration, from 1.
    pub const fn line(&self) -> u32 {
        self.facts.line
    }

    /// Returns the range's position in this program's catalog, or none for a range that is not in the slice.
    pub fn id(&'static self) -> Option<RangeId> {
        // Miri does not link, so there is no slice.
        if cfg!(miri) {
            return None;
        }
        let slice = RANGES.static_slice().as_ptr_range();
        let this = std::ptr::from_ref(self);
        if !slice.contains(&this) {
            return None;
        }
        let bytes = this as usize - slice.start as usize;
        Some(RangeId((bytes / size_of::<RangeSpec>()) as u32))
    }

    /// Returns the range's number, if it has one: see `number`, which `dynamic` implements.
    #[inline]
    pub(crate) fn known_number(&self) -> Option<u32> {
        self.number.load(Ordering::Acquire).checked_sub(1)
    }

    /// Returns whether a range has this number.
    pub(crate) fn has_number(number: u32) -> bool {
        number.checked_sub(RANGES.len() as u32).is_none_or(|unlisted| unlisted < UNLISTED.load(Ordering::Relaxed))
    }

    /// Returns a number for this range: its id, or for a range outside the catalog the next one after those of the
    /// catalog.
    pub(crate) fn new_number(&'static self) -> u32 {
        self.id().map_or_else(|| RANGES.len() as u32 + UNLISTED.fetch_add(1, Ordering::Relaxed), |id| id.0)
    }

    /// Sets the range's number, after its state was set. Threads that set it at once set the same one.
    pub(crate) fn set_number(&self, number: u32) -> u32 {
        self.number.store(number + 1, Ordering::Release);
        number
    }
}

impl fmt::Debug for RangeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeSpec").field("name", &self.name()).field("kind", &self.kind()).finish_non_exhaustive()
    }
}

/// Returns the range of an invalid declaration, so that its uses cause no further errors.
#[doc(hidden)]
pub const fn refused() -> RangeSpec {
    RangeSpec::new(RangeMeta::EMPTY)
}

/// The namespace of one crate, as `namespace!` declared it.
#[derive(Clone, Copy, Debug)]
pub struct NamespaceSpec {
    #[doc(hidden)]
    pub name: &'static str,
    #[doc(hidden)]
    pub about: &'static str,
    #[doc(hidden)]
    pub module: &'static str,
    /// Empty when it was not built by Cargo, like `version`.
    #[doc(hidden)]
    pub package: &'static str,
    #[doc(hidden)]
    pub version: &'static str,
    #[doc(hidden)]
    pub file: &'static str,
    #[doc(hidden)]
    pub line: u32,
}

impl NamespaceSpec {
    #[doc(hidden)]
    #[track_caller]
    pub const fn new(
        name: &'static str,
        about: &'static str,
        module: &'static str,
        package: &'static str,
        version: &'static str,
        file: &'static str,
        line: u32,
    ) -> NamespaceSpec {
        NamespaceSpec { name, about, module, package, version, file, line }
    }

    /// Fails to compile if the namespace breaks a rule or is declared below the crate root.
    #[doc(hidden)]
    #[track_caller]
    pub const fn check(&self) {
        if let Err(fault) = name::check_namespace(self.name) {
            panic!("{}", name::explain_namespace(self.name, fault).as_str());
        }
        if self.about.trim_ascii().is_empty() {
            panic!("a namespace needs a description: `namespace!(\"demo\", \"what it is\")`");
        }
        if contains(self.about, 0) {
            panic!("the description of a namespace contains a NUL: remove it");
        }
        if contains(self.module, b':') {
            panic!("`namespace!` belongs at the crate root: move it to lib.rs or main.rs");
        }
    }

    /// Returns the namespace.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the crate's description of its namespace.
    pub const fn about(&self) -> &'static str {
        self.about
    }

    /// Returns the crate that declared the namespace, as written in paths.
    pub fn krate(&self) -> &'static str {
        crate_of(self.module)
    }
}

const fn contains(text: &str, byte: u8) -> bool {
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        if bytes[i] == byte {
            return true;
        }
        i += 1;
    }
    false
}

/// Returns the crate of a module path: its first segment.
pub(crate) fn crate_of(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}
