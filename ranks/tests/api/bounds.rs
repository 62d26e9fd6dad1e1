//! Ends that are not timed: what rests on them names no rank, and no rank is hidden by them. Tables without their columns are read, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{Int32Type, Int64Type};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use warpline_ranks::clocks::Options;
use warpline_ranks::compact::compact;
use warpline_ranks::generate::{Late, Plan, Stage, generate};
use warpline_ranks::{Engine, Report};

const COLUMNS: [&str; 5] = ["uncertain_ns", "end_early_ns", "bounded", "bounded_sum_ns", "bounded_least_ns"];

/// 3 hosts, 4 ranks each, two windows.
fn plan() -> Plan {
    Plan { ranks: 12, hosts: 3, steps: 80, seed: 4, ranks_per_file: 4, ..Plan::default() }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "parquet") {
            found.push(path);
        }
    }
}

/// Writes each file of a table again.
pub fn rewrite(folder: &Path, change: impl Fn(RecordBatch) -> RecordBatch) {
    let mut found = Vec::new();
    files(folder, &mut found);
    assert!(!found.is_empty());
    for path in found {
        let bytes = bytes::Bytes::from(std::fs::read(&path).unwrap());
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
        let batches: Vec<RecordBatch> = reader.map(|batch| change(batch.unwrap())).collect();
        let mut writer = ArrowWriter::try_new(Vec::new(), batches[0].schema(), None).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        std::fs::write(&path, writer.into_inner().unwrap()).unwrap();
    }
}

pub fn ints(batch: &RecordBatch, name: &str) -> Vec<i64> {
    let column = batch.column_by_name(name).unwrap();
    match column.as_primitive_opt::<Int32Type>() {
        Some(column) => column.values().iter().map(|value| i64::from(*value)).collect(),
        None => column.as_primitive::<Int64Type>().values().to_vec(),
    }
}

/// The batch with other values in some columns.
pub fn with(batch: &RecordBatch, columns: &[(&str, Vec<i64>)]) -> RecordBatch {
    let mut all: Vec<ArrayRef> = batch.columns().to_vec();
    for (name, values) in columns {
        all[batch.schema().index_of(name).unwrap()] = Arc::new(Int64Array::from(values.clone()));
    }
    RecordBatch::try_new(batch.schema(), all).unwrap()
}

/// Lets ends of collectives be seen so much later.
fn see_late(folder: &Path, early_by_ns: impl Fn(i64, i64) -> i64) {
    rewrite(&folder.join("collectives"), |batch| {
        let (ranks, seqs) = (ints(&batch, "rank"), ints(&batch, "seq"));
        let early: Vec<i64> = ranks.iter().zip(&seqs).map(|(rank, seq)| early_by_ns(*rank, *seq)).collect();
        let later = |name: &str| ints(&batch, name).iter().zip(&early).map(|(ns, early)| ns + early).collect();
        with(&batch, &[("dur_ns", later("dur_ns")), ("err_ns", later("err_ns")), ("end_early_ns", early.clone())])
    });
}

fn report(folder: &Path) -> Report {
    Report::new(folder, None, Options::default()).unwrap()
}

#[test]
fn tables_without_columns_of_bounds_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let late = Late { rank: 5, stage: Stage::Backward, ns: 60_000_000, from: 20, to: 49 };
    // Four windows, of which the last two are not merged.
    generate(folder.path(), &Plan { late: vec![late], steps: 220, ..plan() }).unwrap();
    // Without the bandwidths, whose means are sums in any order.
    let text = |folder: &Path| {
        let mut report = report(folder);
        assert!(!report.bandwidth.is_empty() && report.left_out.is_empty(), "{:?}", report.left_out);
        report.bandwidth.clear();
        serde_json::to_string(&report).unwrap()
    };
    let whole = text(folder.path());
    assert!(whole.contains("rank 5 was late"), "{whole}");
    for table in ["steps", "stages", "ranges", "collectives"] {
        rewrite(&folder.path().join(table), |batch| {
            let schema = batch.schema();
            let kept = (0..schema.fields().len()).filter(|at| !COLUMNS.contains(&schema.field(*at).name().as_str()));
            let kept: Vec<usize> = kept.collect();
            assert!(kept.len() < schema.fields().len(), "{table}");
            batch.project(&kept).unwrap()
        });
    }
    assert_eq!(text(folder.path()), whole);
    let done = compact(folder.path(), None).unwrap();
    assert!(done.removed > 0 && done.damaged == 0, "{done:?}");
    assert_eq!(text(folder.path()), whole);
}

#[test]
fn a_late_rank_is_named_although_ends_are_seen_late() {
    let folder = tempfile::tempdir().unwrap();
    let late = Late { rank: 5, stage: Stage::Backward, ns: 60_000_000, from: 20, to: 49 };
    generate(folder.path(), &Plan { late: vec![late], ..plan() }).unwrap();
    let named = |report: &Report| -> Vec<(i64, String)> {
        report.late.iter().map(|late| (late.rank, late.stage.to_string())).collect()
    };
    let before = named(&report(folder.path()));
    assert_eq!(before, [(5, "demo.backward".to_owned())]);
    see_late(folder.path(), |_, _| 80_000_000);
    let after = report(folder.path());
    assert_eq!(named(&after), before, "{:?}", after.verdict);
    let said = "collectives have an end that is not timed";
    assert!(after.not_judged.iter().any(|line| line.contains(said)), "{:?}", after.not_judged);
}

