//! Folders that are empty, foreign, half-written or damaged: a clear error, or a counted omission.

use std::path::{Path, PathBuf};

use warpline_ranks::clocks::Options;
use warpline_ranks::compact::compact;
use warpline_ranks::engine::Scope;
use warpline_ranks::folder::{DataFile, Folder};
use warpline_ranks::generate::{Late, Plan, Slow, Stage, generate};
use warpline_ranks::table::Table;
use warpline_ranks::{Engine, Report};

fn made() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &Plan { ranks: 4, hosts: 2, steps: 30, ..Plan::default() }).unwrap();
    folder
}

fn files(folder: &Path, table: &str) -> Vec<PathBuf> {
    let run = folder.join(table).join("run=generated");
    let windows = std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> =
        windows.flat_map(|window| std::fs::read_dir(window).unwrap()).map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn report(folder: &Path) -> Report {
    Report::new(folder, None, Options::default()).unwrap()
}

#[test]
fn a_folder_without_tables_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let said = Engine::open(folder.path(), None).unwrap_err().to_string();
    assert!(said.contains("has no tables"), "{said}");
    let said = Engine::open(&folder.path().join("none"), None).unwrap_err().to_string();
    assert!(said.contains("cannot read the folder"), "{said}");
}

#[test]
fn several_runs_are_to_be_chosen_from() {
    let folder = made();
    generate(folder.path(), &Plan { run: "second".to_owned(), ranks: 2, hosts: 1, steps: 10, ..Plan::default() })
        .unwrap();
    let said = Engine::open(folder.path(), None).unwrap_err().to_string();
    assert!(said.contains("second") && said.contains("generated") && said.contains("--run"), "{said}");
    assert!(Engine::open(folder.path(), Some("third")).unwrap_err().to_string().contains("no run `third`"));
    assert_eq!(Report::new(folder.path(), Some("second"), Options::default()).unwrap().size.ranks, 2);
}

#[test]
fn truncated_damaged_and_foreign_files_are_left_out() {
    let folder = made();
    let collectives = files(folder.path(), "collectives");
    let whole = std::fs::read(&collectives[0]).unwrap();
    std::fs::write(&collectives[0], &whole[..whole.len() / 2]).unwrap();
    std::fs::write(&collectives[1], b"").unwrap();
    // Both ends are right, and nothing between them.
    let mut damaged = whole.clone();
    let middle = whole.len() - 200;
    damaged[middle..middle + 100].fill(0xff);
    std::fs::write(&collectives[2], &damaged).unwrap();
    let foreign = files(folder.path(), "comms");
    std::fs::copy(&foreign[0], files(folder.path(), "steps")[0].clone()).unwrap();
    std::fs::write(collectives[3].with_file_name(".rank-00009.parquet.7"), b"PAR1").unwrap();
    std::fs::write(collectives[3].with_file_name("notes.txt"), b"hello").unwrap();
    let report = report(folder.path());
    let said = report.not_judged.join("\n");
    assert!(said.contains("5 files were left out"), "{said}\n{:#?}", report.left_out);
    assert!(said.contains("1 file is under a temporary name"), "{said}");
    let why = |end: &str| report.left_out.iter().any(|left_out| left_out.why.contains(end));
    assert!(why("its end is missing") && why("has no column") && why("does not end in"), "{:#?}", report.left_out);
}

#[test]
fn a_missing_table_is_said() {
    for table in ["steps", "collectives", "windows", "comms", "stages"] {
        let folder = made();
        std::fs::remove_dir_all(folder.path().join(table)).unwrap();
        let report = report(folder.path());
        assert!(report.not_judged.iter().any(|line| line.contains(&format!("`{table}` is missing"))), "{table}");
        assert!(!report.names_somebody(), "{table}: {:?}", report.verdict);
    }
}

#[test]
fn a_rank_twice_and_missing_windows_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan { ranks: 4, hosts: 2, steps: 120, missing: vec![(3, 1)], ..Plan::default() };
    generate(folder.path(), &plan).unwrap();
    let windows = files(folder.path(), "windows");
    std::fs::copy(&windows[0], windows[0].with_file_name("rank-00000-again.parquet")).unwrap();
    let said = report(folder.path()).not_judged.join("\n");
    assert!(said.contains("1 rank was written by two processes"), "{said}");
    assert!(said.contains("1 window is missing, of rank"), "{said}");
}

