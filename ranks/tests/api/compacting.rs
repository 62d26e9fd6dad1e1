//! `compact` that is started twice, killed at any moment, or run again after ranks wrote more: no row is lost, and none counts twice, also for
//! engines that read every file of a table.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use parquet::file::reader::SerializedFileReader;
use warpline_judge::tables::Table;
use warpline_ranks::Engine;
use warpline_ranks::generate::{Hang, Plan, generate, progress};

/// Rows of a table as texts, in order.
type Rows = BTreeMap<&'static str, Vec<String>>;

fn plan() -> Plan {
    Plan { ranks: 4, hosts: 2, steps: 130, ..Plan::default() }
}

/// The same ranks with other rows, in every table.
fn other() -> Plan {
    Plan { seed: 7, step_ns: 900_000_000, ..plan() }
}

/// A run of three windows that has ended, so that all of them are merged.
fn made(plan: &Plan) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), plan).unwrap();
    progress(folder.path(), plan, Hang::Nothing { step: plan.steps.into() }).unwrap();
    for rank in 0..plan.ranks {
        let file = folder.path().join(format!("progress/run=generated/rank-{rank:05}.json"));
        let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        text["ended"] = true.into();
        text.as_object_mut().unwrap().remove("check");
        fs::write(&file, text.to_string()).unwrap();
    }
    folder
}

fn windows(folder: &Path, table: &str) -> Vec<PathBuf> {
    let mut all: Vec<_> =
        fs::read_dir(folder.join(table).join("run=generated")).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn files(folder: &Path, table: &str) -> Vec<PathBuf> {
    let in_window = |window: PathBuf| fs::read_dir(window).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = windows(folder, table).into_iter().flat_map(in_window).collect();
    all.retain(|file| file.extension().is_some_and(|end| end == "parquet"));
    all.sort();
    all
}

fn all_files(folder: &Path) -> Vec<PathBuf> {
    Table::ALL.into_iter().flat_map(|table| files(folder, table.name())).collect()
}

/// The rows of every file of every table, as an engine reads them that knows nothing of `compact`.
fn on_disk(folder: &Path) -> Rows {
    let rows = |file: PathBuf| {
        let rows = SerializedFileReader::new(File::open(file).unwrap()).unwrap().into_iter();
        rows.map(|row| row.unwrap().to_string()).collect::<Vec<_>>()
    };
    let table = |table: Table| {
        let mut all: Vec<String> = files(folder, table.name()).into_iter().flat_map(rows).collect();
        all.sort();
        (table.name(), all)
    };
    Table::ALL.into_iter().map(table).collect()
}

/// The number of rows of each table, as `warpline-ranks` reads them.
fn counted(folder: &Path) -> BTreeMap<&'static str, usize> {
    let engine = Engine::open(folder, None).unwrap();
    let count = |table: Table| {
        let sql = format!("SELECT COUNT(*) AS n FROM {}", table.name());
        (table.name(), engine.query("SQL", &sql).unwrap().ints("n").unwrap()[0] as usize)
    };
    Table::ALL.into_iter().map(count).collect()
}

fn lengths(rows: &Rows) -> BTreeMap<&'static str, usize> {
    rows.iter().map(|(table, rows)| (*table, rows.len())).collect()
}

fn compact(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-ranks"));
    command.arg("compact").arg(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

/// Writes files of a rank that was started again in the first window, under the names that its files had, where those are no more. Returns their rows.
fn late(folder: &Path, other: &Path) -> Rows {
    let mut added = Rows::new();
    for table in Table::ALL {
        let (from, into) = (&windows(other, table.name())[0], &windows(folder, table.name())[0]);
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let path = into.join(entry.file_name());
            if !path.exists() {
                fs::copy(entry.path(), &path).unwrap();
                let rows = SerializedFileReader::new(File::open(&path).unwrap()).unwrap().into_iter();
                added.entry(table.name()).or_default().extend(rows.map(|row| row.unwrap().to_string()));
                break;
            }
        }
    }
    added
}

fn together(a: &Rows, b: &Rows) -> Rows {
    let mut all = a.clone();
    for (table, rows) in b {
        let of_table = all.entry(table).or_default();
        of_table.extend(rows.iter().cloned());
        of_table.sort();
    }
    all
}

fn assert_same(found: &Rows, expected: &Rows, when: &str) {
    assert_eq!(lengths(found), lengths(expected), "{when}");
    assert!(found == expected, "{when}: other rows");
}

#[test]
fn two_at_once_merge_once() {
    let template = made(&plan());
    let expected = on_disk(template.path());
    for _ in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        copy(template.path(), folder.path());
        let children: Vec<Child> = (0..2).map(|_| compact(folder.path()).spawn().unwrap()).collect();
        let outputs: Vec<Output> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        for output in &outputs {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() || said.contains("another `compact` of the run `generated`"), "{said}");
        }
        assert!(outputs.iter().any(|output| output.status.success()), "{outputs:?}");
        assert_same(&on_disk(folder.path()), &expected, "after two at once");
        assert_eq!(counted(folder.path()), lengths(&expected));
    }
}

#[test]
fn a_second_one_ends_at_once_and_changes_nothing() {
    let folder = made(&plan());
    let before = all_files(folder.path());
    let lock = File::create(folder.path().join(".compact-generated.lock")).unwrap();
    lock.lock().unwrap();
    let output = compact(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("another `compact` of the run `generated`"), "{said}");
    assert_eq!(all_files(folder.path()), before);
    drop(lock);
    assert!(compact(folder.path()).output().unwrap().status.success());
    assert!(all_files(folder.path()).len() < before.len());
}

