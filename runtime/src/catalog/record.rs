//! The pointer-free record of a range in the binary's own section, and its reader.
//!
//! Each range and each namespace is one ELF note in the section [`SECTION`]: the 12-byte note header, the owner
//! `warpline\0` padded to 12 bytes, and the facts. Linkers keep notes even when they drop what nobody refers to,
//! `strip` leaves them, and tools that know nothing of warpline step over them (`readelf -n` lists them). Other object
//! formats get the same bytes in a section of another name.
//!
//! Layout of the facts, all integers little-endian: `kind: u8, level: u8, flags: u8 (1 lane, 2 color), fields: u8,
//! color: u32, line: u32`, then strings, each `len: u32` and its UTF-8 bytes: name, namespace, description, lane,
//! module, version, file, then the field names. A namespace: `line: u32`, then name, about, module, version, file.
//! Zeros pad to four bytes. The `warpline` command calls the reader, on files that anybody may have made: it trusts
//! nothing, every length is checked against what is there, no allocation is larger than a small multiple of its input.

use std::fmt;

use super::spec::{Facts, Kind, Level, NamespaceSpec, crate_of};

/// The section that holds the notes in ELF, Mach-O (without its segment) and PE files.
pub const SECTION: [&str; 3] = [".note.warpline", "__warpline", ".wrpln"];

/// The owner in every note's header.
const OWNER: [u8; 12] = *b"warpline\0\0\0\0";
const OWNER_LEN: u32 = 9;
const HEADER: usize = 12 + OWNER.len();
/// Note types. A new layout gets new numbers; readers skip the numbers that they do not know.
const TYPE_RANGE: u32 = 1;
const TYPE_NAMESPACE: u32 = 2;
/// Bits of a range's flags.
const FLAG_LANE: u8 = 1;
const FLAG_COLOR: u8 = 2;

/// One note, as it lies in the section.
#[doc(hidden)]
#[repr(C, align(4))]
pub struct Note<const N: usize>([u8; N]);

impl<const N: usize> Note<N> {
    pub const fn of_range(facts: &Facts) -> Note<N> {
        let mut note = [0; N];
        write_range(&mut note, facts);
        Note(note)
    }

    pub const fn of_namespace(spec: &NamespaceSpec) -> Note<N> {
        let mut note = [0; N];
        write_namespace(&mut note, spec);
        Note(note)
    }
}

const fn write_range(note: &mut [u8], facts: &Facts) {
    assert!(facts.fields.len() <= u8::MAX as usize, "a range has more fields than its record can hold: at most 255");
    let flags = (facts.lane.is_some() as u8 * FLAG_LANE) | (facts.color.is_some() as u8 * FLAG_COLOR);
    let color = match facts.color {
        Some(color) => color,
        None => 0,
    };
    let mut rest = header(note, TYPE_RANGE);
    rest = raw(rest, &[facts.kind as u8, facts.level as u8, flags, facts.fields.len() as u8]);
    rest = raw(rest, &color.to_le_bytes());
    rest = raw(rest, &facts.line.to_le_bytes());
    rest = text(rest, facts.name());
    rest = text(rest, facts.namespace);
    rest = text(rest, facts.description);
    rest = text(
        rest,
        match facts.lane {
            Some(lane) => lane,
            None => "",
        },
    );
    rest = text(rest, facts.module);
    rest = text(rest, facts.version());
    rest = text(rest, facts.file);
    let mut i = 0;
    while i < facts.fields.len() {
        rest = text(rest, facts.fields[i]);
        i += 1;
    }
}

const fn write_namespace(note: &mut [u8], spec: &NamespaceSpec) {
    let mut rest = header(note, TYPE_NAMESPACE);
    rest = raw(rest, &spec.line.to_le_bytes());
    rest = text(rest, spec.name);
    rest = text(rest, spec.about);
    rest = text(rest, spec.module);
    rest = text(
        rest,
        match spec.version {
            Some(version) => version,
            None => "",
        },
    );
    text(rest, spec.file);
}