#[test]
fn queries_write_nothing_and_say_what_is_wrong() {
    let folder = made();
    let engine = Engine::open(folder.path(), None).unwrap();
    for sql in [
        "SELEC 1",
        "DROP TABLE steps",
        "CREATE TABLE t AS SELECT 1",
        "SELECT nothing FROM steps",
        "COPY steps TO '/tmp/x'",
    ] {
        assert!(engine.query("SQL", sql).is_err(), "{sql}");
    }
    let rows = engine.query("SQL", "SELECT run, win, COUNT(*) AS n FROM steps GROUP BY run, win").unwrap();
    assert_eq!(rows.ints("n").unwrap().iter().sum::<i64>(), 4 * 30);
    assert_eq!(&*rows.texts("run").unwrap()[0], "generated");
}

#[test]
fn every_view_answers_a_query() {
    let folder = made();
    let engine = Engine::open(folder.path(), None).unwrap();
    engine.register_views().unwrap();
    for view in warpline_ranks::views::ALL {
        let name = view.name;
        let rows = engine.query(name, &format!("SELECT COUNT(*) AS n FROM {name}")).unwrap();
        assert_eq!(rows.len(), 1, "{name}");
        assert!(view.sql.starts_with("-- ") && view.about().len() > 20, "{name}");
    }
}

#[test]
fn compacting_keeps_every_row() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &Plan { ranks: 4, hosts: 2, steps: 240, ..Plan::default() }).unwrap();
    let totals = || {
        let engine = Engine::open(folder.path(), None).unwrap();
        let sql = "SELECT COUNT(*) AS n, SUM(wall_ns) AS wall FROM steps";
        let steps = engine.query("SQL", sql).unwrap();
        let calls = engine.query("SQL", "SELECT COUNT(*) AS n, SUM(dur_ns) AS wall FROM collectives").unwrap();
        [steps, calls].map(|rows| (rows.ints("n").unwrap(), rows.ints("wall").unwrap()))
    };
    let (before, first) = (totals(), files(folder.path(), "steps"));
    let copy = std::fs::read(&first[0]).unwrap();
    let done = compact(&mut Folder::open(folder.path(), None).unwrap()).unwrap();
    assert!(done.written >= 7 && done.removed >= 28, "{done:?}");
    assert_eq!(totals(), before);
    assert!(files(folder.path(), "steps").len() < first.len());
    // Stopped before it removed its sources: they are known by name.
    std::fs::write(&first[0], copy).unwrap();
    assert_eq!(totals(), before);
    assert_eq!(Folder::open(folder.path(), None).unwrap().replaced(), 1);
    // A rank that was started again may write under the name of a file that is no more: its rows are new.
    std::fs::copy(files(folder.path(), "steps").pop().unwrap(), &first[0]).unwrap();
    let (after, once) = (totals(), before[0].0[0]);
    assert!(after[0].0[0] > once && after[1] == before[1], "{after:?}, {before:?}");
    assert_eq!(Folder::open(folder.path(), None).unwrap().replaced(), 0);
}

#[test]
fn compacting_changes_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let late = Late { rank: 3, stage: Stage::Load, ns: 60_000_000, from: 30, to: 200 };
    let slow = Slow { rank: 6, percent: 5.0, from: 90 };
    let plan = Plan { ranks: 12, hosts: 3, steps: 240, late: vec![late], slow: vec![slow], ..Plan::default() };
    generate(folder.path(), &plan).unwrap();
    let before = report(folder.path());
    assert!(before.late.len() == 2 && before.slow.len() == 1, "{:?}", before.verdict);
    let done = compact(&mut Folder::open(folder.path(), None).unwrap()).unwrap();
    assert!(done.removed > 100 && done.damaged == 0, "{done:?}");
    let after = report(folder.path());
    // Means are summed in another order, so their last digits differ.
    let without_means = |report: &Report| {
        let mut all = serde_json::to_value(report).unwrap();
        for row in all["bandwidth"].as_array_mut().unwrap() {
            row["mean"] = serde_json::Value::Null;
        }
        all
    };
    assert!(without_means(&after) == without_means(&before), "{}\n{}", after.to_text(), before.to_text());
}

