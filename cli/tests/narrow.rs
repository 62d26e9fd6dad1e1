//! Tables on a narrow terminal: names stay whole, and what has no room is left out and named.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};

use object::{Architecture, BinaryFormat, Endianness};

use crate::support::binaries;
use crate::support::target::{Target, runtime_dir, warpline};
use crate::support::terminal::Terminal;

/// The ranges of a program, and what each is.
const RANGES: [(&str, &str); 4] = [
    (
        "demo.a_part_with_a_name_as_long_as_names_are",
        "A description that takes more than one line where there is no room for all of it.",
    ),
    ("demo.load", "Work with no stream."),
    ("demo.part", "A part of a step."),
    ("demo.sync", "What ranks do together."),
];

/// A program with these ranges.
fn program(folder: &Path) -> PathBuf {
    let endian = Endianness::Little;
    let space = binaries::facts(0, &["demo", "what has long names", "demo", "src/lib.rs", "5", "0.1.0"]);
    let ranges = RANGES.iter().flat_map(|(name, description)| {
        let known = [name, "gpu", "fine", description, "attention", "76b900"];
        let place = ["demo::kernels", "src/kernels.rs", "9", "0.1.0"];
        let facts = binaries::facts(4, &[&known[..], &place, &["batch", "sequence_length", "heads"]].concat());
        binaries::note(endian, 1, facts)
    });
    let notes: Vec<_> = binaries::note(endian, 2, space).into_iter().chain(ranges).collect();
    let path = folder.join("program");
    fs::write(&path, binaries::object(BinaryFormat::Elf, Architecture::X86_64, endian, &notes)).expect("a file");
    path
}

/// What a command leaves on a terminal of this width.
fn on_terminal(dir: &Path, args: &[&str], columns: u16, end: &str) -> Vec<String> {
    Terminal::start(warpline(dir, args), 50, columns)
        .until("all of it", |lines| lines.iter().any(|line| line.contains(end)))
}

#[test]
fn the_catalog_breaks_no_name_however_narrow_the_terminal_is() {
    let dir = runtime_dir();
    let program = program(dir.path());
    let program = program.to_str().expect("UTF-8");
    for columns in [200, 120, 80, 60] {
        let lines = on_terminal(dir.path(), &["catalog", program], columns, " ranges in 1 namespace");
        let is_name = |line: &&String| line.trim_start().starts_with("demo.");
        let names: Vec<_> =
            lines.iter().filter(is_name).filter_map(|line| line.split_ascii_whitespace().next()).collect();
        assert_eq!(names, RANGES.map(|(name, _)| name), "{columns}: {lines:?}");
        let head = &lines[0];
        assert!(head.contains("what it is") && head.trim_start().starts_with("range"), "{lines:?}");
        assert_eq!(head.contains("crate"), columns == 200, "{columns}: {lines:?}");
        // A terminal breaks the line anywhere, and drops blanks there.
        let said = lines.concat().replace(' ', "");
        let left_out = said.contains(";theterminalistoonarrowforthecolumn") && said.contains("`crate`");
        assert_eq!(left_out, columns < 200, "{columns}: {lines:?}");
        // Words go on below, and are whole, too.
        let words = lines.join(" ");
        for word in ["description", "takes", "more"] {
            assert!(words.split_ascii_whitespace().any(|it| it == word), "{columns}: {word}: {lines:?}");
        }
    }
}

#[test]
fn the_list_of_programs_breaks_no_name() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let pid = target.pid();
    for columns in [80, 40] {
        let lines = on_terminal(dir.path(), &["ps"], columns, "1 program");
        let words: Vec<_> = lines.iter().flat_map(|line| line.split_ascii_whitespace()).collect();
        for word in [&*pid, "records", "nothing", "pid", "state"] {
            assert!(words.contains(&word), "{columns}: {word}: {lines:?}");
        }
    }
    target.end();
}
