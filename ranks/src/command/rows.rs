//! The rows of an answer as text.

use clap::ValueEnum;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::WriterBuilder;
use datafusion::arrow::json::writer::LineDelimited;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::arrow::util::pretty::pretty_format_batches;
use warpline_core::text::{csv, printable_json};

use crate::engine::Rows;
use crate::error::Error;

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Table,
    Csv,
    Json,
}

impl Format {
    /// The rows as text, without what acts in a spreadsheet. In JSON, control characters are escaped as JSON escapes them; `output::print`
    /// escapes the others.
    pub(super) fn write(self, rows: &Rows) -> Result<String, Error> {
        let text = match self {
            Self::Table => pretty_format_batches(&rows.batches).map(|table| format!("{table}\n")),
            Self::Csv => to_csv(rows),
            Self::Json => to_json(rows),
        };
        text.map_err(|error| Error::query("SQL", error.into()))
    }
}

/// A line for the names of the columns, and one for each row.
fn to_csv(rows: &Rows) -> Result<String, ArrowError> {
    let line = |values: Vec<String>| values.join(",") + "\n";
    let mut text = line(rows.schema.fields().iter().map(|field| csv(field.name()).into_owned()).collect());
    let options = FormatOptions::default();
    for batch in &rows.batches {
        let columns = batch.columns().iter();
        let columns = columns.map(|column| ArrayFormatter::try_new(column, &options));
        let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
        for row in 0..batch.num_rows() {
            let value = |column: &ArrayFormatter<'_>| Ok(csv(&column.value(row).try_to_string()?).into_owned());
            text += &line(columns.iter().map(value).collect::<Result<_, ArrowError>>()?);
        }
    }
    Ok(text)
}

/// An object for each row.
fn to_json(rows: &Rows) -> Result<String, ArrowError> {
    let mut bytes = Vec::new();
    let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut bytes);
    writer.write_batches(&rows.batches.iter().collect::<Vec<_>>())?;
    writer.finish()?;
    Ok(printable_json(&String::from_utf8_lossy(&bytes)).into_owned())
}
