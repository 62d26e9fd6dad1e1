//! The files of a window: the columns of the contract, zstd, delta-packed integers, under a temporary name until they
//! are whole.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::Int32Type;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, Encoding, ZstdLevel};
use datafusion::parquet::file::metadata::KeyValue;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use datafusion::parquet::schema::types::ColumnPath;
use warpline_core::hashing::fnv1a64;
use warpline_judge::tables::Table;

use super::simulate::{Call, Comm, RankStep, WORLD_EVERY, Window};
use super::{Error, HostClock, Plan, Stage};
use crate::table::Schemas;

/// The facts that a host knows about its clock.
const CLOCK_ERR_NS: i64 = 200;

const STAGES: [Stage; 4] = [Stage::Load, Stage::Forward, Stage::Backward, Stage::Optimizer];

/// A rank does not compress a table with fewer rows.
const LEAST_ROWS: usize = 64;

/// Files that `compact` makes have rows of many ranks, in their order: a reader skips the groups of ranks that it does
/// not ask for.
const ROWS_OF_GROUP: usize = 65_536;

/// Writes one window, with a thread for each core.
pub fn window(folder: &Path, plan: &Plan, clocks: &[HostClock], window: &Window) -> Result<(), Error> {
    let ranks: Vec<u32> = (0..plan.ranks).collect();
    let groups: Vec<&[u32]> = ranks.chunks(plan.ranks_per_file as usize).collect();
    let comms = Comms::new(plan);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let one = |part: &[&[u32]]| part.iter().try_for_each(|ranks| group(folder, plan, clocks, &comms, window, ranks));
    std::thread::scope(|scope| {
        let parts: Vec<_> =
            groups.chunks(groups.len().div_ceil(threads)).map(|part| scope.spawn(move || one(part))).collect();
        parts.into_iter().try_for_each(|part| match part.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

struct Comms {
    tp: Vec<Comm>,
    dp: Vec<Comm>,
    pp: Vec<Comm>,
    world: Comm,
}

impl Comms {
    fn new(plan: &Plan) -> Self {
        Self {
            tp: (0..plan.hosts).map(|host| Comm::tp(plan, host)).collect(),
            dp: (0..plan.pipeline)
                .flat_map(|stage| (0..plan.local()).map(move |place| Comm::dp(plan, stage, place)))
                .collect(),
            pp: (0..plan.of_stage())
                .flat_map(|host| (0..plan.local()).map(move |place| Comm::pp(plan, host, place)))
                .collect(),
            world: Comm::world(plan),
        }
    }
}

/// Columns that grow row by row.
struct Columns {
    table: Table,
    columns: Vec<Column>,
    next: usize,
}

enum Column {
    I32(Vec<i32>),
    I64(Vec<i64>),
    MaybeI64(Vec<Option<i64>>),
    Text(Vec<Option<Arc<str>>>),
}

impl Columns {
    fn new(table: Table) -> Self {
        use datafusion::arrow::datatypes::DataType;
        let column = |field: &Arc<datafusion::arrow::datatypes::Field>| match (field.data_type(), field.is_nullable()) {
            (DataType::Int32, _) => Column::I32(Vec::new()),
            (DataType::Int64, false) => Column::I64(Vec::new()),
            (DataType::Int64, true) => Column::MaybeI64(Vec::new()),
            _ => Column::Text(Vec::new()),
        };
        Self { table, columns: table.written().fields().iter().map(column).collect(), next: 0 }
    }

    fn int(&mut self, value: i64) -> &mut Self {
        match &mut self.columns[self.next] {
            Column::I32(all) => all.push(value as i32),
            Column::I64(all) => all.push(value),
            Column::MaybeI64(all) => all.push(Some(value)),
            Column::Text(all) => all.push(None),
        }
        self.turn()
    }

    fn text(&mut self, value: &Arc<str>) -> &mut Self {
        if let Column::Text(all) = &mut self.columns[self.next] {
            all.push(Some(value.clone()));
        }
        self.turn()
    }

    fn none(&mut self) -> &mut Self {
        match &mut self.columns[self.next] {
            Column::MaybeI64(all) => all.push(None),
            Column::Text(all) => all.push(None),
            Column::I32(_) | Column::I64(_) => debug_assert!(false, "the column has no empty values"),
        }
        self.turn()
    }

    fn turn(&mut self) -> &mut Self {
        self.next = (self.next + 1) % self.columns.len();
        self
    }

    fn batch(self) -> Result<(Table, RecordBatch), Box<dyn std::error::Error + Send + Sync>> {
        let array = |column: Column| -> ArrayRef {
            match column {
                Column::I32(all) => Arc::new(Int32Array::from(all)),
                Column::I64(all) => Arc::new(Int64Array::from(all)),
                Column::MaybeI64(all) => Arc::new(Int64Array::from(all)),
                Column::Text(all) => Arc::new(all.iter().map(|text| text.as_deref()).collect::<StringArray>()),
            }
        };
        let arrays = self.columns.into_iter().map(array).collect();
        Ok((self.table, RecordBatch::try_new(self.table.written(), arrays)?))
    }
}

fn group(
    folder: &Path,
    plan: &Plan,
    clocks: &[HostClock],
    comms: &Comms,
    window: &Window,
    ranks: &[u32],
) -> Result<(), Error> {
    let mut tables = Table::ALL.map(Columns::new);
    for rank in ranks.iter().filter(|rank| !plan.missing.contains(&(**rank, window.index))) {
        one_rank(plan, clocks, comms, window, *rank, &mut tables);
    }
    let name = match ranks {
        [rank] => format!("rank-{rank:05}.parquet"),
        [first, .., last] => format!("rank-{first:05}-{last:05}.parquet"),
        [] => return Ok(()),
    };
    for columns in tables {
        let place = format!("{}/run={}/win={}", columns.table.name(), plan.run, window.number);
        let path = folder.join(place).join(&name);
        let (table, batch) = columns.batch().map_err(|error| Error::write(&path, error))?;
        if batch.num_rows() > 0 {
            file(&path, table, &[batch], Vec::new())?;
        }
    }
    Ok(())
}

fn one_rank(
    plan: &Plan,
    clocks: &[HostClock],
    comms: &Comms,
    window: &Window,
    rank: u32,
    tables: &mut [Columns; Table::ALL.len()],
) {
    let [windows, steps, stages, ranges, sketches, collectives, comm_rows] = tables;
    let clock = &clocks[(rank / plan.local()) as usize];
    let of_stage = plan.of_stage() * plan.local();
    let tp = &comms.tp[(rank / plan.local()) as usize];
    let dp = &comms.dp[(rank / of_stage * plan.local() + rank % plan.local()) as usize];
    let pp = &comms.pp[(rank % of_stage) as usize];
    let host: Arc<str> = clock.host.as_str().into();
    let mine = || window.steps.iter().map(|row| &row[rank as usize]);
    let (rank, mut begun, mut kept) = (i64::from(rank), 0, 0);
    let mut sums: [Vec<i64>; 4] = Default::default();
    let names = STAGES.map(|stage| Arc::<str>::from(stage.range()));
    let [reduce, send, barrier, sample] = ["all_reduce", "send_recv", "barrier", "sample"].map(Arc::<str>::from);
    let all_comms = [tp, dp, pp, &comms.world];
    let comm_names = all_comms.map(|comm| Arc::<str>::from(comm.name.as_str()));
    let range_names = ["demo.tp", "demo.dp", "demo.pp", "demo.barrier"].map(Arc::<str>::from);
    for (number, step) in (window.first..).zip(mine()) {
        let local = |at: i64| clock.reads(at);
        let calls = [&step.tp, &step.dp, &step.pp, &step.world];
        let seqs = [number, number, number, number / WORLD_EVERY];
        let dur = |call: &Call| local(call.end) - local(call.begin);
        let comm_ns: i64 = calls.iter().map(|call| dur(call)).sum();
        let wait_ns: i64 = calls.iter().map(|call| call.ready - call.begin).sum();
        let compute: i64 = step.work[1..].iter().sum();
        let wall = local(step.end) - local(step.begin);
        steps.int(rank).text(&host).int(number.into()).int(local(step.begin)).int(wall).int(compute).int(comm_ns);
        steps.int(0).int(wait_ns).int(step.work[0]).int(0).int(compute / 100).int(40).int(0).int(CLOCK_ERR_NS);
        for (idx, (name, ns)) in names.iter().zip(lengths(step)).enumerate() {
            stages.int(rank).text(&host).int(number.into()).int(idx as i64).text(name).int(ns).int(0);
            sums[idx].push(ns);
        }
        let facts = [(&reduce, 1 << 20), (&reduce, 64 << 20), (&send, 8 << 20), (&barrier, 0)];
        for which in 0..calls.len() {
            let (call, seq) = (calls[which], i64::from(seqs[which]));
            if call.end == 0 {
                continue;
            }
            begun += 1;
            let comm = all_comms[which];
            if !comm.is_kept(seq, one_in(plan, which)) {
                continue;
            }
            kept += 1;
            let (kind, bytes) = facts[which];
            collectives.int(rank).text(&host).text(&comm_names[which]).int(seq).text(kind).int(bytes);
            collectives.int(local(call.begin)).int(dur(call)).int(0).int(CLOCK_ERR_NS).int(0);
            collectives.text(&range_names[which]).text(&sample);
        }
    }
    let (first, last) = (window.steps.first(), window.steps.last());
    let of = |row: Option<&Vec<RankStep>>| row.map(|row| row[rank as usize]).unwrap_or_default();
    let count = window.steps.len() as i64;
    windows.int(rank).text(&host).text(&clock.boot_id.as_str().into()).int(4000 + rank);
    windows.int(clock.reads(of(first).begin)).int(clock.reads(of(last).end));
    windows.int(super::BEGIN_NS - clock.boot_ns).int(CLOCK_ERR_NS).int(count).int(0);
    windows.int(40 * count).int(40 * count).int(0).int(0).int(begun).int(kept).int(begun - kept);
    windows.text(&"".into()).text(&env!("CARGO_PKG_VERSION").into());
    for (name, all) in names.iter().zip(&sums) {
        let (least, most) = (all.iter().min().copied().unwrap_or(0), all.iter().max().copied().unwrap_or(0));
        ranges.int(rank).text(&host).none().text(name).int(count).int(all.iter().sum()).int(least).int(most).int(0);
        ranges.int(0).int(0).int(0);
        let mut buckets = std::collections::BTreeMap::<i64, i64>::new();
        for ns in all {
            *buckets.entry(bucket(*ns)).or_default() += 1;
        }
        for (bucket, n) in buckets {
            sketches.int(rank).text(&host).text(name).int(bucket).int(n);
        }
    }
    let last_step = i64::from(window.first) + count - 1;
    let every = i64::from(WORLD_EVERY);
    let groups =
        [(tp, plan.local() > 1, last_step), (dp, plan.of_stage() > 1, last_step), (pp, plan.pipeline > 1, last_step)];
    let world = (&comms.world, last_step + 1 >= every, (last_step + 1) / every - 1);
    for (which, (comm, exists, last_seq)) in groups.into_iter().chain([world]).enumerate() {
        if !exists {
            continue;
        }
        comm_rows.int(rank).text(&host).text(&comm_names[which]);
        match window.index {
            0 => comm_rows.text(&comm.members.as_str().into()),
            _ => comm_rows.none(),
        };
        let signature = format!("{:016x}", fnv1a64(format!("{}:{last_seq}", comm.name).as_bytes()));
        comm_rows.int(comm.size.into()).int(one_in(plan, which) as i64).int(last_seq).text(&signature.into());
    }
}

/// Small and frequent ones alone are sampled.
fn one_in(plan: &Plan, which: usize) -> u64 {
    if which == 0 { plan.sampling } else { 1 }
}

/// Stages with the collective in which they end.
fn lengths(step: &RankStep) -> [i64; 4] {
    let dur = |call: &Call| call.end - call.begin;
    let sent = dur(&step.pp);
    [step.work[0], step.work[1] + dur(&step.tp), step.work[2] + dur(&step.dp) + sent, step.work[3] + dur(&step.world)]
}

/// OpenTelemetry's index at scale 5.
fn bucket(ns: i64) -> i64 {
    match ns {
        ..=0 => -1074 * 32,
        _ => ((ns as f64).log2() * 32.0).ceil() as i64 - 1,
    }
}

/// Writes a file of a table, under a temporary name until it is whole.
pub fn file(path: &Path, table: Table, batches: &[RecordBatch], facts: Vec<KeyValue>) -> Result<(), Error> {
    let bytes = encoded(table, batches, facts).map_err(|error| Error::write(path, error))?;
    replace_file(path, &bytes)
}

fn encoded(
    table: Table,
    batches: &[RecordBatch],
    facts: Vec<KeyValue>,
) -> Result<Vec<u8>, datafusion::parquet::errors::ParquetError> {
    use datafusion::arrow::datatypes::DataType;
    let is_merged = !facts.is_empty() || !are_of_one_rank(batches);
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let zstd = Compression::ZSTD(ZstdLevel::try_new(3)?);
    let mut properties = WriterProperties::builder()
        .set_compression(if is_merged { zstd } else { Compression::UNCOMPRESSED })
        .set_max_row_group_row_count(Some(ROWS_OF_GROUP))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_key_value_metadata((!facts.is_empty()).then_some(facts));
    // As a rank writes them: compressed if that makes them shorter, with statistics of what a reader selects by. A
    // merged file has many ranks as well.
    for field in table.written().fields() {
        let is_short = matches!(field.name().as_str(), "rank" | "host") || field.name().ends_with("_ns");
        if rows >= LEAST_ROWS && !is_short {
            properties = properties.set_column_compression(ColumnPath::from(field.name().as_str()), zstd);
        }
        if matches!(field.name().as_str(), "step" | "begin_ns") || is_merged && field.name() == "rank" {
            let column = ColumnPath::from(field.name().as_str());
            properties = properties.set_column_statistics_enabled(column, EnabledStatistics::Chunk);
        }
        if matches!(field.data_type(), DataType::Int32 | DataType::Int64) {
            let column = ColumnPath::from(field.name().as_str());
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
    }
    let mut writer = ArrowWriter::try_new(Vec::new(), table.written(), Some(properties.build()))?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.into_inner()
}

/// Whether all rows are of one rank, as in the file that a rank writes.
fn are_of_one_rank(batches: &[RecordBatch]) -> bool {
    let ranks = batches.iter().filter_map(|batch| batch.column_by_name("rank"));
    let mut ranks = ranks.filter_map(|ranks| ranks.as_primitive_opt::<Int32Type>()).flatten();
    let first = ranks.next();
    ranks.all(|rank| Some(rank) == first)
}

/// Puts a file into its place at once, so that no reader sees a part of it.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let of = |error: std::io::Error| Error::write(path, error);
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(of)?;
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    let written = std::fs::File::create(&temporary).and_then(|mut file| file.write_all(bytes));
    written.and_then(|()| std::fs::rename(&temporary, path)).map_err(|error| {
        // Otherwise the temporary file would remain forever.
        let _ = std::fs::remove_file(&temporary);
        of(error)
    })
}
