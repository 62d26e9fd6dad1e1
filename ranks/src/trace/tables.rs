//! The tables of one trace and their columns, as docs/query.md states them, and the rows of one while they are collected: Arrow batches of a
//! bounded number of rows.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, RecordBatch, StringViewBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;

use crate::engine::BATCH;

/// A table of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TraceTable {
    /// A row per zone.
    Zones,
    /// A row per launch.
    Launches,
    /// A row per kernel, copy and fill.
    Kernels,
    /// A row per collective.
    Collectives,
    /// A row per wait.
    Waits,
    /// A row per step.
    Steps,
    /// A row per replay of a graph.
    Replays,
    /// A row per stream.
    Streams,
    /// A row per kernel, copy and fill on a stream, and per zone where a device has none.
    Work,
    /// A row per range and place.
    Ranges,
    /// A row per figure of the session's account.
    Account,
}

/// A column: its name, and its type. Those that may lack a value are said to in the documentation.
type Columns = &'static [(&'static str, Kind)];

#[derive(Debug, Clone, Copy)]
enum Kind {
    Int,
    MaybeInt,
    MaybeFloat,
    Text,
    MaybeText,
    Bool,
}

use Kind::{Bool, Int, MaybeFloat, MaybeInt, MaybeText, Text};

impl TraceTable {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 11] = [
        Self::Zones,
        Self::Launches,
        Self::Kernels,
        Self::Collectives,
        Self::Waits,
        Self::Steps,
        Self::Replays,
        Self::Streams,
        Self::Work,
        Self::Ranges,
        Self::Account,
    ];

    /// Its name in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zones => "zones",
            Self::Launches => "launches",
            Self::Kernels => "kernels",
            Self::Collectives => "collectives",
            Self::Waits => "waits",
            Self::Steps => "steps",
            Self::Replays => "replays",
            Self::Streams => "streams",
            Self::Work => "work",
            Self::Ranges => "ranges",
            Self::Account => "account",
        }
    }

    /// The table of a name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// The query over other tables that makes it, if it is not read from the trace.
    pub const fn view(self) -> Option<&'static str> {
        match self {
            Self::Work => Some(include_str!("../../queries/tables/work.sql")),
            Self::Ranges => Some(include_str!("../../queries/tables/ranges.sql")),
            _ => None,
        }
    }

    const fn columns(self) -> Columns {
        match self {
            Self::Zones => &[
                ("zone", Int),
                ("range", Text),
                ("place", Text),
                ("device", MaybeInt),
                ("stream", MaybeText),
                ("thread", MaybeText),
                ("begin_ns", Int),
                ("dur_ns", Int),
                ("dur_is_bound", Bool),
                ("self_ns", Int),
                ("self_is_bound", Bool),
                ("corrected_ns", MaybeInt),
                ("end_early_by_ns", Int),
                ("launch_begin_ns", MaybeInt),
                ("launch_ns", MaybeInt),
                ("call", Int),
                ("step", MaybeInt),
                ("is_collective", Bool),
                ("bytes", MaybeInt),
                ("flops", MaybeInt),
                ("sampled", MaybeFloat),
                ("failed", Bool),
                ("fields", MaybeText),
            ],
            Self::Launches => &[
                ("zone", MaybeInt),
                ("range", Text),
                ("thread", Text),
                ("begin_ns", Int),
                ("dur_ns", Int),
                ("step", MaybeInt),
            ],
            Self::Kernels => &[
                ("name", Text),
                ("kind", Text),
                ("device", MaybeInt),
                ("stream", MaybeText),
                ("range", MaybeText),
                ("is_collective", Bool),
                ("begin_ns", Int),
                ("dur_ns", Int),
                ("step", MaybeInt),
            ],
            Self::Collectives => &[
                ("zone", Int),
                ("range", Text),
                ("place", Text),
                ("kind", Text),
                ("comm", Text),
                ("size", Int),
                ("seq", MaybeInt),
                ("bytes", MaybeInt),
                ("bus_gb_per_s", MaybeFloat),
                ("device", MaybeInt),
                ("stream", MaybeText),
                ("begin_ns", Int),
                ("dur_ns", Int),
                ("dur_is_bound", Bool),
                ("step", MaybeInt),
            ],
            Self::Waits => &[
                ("name", Text),
                ("kind", Text),
                ("place", Text),
                ("device", MaybeInt),
                ("stream", MaybeText),
                ("thread", MaybeText),
                ("range", MaybeText),
                ("signalled_by", MaybeText),
                ("begin_ns", Int),
                ("dur_ns", Int),
                ("end_early_by_ns", Int),
                ("dur_is_bound", Bool),
                ("step", MaybeInt),
            ],
            Self::Steps => &[("step", MaybeInt), ("begin_ns", Int), ("dur_ns", Int)],
            Self::Replays => {
                &[("graph", Text), ("device", MaybeInt), ("stream", MaybeText), ("begin_ns", Int), ("dur_ns", Int)]
            }
            Self::Streams => &[
                ("device", Int),
                ("device_name", Text),
                ("stream", Text),
                ("slices", Int),
                ("begin_ns", Int),
                ("end_ns", Int),
                ("used_ns", Int),
                ("waiting_ns", Int),
                ("uncertain_ns", Int),
                ("busy_ns", Int),
                ("waiting_early_ns", Int),
            ],
            Self::Work | Self::Ranges => &[],
            Self::Account => &[("name", Text), ("value", Int)],
        }
    }

    /// Its columns; none for a view.
    pub fn schema(self) -> SchemaRef {
        let field = |(name, kind): &(&'static str, Kind)| match kind {
            Int => Field::new(*name, DataType::Int64, false),
            MaybeInt => Field::new(*name, DataType::Int64, true),
            MaybeFloat => Field::new(*name, DataType::Float64, true),
            Text => Field::new(*name, DataType::Utf8View, false),
            MaybeText => Field::new(*name, DataType::Utf8View, true),
            Bool => Field::new(*name, DataType::Boolean, false),
        };
        Arc::new(Schema::new(self.columns().iter().map(field).collect::<Vec<_>>()))
    }
}