#[test]
fn rows_in_memory_are_those_of_the_files() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &Plan { ranks: 12, hosts: 3, steps: 200, ..Plan::default() }).unwrap();
    let engine = Engine::open(folder.path(), None).unwrap();
    let sql = "SELECT run, win, comm, kind, rank, COUNT(*) AS n, SUM(seq) AS seq, SUM(begin_ns) AS at, MAX(bytes) AS bytes \
               FROM collectives GROUP BY run, win, comm, kind, rank ORDER BY win, comm, rank";
    let answer = || {
        let rows = engine.query("SQL", sql).unwrap();
        let texts = ["run", "comm", "kind"].map(|name| rows.texts(name).unwrap());
        (texts, ["win", "rank", "n", "seq", "at", "bytes"].map(|name| rows.ints(name).unwrap()))
    };
    let of_files = answer();
    engine.hold(Table::Collectives, &["win", "comm", "kind", "rank", "seq", "begin_ns", "bytes"]);
    let plan = engine.query("SQL", &format!("EXPLAIN {sql}"));
    assert!(format!("{plan:?}").contains("rows in memory"), "{plan:?}");
    assert_eq!(answer(), of_files);
    assert!(of_files.1[0].len() > 100);
    // A column that is not kept is read from the files.
    let rows = engine.query("SQL", "SELECT SUM(dur_ns) AS dur FROM collectives WHERE kind = 'barrier'").unwrap();
    assert!(rows.ints("dur").unwrap()[0] > 0);
    engine.release(Table::Collectives);
    assert_eq!(answer(), of_files);
}

#[test]
fn a_view_in_parts_is_the_view() {
    let folder = made();
    let engine = Engine::open(folder.path(), None).unwrap();
    warpline_ranks::clocks::clocks(&engine, Options::default()).unwrap();
    engine.define("aligned").unwrap();
    let sorted = |rows: warpline_ranks::engine::Rows| {
        let (comm, seq, last) = (rows.texts("comm").unwrap(), rows.ints("seq").unwrap(), rows.ints("last_ns").unwrap());
        let mut all: Vec<_> = comm.into_iter().zip(seq).zip(last).collect();
        all.sort();
        all
    };
    let whole = sorted(engine.view("late").unwrap());
    assert!(whole.len() > 100);
    assert_eq!(sorted(engine.keep_in_parts("late", "seq", 3).unwrap()), whole);
    assert_eq!(sorted(engine.query("SQL", "SELECT * FROM late").unwrap()), whole);
}

#[test]
fn a_scope_skips_files_and_groups_of_rows_and_loses_none_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &Plan { ranks: 12, hosts: 3, steps: 200, ..Plan::default() }).unwrap();
    for is_compacted in [false, true] {
        if is_compacted {
            compact(&mut Folder::open(folder.path(), None).unwrap()).unwrap();
        }
        let engine = Engine::open(folder.path(), None).unwrap();
        let of = |sql: &str| {
            let rows = engine.query("SQL", sql).unwrap();
            ["n", "dur"].map(|name| rows.ints(name).unwrap()[0])
        };
        let (one, all) = (
            "SELECT COUNT(*) AS n, SUM(dur_ns) AS dur FROM stages WHERE rank = 7",
            "SELECT COUNT(*) AS n, SUM(dur_ns) AS dur FROM stages",
        );
        let (mine, whole) = (of(one), of(all));
        engine.within(Table::Stages, Some(Scope { ranks: [7].into(), windows: None })).unwrap();
        assert_eq!(of(one), mine);
        assert!(is_compacted || of(all) == mine, "files of other ranks were read");
        engine.within(Table::Stages, None).unwrap();
        assert_eq!(of(all), whole);
    }
}

#[test]
fn the_name_of_a_file_says_its_ranks() {
    let ranks = |name: &str| DataFile { path: Path::new("x").join(name), window: 1, bytes: 0 }.ranks();
    assert_eq!(ranks("rank-00042.parquet"), Some((42, 42)));
    assert_eq!(ranks("rank-00042-4711-1.parquet"), Some((42, 42)));
    assert_eq!(ranks("rank-00000-00007.parquet"), Some((0, 7)));
    for name in ["compact-rank-00000-0.parquet", "rank-.parquet", "rank-x.parquet", "rank-1-2-3-4.parquet", "a.txt"] {
        assert_eq!(ranks(name), None, "{name}");
    }
}
