//! Reads a file of a table: the columns that a query names, or all of them for `compact`. What all rows of the file
//! have in common is taken from its statistics. Called by `scan`, `in_memory` and `compact`; never changes a file. The
//! Parquet reader may panic on a damaged file ([`guarded`]).

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringViewArray,
};
use datafusion::arrow::compute::{cast, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, SchemaRef};
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use datafusion::parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels};
use datafusion::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetStatisticsPolicy};
use datafusion::parquet::file::reader::ChunkReader;
use datafusion::parquet::file::statistics::Statistics as ColumnStatistics;
use warpline_judge::tables::Table;

use super::pages::OneGroup;
use crate::folder::{DataFile, check_ends};
use crate::reading::guarded;
use crate::table::Schemas;

/// Rows of a batch.
pub const BATCH: usize = 8192;

/// The part of a table that matters: for files and groups of rows that have nothing of it, reading is skipped. Rows
/// beyond it may come where the query names no rank.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// These ranks.
    pub ranks: std::collections::BTreeSet<i64>,
    /// In these windows; in all if it is none.
    pub windows: Option<std::collections::BTreeSet<i64>>,
}

impl Scope {
    pub(super) fn has(&self, file: &DataFile) -> bool {
        self.windows.as_ref().is_none_or(|windows| windows.contains(&file.window))
            && file.ranks().is_none_or(|(first, last)| self.any(first, last))
    }

    fn any(&self, first: i64, last: i64) -> bool {
        first <= last && self.ranks.range(first..=last).next().is_some()
    }
}

/// The part that is read of each file.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The table.
    pub table: Table,
    /// The columns, in order. `run` and `win` are of the path.
    pub schema: SchemaRef,
    /// The run's id.
    pub run: Arc<str>,
    /// The part that matters; none if all does.
    pub scope: Option<Arc<Scope>>,
}

impl Wanted {
    /// The rows of a file that is read in one go, or why it is left out.
    pub fn read(&self, file: &DataFile) -> Result<Vec<RecordBatch>, String> {
        let mut bytes = Vec::with_capacity(file.bytes as usize);
        let read = File::open(&file.path).and_then(|mut open| open.read_to_end(&mut bytes));
        read.map_err(|error| format!("cannot be read: {error}"))?;
        self.decode(file, bytes)
    }

    /// The rows of a file that is in memory, or why it is left out.
    pub fn decode(&self, file: &DataFile, bytes: Vec<u8>) -> Result<Vec<RecordBatch>, String> {
        check_ends(&bytes)?;
        let bytes = Bytes::from(bytes);
        guarded(|| match self.open(bytes.clone(), |facts| OneGroup::of(bytes, facts))? {
            Opened::Counted(rows, constants) => Ok(vec![self.counted(rows, &constants, file)?]),
            Opened::Reader(reader, constants) => {
                reader.map(|batch| self.batch(&batch.map_err(damaged)?, &constants, file)).collect()
            }
        })
    }

    /// The rows of a file, batch by batch, until `take` has enough.
    pub(super) fn read_in_pieces(
        &self,
        file: &DataFile,
        take: &mut impl FnMut(RecordBatch) -> bool,
    ) -> Result<(), String> {
        let open = File::open(&file.path).map_err(|error| format!("cannot be read: {error}"))?;
        guarded(|| {
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
        })
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
            return Err(format!("is not a table `{}`: {why}", self.table.name()));
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

/// Columns with one value for all rows of a file. A file of one rank has many: its rank, its host, and all columns of
/// `windows`. Their pages are not read, because to set up the decompression of a page costs more than its few bytes.
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
