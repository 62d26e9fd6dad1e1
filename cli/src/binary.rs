//! Finds the catalog in a binary: executables, shared libraries, object files and archives (`.rlib`, `.a`), as ELF,
//! Mach-O (also universal) and PE, stripped or not, for any machine.
//!
//! The commands `catalog` and `check` and the fuzz target call it. In an ELF file without section headers, the program
//! headers locate the notes. It never panics, whatever the bytes are, reads at most [`MAX_READ`] bytes of a file, and
//! uses at most four times the file's length in memory, plus 2 MiB.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use object::read::archive::ArchiveFile;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::read::macho::{FatArch, MachOFatFile32, MachOFatFile64};
use object::read::{FileKind, ReadRef};
use object::{Endianness, Object, ObjectSection, elf};
use warpline_core::catalog::record::SECTION;
use warpline_core::catalog::{ByteOrder, NoteError, Records};

use crate::bounded_read::{Source, Window};

/// The maximum size of all notes: [`MAX_RANGES`](warpline_core::catalog::record::MAX_RANGES) ranges of 256 bytes.
pub const MAX_NOTES: u64 = 16 << 20;

/// The maximum number of bytes that are read from one file: headers, tables, notes.
pub const MAX_READ: u64 = 256 << 20;

/// Bytes that may be read from any file in addition to twice its length.
const FEW_BYTES: u64 = 1 << 20;

/// Why no catalog could be read from a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BinaryError {
    /// The file cannot be opened or read.
    #[error("{path}: {error}; name an executable, a shared library or an `.rlib`", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The path is a directory, a pipe or a device.
    #[error("{path} is {what}, not a file; name an executable, a shared library or an `.rlib`", path = path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// The kind of file that it is.
        what: &'static str,
    },
    /// The format cannot contain a catalog.
    #[error(
        "neither a binary nor a trace; name an executable, a shared library, an object file or an `.rlib` (ELF, Mach-O or PE), or a trace that a session \
         wrote"
    )]
    NotABinary,
    /// The file begins like a binary, but its structure is invalid.
    #[error("the binary is damaged or truncated: {0}; build it again")]
    Damaged(String),
    /// The file is a thin archive, which only refers to other files.
    #[error("a thin archive contains no code; name the binary that it is linked into")]
    ThinArchive,
    /// The archive was built for LTO.
    #[error(
        "the archive contains LLVM bitcode and no machine code, because it is built for fat LTO; name the binary that it \
         is linked into, or turn `lto` off"
    )]
    Bitcode,
    /// The binary is valid and contains no mark.
    #[error(
        "no warpline catalog: nothing marked is linked into this binary. A dependency that the code never names is not \
         linked (`use my_kernels as _;` links it); if this is the wrong file, name another one"
    )]
    NoCatalog,
    /// The notes are larger than [`MAX_NOTES`].
    #[error("the catalog is larger than {} MiB, which no program needs; is the file damaged?", MAX_NOTES >> 20)]
    CatalogTooLarge,
    /// The headers and tables are larger than [`MAX_READ`], or than twice the file.
    #[error(
        "the headers of the binary ask for more than twice its size, or for more than {} MiB; is the file damaged?",
        MAX_READ >> 20
    )]
    FileTooLarge,
    /// The sections of the catalog together are longer than the file.
    #[error("the sections of the catalog overlap; is the file damaged?")]
    Overlapping,
    /// The notes are malformed.
    #[error(transparent)]
    Note(#[from] NoteError),
}

/// Reads the catalog of the file at `path`.
///
/// # Errors
/// The reason, with the remedy. Only the texts of [`BinaryError::Io`] and [`BinaryError::NotAFile`] name the path.
pub fn open(path: &Path) -> Result<Records, BinaryError> {
    let io = |error| BinaryError::Io { path: path.to_owned(), error };
    // Checked before the file is opened: opening a pipe blocks until it has a writer.
    let kind = std::fs::metadata(path).map_err(io)?.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() { "a directory" } else { "a pipe or a device" };
        return Err(BinaryError::NotAFile { path: path.to_owned(), what });
    }
    read(File::open(path).map_err(io)?)
}

/// Reads the catalog of a binary.
///
/// # Errors
/// Why no catalog could be read.
pub fn read(mut file: impl Read + Seek) -> Result<Records, BinaryError> {
    let len = file.seek(SeekFrom::End(0)).map_err(|_| BinaryError::NotABinary)?;
    let twice = len.saturating_mul(2);
    let source = Source::new(file, twice.saturating_add(FEW_BYTES).min(MAX_READ));
    let mut notes = Notes { sections: Vec::new(), file_len: len, len: 0, copied: 0, saw_bitcode: false };
    let found = source.whole().map_err(|()| BinaryError::NotABinary).and_then(|whole| notes.of_file(whole));
    if source.is_exhausted() {
        return Err(BinaryError::FileTooLarge);
    }
    found?;
    // The bytes that were read still occupy memory.
    let memory = len.saturating_mul(4).saturating_sub(source.spent() + notes.copied);
    let records = Records::from_sections(&notes.sections, usize::try_from(memory).unwrap_or(usize::MAX))?;
    if records == Records::default() {
        return Err(if notes.saw_bitcode { BinaryError::Bitcode } else { BinaryError::NoCatalog });
    }
    Ok(records)
}

/// The notes found so far.
struct Notes<'a> {
    sections: Vec<(ByteOrder, Cow<'a, [u8]>)>,
    file_len: u64,
    /// Bytes of all sections.
    len: u64,
    /// Bytes of the sections that had to be copied.
    copied: u64,
    saw_bitcode: bool,
}

