//! The scan of a table of this machine. A job of 10,000 ranks has a hundred thousand small files a table, so a file is read in one
//! go, without a task and a round of requests for each: only the columns that a query names, and many files to a batch. A file that
//! is damaged or foreign is left out, and the folder says so. Called by the engine; never changes a file.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray,
};
use datafusion::arrow::compute::{BatchCoalescer, cast, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result as DfResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use datafusion::parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels};
use datafusion::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetStatisticsPolicy};
use datafusion::parquet::file::reader::ChunkReader;
use datafusion::parquet::file::statistics::Statistics as ColumnStatistics;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};

use super::held::Held;
use super::pages::OneGroup;
use crate::folder::{DataFile, Folder, check_ends};
use crate::table::Table;

/// Rows of a batch.
pub const BATCH: usize = 8192;

/// Larger files, as `compact` makes them, are read in pieces.
const IN_ONE_GO: u64 = 16 << 20;

/// Bytes of a row and column, about, for the planner's choice of a join's smaller side.
const BYTES_PER_VALUE: usize = 8;

/// The part of a table that matters: for files and groups of rows that have nothing of it, reading is skipped. Rows beyond it may come where the query names no rank.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// These ranks.
    pub ranks: std::collections::BTreeSet<i64>,
    /// In these windows; in all if it is none.
    pub windows: Option<std::collections::BTreeSet<i64>>,
}

impl Scope {
    fn has(&self, file: &DataFile) -> bool {
        self.windows.as_ref().is_none_or(|windows| windows.contains(&file.window))
            && file.ranks().is_none_or(|(first, last)| self.any(first, last))
    }

    fn any(&self, first: i64, last: i64) -> bool {
        first <= last && self.ranks.range(first..=last).next().is_some()
    }
}

/// What is read of each file.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Whose files.
    pub table: Table,
    /// The columns, in order. `run` and `win` are of the path.
    pub schema: SchemaRef,
    /// The run's id.
    pub run: Arc<str>,
    /// What matters, if not all does.
    pub scope: Option<Arc<Scope>>,
}

impl Wanted {
    /// The rows of a file that is read in one go, or why it is left out.
    pub fn read(&self, file: &DataFile) -> Result<Vec<RecordBatch>, String> {
        let mut bytes = Vec::with_capacity(file.bytes as usize);
        let read = File::open(&file.path).and_then(|mut open| open.read_to_end(&mut bytes));
        read.map_err(|error| format!("cannot be read: {error}"))?;
        check_ends(&bytes)?;
        let bytes = Bytes::from(bytes);
        match self.open(bytes.clone(), |facts| OneGroup::of(bytes, facts))? {
            Opened::Counted(rows, constants) => Ok(vec![self.counted(rows, &constants, file)?]),
            Opened::Reader(reader, constants) => {
                reader.map(|batch| self.batch(&batch.map_err(damaged)?, &constants, file)).collect()
            }
        }
    }