/// Writes the header of a note that fills `note`, and gives what is left. Like its siblings it works on slices, so that
/// the compiler evaluates one function for notes of every size; a note that is too short fails to compile.
const fn header(note: &mut [u8], kind: u32) -> &mut [u8] {
    let facts_len = (note.len() - HEADER) as u32;
    // The three words of an ELF note's header are in the machine's byte order.
    let rest = raw(note, &OWNER_LEN.to_ne_bytes());
    let rest = raw(rest, &facts_len.to_ne_bytes());
    let rest = raw(rest, &kind.to_ne_bytes());
    raw(rest, &OWNER)
}

const fn text<'a>(note: &'a mut [u8], text: &str) -> &'a mut [u8] {
    let rest = raw(note, &(text.len() as u32).to_le_bytes());
    raw(rest, text.as_bytes())
}

const fn raw<'a>(note: &'a mut [u8], bytes: &[u8]) -> &'a mut [u8] {
    let (here, rest) = note.split_at_mut(bytes.len());
    here.copy_from_slice(bytes);
    rest
}

impl Facts {
    /// The size in bytes of this range's note.
    pub const fn note_len(&self) -> usize {
        let lane = match self.lane {
            Some(lane) => lane.len(),
            None => 0,
        };
        let mut len = HEADER + 12 + 7 * 4 + self.name().len() + self.namespace.len() + self.description.len() + lane;
        len += self.module.len() + self.version().len() + self.file.len();
        let mut i = 0;
        while i < self.fields.len() {
            len += 4 + self.fields[i].len();
            i += 1;
        }
        len.next_multiple_of(4)
    }
}

impl NamespaceSpec {
    /// The size in bytes of this namespace's note.
    pub const fn note_len(&self) -> usize {
        let version = match self.version {
            Some(version) => version.len(),
            None => 0,
        };
        let strings = self.name.len() + self.about.len() + self.module.len() + version + self.file.len();
        (HEADER + 4 + 5 * 4 + strings).next_multiple_of(4)
    }
}

/// The facts of one range, owned: what an export shows, whether it came from this program or from a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct RangeRecord {
    /// The full name: `namespace.rest`.
    pub name: String,
    /// The version of the package that declared it; empty when it was not built by Cargo.
    pub version: String,
    /// The module path of the declaration.
    pub module: String,
    /// The source file, as the compiler was given it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The namespace of the crate that declared it.
    pub namespace: String,
    /// What the range is.
    pub description: String,
    /// `gpu` or `host`.
    pub kind: &'static str,
    /// `coarse` or `fine`.
    pub level: &'static str,
    /// The lane of its own, if it has one.
    pub lane: Option<String>,
    /// `0xRRGGBB`, if it has one.
    pub color: Option<u32>,
    /// The names of the declared fields.
    pub fields: Vec<String>,
}

impl RangeRecord {
    /// The crate that declared the range, as it is named in paths.
    pub fn krate(&self) -> &str {
        crate_of(&self.module)
    }
}

/// The facts of one namespace, owned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct NamespaceRecord {
    /// The namespace.
    pub name: String,
    /// The version of the package that declared it; empty when it was not built by Cargo.
    pub version: String,
    /// The module path of the declaration: the crate.
    pub module: String,
    /// The source file, as the compiler was given it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// What the crate says its namespace is.
    pub about: String,
}

impl NamespaceRecord {
    /// The crate that declared the namespace, as it is named in paths.
    pub fn krate(&self) -> &str {
        crate_of(&self.module)
    }
}

/// A whole catalog, owned and sorted: of the program that runs, or of a binary that does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// The ranges by name, then version, module, file and line.
    pub ranges: Vec<RangeRecord>,
    /// The namespaces by name, then version, module, file and line.
    pub namespaces: Vec<NamespaceRecord>,
    /// How many notes a newer version of this crate wrote in a layout that this one cannot read; they are not in the
    /// lists. Always 0 for the program that runs.
    pub unreadable: usize,
}

/// The order of bytes on the machine that a binary is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// x86-64, AArch64 and nearly everything else.
    Little,
    /// s390x, some POWER.
    Big,
}