impl<'a> Notes<'a> {
    fn of_file<F: Read + Seek>(&mut self, file: Window<'a, F>) -> Result<(), BinaryError> {
        match FileKind::parse(file).map_err(|_| BinaryError::NotABinary)? {
            FileKind::Archive => self.of_archive(file),
            FileKind::MachOFat32 => {
                let fat = MachOFatFile32::parse(file).map_err(|_| BinaryError::NotABinary)?;
                self.of_universal(file, fat.arches())
            }
            FileKind::MachOFat64 => {
                let fat = MachOFatFile64::parse(file).map_err(|_| BinaryError::NotABinary)?;
                self.of_universal(file, fat.arches())
            }
            kind => self.of_object(file, kind),
        }
    }

    /// Reads the first slice that has a catalog: each slice is the same program for another machine.
    fn of_universal<F: Read + Seek>(
        &mut self,
        file: Window<'a, F>,
        slices: &[impl FatArch],
    ) -> Result<(), BinaryError> {
        for slice in slices {
            let (offset, len) = slice.file_range();
            let slice = part(file, offset, len)?;
            self.of_object(slice, FileKind::parse(slice).map_err(damaged)?)?;
            if !self.sections.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn of_archive<F: Read + Seek>(&mut self, file: Window<'a, F>) -> Result<(), BinaryError> {
        let archive = ArchiveFile::parse(file).map_err(damaged)?;
        if archive.is_thin() {
            return Err(BinaryError::ThinArchive);
        }
        for member in archive.members() {
            let (offset, len) = member.map_err(damaged)?.file_range();
            let member = part(file, offset, len)?;
            match FileKind::parse(member) {
                Ok(kind) => self.of_object(member, kind)?,
                // An archive may contain any file; metadata and licenses are not damage.
                Err(_) => self.saw_bitcode |= matches!(member.read_bytes_at(0, 4), Ok(b"BC\xC0\xDE")),
            }
        }
        Ok(())
    }

    fn of_object<F: Read + Seek>(&mut self, file: Window<'a, F>, kind: FileKind) -> Result<(), BinaryError> {
        match kind {
            FileKind::Elf32 => self.of_elf::<elf::FileHeader32<Endianness>, F>(file),
            FileKind::Elf64 => self.of_elf::<elf::FileHeader64<Endianness>, F>(file),
            FileKind::MachO32
            | FileKind::MachO64
            | FileKind::Pe32
            | FileKind::Pe64
            | FileKind::Coff
            | FileKind::CoffBig => self.of_other(file),
            _ => Ok(()),
        }
    }

    /// Does not use [`object::File`], which first reads the symbol tables: they can be gigabytes.
    fn of_elf<Elf: FileHeader<Endian = Endianness>, F: Read + Seek>(
        &mut self,
        file: Window<'a, F>,
    ) -> Result<(), BinaryError> {
        let header = Elf::parse(file).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        let sections = header.sections(endian, file).map_err(damaged)?;
        let mut found = false;
        for section in sections.iter() {
            if !sections.section_name(endian, section).is_ok_and(is_ours) {
                continue;
            }
            self.add(endian, section.sh_size(endian).into(), || section.data(endian, file).map_err(damaged))?;
            found = true;
        }
        if found {
            return Ok(());
        }
        for segment in header.program_headers(endian, file).map_err(damaged)? {
            // Notes with a larger alignment are not warpline's, and are padded differently.
            if segment.p_type(endian) == elf::PT_NOTE && segment.p_align(endian).into() <= 4 {
                let (offset, len) = segment.file_range(endian);
                self.add(endian, len, || file.read_bytes_at(offset, len).map_err(|()| cut_short()))?;
            }
        }
        Ok(())
    }

    fn of_other<F: Read + Seek>(&mut self, file: Window<'a, F>) -> Result<(), BinaryError> {
        let object = object::File::parse(file).map_err(damaged)?;
        for section in object.sections() {
            if section.name_bytes().is_ok_and(is_ours) {
                self.add(object.endianness(), section.size(), || section.data().map_err(damaged))?;
            }
        }
        Ok(())
    }

    /// Adds the notes of one section. The size is checked before anything is read.
    fn add(
        &mut self,
        endian: Endianness,
        size: u64,
        data: impl FnOnce() -> Result<&'a [u8], BinaryError>,
    ) -> Result<(), BinaryError> {
        self.len = self.len.saturating_add(size);
        if self.len > MAX_NOTES {
            return Err(BinaryError::CatalogTooLarge);
        }
        if self.len > self.file_len {
            return Err(BinaryError::Overlapping);
        }
        let order = if endian == Endianness::Big { ByteOrder::Big } else { ByteOrder::Little };
        let mut data = Cow::Borrowed(data()?);
        if !data.len().is_multiple_of(4) {
            // The padding of the last note may be missing.
            let words = data.len().next_multiple_of(4);
            self.copied += words as u64;
            let mut padded = Vec::with_capacity(words);
            padded.extend_from_slice(&data);
            padded.resize(words, 0);
            data = Cow::Owned(padded);
        }
        if !data.is_empty() {
            self.sections.push((order, data));
        }
        Ok(())
    }
}

fn is_ours(name: &[u8]) -> bool {
    SECTION.iter().any(|ours| ours.as_bytes() == name)
}

fn damaged(error: object::Error) -> BinaryError {
    BinaryError::Damaged(error.to_string())
}

fn cut_short() -> BinaryError {
    BinaryError::Damaged("a part of it is outside the file".to_owned())
}

fn part<F: Read + Seek>(file: Window<'_, F>, offset: u64, len: u64) -> Result<Window<'_, F>, BinaryError> {
    file.part(offset, len).map_err(|()| cut_short())
}