    /// The rows of a file, batch by batch, until `take` has enough.
    fn read_in_pieces(&self, file: &DataFile, take: &mut impl FnMut(RecordBatch) -> bool) -> Result<(), String> {
        let open = File::open(&file.path).map_err(|error| format!("cannot be read: {error}"))?;
        match self.open(open, |_| None)? {
            Opened::Counted(rows, constants) => _ = take(self.counted(rows, &constants, file)?),
            Opened::Reader(reader, constants) => {
                for batch in reader {
                    if !take(self.batch(&batch.map_err(damaged)?, &constants, file)?) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Opens a file; `in_memory` returns its pages, if they are in memory and can be read from there.
    fn open<T: ChunkReader + 'static>(
        &self,
        input: T,
        in_memory: impl FnOnce(&Arc<ParquetMetaData>) -> Option<OneGroup>,
    ) -> Result<Opened, String> {
        let options = ArrowReaderOptions::new()
            .with_skip_arrow_metadata(true)
            .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(input, options)
            .map_err(|error| format!("its footer is damaged: {error}"))?;
        if let Some(why) = self.table.misses(builder.schema()) {
            return Err(format!("is no table `{}`: {why}", self.table.name()));
        }
        let names = self.schema.fields().iter().map(|field| field.name().as_str());
        let constants = constants(builder.metadata());
        let is_in_file = |name: &str| builder.schema().column_with_name(name).is_some();
        let names: Vec<&str> =
            names.filter(|name| !is_of_path(name) && !constants.contains_key(*name) && is_in_file(name)).collect();
        if names.is_empty() {
            return Ok(Opened::Counted(builder.metadata().file_metadata().num_rows(), constants));
        }
        let mask = ProjectionMask::columns(builder.parquet_schema(), names);
        let groups = match &self.scope {
            Some(scope) => groups_within(builder.metadata(), scope),
            None => (0..builder.metadata().num_row_groups()).collect(),
        };
        if let Some(pages) = (!groups.is_empty()).then(|| in_memory(builder.metadata())).flatten() {
            let levels = parquet_to_arrow_field_levels(builder.parquet_schema(), mask, None).map_err(damaged)?;
            let reader = ParquetRecordBatchReader::try_new_with_row_groups(&levels, &pages, BATCH, None);
            return Ok(Opened::Reader(reader.map_err(damaged)?, constants));
        }
        let reader = builder.with_projection(mask).with_row_groups(groups).with_batch_size(BATCH).build();
        Ok(Opened::Reader(reader.map_err(damaged)?, constants))
    }

    /// In the order and the types of the schema. A column that must have values and lacks one is an error.
    fn batch(&self, read: &RecordBatch, constants: &Constants, file: &DataFile) -> Result<RecordBatch, String> {
        let rows = read.num_rows();
        let column = |name: &str| constants.get(name).map(|one| one.repeated(rows));
        let batch = self.of_columns(rows, file, |name| column(name).or_else(|| read.column_by_name(name).cloned()))?;
        match (&self.scope, batch.column_by_name("rank")) {
            (Some(scope), Some(ranks)) if !constants.contains_key("rank") => {
                // In a file of many ranks, most rows may be of others.
                let ranks = cast(ranks, &DataType::Int64).map_err(damaged)?;
                let is_within = |rank: Option<i64>| rank.is_some_and(|rank| scope.ranks.contains(&rank));
                let mask: BooleanArray =
                    ranks.as_primitive::<Int64Type>().iter().map(|rank| Some(is_within(rank))).collect();
                filter_record_batch(&batch, &mask).map_err(damaged)
            }
            _ => Ok(batch),
        }
    }

    fn counted(&self, rows: i64, constants: &Constants, file: &DataFile) -> Result<RecordBatch, String> {
        let rows = usize::try_from(rows).map_err(damaged)?;
        self.of_columns(rows, file, |name| constants.get(name).map(|one| one.repeated(rows)))
    }

    fn of_columns(
        &self,
        rows: usize,
        file: &DataFile,
        column: impl Fn(&str) -> Option<ArrayRef>,
    ) -> Result<RecordBatch, String> {
        let one = |field: &Arc<Field>| match field.name().as_str() {
            "run" => Ok(Arc::new(StringViewArray::from_iter_values(std::iter::repeat_n(&*self.run, rows))) as ArrayRef),
            "win" => Ok(Arc::new(Int64Array::from_value(file.window, rows)) as ArrayRef),
            name => {
                let absent =
                    || self.table.may_lack(name).then(|| Arc::new(Int64Array::from_value(0, rows)) as ArrayRef);
                let array = column(name).or_else(absent).ok_or_else(|| format!("has no column `{name}`"))?;
                if !field.is_nullable() && array.null_count() > 0 {
                    return Err(format!("its column `{name}` has rows without a value"));
                }
                if array.data_type() == field.data_type() {
                    return Ok(array);
                }
                cast(&array, field.data_type()).map_err(damaged)
            }
        };
        let columns = self.schema.fields().iter().map(one).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(damaged)
    }
}

enum Opened {
    Reader(ParquetRecordBatchReader, Constants),
    /// No column has to be read.
    Counted(i64, Constants),
}

/// Columns with one value for all rows of a file. A file of one rank has many: its rank, its host, and all columns of `windows`. Their
/// pages are not read, because to set up the decompression of a page costs more than its few bytes.
type Constants = HashMap<String, Constant>;

enum Constant {
    I32(i32),
    I64(i64),
    Text(String),
}

impl Constant {
    fn repeated(&self, rows: usize) -> ArrayRef {
        match self {
            Self::I32(value) => Arc::new(Int32Array::from_value(*value, rows)),
            Self::I64(value) => Arc::new(Int64Array::from_value(*value, rows)),
            Self::Text(text) => Arc::new(StringViewArray::from_iter_values(std::iter::repeat_n(text, rows))),
        }
    }
}

/// The constant columns, as the statistics of a file with one group of rows have them.
fn constants(facts: &ParquetMetaData) -> Constants {
    let [group] = facts.row_groups() else { return Constants::new() };
    let of_column = |column: &ColumnChunkMetaData| {
        let statistics = column.statistics()?;
        // A column that may lack values says how many it lacks.
        if column.column_descr().max_def_level() > 0 && statistics.null_count_opt() != Some(0)
            || !statistics.min_is_exact()
            || !statistics.max_is_exact()
        {
            return None;
        }
        let value = match statistics {
            ColumnStatistics::Int32(known) => Constant::I32(same(known.min_opt(), known.max_opt())?.to_owned()),
            ColumnStatistics::Int64(known) => Constant::I64(same(known.min_opt(), known.max_opt())?.to_owned()),
            ColumnStatistics::ByteArray(known) => {
                let text = same(known.min_opt(), known.max_opt())?.as_utf8().ok()?;
                Constant::Text(text.to_owned())
            }
            _ => return None,
        };
        Some((column.column_descr().name().to_owned(), value))
    };
    group.columns().iter().filter_map(of_column).collect()
}

fn same<T: PartialEq>(least: Option<T>, most: Option<T>) -> Option<T> {
    least.filter(|least| most.as_ref() == Some(least))
}

fn damaged(error: impl fmt::Display) -> String {
    format!("is damaged: {error}")
}

fn is_of_path(name: &str) -> bool {
    matches!(name, "run" | "win")
}

/// The row groups that may have a rank of the scope, by their statistics.
fn groups_within(facts: &ParquetMetaData, scope: &Scope) -> Vec<usize> {
    let columns = facts.file_metadata().schema_descr().columns();
    let rank = columns.iter().position(|column| column.name() == "rank");
    let may_have = |group: &usize| {
        let statistics = rank.and_then(|rank| facts.row_group(*group).column(rank).statistics());
        match statistics {
            Some(ColumnStatistics::Int32(known)) => match (known.min_opt(), known.max_opt()) {
                (Some(least), Some(most)) => scope.any((*least).into(), (*most).into()),
                _ => true,
            },
            _ => true,
        }
    };
    (0..facts.num_row_groups()).filter(may_have).collect()
}

/// Where rows come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Files, a list for each part.
    Files(Vec<Vec<DataFile>>, Arc<Mutex<Folder>>),
    /// Memory.
    Held(Arc<Held>),
}

/// Reads rows: a leaf of a plan.
#[derive(Debug)]
pub struct Scan {
    wanted: Wanted,
    source: Source,
    rows: usize,
    properties: Arc<PlanProperties>,
}

impl Scan {
    /// Of the files of the table, in at most `parts` parts.
    pub fn of_files(wanted: Wanted, folder: &Arc<Mutex<Folder>>, parts: usize) -> Self {
        let files: Vec<DataFile> = {
            let folder = folder.lock().unwrap_or_else(PoisonError::into_inner);
            let all = folder.files(wanted.table).iter();
            all.filter(|file| wanted.scope.as_ref().is_none_or(|scope| scope.has(file))).cloned().collect()
        };
        // A guess: what a planner compares it with is larger or smaller by far.
        let rows = files.iter().map(|file| file.bytes as usize / 32).sum();
        // Dealt out in turn: each part has files of every window.
        let parts = parts.clamp(1, files.len().max(1));
        let part = |first: usize| files.iter().skip(first).step_by(parts).cloned().collect();
        Self::new(wanted, Source::Files((0..parts).map(part).collect(), folder.clone()), parts, rows)
    }

    /// Of rows in memory.
    pub fn of_held(wanted: Wanted, held: Arc<Held>) -> Self {
        let (parts, rows) = (held.parts(), held.rows());
        Self::new(wanted, Source::Held(held), parts, rows)
    }

    fn new(wanted: Wanted, source: Source, parts: usize, rows: usize) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(wanted.schema.clone()),
            Partitioning::UnknownPartitioning(parts),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { wanted, source, rows, properties: Arc::new(properties) }
    }
}

impl DisplayAs for Scan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<&str> = self.wanted.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let what = match &self.source {
            Source::Files(parts, _) => format!("{} files", parts.iter().map(Vec::len).sum::<usize>()),
            Source::Held(_) => format!("{} rows in memory", self.rows),
        };
        write!(f, "Scan: {}, {what}, columns=[{}]", self.wanted.table.name(), columns.join(", "))
    }
}