#[test]
fn bounds_are_no_bandwidths_and_make_nobody_slow() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &plan()).unwrap();
    let by_form = |report: &Report| -> BTreeMap<(String, i64, i64), (i64, f64)> {
        let one = |row: &warpline_ranks::report::Bandwidth| {
            ((row.kind.to_string(), row.ranks, row.bytes), (row.calls, row.least))
        };
        report.bandwidth.iter().map(one).collect()
    };
    let before = by_form(&report(folder.path()));
    see_late(folder.path(), |_, seq| if seq % 2 == 0 { 80_000_000 } else { 0 });
    // All ranks but one have a part of their work in time that is not certain.
    rewrite(&folder.path().join("steps"), |batch| {
        let is_known: Vec<bool> = ints(&batch, "rank").iter().map(|rank| *rank == 7).collect();
        let part = |ns: i64, is_known: bool| if is_known { 0 } else { ns / 5 };
        let compute = ints(&batch, "compute_ns");
        let uncertain: Vec<i64> = compute.iter().zip(&is_known).map(|(ns, known)| part(*ns, *known)).collect();
        let certain = compute.iter().zip(&uncertain).map(|(ns, uncertain)| ns - uncertain).collect();
        with(&batch, &[("compute_ns", certain), ("uncertain_ns", uncertain)])
    });
    let report = report(folder.path());
    assert!(!report.names_somebody(), "{:?}", report.verdict);
    let after = by_form(&report);
    assert!(!after.is_empty() && after.keys().eq(before.keys()), "{after:?}");
    for (form, (calls, least)) in &after {
        let (all, least_before) = before[form];
        assert!(*calls < all && *least >= least_before, "{form:?}: {calls} of {all}, {least} of {least_before}");
    }
    let said = "steps of ranks have ends that are not timed: their time is compared with nothing";
    assert!(report.not_judged.iter().any(|line| line.contains(said)), "{:?}", report.not_judged);
}

#[test]
fn a_bound_does_not_say_how_long_a_collective_takes() {
    let folder = tempfile::tempdir().unwrap();
    // What is usual decides whether those that came waited for a rank whose rows are missing.
    generate(folder.path(), &Plan { missing: vec![(3, 0), (7, 0), (11, 0)], ..plan() }).unwrap();
    let unknown = |report: &Report| -> u64 {
        let line = report.not_judged.iter().find(|line| line.contains("a rank that has no row"));
        line.map_or(0, |line| line.split(' ').next().unwrap().replace(',', "").parse().unwrap())
    };
    let before = unknown(&report(folder.path()));
    see_late(folder.path(), |_, seq| if seq < 58 { 0 } else { 80_000_000 });
    let after = report(folder.path());
    assert!(before > 0 && unknown(&after) >= before, "{before}: {:?}", after.not_judged);
}

#[test]
fn time_in_which_something_may_have_ended_is_no_waiting_in_the_heat_map() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &plan()).unwrap();
    let map = || {
        let engine = Engine::open(folder.path(), None).unwrap();
        Report::of(&engine, Options::default()).unwrap().with_heat_map(&engine).unwrap()
    };
    let before = map();
    // A fifth of the device work of rank 7, in its own time before, is in time that is not certain.
    rewrite(&folder.path().join("steps"), |batch| {
        let (ranks, compute) = (ints(&batch, "rank"), ints(&batch, "compute_ns"));
        let uncertain: Vec<i64> =
            ranks.iter().zip(&compute).map(|(rank, ns)| if *rank == 7 { ns / 5 } else { 0 }).collect();
        let certain = compute.iter().zip(&uncertain).map(|(ns, uncertain)| ns - uncertain).collect();
        with(&batch, &[("compute_ns", certain), ("uncertain_ns", uncertain)])
    });
    let after = map();
    let (old, new) = (&before.heat_map.as_ref().unwrap().cells, &after.heat_map.as_ref().unwrap().cells);
    assert!(old.uncertain.is_empty());
    // The rank is there, and its steps count, although its work is known in none of them.
    assert_eq!(
        (&after.heat_map.as_ref().unwrap().ranks, after.heat_map.as_ref().unwrap().host_of.len()),
        (&vec![[0, 11, 1]], 12)
    );
    let size = |report: &Report| serde_json::to_value(report).unwrap()["size"].clone();
    assert_eq!(size(&after), size(&before));
    let differs = new.waiting.iter().zip(&old.waiting).enumerate().filter(|(_, (new, old))| new != old);
    assert_eq!(differs.collect::<Vec<_>>(), []);
    let steps = new.compute.len() / 12;
    let of_rank = |rank: usize| &new.uncertain[rank * steps..(rank + 1) * steps];
    assert!(of_rank(7).iter().all(|code| *code > 0) && of_rank(8).iter().all(|code| *code == 0));
    // `tests/pages/ranks.test.mjs` opens it.
    if let Some(pages) = std::env::var_os("WARPLINE_PAGES") {
        std::fs::write(Path::new(&pages).join("ranks-bounds.html"), after.to_html().unwrap()).unwrap();
    }
}
