//! Folders that are empty, foreign, half-written or damaged: a clear error, or a counted omission.

use std::path::{Path, PathBuf};

use warpline_judge::tables::Table;
use warpline_ranks::clocks::Options;
use warpline_ranks::compact::compact;
use warpline_ranks::engine::Scope;
use warpline_ranks::folder::{DataFile, Folder};
use warpline_ranks::generate::{Hang as Made, Late, Plan, Slow, Stage, generate, progress};
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
fn what_is_no_folder_of_a_run_is_no_run() {
    let folder = made();
    for name in ["run=..", "run=.", "run=", "run=a b", "run=\u{202e}"] {
        std::fs::create_dir(folder.path().join("steps").join(name)).unwrap();
    }
    std::fs::write(folder.path().join("steps/run=file"), "hello").unwrap();
    let engine = Engine::open(folder.path(), None).unwrap();
    assert_eq!((engine.folder().run.as_str(), &engine.folder().other_runs[..]), ("generated", &[][..]));
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
        let engine = Engine::open(folder.path(), None).unwrap();
        let report = Report::of(&engine, Options::default()).unwrap();
        assert!(report.not_judged.iter().any(|line| line.contains(&format!("`{table}` is missing"))), "{table}");
        assert!(!report.names_somebody(), "{table}: {:?}", report.verdict);
        let report = report.with_heat_map(&engine).unwrap();
        let map = report.heat_map.as_ref().unwrap();
        assert_eq!(map.ranks, if table == "steps" { vec![] } else { vec![[0, 3, 1]] }, "{table}");
        let page = report.to_html().unwrap();
        assert!(page.contains("</html>"), "{table}");
    }
}

#[test]
fn a_rank_twice_and_missing_windows_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan { ranks: 4, hosts: 2, steps: 120, missing: vec![(3, 1)], ..Plan::default() };
    generate(folder.path(), &plan).unwrap();
    // A job under the same name, on the same hosts, whose steps are a little longer.
    let other = tempfile::tempdir().unwrap();
    generate(
        other.path(),
        &Plan { late: vec![Late { rank: 0, stage: Stage::Load, ns: 1_000_000, from: 0, to: 120 }], ..plan.clone() },
    )
    .unwrap();
    let windows = files(folder.path(), "windows");
    std::fs::copy(&files(other.path(), "windows")[0], windows[0].with_file_name("rank-00000-4711-1.parquet")).unwrap();
    let said = report(folder.path()).not_judged.join("\n");
    assert!(said.contains("1 rank was written by two processes"), "{said}");
    assert!(said.contains("missing, of rank"), "{said}");
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
fn a_folder_before_the_first_window_is_told_apart_and_names_hang() {
    let folder = tempfile::tempdir().unwrap();
    progress(folder.path(), &Plan { ranks: 4, hosts: 2, ..Plan::default() }, Made::Nothing { step: 3 }).unwrap();
    let said = Report::new(folder.path(), None, Options::default()).unwrap_err().to_string();
    let path = folder.path().display();
    assert!(said.starts_with(&format!("`{path}` has no window yet: ")), "{said}");
    assert!(said.ends_with(&format!("`warpline-ranks hang {path}` says what the ranks do")), "{said}");
    // Files that cannot be read are not the lack of a window.
    let broken = folder.path().join("windows/run=generated/win=1/rank-00000.parquet");
    std::fs::create_dir_all(broken.parent().unwrap()).unwrap();
    std::fs::write(&broken, "no parquet").unwrap();
    let said = Engine::open(folder.path(), None).unwrap_err().to_string();
    assert!(said.contains("has no tables (1 files were left out)"), "{said}");
}

