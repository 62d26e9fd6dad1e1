//! The tables that ranks write, and their columns, as docs/ranks.md states them. The generator writes by this list, the engine
//! reads by it, and a Parquet file that lacks one of these columns is left out as foreign; unless that is a count which ranks did not always
//! write.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// A folder of the data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Table {
    /// A row per rank and window.
    Windows,
    /// A row per step.
    Steps,
    /// A row per step and top-level range, in order.
    Stages,
    /// A row per window and range.
    Ranges,
    /// A row per window, range and bucket of its histogram.
    Sketches,
    /// A row per kept collective.
    Collectives,
    /// A row per window and communicator.
    Comms,
}

use Kind::{Added, I32, I64, MaybeI64, MaybeText, Text};

#[derive(Clone, Copy)]
enum Kind {
    I32,
    I64,
    /// A number that ranks did not always write: 0 in a file that lacks the column.
    Added,
    MaybeI64,
    Text,
    MaybeText,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Windows, Self::Steps, Self::Stages, Self::Ranges, Self::Sketches, Self::Collectives, Self::Comms];

    /// The folder's name, which is also the table's name in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Windows => "windows",
            Self::Steps => "steps",
            Self::Stages => "stages",
            Self::Ranges => "ranges",
            Self::Sketches => "sketches",
            Self::Collectives => "collectives",
            Self::Comms => "comms",
        }
    }

    const fn columns(self) -> &'static [(&'static str, Kind)] {
        match self {
            Self::Windows => &[
                ("rank", I32),
                ("host", Text),
                ("boot_id", Text),
                ("pid", I64),
                ("begin_ns", I64),
                ("end_ns", I64),
                ("realtime_offset_ns", I64),
                ("clock_err_ns", I64),
                ("steps", I64),
                ("steps_dropped", Added),
                ("zones_begun", I64),
                ("zones_recorded", I64),
                ("zones_captured", I64),
                ("zones_dropped", I64),
                ("collectives_begun", I64),
                ("collectives_kept", I64),
                ("collectives_left_out", I64),
                ("coarsened", Text),
                ("version", Text),
            ],
            Self::Steps => &[
                ("rank", I32),
                ("host", Text),
                ("step", I64),
                ("begin_ns", I64),
                ("wall_ns", I64),
                ("compute_ns", I64),
                ("comm_ns", I64),
                ("comm_hidden_ns", I64),
                ("wait_ns", I64),
                ("idle_ns", I64),
                ("uncertain_ns", Added),
                ("launch_ns", I64),
                ("zones", I64),
                ("dropped", I64),
                ("clock_err_ns", I64),
            ],
            Self::Stages => &[
                ("rank", I32),
                ("host", Text),
                ("step", I64),
                ("idx", I32),
                ("name", Text),
                ("dur_ns", I64),
                ("end_early_ns", Added),
            ],
            Self::Ranges => &[
                ("rank", I32),
                ("host", Text),
                ("step", MaybeI64),
                ("name", Text),
                ("n", I64),
                ("sum_ns", I64),
                ("min_ns", I64),
                ("max_ns", I64),
                ("launch_ns", I64),
                ("bounded", Added),
                ("bounded_sum_ns", Added),
                ("bounded_least_ns", Added),
            ],
            Self::Sketches => &[("rank", I32), ("host", Text), ("name", Text), ("bucket", I32), ("n", I64)],
            Self::Collectives => &[
                ("rank", I32),
                ("host", Text),
                ("comm", Text),
                ("seq", I64),
                ("kind", Text),
                ("bytes", I64),
                ("begin_ns", I64),
                ("dur_ns", I64),
                ("wait_ns", I64),
                ("err_ns", I64),
                ("end_early_ns", Added),
                ("range", Text),
                ("why", Text),
            ],
            Self::Comms => &[
                ("rank", I32),
                ("host", Text),
                ("comm", Text),
                ("members", MaybeText),
                ("size", I32),
                ("sampling", I64),
                ("last_seq", I64),
                ("signature", Text),
            ],
        }
    }

    /// The columns of a file.
    pub fn written(self) -> SchemaRef {
        self.schema(&DataType::Utf8, false)
    }

    /// The same for an engine that reads the files itself: it finds nothing where a file lacks a column.
    pub fn listed(self) -> SchemaRef {
        self.schema(&DataType::Utf8, true)
    }

    /// The same as the engine reads them: short texts are compared without a look-up.
    pub fn read(self) -> SchemaRef {
        self.schema(&DataType::Utf8View, false)
    }

    /// Whether a file may lack the column, whose rows are 0 then.
    pub fn may_lack(self, column: &str) -> bool {
        self.columns().iter().any(|(name, kind)| *name == column && matches!(kind, Added))
    }

    fn schema(self, text: &DataType, may_lack: bool) -> SchemaRef {
        let field = |(name, kind): &(&'static str, Kind)| match kind {
            I32 => Field::new(*name, DataType::Int32, false),
            I64 => Field::new(*name, DataType::Int64, false),
            Added => Field::new(*name, DataType::Int64, may_lack),
            MaybeI64 => Field::new(*name, DataType::Int64, true),
            Text => Field::new(*name, text.clone(), false),
            MaybeText => Field::new(*name, text.clone(), true),
        };
        Arc::new(Schema::new(self.columns().iter().map(field).collect::<Vec<_>>()))
    }

    /// What a file lacks to be this table's, if it does.
    pub fn misses(self, found: &Schema) -> Option<String> {
        for (name, kind) in self.columns() {
            let Ok(field) = found.field_with_name(name) else {
                if matches!(kind, Added) {
                    continue;
                }
                return Some(format!("has no column `{name}`"));
            };
            let fits = match kind {
                I32 => *field.data_type() == DataType::Int32,
                I64 | Added | MaybeI64 => *field.data_type() == DataType::Int64,
                Text | MaybeText => is_text(field.data_type()),
            };
            if !fits {
                return Some(format!("its column `{name}` is {}", field.data_type()));
            }
        }
        None
    }
}

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, value) => is_text(value),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_of_other_engines_know_the_columns_that_files_may_lack() {
        let script = include_str!("../engines/questions.py");
        let (_, rest) = script.split_once("LATER = {\n").expect("the columns");
        let (known, _) = rest.split_once("}\n").expect("their end");
        let later = |table: Table| -> Vec<String> {
            let columns = table.columns().iter().filter(|(_, kind)| matches!(kind, Added));
            columns.map(|(name, _)| format!("\"{name}\"")).collect()
        };
        let tables = Table::ALL.into_iter().filter(|table| !later(*table).is_empty());
        let expected: String =
            tables.map(|table| format!("    \"{}\": [{}],\n", table.name(), later(table).join(", "))).collect();
        assert_eq!(known, expected);
    }
}
