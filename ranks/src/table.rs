//! The tables of [`warpline_judge::tables`] as Arrow has them: the generator writes by these schemas, and the engine
//! reads by them.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use warpline_judge::tables::Kind::{Added, I32, I64, MaybeI64, MaybeText, Text};
use warpline_judge::tables::{Kind, Table};

/// The schema of a table.
pub trait Schemas {
    /// The columns of a file.
    fn written(self) -> SchemaRef;

    /// The same for an engine that reads the files itself: it finds nothing where a file lacks a column.
    fn listed(self) -> SchemaRef;

    /// The same as the engine reads them: short texts are compared without a look-up.
    fn read(self) -> SchemaRef;

    /// Why a file is not one of this table, if it is not.
    fn misses(self, found: &Schema) -> Option<String>;
}

impl Schemas for Table {
    fn written(self) -> SchemaRef {
        schema(self, &DataType::Utf8, false)
    }

    fn listed(self) -> SchemaRef {
        schema(self, &DataType::Utf8, true)
    }

    fn read(self) -> SchemaRef {
        schema(self, &DataType::Utf8View, false)
    }

    fn misses(self, found: &Schema) -> Option<String> {
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

fn schema(table: Table, text: &DataType, may_lack: bool) -> SchemaRef {
    let field = |(name, kind): &(&'static str, Kind)| match kind {
        I32 => Field::new(*name, DataType::Int32, false),
        I64 => Field::new(*name, DataType::Int64, false),
        Added => Field::new(*name, DataType::Int64, may_lack),
        MaybeI64 => Field::new(*name, DataType::Int64, true),
        Text => Field::new(*name, text.clone(), false),
        MaybeText => Field::new(*name, text.clone(), true),
    };
    Arc::new(Schema::new(table.columns().iter().map(field).collect::<Vec<_>>()))
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