/// A value of a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cell<'a> {
    Int(i64),
    Float(f64),
    Text(&'a str),
    Bool(bool),
    None,
}

impl From<i64> for Cell<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell<'_> {
    fn from(value: u64) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Cell<'_> {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

enum Builder {
    Int(Int64Builder),
    Float(Float64Builder),
    Text(StringViewBuilder),
    Bool(BooleanBuilder),
}

/// The rows of a table so far.
pub(super) struct Filling {
    schema: SchemaRef,
    builders: Vec<Builder>,
    rows: usize,
    batches: Vec<RecordBatch>,
}

impl Filling {
    pub(super) fn new(table: TraceTable) -> Self {
        let builder = |field: &Arc<Field>| match field.data_type() {
            DataType::Int64 => Builder::Int(Int64Builder::new()),
            DataType::Float64 => Builder::Float(Float64Builder::new()),
            DataType::Boolean => Builder::Bool(BooleanBuilder::new()),
            // Names repeat from row to row.
            _ => Builder::Text(StringViewBuilder::new().with_deduplicate_strings()),
        };
        let schema = table.schema();
        let builders = schema.fields().iter().map(builder).collect();
        Self { schema, builders, rows: 0, batches: Vec::new() }
    }

    /// Adds a row, with a value for each column.
    pub(super) fn push(&mut self, row: &[Cell<'_>]) -> Result<(), ArrowError> {
        for (builder, cell) in self.builders.iter_mut().zip(row) {
            match (builder, *cell) {
                (Builder::Int(all), Cell::Int(value)) => all.append_value(value),
                (Builder::Float(all), Cell::Float(value)) => all.append_value(value),
                (Builder::Text(all), Cell::Text(text)) => all.append_value(text),
                (Builder::Bool(all), Cell::Bool(value)) => all.append_value(value),
                (Builder::Int(all), _) => all.append_null(),
                (Builder::Float(all), _) => all.append_null(),
                (Builder::Text(all), _) => all.append_null(),
                (Builder::Bool(all), _) => all.append_null(),
            }
        }
        self.rows += 1;
        if self.rows == BATCH { self.flush() } else { Ok(()) }
    }

    /// All rows.
    pub(super) fn finish(mut self) -> Result<Vec<RecordBatch>, ArrowError> {
        self.flush()?;
        Ok(self.batches)
    }

    fn flush(&mut self) -> Result<(), ArrowError> {
        let finished = |builder: &mut Builder| -> ArrayRef {
            match builder {
                Builder::Int(all) => Arc::new(all.finish()),
                Builder::Float(all) => Arc::new(all.finish()),
                Builder::Text(all) => Arc::new(all.finish()),
                Builder::Bool(all) => Arc::new(all.finish()),
            }
        };
        if self.rows > 0 {
            let columns = self.builders.iter_mut().map(finished).collect();
            self.batches.push(RecordBatch::try_new(self.schema.clone(), columns)?);
        }
        self.rows = 0;
        Ok(())
    }
}
