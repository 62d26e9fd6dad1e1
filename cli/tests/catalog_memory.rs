//! That the reader takes at most four times as much memory as the file is long, whatever the file says, and refuses what is beyond
//! its limits with a text that says which.
//!
//! The test counts what the reader takes from the allocator. It is alone in its process.

#[allow(dead_code, reason = "the files of other tests")]
#[path = "support/binaries.rs"]
mod binaries;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Cursor;
use std::sync::atomic::{AtomicUsize, Ordering};

use binaries::{facts, note};
use object::{Architecture, BinaryFormat, Endianness};
use warpline::catalog::Records;
use warpline_cli::binary::{self, BinaryError};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: it came from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;

/// As much as a catalog of 16 MiB allows.
const NOTES: usize = 15 * MIB;

fn object(notes: &[u8]) -> Vec<u8> {
    binaries::object(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little, notes)
}

/// Notes of these texts, as many as have room.
fn many(kind: u32, namespace_len: u32, texts: &[&str], bytes: usize) -> Vec<u8> {
    let note = note(Endianness::Little, kind, facts(namespace_len, texts));
    note.repeat(bytes / note.len())
}

/// A range with these fields.
fn range(description: &str, fields: &[&str]) -> Vec<u8> {
    let known = ["d.a", "gpu", "fine", description, "", "", "d", "", "1", ""];
    note(Endianness::Little, 1, facts(1, &[&known, fields].concat()))
}

/// Reads a file, in no more memory than it may take.
#[track_caller]
fn read(name: &str, file: &[u8]) -> Result<Records, BinaryError> {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let outcome = binary::read(Cursor::new(file));
    let taken = PEAK.load(Ordering::Relaxed) - before;
    println!("{name}: {:.1} MiB of {:.1} MiB: {:?}", mib(taken), mib(file.len()), outcome.as_ref().map(|_| ()));
    assert!(taken <= 4 * file.len() + 2 * MIB, "{name}: {:.1} MiB for {:.1} MiB", mib(taken), mib(file.len()));
    outcome
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / MIB as f64
}

#[track_caller]
fn refused(name: &str, file: &[u8], why: &str) {
    let error = read(name, file).expect_err("it is beyond a limit").to_string();
    assert!(error.contains(why), "{name}: {error}");
}

// One test: what the others took meanwhile would be counted, too.
#[test]
fn the_reader_takes_at_most_four_times_the_file_and_names_its_limits() {
    // What Cargo builds is far from every limit: beside each note lie the range's static and its relocations, if no code.
    let ordinary = range("Multiplies two matrices of `n` rows on the device.", &["rows", "columns", "dtype"]);
    let mut file = object(&ordinary.repeat(50_000));
    file.resize(file.len() + 50_000 * 400, 0);
    assert_eq!(read("50,000 ranges", &file).expect("a sound file").ranges.len(), 50_000);

    let fields = vec!["a"; NOTES / 2];
    refused(
        "a range with 8 million fields",
        &object(&range("", &fields)),
        "more than 64 fields or options in one range",
    );
    let options = vec!["a"; NOTES / 2].join(" ");
    let known = ["d.a", "gpu", "fine", "", "", "", "d", "", "1", ""];
    let undescribed = note(Endianness::Little, 3, facts(1, &[&known[..], &[&options]].concat()));
    refused("a range that leaves 8 million options out", &object(&undescribed), "more than 64 fields or options");
    refused("ranges of a few bytes", &object(&many(1, 1, &known, NOTES)), "more than 65,536 ranges");
    let few = many(1, 1, &known, 2_900_000);
    refused(
        "ranges of a few bytes, up to the limit",
        &object(&few),
        "more ranges and fields than a file of its size can hold",
    );
    refused("ranges of many short fields", &object(&range("", &["a"; 64]).repeat(NOTES / 256)), "can hold");
    refused("namespaces", &object(&many(2, 0, &["d", "", "d", "", "1", ""], NOTES)), "more than 65,536");
    let long = "ä".repeat(30_000);
    let described = object(&range(&long, &[]).repeat(NOTES / 60_100));
    assert!(read("long descriptions", &described).expect("within every limit").ranges.len() > 200);
    refused("a description without end", &object(&range(&"x".repeat(NOTES), &[])), "a text of more than 64 KiB");
    refused(
        "a field's name without end",
        &object(&range("", &[&"x".repeat(NOTES)])),
        "a name of more than 1,024 bytes",
    );
    let foreign = many(200, 0, &["a"], NOTES);
    assert!(read("notes of another layout", &object(&foreign)).expect("they are counted").unreadable > 300_000);
    refused("zeros", &object(&vec![0; NOTES]), "no warpline catalog");

    for (name, format, machine) in
        [("Mach-O", BinaryFormat::MachO, Architecture::Aarch64), ("COFF", BinaryFormat::Coff, Architecture::X86_64)]
    {
        let file = binaries::object(format, machine, Endianness::Little, &many(1, 1, &known, 3 * MIB));
        refused(name, &file, "more ranges and fields");
    }
    refused("sections that overlap", &overlapping(&many(1, 1, &["d.a", "gpu"], 60_000), 2_000), "overlap");
    refused("a table of sections without names", &overlapping(&[], 200_000), "");
    let members: Vec<_> = (0..100_000).map(|_| ("a.o", &b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"[..])).collect();
    refused("an archive of 100,000 members", &binaries::archive(&members), "");
}

/// An ELF file with so many sections of notes, which all lie in one place.
fn overlapping(notes: &[u8], sections: usize) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.note.warpline\0.shstrtab\0";
    const HEADER: usize = 64;
    let notes_at = HEADER + NAMES.len().next_multiple_of(8);
    let table = (notes_at + notes.len()).next_multiple_of(8);
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([1_u16, 62].map(u16::to_le_bytes).concat());
    file.extend(1_u32.to_le_bytes());
    file.extend([0, 0, table as u64].map(u64::to_le_bytes).concat());
    file.extend(0_u32.to_le_bytes());
    // More sections than a u16 counts stand in the first header.
    file.extend([HEADER as u16, 0, 0, 64, 0, 1].map(u16::to_le_bytes).concat());
    file.extend(NAMES);
    file.resize(notes_at, 0);
    file.extend(notes);
    file.resize(table, 0);
    let mut header = |name: u32, kind: u32, at: usize, len: usize| {
        file.extend([name, kind].map(u32::to_le_bytes).concat());
        file.extend([0, 0, at as u64, len as u64].map(u64::to_le_bytes).concat());
        file.extend([0_u32, 0].map(u32::to_le_bytes).concat());
        file.extend([4_u64, 0].map(u64::to_le_bytes).concat());
    };
    header(0, 0, 0, sections + 2);
    header(16, 3, HEADER, NAMES.len());
    (0..sections).for_each(|_| header(1, 7, notes_at, notes.len()));
    file
}
