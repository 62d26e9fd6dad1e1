//! Attacks on what reads bytes from anybody. Each try mutates a seed of `fuzz/seeds`, or makes an input of its own, and gives it to a
//! reader in a worker: no panic, no end of the process, no try that takes for ever, and no more memory than the input allows.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fastrand::Rng;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::harness::{Run, skewed};
use super::memory::peak_of;
use super::mutate::mutate;
use super::worker::{Tries, tries_of};
use crate::readers;

/// A reader, and what it is given.
struct Reader {
    name: &'static str,
    /// The folder of its seeds in `fuzz/seeds`.
    seeds: &'static str,
    read: fn(&[u8]),
    /// Of how many bytes an input is at most.
    most: usize,
    /// How much memory an input of so many bytes may take.
    memory: fn(usize) -> usize,
    /// Inputs that no mutation comes to.
    make: Option<fn(&mut Rng) -> Vec<u8>>,
}

const READERS: &[Reader] = &[
    Reader {
        name: "binary",
        seeds: "binary_reader",
        read: readers::binary,
        most: 1 << 18,
        // The notes, what is read of them, and the export as JSON, in which a byte of a name may take six.
        memory: |len| (256 << 10) + 24 * len,
        make: Some(many_fields),
    },
    Reader {
        name: "catalog",
        seeds: "catalog_reader",
        read: readers::catalog,
        most: 1 << 16,
        memory: |len| (256 << 10) + 24 * len,
        make: None,
    },
    Reader {
        name: "flight",
        seeds: "flight_reader",
        read: readers::flight,
        most: 1 << 17,
        // A piece at a time, and the trace.
        memory: |len| (4 << 20) + 8 * len,
        make: None,
    },
    Reader {
        name: "recover",
        seeds: "recover_chrome",
        read: readers::recover,
        most: 1 << 18,
        // The event that is read, and the document twice over.
        memory: |len| (1 << 20) + 16 * len,
        make: None,
    },
    Reader {
        name: "pftrace",
        seeds: "trace_reader",
        read: readers::trace,
        most: 1 << 18,
        // Room for the largest packet, which is 1 MiB, and the figures.
        memory: |len| (3 << 19) + 32 * len,
        make: None,
    },
    Reader {
        name: "annotate",
        seeds: "annotate",
        read: readers::annotate,
        most: 1 << 18,
        memory: |len| (8 << 20) + 64 * len,
        make: None,
    },
    Reader {
        name: "gzip",
        // Twice what the reader is told to unpack at most, and something.
        seeds: "annotate",
        read: readers::annotate,
        most: 1 << 20,
        memory: |_| 48 << 20,
        make: Some(packed),
    },
    Reader {
        name: "settings",
        seeds: "settings",
        read: |bytes| readers::settings(&String::from_utf8_lossy(bytes)),
        most: 1 << 14,
        memory: |len| (256 << 10) + 16 * len,
        make: None,
    },
    Reader {
        name: "request",
        seeds: "control_request",
        read: readers::request,
        most: 1 << 17,
        memory: |len| (128 << 10) + 8 * len,
        make: None,
    },
    Reader {
        name: "planted-panic",
        seeds: "settings",
        read: |bytes| assert!(bytes.last() != Some(&0), "a planted fault"),
        most: 1 << 12,
        memory: |_| 1 << 20,
        make: None,
    },
    Reader {
        name: "planted-hang",
        seeds: "settings",
        read: |bytes| {
            while bytes.last() == Some(&0) {
                std::hint::spin_loop();
            }
        },
        most: 1 << 12,
        memory: |_| 1 << 20,
        make: None,
    },
    Reader {
        name: "planted-memory",
        seeds: "settings",
        read: |bytes| {
            let claimed = bytes.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            drop(std::hint::black_box(Vec::<u8>::with_capacity(claimed as usize & 0xFFF_FFFF)));
        },
        most: 1 << 12,
        memory: |_| 1 << 20,
        make: None,
    },
    Reader {
        name: "planted-stack",
        seeds: "settings",
        read: |bytes| {
            fn deeper(depth: u64) -> u64 {
                let here = std::hint::black_box([depth; 64]);
                if depth == 0 { 0 } else { deeper(depth - 1) + here[1] }
            }
            let is_deep = bytes.last() == Some(&0);
            std::hint::black_box(deeper(if is_deep { u64::MAX } else { 1 }));
        },
        most: 1 << 12,
        memory: |_| 1 << 20,
        make: None,
    },
];

