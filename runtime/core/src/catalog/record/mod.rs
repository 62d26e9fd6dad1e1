//! The pointer-free record of a range in the binary's own section, and its reader.
//!
//! Each range and each namespace is one ELF note in the section [`SECTION`]: the 12-byte note header, the owner `warpline\0`
//! padded to 12 bytes, and the facts. Linkers keep unreferenced notes, `strip` keeps them, and tools that do not know warpline
//! skip them (`readelf -n` lists them). Other object formats have the same bytes in a section of another name.
//!
//! The facts are UTF-8 texts, each NUL-terminated, so that `concat!` can join them: copying them in const evaluation costs the
//! compiler ten times as much. A range: name, kind, level, description, lane (or nothing), color in six hexadecimal digits (or
//! nothing), module, file, line, version, then the names of the fields. A collective whose mark leaves options out has a separate
//! note type, with one more text after the version: the names of those options, separated by spaces. A little-endian `u32` before
//! the texts gives the length of the namespace within the name, in bytes. A namespace: a zero `u32`, then name, about, module,
//! file, line, version, package. Zeros pad to four bytes. The `warpline` command calls the reader on untrusted files: every length
//! is checked against the available bytes, and memory is counted before it is allocated, against a limit that the caller sets.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::spec::{Kind, Level, crate_of};
use crate::sorting;

/// The maximum number of ranges, and of namespaces, in one binary.
pub const MAX_RANGES: usize = 1 << 16;
/// The maximum number of fields of one range, and of options that its mark leaves out.
pub const MAX_FIELDS: usize = 64;
/// The maximum length of the name of a range, namespace, lane, field or option, in bytes.
pub const MAX_NAME: usize = 1 << 10;
/// The maximum length of all other texts, in bytes.
pub const MAX_TEXT: usize = 1 << 16;
/// Memory that any catalog may use beyond the limit for its size, in bytes.
const FEW_BYTES: usize = 1 << 20;

/// The section that holds the notes in ELF, Mach-O (without its segment) and PE files.
pub const SECTION: [&str; 3] = [".note.warpline", "__warpline", ".wrpln"];

/// The owner in every note's header.
const OWNER: [u8; 12] = *b"warpline\0\0\0\0";
const OWNER_LEN: u32 = 9;
/// Note types. A new layout gets new numbers; readers skip unknown numbers.
const TYPE_RANGE: u32 = 1;
const TYPE_NAMESPACE: u32 = 2;
const TYPE_UNDESCRIBED: u32 = 3;
/// A namespace with its package's name after its version.
const TYPE_OF_PACKAGE: u32 = 4;

/// One note as stored in the section, with `N` bytes of text.
#[doc(hidden)]
#[repr(C, align(4))]
pub struct Note<const N: usize> {
    /// The words of an ELF note's header, in the machine's byte order: lengths of owner and facts, type.
    header: [u32; 3],
    owner: [u8; 12],
    namespace_len: [u8; 4],
    text: [u8; N],
}

impl<const N: usize> Note<N> {
    /// Creates the note of a range whose name begins with `namespace`.
    pub const fn of_range(namespace: &str, text: &str) -> Note<N> {
        Note::new(TYPE_RANGE, namespace.len(), text)
    }

    /// Creates the note of a collective whose mark leaves options out.
    pub const fn of_undescribed(namespace: &str, text: &str) -> Note<N> {
        Note::new(TYPE_UNDESCRIBED, namespace.len(), text)
    }

    /// Creates the note of a namespace.
    pub const fn of_namespace(text: &str) -> Note<N> {
        Note::new(TYPE_OF_PACKAGE, 0, text)
    }

    const fn new(kind: u32, namespace_len: usize, text: &str) -> Note<N> {
        Note {
            header: [OWNER_LEN, 4 + N as u32, kind],
            owner: OWNER,
            namespace_len: (namespace_len as u32).to_le_bytes(),
            text: match text.as_bytes().first_chunk() {
                Some(text) => *text,
                None => panic!("a note's text is shorter than its type says"),
            },
        }
    }
}