#[test]
fn a_compact_that_was_stopped_anywhere_in_its_removal_is_finished_by_the_next() {
    let template = made(&plan());
    let other = made(&other());
    let (expected, sources) = (on_disk(template.path()), all_files(template.path()));
    let whole = tempfile::tempdir().unwrap();
    copy(template.path(), whole.path());
    assert!(compact(whole.path()).output().unwrap().status.success());
    // The merged files are there, and only the first `removed` of their sources are gone.
    for removed in (0..sources.len()).step_by(9) {
        let folder = tempfile::tempdir().unwrap();
        copy(whole.path(), folder.path());
        for source in &sources[removed..] {
            fs::copy(source, folder.path().join(source.strip_prefix(template.path()).unwrap())).unwrap();
        }
        assert_eq!(counted(folder.path()), lengths(&expected), "{removed} are removed");
        let expected = together(&expected, &late(folder.path(), other.path()));
        assert_eq!(counted(folder.path()), lengths(&expected), "{removed} are removed, and a late file came");
        for _ in 0..2 {
            assert!(compact(folder.path()).output().unwrap().status.success());
            assert_same(&on_disk(folder.path()), &expected, &format!("{removed} were removed"));
        }
        assert_eq!(counted(folder.path()), lengths(&expected), "{removed} were removed");
    }
}

#[test]
fn a_source_that_comes_back_is_known_however_often_its_rows_were_merged() {
    let folder = made(&plan());
    let other = made(&other());
    let (expected, source) = (on_disk(folder.path()), files(folder.path(), "steps")[0].clone());
    let bytes = fs::read(&source).unwrap();
    assert!(compact(folder.path()).output().unwrap().status.success());
    let expected = together(&expected, &late(folder.path(), other.path()));
    assert!(compact(folder.path()).output().unwrap().status.success());
    // As `rsync` does that copies from where the files still are.
    fs::write(&source, bytes).unwrap();
    assert_eq!(counted(folder.path()), lengths(&expected));
    assert!(compact(folder.path()).output().unwrap().status.success());
    assert!(!source.exists());
    assert_same(&on_disk(folder.path()), &expected, "merged twice");
}

#[test]
fn killed_at_fifty_points_with_a_late_file_no_row_is_lost_or_doubled() {
    let template = made(&plan());
    let other = made(&other());
    let expected = on_disk(template.path());
    let (first, last) = {
        let whole = tempfile::tempdir().unwrap();
        copy(template.path(), whole.path());
        assert!(compact(whole.path()).output().unwrap().status.success());
        (all_files(template.path()).len(), all_files(whole.path()).len())
    };
    let (mut killed, mut during) = (0, 0);
    for point in 0..50 {
        let folder = tempfile::tempdir().unwrap();
        copy(template.path(), folder.path());
        let until = first - point * (first - last) / 50;
        let mut child = compact(folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let is_there = || all_files(folder.path()).len() < until;
        while !is_there() && child.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        during += usize::from(all_files(folder.path()).len() > last);
        let expected = together(&expected, &late(folder.path(), other.path()));
        assert_eq!(counted(folder.path()), lengths(&expected), "killed at {until} files, with a late file");
        assert!(compact(folder.path()).output().unwrap().status.success());
        assert_same(&on_disk(folder.path()), &expected, &format!("killed at {until} files"));
    }
    assert!(killed >= 25 && during >= 25, "{killed} were killed, {during} of them before their end");
}

#[test]
fn a_copy_of_a_file_counts_once_before_and_after() {
    let folder = made(&plan());
    let expected = on_disk(folder.path());
    for table in Table::ALL {
        let (files, windows) = (files(folder.path(), table.name()), windows(folder.path(), table.name()));
        let name = files[0].file_name().unwrap().to_str().unwrap().replace(".parquet", " (copy).parquet");
        fs::copy(&files[0], windows[0].join(name)).unwrap();
        // Under the name of a process that was started again. Rows without a time may be equal by chance.
        if matches!(table, Table::Windows | Table::Steps | Table::Collectives) {
            fs::copy(&files[1], windows[0].join("rank-00001-4711-1.parquet")).unwrap();
        }
    }
    let query = |table: Table| {
        let sql = format!("SELECT COUNT(*) AS n FROM {}", table.name());
        let args = ["query", folder.path().to_str().unwrap(), &sql, "--json"];
        let output = Command::new(env!("CARGO_BIN_EXE_warpline-ranks")).args(args).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (rows, said) = query(Table::Steps);
    assert_eq!(rows, format!("{{\"n\":{}}}\n", expected["steps"].len()), "{said}");
    assert_eq!(said.matches("warning: `steps/run=generated/win=29399999/rank-0000").count(), 2, "{said}");
    assert_eq!(counted(folder.path()), lengths(&expected));
    assert!(compact(folder.path()).output().unwrap().status.success());
    assert_same(&on_disk(folder.path()), &expected, "merged");
    assert_eq!(counted(folder.path()), lengths(&expected));
}

#[test]
fn the_sources_of_a_merged_file_that_was_damaged_later_stay() {
    let folder = made(&plan());
    let source = files(folder.path(), "steps")[0].clone();
    let bytes = fs::read(&source).unwrap();
    assert!(compact(folder.path()).output().unwrap().status.success());
    fs::write(&source, &bytes).unwrap();
    let merged = files(folder.path(), "steps")[0].clone();
    let mut damaged = fs::read(&merged).unwrap();
    damaged[4..200].fill(0xff);
    fs::write(&merged, damaged).unwrap();
    let output = compact(folder.path()).output().unwrap();
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(text.ends_with("1 are damaged and remain\n"), "{text}");
    let name = merged.strip_prefix(folder.path()).unwrap().display().to_string();
    assert!(output.status.success() && said.contains(&format!("`{name}` is left out: is damaged")), "{said}");
    assert!(fs::read(&source).unwrap() == bytes && merged.exists());
}