impl ExecutionPlan for Scan {
    fn name(&self) -> &str {
        "Scan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, part: usize, _: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        let mut stream = RecordBatchReceiverStream::builder(self.wanted.schema.clone(), 2);
        let (sender, wanted) = (stream.tx(), self.wanted.clone());
        // A thread of its own: a slow disk holds up no other work.
        match &self.source {
            Source::Files(parts, folder) => {
                let (files, folder) = (parts.get(part).cloned().unwrap_or_default(), folder.clone());
                stream.spawn_blocking(move || {
                    read_files(&wanted, &files, &folder, &mut |batch| sender.blocking_send(Ok(batch)).is_ok())
                });
            }
            Source::Held(held) => {
                let held = held.clone();
                stream.spawn_blocking(move || {
                    held.send(part, &wanted, &mut |batch| sender.blocking_send(Ok(batch)).is_ok())
                });
            }
        }
        Ok(stream.build())
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], args: &StatisticsArgs) -> DfResult<Arc<Statistics>> {
        let parts = if args.partition().is_some() { self.properties.partitioning.partition_count().max(1) } else { 1 };
        let rows = self.rows / parts;
        let mut all = Statistics::new_unknown(&self.wanted.schema);
        all.num_rows = Precision::Inexact(rows);
        all.total_byte_size = Precision::Inexact(rows * BYTES_PER_VALUE * self.wanted.schema.fields().len().max(1));
        Ok(Arc::new(all))
    }
}