/// The facts of one range, owned: the data of an export, from this program or from a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeRecord {
    /// The full name: `namespace.rest`.
    pub name: String,
    /// The version of the package that declared it; empty when it was not built by Cargo.
    pub version: String,
    /// The module path of the declaration.
    pub module: String,
    /// The source file, as passed to the compiler.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The namespace of the crate that declared it.
    pub namespace: String,
    /// The description of the range.
    pub description: String,
    /// `gpu` or `host`.
    pub kind: &'static str,
    /// `coarse` or `fine`.
    pub level: &'static str,
    /// The range's own lane, if it has one.
    pub lane: Option<String>,
    /// `0xRRGGBB`, if it has one.
    pub color: Option<u32>,
    /// The names of the declared fields.
    pub fields: Vec<String>,
    /// The options that would describe a collective completely but that its mark leaves out.
    pub undescribed: Vec<String>,
}

impl RangeRecord {
    /// Returns the crate that declared the range, as written in paths.
    pub fn krate(&self) -> &str {
        crate_of(&self.module)
    }
}

/// The facts of one namespace, owned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespaceRecord {
    /// The namespace.
    pub name: String,
    /// The version of the package that declared it; empty when it was not built by Cargo.
    pub version: String,
    /// The module path of the declaration: the crate.
    pub module: String,
    /// The source file, as passed to the compiler.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The crate's description of its namespace.
    pub about: String,
    /// The package that contains the crate; empty when it was not built by Cargo.
    pub package: String,
}

impl NamespaceRecord {
    /// Returns the crate that declared the namespace, as written in paths.
    pub fn krate(&self) -> &str {
        crate_of(&self.module)
    }
}

/// A whole catalog, owned and sorted: from the running program or from a binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// The ranges by name, then version, module, file and line.
    pub ranges: Vec<RangeRecord>,
    /// The namespaces by name, then version, module, file and line.
    pub namespaces: Vec<NamespaceRecord>,
    /// The number of notes that a newer version of this crate wrote in a layout that this version cannot read. They are not in the
    /// lists. Always 0 for the running program.
    pub unreadable: usize,
}

/// The byte order of the machine that a binary is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// x86-64, AArch64 and nearly everything else.
    Little,
    /// s390x, some POWER.
    Big,
}

impl Records {
    /// Reads the contents of the section [`SECTION`] of a binary for a machine with this byte order.
    ///
    /// Sections may follow one another, with zeros between them. Notes of other owners are skipped; this crate's notes of unknown
    /// type are counted.
    ///
    /// # Errors
    /// A [`NoteError`] with the offset of the first invalid byte, or of the place where a limit is exceeded: [`MAX_RANGES`],
    /// [`MAX_FIELDS`], [`MAX_NAME`], [`MAX_TEXT`], or memory of four times the number of bytes.
    pub fn from_section(bytes: &[u8], order: ByteOrder) -> Result<Records, NoteError> {
        Records::from_sections(&[(order, bytes)], bytes.len().saturating_mul(4))
    }

    /// Like [`from_section`](Self::from_section), for several sections, with a memory limit in bytes plus at most 1 MiB.
    ///
    /// # Errors
    /// Those of [`from_section`](Self::from_section). The offset is relative to the section that has the error.
    pub fn from_sections(sections: &[(ByteOrder, impl AsRef<[u8]>)], memory: usize) -> Result<Records, NoteError> {
        let mut records = Records::default();
        let mut left = memory.saturating_add(FEW_BYTES);
        let (mut ranges, mut namespaces) = (0_usize, 0_usize);
        for (order, bytes) in sections {
            let mut reader = Reader { bytes: bytes.as_ref(), at: 0, left: 0 };
            while reader.skip_padding() {
                let at = reader.at;
                let counted = match reader.note(*order)? {
                    Some((TYPE_RANGE | TYPE_UNDESCRIBED, _)) => &mut ranges,
                    Some((TYPE_NAMESPACE | TYPE_OF_PACKAGE, _)) => &mut namespaces,
                    _ => continue,
                };
                *counted += 1;
                if *counted > MAX_RANGES {
                    return Err(NoteError { at, what: "more than 65,536 ranges or namespaces" });
                }
            }
        }
        // Counted in advance, so that no list ever grows.
        let lists = ranges * size_of::<RangeRecord>() + namespaces * size_of::<NamespaceRecord>();
        left = left.checked_sub(lists).ok_or(TOO_MUCH)?;
        records.ranges.reserve_exact(ranges);
        records.namespaces.reserve_exact(namespaces);
        for (order, bytes) in sections {
            let mut reader = Reader { bytes: bytes.as_ref(), at: 0, left };
            while reader.skip_padding() {
                if let Some((kind, facts)) = reader.note(*order)? {
                    reader.take_in(kind, facts, &mut records)?;
                }
            }
            left = reader.left;
        }
        records.sort();
        Ok(records)
    }