#[test]
fn what_warpline_lists_without_this_program_is_what_there_is() {
    let [ranks, query] =
        [include_str!("../../../cli/src/hand_over/ranks.txt"), include_str!("../../../cli/src/hand_over/query.txt")];
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_warpline-ranks")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = |text: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names = lines.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
        names.filter(|name| *name != "help").map(str::to_owned).collect()
    };
    assert_eq!(commands(ranks), commands(&help));
    let names = |head: &str| -> Vec<&str> {
        let (_, rest) = query.split_once(head).unwrap();
        rest.split("\n\n").next().unwrap().split([',', '\n']).map(str::trim).filter(|name| !name.is_empty()).collect()
    };
    let tables = warpline_ranks::trace::TraceTable::ALL.map(|table| table.name());
    assert_eq!(names("Tables of a trace:"), tables);
    let queries: Vec<&str> = warpline_ranks::trace::NAMED.iter().map(|query| query.name).collect();
    assert_eq!(names("Queries over a trace:"), queries);
}

#[test]
fn clocks_that_nothing_compares_are_answered_in_a_sentence() {
    let clocks = |plan: Plan, without: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        generate(folder.path(), &plan).unwrap();
        without.iter().for_each(|table| std::fs::remove_dir_all(folder.path().join(table)).unwrap());
        let command = std::process::Command::new(env!("CARGO_BIN_EXE_warpline-ranks"))
            .arg("clocks")
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(command.status.success(), "{command:?}");
        String::from_utf8(command.stdout).unwrap()
    };
    let plan = |hosts| Plan { ranks: 4, hosts, steps: 30, ..Plan::default() };
    let one = "all ranks ran on one host, node0000, and share its clock: there are no clocks to compare\n";
    assert_eq!(clocks(plan(1), &[]), one);
    let apart = "nothing compares the clocks of 2 hosts: no collective that was kept has ranks of two hosts\n";
    assert_eq!(clocks(plan(2), &["collectives"]), apart);
    assert!(clocks(plan(2), &[]).contains("certified_us"));
}

#[test]
fn compacting_takes_the_newest_windows_of_a_run_that_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan { ranks: 4, hosts: 2, steps: 150, ..Plan::default() };
    generate(folder.path(), &plan).unwrap();
    progress(folder.path(), &plan, Made::Nothing { step: 149 }).unwrap();
    let done = || compact(folder.path(), None).unwrap();
    let steps = || files(folder.path(), "steps").len();
    let windows = std::fs::read_dir(folder.path().join("steps/run=generated")).unwrap().count();
    done();
    assert_eq!(steps(), windows - 2 + 2 * 4, "the two newest windows have four files each");
    // One of the ranks was killed.
    let end = |ranks: std::ops::Range<u32>| {
        for rank in ranks {
            let file = folder.path().join(format!("progress/run=generated/rank-{rank:05}.json"));
            let mut text: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            text["ended"] = true.into();
            text.as_object_mut().unwrap().remove("check");
            std::fs::write(&file, text.to_string()).unwrap();
        }
    };
    end(0..3);
    assert_eq!(done().written, 0);
    end(3..4);
    assert!(done().written > 0);
    assert_eq!(steps(), windows);
    assert_eq!(done().written, 0, "nothing is left to merge");
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
    let done = compact(folder.path(), None).unwrap();
    assert!(done.written >= 7 && done.removed >= 28, "{done:?}");
    assert_eq!(totals(), before);
    assert!(files(folder.path(), "steps").len() < first.len());
    // Stopped before it removed its sources: they are known by name.
    std::fs::write(&first[0], copy).unwrap();
    assert_eq!(totals(), before);
    assert_eq!(Folder::open(folder.path(), None).unwrap().doubles().len(), 1);
    // A rank that was started again may write under the name of a file that is no more: its rows are new.
    std::fs::copy(files(folder.path(), "steps").pop().unwrap(), &first[0]).unwrap();
    let (after, once) = (totals(), before[0].0[0]);
    assert!(after[0].0[0] > once && after[1] == before[1], "{after:?}, {before:?}");
    assert_eq!(Folder::open(folder.path(), None).unwrap().doubles().len(), 0);
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
    let done = compact(folder.path(), None).unwrap();
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
            compact(folder.path(), None).unwrap();
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