impl Records {
    /// Reads the contents of the section [`SECTION`] of a binary for a machine with this order of bytes.
    ///
    /// Sections may stand behind one another, with zeros between them. Notes of other owners are stepped over; those of
    /// this crate that are of an unknown type are counted.
    ///
    /// # Errors
    /// A [`NoteError`] with the offset where the bytes stop making sense.
    pub fn from_section(bytes: &[u8], order: ByteOrder) -> Result<Records, NoteError> {
        let mut records = Records::default();
        let mut reader = Reader { bytes, at: 0 };
        while reader.skip_padding() {
            reader.note(order, &mut records)?;
        }
        records.sort();
        Ok(records)
    }

    pub(super) fn sort(&mut self) {
        self.ranges.sort_unstable();
        self.namespaces.sort_unstable();
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

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Steps over zeros, which no note begins with. Says whether anything follows.
    fn skip_padding(&mut self) -> bool {
        while let Some(word @ [_, ..]) = self.bytes.get(self.at..self.bytes.len().min(self.at + 4)) {
            if word.iter().any(|&byte| byte != 0) {
                return true;
            }
            self.at += word.len();
        }
        false
    }

    fn note(&mut self, order: ByteOrder, records: &mut Records) -> Result<(), NoteError> {
        let owner_len = self.header_word(order)?;
        let facts_len = self.header_word(order)?;
        let kind = self.header_word(order)?;
        let owner = self.padded(owner_len)?;
        let start = self.at;
        let facts = self.padded(facts_len)?;
        if owner != OWNER {
            return Ok(());
        }
        // Offsets in errors count from the start of the section, so the inner reader sees it from there.
        let mut inner = Reader { bytes: &self.bytes[..start + facts.len()], at: start };
        match kind {
            TYPE_RANGE => records.ranges.push(inner.range()?),
            TYPE_NAMESPACE => records.namespaces.push(inner.namespace()?),
            _ => {
                records.unreadable += 1;
                return Ok(());
            }
        }
        if inner.bytes.len() - inner.at >= 4 {
            return Err(NoteError { at: inner.at, what: "bytes that belong to nothing" });
        }
        Ok(())
    }

    fn range(&mut self) -> Result<RangeRecord, NoteError> {
        let at = self.at;
        let [kind, level, flags, fields] = *self.array::<4>()?;
        let kind = Kind::from_u8(kind).ok_or(NoteError { at, what: "unknown kind of range" })?.as_str();
        let level = Level::from_u8(level).ok_or(NoteError { at, what: "unknown level" })?.as_str();
        if flags & !(FLAG_LANE | FLAG_COLOR) != 0 {
            return Err(NoteError { at, what: "unknown flags" });
        }
        let color = self.u32()?;
        let line = self.u32()?;
        let name = self.text()?;
        let namespace = self.text()?;
        let description = self.text()?;
        let lane = self.text()?;
        Ok(RangeRecord {
            name,
            namespace,
            description,
            kind,
            level,
            lane: (flags & FLAG_LANE != 0).then_some(lane),
            color: (flags & FLAG_COLOR != 0).then_some(color),
            line,
            module: self.text()?,
            version: self.text()?,
            file: self.text()?,
            fields: (0..fields).map(|_| self.text()).collect::<Result<_, _>>()?,
        })
    }

    fn namespace(&mut self) -> Result<NamespaceRecord, NoteError> {
        let line = self.u32()?;
        Ok(NamespaceRecord {
            line,
            name: self.text()?,
            about: self.text()?,
            module: self.text()?,
            version: self.text()?,
            file: self.text()?,
        })
    }

    /// A word of a note's header: in the order of the machine that the binary is made for.
    fn header_word(&mut self, order: ByteOrder) -> Result<u32, NoteError> {
        let bytes = *self.array()?;
        Ok(match order {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        })
    }

    /// `len` bytes and the zeros that fill them up to words.
    fn padded(&mut self, len: u32) -> Result<&'a [u8], NoteError> {
        self.take((len as usize).checked_next_multiple_of(4).unwrap_or(usize::MAX))
    }

    fn u32(&mut self) -> Result<u32, NoteError> {
        Ok(u32::from_le_bytes(*self.array()?))
    }

    fn text(&mut self) -> Result<String, NoteError> {
        let len = self.u32()? as usize;
        let at = self.at;
        let bytes = self.take(len)?;
        let text = std::str::from_utf8(bytes).map_err(|_| NoteError { at, what: "text that is not UTF-8" })?;
        Ok(text.to_owned())
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

#[cfg(test)]
mod tests;