    pub(super) fn sort(&mut self) {
        sorting::sort(&mut self.ranges);
        sorting::sort(&mut self.namespaces);
    }
}

/// Why the bytes of a section are not a catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoteError {
    /// Offset in the section, in bytes.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}

impl fmt::Display for NoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the catalog is damaged at byte {} of its section: {}; build the binary again", self.at, self.what)
    }
}

impl std::error::Error for NoteError {}

/// The lists alone exceed the memory limit.
const TOO_MUCH: NoteError = NoteError { at: 0, what: "more ranges and fields than a file of its size can hold" };

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The number of bytes of memory that may still be used.
    left: usize,
}

impl<'a> Reader<'a> {
    /// Skips zeros, with which no note begins. Returns whether anything follows.
    fn skip_padding(&mut self) -> bool {
        while let Some(word @ [_, ..]) = self.bytes.get(self.at..self.bytes.len().min(self.at + 4)) {
            if word.iter().any(|&byte| byte != 0) {
                return true;
            }
            self.at += word.len();
        }
        false
    }

    /// Skips a note. Returns its type and the position of its facts, if it is this crate's.
    fn note(&mut self, order: ByteOrder) -> Result<Option<(u32, Range<usize>)>, NoteError> {
        let owner_len = self.header_word(order)?;
        let facts_len = self.header_word(order)?;
        let kind = self.header_word(order)?;
        let owner = self.padded(owner_len)?;
        let start = self.at;
        self.padded(facts_len)?;
        Ok((owner == OWNER).then(|| (kind, start..start + facts_len as usize)))
    }

    /// Reads the facts of a note of this crate.
    fn take_in(&mut self, kind: u32, facts: Range<usize>, records: &mut Records) -> Result<(), NoteError> {
        // Offsets in errors count from the start of the section, so the inner reader gets the bytes from there.
        let mut inner = Reader { bytes: &self.bytes[..facts.end], at: facts.start, left: self.left };
        match kind {
            TYPE_RANGE | TYPE_UNDESCRIBED => records.ranges.push(inner.range(kind == TYPE_UNDESCRIBED)?),
            TYPE_NAMESPACE | TYPE_OF_PACKAGE => {
                records.namespaces.push(inner.namespace(kind == TYPE_OF_PACKAGE)?);
            }
            _ => {
                records.unreadable += 1;
                return Ok(());
            }
        }
        self.left = inner.left;
        if inner.at < inner.bytes.len() {
            return Err(NoteError { at: inner.at, what: "bytes that belong to nothing" });
        }
        Ok(())
    }

    fn range(&mut self, is_undescribed: bool) -> Result<RangeRecord, NoteError> {
        let at = self.at;
        let namespace_len = u32::from_le_bytes(*self.array()?) as usize;
        let name_at = self.at;
        let name = self.text()?;
        let namespace = name.get(..namespace_len).ok_or(NoteError { at, what: "a namespace longer than the name" })?;
        let name = self.keep(name_at, name, MAX_NAME)?;
        Ok(RangeRecord {
            namespace: self.keep(at, namespace, MAX_NAME)?,
            name,
            kind: self.parsed(Kind::named, "unknown kind of range")?.as_str(),
            level: self.parsed(Level::named, "unknown level")?.as_str(),
            description: self.kept(MAX_TEXT)?,
            lane: Some(self.kept(MAX_NAME)?).filter(|lane| !lane.is_empty()),
            color: self.parsed(color, "a color that is not six hexadecimal digits")?,
            module: self.kept(MAX_TEXT)?,
            file: self.kept(MAX_TEXT)?,
            line: self.line()?,
            version: self.kept(MAX_TEXT)?,
            undescribed: if is_undescribed { self.undescribed()? } else { Vec::new() },
            fields: self.names()?,
        })
    }

    fn namespace(&mut self, has_package: bool) -> Result<NamespaceRecord, NoteError> {
        self.take(4)?;
        Ok(NamespaceRecord {
            name: self.kept(MAX_NAME)?,
            about: self.kept(MAX_TEXT)?,
            module: self.kept(MAX_TEXT)?,
            file: self.kept(MAX_TEXT)?,
            line: self.line()?,
            version: self.kept(MAX_TEXT)?,
            package: if has_package { self.kept(MAX_TEXT)? } else { String::new() },
        })
    }