macro_rules! attacks {
    ($($(#[$attribute:meta])* $name:ident: $reader:literal;)*) => {
        $(pub(crate) fn $name(run: &mut Run) {
            tries_of(run, &["input", $reader]);
        })*
    };
}

attacks! {
    binary: "binary";
    catalog: "catalog";
    flight: "flight";
    recover: "recover";
    pftrace: "pftrace";
    annotate: "annotate";
    gzip: "gzip";
    settings: "settings";
    request: "request";
    planted_panic: "planted-panic";
    planted_hang: "planted-hang";
    planted_memory: "planted-memory";
    planted_stack: "planted-stack";
}

/// Gives inputs to a reader until the time is up.
pub(crate) fn worker(name: &str) {
    let Some(reader) = READERS.iter().find(|reader| reader.name == name) else { panic!("there is no reader `{name}`") };
    let seeds = seeds(reader.seeds);
    let mut tries = Tries::of_process();
    std::panic::set_hook(Box::new(|_| ()));
    while let Some(seed) = tries.next() {
        let input = input(reader, &seeds, &mut Rng::with_seed(seed));
        tries.is_now(&input);
        let (read, peak) = peak_of(|| catch_unwind(AssertUnwindSafe(|| (reader.read)(&input))));
        let most = (reader.memory)(input.len());
        match read {
            Err(panic) => tries.fail(&format!("it panics: {}", text(&*panic))),
            Ok(()) if peak > most => {
                tries.fail(&format!("{} bytes of input take {peak} bytes of memory, more than {most}", input.len()));
            }
            Ok(()) => {}
        }
    }
}

fn input(reader: &Reader, seeds: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let made = reader.make.filter(|_| random.u8(0..4) == 0).map(|make| make(random));
    let is_made = made.is_some();
    let mut of_seeds = || random.choice(seeds).cloned().unwrap_or_default();
    let (mut input, other) = (made.unwrap_or_else(&mut of_seeds), of_seeds());
    // What was made is an attack as it is, too.
    if !(is_made && random.bool()) {
        mutate(random, &mut input, &other, reader.most);
    }
    input
}

fn seeds(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let seeds: Vec<_> = paths.iter().filter_map(|path| std::fs::read(path).ok()).collect();
    assert!(!seeds.is_empty(), "{} has no seed", folder.display());
    seeds
}

pub(crate) fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("of another type than a text").to_owned()
}

/// An object file with one range that has a great many fields, or one that has a great many ranges.
fn many_fields(random: &mut Rng) -> Vec<u8> {
    let note = |kind: u32, texts: &[&str], namespace_len: u32| {
        let mut facts = namespace_len.to_le_bytes().to_vec();
        texts.iter().for_each(|text| facts.extend([text.as_bytes(), b"\0"].concat()));
        let mut note = [9_u32, facts.len() as u32, kind].map(u32::to_le_bytes).concat();
        note.extend(b"warpline\0\0\0\0");
        facts.resize(facts.len().next_multiple_of(4), 0);
        note.extend(facts);
        note
    };
    let mut notes = note(2, &["demo", "vector arithmetic", "demo", "src/lib.rs", "5", "0.1.0"], 0);
    let few = ["demo.add", "gpu", "fine", "Adds.", "copy", "76b900", "demo::kernels", "src/kernels.rs", "9", "0.1.0"];
    let count = skewed(random, 1, 1 << 16) as usize;
    if random.bool() {
        let field = random.choice(["", "n", "\u{1b}", "a long name of a field"]).unwrap_or("");
        notes.extend(note(1, &[&few[..], &vec![field; count]].concat(), 4));
    } else {
        (0..count / 16).for_each(|_| notes.extend(note(1, &few, 4)));
    }
    let mut object =
        object::write::Object::new(object::BinaryFormat::Elf, object::Architecture::X86_64, object::Endianness::Little);
    let section = object.add_section(Vec::new(), b".note.warpline".to_vec(), object::SectionKind::Note);
    object.append_section_data(section, &notes, 4);
    object.write().expect("an object file")
}

/// Annotations and a trace of which one is packed with gzip: a bomb, several members, cut short, or with a wrong checksum.
fn packed(random: &mut Rng) -> Vec<u8> {
    let unit: &[u8] = random
        .choice([
            &b"\0"[..],
            b" ",
            b"[",
            b"{\"a\":",
            b"\"",
            b"{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":1,\"dur\":1,\"args\":{}},\n",
        ])
        .unwrap_or(b"");
    let begin = random.choice(["", "[", "{\"traceEvents\":[", "{\"format\":\"warpline-graph/1\",\"graphs\":["]);
    // Annotations are read as a whole, and small values take eleven times their text: at most 256 KiB in each of up to eight members. Of a
    // trace, more than its reader takes.
    let packs_trace = random.bool();
    let most = if packs_trace { 20 << 20 } else { 256 << 10 };
    let repeats = skewed(random, 0, most / unit.len() as u64) as usize;
    let content = [begin.unwrap_or("").as_bytes(), &unit.repeat(repeats)].concat();
    let mut packed = in_gzip(&content);
    match random.u8(0..6) {
        0 => packed = in_gzip(&packed),
        1 => packed = packed.repeat(skewed(random, 1, 8) as usize),
        2 => packed.truncate(random.usize(..=packed.len())),
        3 => {
            if let Some(byte) = packed.iter_mut().rev().nth(random.usize(0..8)) {
                *byte ^= 1;
            }
        }
        4 => packed.extend(b"trailing bytes"),
        _ => {}
    }
    let annotations: &[u8] = b"{\"format\":\"warpline-graph/1\",\"graphs\":[]}";
    let (annotations, trace) = if packs_trace { (annotations, &packed[..]) } else { (&packed[..], &b"[]"[..]) };
    let len = annotations.len().min(usize::from(u16::MAX));
    let mut input = vec![random.u8(0..8)];
    input.extend((len as u16).to_le_bytes());
    input.extend(&annotations[..len]);
    input.extend(trace);
    input
}

fn in_gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).and_then(|()| packed.finish()).expect("memory takes all")
}
