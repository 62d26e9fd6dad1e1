//! Files of others that are cut, empty or damaged: every command leaves them out and names them, whatever the Parquet reader does with them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use warpline_ranks::Engine;
use warpline_ranks::generate::{Plan, generate};

fn made() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &Plan { ranks: 2, hosts: 2, steps: 130, ..Plan::default() }).unwrap();
    folder
}

/// The files of a table in the oldest window, which `compact` merges.
fn files(folder: &Path, table: &str) -> Vec<PathBuf> {
    let sorted = |folder: &Path| {
        let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        all.sort();
        all
    };
    sorted(&sorted(&folder.join(table).join("run=generated"))[0])
}

fn ranks(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-ranks"));
    command.arg(args[0]).arg(folder).args(&args[1..]).current_dir(folder).output().unwrap()
}

/// Asserts that each command ends well, and that those which read all of the table name the file.
fn each_command(folder: &Path, table: &str, file: &Path, names: fn(&str) -> bool, what: &str) {
    let name = file.strip_prefix(folder).unwrap().display().to_string();
    let all = format!("SELECT * FROM {table}");
    for args in [
        &["report"][..],
        &["query", &all],
        &["clocks"],
        &["clocks", "--write"],
        &["perfetto", "--step", "3", "--traces", ".", "-o", "step.tar"],
        &["compact"],
        &["report", "-o", "page.html"],
    ] {
        let output = ranks(folder, args);
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.status.success(), "{what}: {args:?}: {said}");
        assert!(!said.contains("panicked at"), "{what}: {args:?}: {said}");
        assert!(!names(args[0]) || said.contains(&name), "{what}: {args:?} does not name `{name}`: {said}");
    }
    assert!(file.exists(), "{what}: a file that nobody can read was removed");
}

#[test]
fn files_that_are_cut_or_empty_are_named_by_every_command() {
    for (table, length) in [("windows", 300), ("steps", 0), ("collectives", 300)] {
        let folder = made();
        let file = &files(folder.path(), table)[1];
        File::options().write(true).open(file).unwrap().set_len(length).unwrap();
        each_command(folder.path(), table, file, |_| true, &format!("`{table}` of {length} bytes"));
    }
}

/// What `SELECT *` over a folder with one file says: its rows, and why they are left out.
fn answer(folder: &Path, table: &str) -> (usize, String) {
    let engine = Engine::open(folder, None).unwrap();
    let rows = engine.query("SQL", &format!("SELECT * FROM {table}")).unwrap().len();
    (rows, engine.folder().left_out().0.iter().map(|omission| omission.why.clone()).collect())
}

#[test]
fn files_for_which_the_reader_refuses_or_panics_are_named_by_every_command() {
    let folder = made();
    let mut panics = 0;
    for table in ["collectives", "steps", "comms"] {
        let file = &files(folder.path(), table)[1];
        let (whole, place) = (fs::read(file).unwrap(), file.strip_prefix(folder.path()).unwrap());
        let alone = tempfile::tempdir().unwrap();
        fs::create_dir_all(alone.path().join(place).parent().unwrap()).unwrap();
        fs::write(alone.path().join(place), &whole).unwrap();
        let (rows, why) = answer(alone.path(), table);
        assert!(rows > 0 && why.is_empty(), "{why}");
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let mut chosen: Vec<(bool, Vec<u8>)> = Vec::new();
        // A panic is rarer than a refusal: one is looked for until it is found.
        for tried in 0..3_000 {
            if tried >= 100 && panics > 0 {
                break;
            }
            let mut bytes = whole.clone();
            for _ in 0..=next(3) {
                let at = 4 + next(whole.len() - 8);
                bytes[at] = next(256) as u8;
            }
            fs::write(alone.path().join(place), &bytes).unwrap();
            let (found, why) = answer(alone.path(), table);
            assert!(found == if why.is_empty() { rows } else { 0 }, "{found} of {rows} rows: {why}");
            let is_panic = why.contains("the Parquet reader panics");
            panics += usize::from(is_panic);
            if !why.is_empty() && !chosen.iter().any(|(known, _)| *known == is_panic) {
                chosen.push((is_panic, bytes));
            }
        }
        assert!(!chosen.is_empty(), "the damage does not reach the reader of `{table}`");
        for (number, (is_panic, bytes)) in chosen.into_iter().enumerate() {
            let copy = tempfile::tempdir().unwrap();
            super::compacting::copy(folder.path(), copy.path());
            fs::write(copy.path().join(place), &bytes).unwrap();
            // The others need some columns alone, and may not read the damaged one.
            let names = |command: &str| matches!(command, "query" | "compact");
            let what = format!("`{table}`, {number}, by a panic: {is_panic}");
            each_command(copy.path(), table, &copy.path().join(place), names, &what);
        }
    }
    assert!(panics > 0, "without a panic of the reader, nothing shows that one is caught");
}

#[test]
fn a_merged_file_whose_footer_is_damaged_stops_no_command() {
    let folder = made();
    assert!(ranks(folder.path(), &["compact"]).status.success());
    let merged = files(folder.path(), "steps").into_iter().next().unwrap();
    let whole = fs::read(&merged).unwrap();
    for at in (whole.len() - 600..whole.len() - 8).step_by(53) {
        let mut bytes = whole.clone();
        bytes[at..at + 8].fill(0xff);
        fs::write(&merged, bytes).unwrap();
        for args in [&["query", "SELECT COUNT(*) FROM steps"][..], &["compact"], &["report"]] {
            let output = ranks(folder.path(), args);
            assert!(output.status.success(), "byte {at}: {args:?}: {output:?}");
        }
        assert!(merged.exists());
    }
}