    /// Reads a word of a note's header, in the byte order of the machine that the binary is built for.
    fn header_word(&mut self, order: ByteOrder) -> Result<u32, NoteError> {
        let bytes = *self.array()?;
        Ok(match order {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        })
    }

    /// Reads `len` bytes and the zeros that pad them to words.
    fn padded(&mut self, len: u32) -> Result<&'a [u8], NoteError> {
        self.take((len as usize).checked_next_multiple_of(4).unwrap_or(usize::MAX))
    }

    fn line(&mut self) -> Result<u32, NoteError> {
        self.parsed(|line| u32::from_str(line).ok(), "a line that is not a number")
    }

    /// Reads the options that a mark leaves out: at least one.
    fn undescribed(&mut self) -> Result<Vec<String>, NoteError> {
        let at = self.at;
        let text = self.text()?;
        self.list(at, text.split(' '), "no options")
    }

    /// Reads the names up to the end.
    fn names(&mut self) -> Result<Vec<String>, NoteError> {
        let at = self.at;
        let rest = self.bytes.get(at..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(Vec::new());
        }
        let rest = rest.strip_suffix(b"\0").ok_or(NoteError { at, what: "cut short" })?;
        let text = std::str::from_utf8(rest).map_err(|_| NoteError { at, what: "text that is not UTF-8" })?;
        self.at = self.bytes.len();
        self.list(at, text.split('\0'), "a field without a name")
    }

    /// Reads non-empty names; `empty` is the error text for an empty one.
    fn list<'t>(
        &mut self,
        at: usize,
        names: impl Iterator<Item = &'t str> + Clone,
        empty: &'static str,
    ) -> Result<Vec<String>, NoteError> {
        let count = names.clone().take(MAX_FIELDS + 1).count();
        if count > MAX_FIELDS {
            return Err(NoteError { at, what: "more than 64 fields or options in one range" });
        }
        self.spend(at, count * size_of::<String>())?;
        let mut list = Vec::with_capacity(count);
        let mut at = at;
        for name in names {
            if name.is_empty() {
                return Err(NoteError { at, what: empty });
            }
            list.push(self.keep(at, name, MAX_NAME)?);
            at += name.len() + 1;
        }
        Ok(list)
    }

    /// Reads the next text, owned.
    fn kept(&mut self, most: usize) -> Result<String, NoteError> {
        let at = self.at;
        let text = self.text()?;
        self.keep(at, text, most)
    }

    /// Returns an owned copy of a text of at most this many bytes.
    fn keep(&mut self, at: usize, text: &str, most: usize) -> Result<String, NoteError> {
        if text.len() > most {
            let what = if most == MAX_NAME { "a name of more than 1,024 bytes" } else { "a text of more than 64 KiB" };
            return Err(NoteError { at, what });
        }
        self.spend(at, text.len())?;
        Ok(text.to_owned())
    }

    /// Counts this many bytes as used.
    fn spend(&mut self, at: usize, bytes: usize) -> Result<(), NoteError> {
        self.left = self.left.checked_sub(bytes).ok_or(NoteError { at, ..TOO_MUCH })?;
        Ok(())
    }

    /// Reads a text and parses it to another type.
    fn parsed<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>, what: &'static str) -> Result<T, NoteError> {
        let at = self.at;
        parse(self.text()?).ok_or(NoteError { at, what })
    }

    /// Reads the next text, without its NUL.
    fn text(&mut self) -> Result<&'a str, NoteError> {
        let at = self.at;
        let rest = self.bytes.get(at..).unwrap_or_default();
        let len = rest.iter().position(|&byte| byte == 0).ok_or(NoteError { at, what: "cut short" })?;
        let text =
            std::str::from_utf8(self.take(len)?).map_err(|_| NoteError { at, what: "text that is not UTF-8" })?;
        self.at += 1;
        Ok(text)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], NoteError> {
        let at = self.at;
        self.take(N)?.try_into().map_err(|_| NoteError { at, what: "cut short" })
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], NoteError> {
        let cut = NoteError { at: self.at, what: "cut short" };
        let end = self.at.checked_add(len).ok_or(cut)?;
        let bytes = self.bytes.get(self.at..end).ok_or(cut)?;
        self.at = end;
        Ok(bytes)
    }
}

/// Parses `RRGGBB`, or nothing.
fn color(text: &str) -> Option<Option<u32>> {
    match text.len() {
        0 => Some(None),
        6 => u32::from_str_radix(text, 16).ok().map(Some),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
