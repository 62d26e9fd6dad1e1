//! The reader, format by format and damage by damage: what it finds, what it says, and that it stays small.

use std::fs::File;
use std::io::{Cursor, Seek, SeekFrom, Write};

use object::{Architecture, BinaryFormat, Endianness};
use proptest::prelude::*;
use warpline::catalog::Records;
use warpline_cli::binary::{self, BinaryError, MAX_NOTES};

use crate::support::binaries;

fn read(bytes: &[u8]) -> Result<Records, BinaryError> {
    binary::read(Cursor::new(bytes))
}

fn refusal(bytes: &[u8]) -> String {
    read(bytes).unwrap_err().to_string()
}

#[test]
fn every_format_gives_the_same_catalog() {
    for (name, bytes) in binaries::all() {
        let records = read(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((records.ranges.len(), records.namespaces.len()), (1, 1), "{name}");
        let (range, space) = (&records.ranges[0], &records.namespaces[0]);
        assert_eq!((&*range.name, &*range.description, range.kind, range.level), ("demo.add", "Adds.", "gpu", "fine"));
        assert_eq!((range.lane.as_deref(), range.color, range.line), (Some("copy"), Some(0x76_b9_00), 9), "{name}");
        assert_eq!((range.fields.as_slice(), range.krate()), (&["n".to_owned()][..], "demo"), "{name}");
        assert_eq!((&*space.name, &*space.about, space.line), ("demo", "vector arithmetic", 5), "{name}");
        assert!(records.faults().is_empty(), "{name}");
    }
}

#[test]
fn an_archive_adds_up_its_members() {
    let archive = binaries::archive(&[("a.o", &binaries::elf()), ("LICENSE", b"all yours"), ("b.o", &binaries::elf())]);
    assert_eq!(read(&archive).unwrap().ranges.len(), 2);
}

#[test]
fn what_is_not_a_binary_is_refused() {
    let text = "neither a binary nor a trace; name an executable, a shared library, an object file or an `.rlib` (ELF, Mach-O or PE), or a trace that a session wrote";
    for bytes in [&b""[..], b"\x7f", b"#!/bin/sh\necho an ordinary script\n", &[0; 4096], b"MZ this is a DOS program"] {
        assert_eq!(refusal(bytes), text);
    }
}

#[test]
fn a_binary_without_marks_is_refused_with_the_usual_reason() {
    let empty = binaries::object(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little, &[]);
    for bytes in [empty.clone(), binaries::archive(&[("a.o", &empty)])] {
        let refusal = refusal(&bytes);
        assert!(refusal.starts_with("no warpline catalog: nothing marked is linked into this binary."), "{refusal}");
        assert!(refusal.contains("A dependency that the code never names is not linked"), "{refusal}");
    }
}

#[test]
fn archives_that_hold_no_code_say_why() {
    let bitcode = binaries::archive(&[("a.o", b"BC\xC0\xDE and so on, sixteen bytes")]);
    assert!(matches!(read(&bitcode), Err(BinaryError::Bitcode)));
    let mut thin = binaries::archive(&[("a.o", b"")]);
    thin[..8].copy_from_slice(b"!<thin>\n");
    assert!(matches!(read(&thin), Err(BinaryError::ThinArchive)));
}

#[test]
fn damaged_notes_are_refused_with_their_place() {
    let mut notes = binaries::notes(Endianness::Little);
    let last = notes.len() - 12;
    notes.truncate(last);
    let file = binaries::object(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little, &notes);
    let refusal = refusal(&file);
    assert!(refusal.starts_with("the catalog is damaged at byte "), "{refusal}");
    assert!(refusal.ends_with("cut short; build the binary again"), "{refusal}");
}

#[test]
fn notes_of_a_newer_layout_are_counted_and_not_lost() {
    let mut notes = binaries::notes(Endianness::Little);
    notes[8] = 200;
    let file = binaries::object(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little, &notes);
    let records = read(&file).unwrap();
    assert_eq!((records.ranges.len(), records.namespaces.len(), records.unreadable), (1, 0, 1));
}

#[test]
fn every_cut_is_refused_or_changes_nothing() {
    for (name, bytes) in binaries::all() {
        let whole = read(&bytes).unwrap();
        for len in (0..bytes.len()).step_by(if bytes.len() > 4096 { 97 } else { 1 }) {
            if let Ok(records) = read(&bytes[..len]) {
                // Of an archive, the members before the cut may be whole; of a universal binary, the first slice.
                assert!(records == whole || records.ranges.len() < whole.ranges.len(), "{name} cut at {len}");
            }
        }
    }
}

/// A file that claims a section of 4 GiB, and has the bytes: refused by its size, before anything is read.
#[test]
fn a_huge_section_is_refused_unread() {
    let mut bytes = binaries::elf();
    let size = u64::from(u32::MAX);
    let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let notes = binaries::notes(Endianness::Little).len() as u64;
    let header = (headers..bytes.len())
        .step_by(64)
        .find(|&at| u64::from_le_bytes(bytes[at + 32..at + 40].try_into().unwrap()) == notes)
        .unwrap();
    bytes[header + 32..header + 40].copy_from_slice(&size.to_le_bytes());
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    file.set_len(size * 2).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    assert!(matches!(binary::read(file), Err(BinaryError::CatalogTooLarge)));
    assert!(size > MAX_NOTES);
}

/// A file that claims four thousand million section headers, and has the bytes.
#[test]
fn huge_headers_are_refused() {
    let mut bytes = binaries::elf();
    let len = 300_u64 << 30;
    bytes[40..48].copy_from_slice(&4096_u64.to_le_bytes());
    bytes[60..62].copy_from_slice(&[0; 2]);
    bytes.resize(4096 + 64, 0);
    bytes[4096 + 32..4096 + 40].copy_from_slice(&u64::from(u32::MAX).to_le_bytes());
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    if file.set_len(len).is_err() {
        return; // Not every file system has sparse files of this size.
    }
    file.seek(SeekFrom::Start(0)).unwrap();
    assert!(matches!(binary::read(file), Err(BinaryError::FileTooLarge)));
}

#[test]
fn paths_that_are_no_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refusal = binary::open(dir.path()).unwrap_err().to_string();
    let path = dir.path().display();
    assert_eq!(
        refusal,
        format!("{path} is a directory, not a file; name an executable, a shared library or an `.rlib`")
    );
    let missing = dir.path().join("missing");
    assert!(binary::open(&missing).unwrap_err().to_string().starts_with(&format!("{}: ", missing.display())));
    File::create(dir.path().join("empty")).unwrap();
    assert!(matches!(binary::open(&dir.path().join("empty")), Err(BinaryError::NotABinary)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3_000) })]

    #[test]
    fn changed_binaries_never_panic(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let (_, mut bytes) = which.get(&binaries::all()).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len().min(1024));
            bytes[at] = byte;
        }
        let _ = read(&bytes).map(|records| (records.faults().len(), records.to_json(), records.to_markdown()));
    }
}

/// Run by hand when the layout changes: `cargo test -p warpline-cli --test formats -- --ignored`.
#[test]
#[ignore = "writes the seeds of the fuzz targets into the source tree"]
fn write_the_fuzz_seeds() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    for (name, bytes) in binaries::all() {
        std::fs::write(seeds.join("binary_reader").join(name), bytes).unwrap();
    }
    for (name, endian) in [("little", Endianness::Little), ("big", Endianness::Big)] {
        std::fs::write(seeds.join("catalog_reader").join(name), binaries::notes(endian)).unwrap();
    }
}