/// Many files to a batch. A small file that cannot be read is left out as a whole; what a large one gave before it broke is on its
/// way already, so that is an error, and the query runs again without the file.
fn read_files(
    wanted: &Wanted,
    files: &[DataFile],
    folder: &Mutex<Folder>,
    take: &mut impl FnMut(RecordBatch) -> bool,
) -> DfResult<()> {
    let leave_out = |file: &DataFile, why: &str| {
        folder.lock().unwrap_or_else(PoisonError::into_inner).leave_out(wanted.table, file, why);
    };
    let mut coalescer = BatchCoalescer::new(wanted.schema.clone(), BATCH);
    for file in files {
        if file.bytes > IN_ONE_GO {
            let read = wanted.read_in_pieces(file, take);
            if let Err(why) = read {
                leave_out(file, &why);
                return Err(DataFusionError::Execution(format!("`{}` {why}", file.path.display())));
            }
            continue;
        }
        match wanted.read(file) {
            Ok(batches) => {
                for batch in batches {
                    coalescer.push_batch(batch)?;
                }
            }
            Err(why) => leave_out(file, &why),
        }
        while let Some(batch) = coalescer.next_completed_batch() {
            if !take(batch) {
                return Ok(());
            }
        }
    }
    coalescer.finish_buffered_batch()?;
    while let Some(batch) = coalescer.next_completed_batch() {
        if !take(batch) {
            break;
        }
    }
    Ok(())
}
