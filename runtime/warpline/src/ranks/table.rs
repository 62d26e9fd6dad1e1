//! A table as columns, and its file: Parquet with zstd, delta-packed integers, and names in dictionaries.
//!
//! The rows of a table are in memory, bounded by the window. The file is made in memory too, so its size is known before it is written.

use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Encoding, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};

const ZSTD_LEVEL: i32 = 3;

/// A table with fewer rows is not compressed: a column's compressor costs more than it saves.
const LEAST_ROWS: usize = 64;

/// More than a table has.
const MOST_ROWS_OF_PAGE: usize = 1 << 20;

/// The names of the columns that all tables have. Their one value takes a few bytes.
const RANK: &str = "rank";
const HOST: &str = "host";

/// The most texts that are found by their address before they are copied again.
const KNOWN: usize = 32;

/// The values of a column, and whether one may be missing.
pub(super) enum Column {
    Int(Vec<i32>),
    Long(Vec<i64>),
    Text(Vec<ByteArray>),
    OptionalLong(Vec<Option<i64>>),
    OptionalText(Vec<Option<ByteArray>>),
}

/// A table with its rows.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) rows: usize,
    pub(super) columns: Vec<(&'static str, Column)>,
}

/// Returns the same text for each row.
pub(super) fn repeated(text: &str, rows: usize) -> Column {
    let text = ByteArray::from(text);
    Column::Text(vec![text; rows])
}

/// Returns one text for each row. A text that comes again is copied once.
pub(super) fn texts<'a>(texts: impl Iterator<Item = &'a str>) -> Column {
    let mut known: Vec<(&str, ByteArray)> = Vec::new();
    let copy = |text: &'a str| {
        if let Some((_, copy)) = known.iter().find(|(known, _)| std::ptr::eq(*known, text)) {
            return copy.clone();
        }
        let copy = ByteArray::from(text);
        if known.len() < KNOWN {
            known.push((text, copy.clone()));
        }
        copy
    };
    Column::Text(texts.map(copy).collect())
}

impl Table {
    /// Creates the table with the columns that all have: rank and host.
    pub(super) fn new(name: &'static str, rows: usize, rank: i32, host: &str) -> Table {
        Table { name, rows, columns: vec![(RANK, Column::Int(vec![rank; rows])), (HOST, repeated(host, rows))] }
    }

    pub(super) fn with(mut self, name: &'static str, column: Column) -> Table {
        self.columns.push((name, column));
        self
    }

    pub(super) fn longs(self, name: &'static str, values: impl Iterator<Item = i64>) -> Table {
        self.with(name, Column::Long(values.collect()))
    }

    /// Returns the file of the table.
    ///
    /// # Errors
    /// A column does not have one value for each row.
    pub(super) fn to_parquet(&self) -> Result<Vec<u8>> {
        let fields = self.columns.iter().map(|(name, column)| column.field(name)).collect::<Result<Vec<_>>>()?;
        let schema = Type::group_type_builder(self.name).with_fields(fields).build()?;
        let zstd = Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?);
        let mut properties = WriterProperties::builder()
            .set_created_by(format!("warpline {}", env!("CARGO_PKG_VERSION")))
            .set_statistics_enabled(EnabledStatistics::None)
            // A column is one page of up to 1 MB, because each page has a cost.
            .set_data_page_row_count_limit(MOST_ROWS_OF_PAGE)
            .set_offset_index_disabled(true);
        for (name, column) in &self.columns {
            let path = ColumnPath::from(*name);
            let is_text = matches!(column, Column::Text(_) | Column::OptionalText(_));
            // Packed times have no pattern that would make them shorter.
            if self.rows >= LEAST_ROWS && !matches!(*name, RANK | HOST) && !name.ends_with("_ns") {
                properties = properties.set_column_compression(path.clone(), zstd);
            }
            properties = properties.set_column_dictionary_enabled(path.clone(), is_text);
            if !is_text {
                properties = properties.set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED);
            }
            // What a reader selects by.
            if matches!(*name, "step" | "begin_ns") {
                properties = properties.set_column_statistics_enabled(path, EnabledStatistics::Chunk);
            }
        }
        let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties.build()))?;
        let mut group = writer.next_row_group()?;
        for (_, column) in &self.columns {
            let Some(mut out) = group.next_column()? else {
                return Err(ParquetError::General("a column is missing".to_owned()));
            };
            column.write(out.untyped())?;
            out.close()?;
        }
        group.close()?;
        writer.into_inner()
    }
}

impl Column {
    fn field(&self, name: &str) -> Result<Arc<Type>> {
        let (physical, converted) = match self {
            Column::Int(_) => (PhysicalType::INT32, ConvertedType::NONE),
            Column::Long(_) | Column::OptionalLong(_) => (PhysicalType::INT64, ConvertedType::NONE),
            Column::Text(_) | Column::OptionalText(_) => (PhysicalType::BYTE_ARRAY, ConvertedType::UTF8),
        };
        let repetition = match self {
            Column::OptionalLong(_) | Column::OptionalText(_) => Repetition::OPTIONAL,
            _ => Repetition::REQUIRED,
        };
        let builder = Type::primitive_type_builder(name, physical).with_repetition(repetition);
        builder.with_converted_type(converted).build().map(Arc::new)
    }

    fn write(&self, out: &mut ColumnWriter<'_>) -> Result<()> {
        match (self, out) {
            (Column::Int(values), ColumnWriter::Int32ColumnWriter(out)) => out.write_batch(values, None, None)?,
            (Column::Long(values), ColumnWriter::Int64ColumnWriter(out)) => out.write_batch(values, None, None)?,
            (Column::Text(values), ColumnWriter::ByteArrayColumnWriter(out)) => out.write_batch(values, None, None)?,
            (Column::OptionalLong(values), ColumnWriter::Int64ColumnWriter(out)) => {
                let known: Vec<i64> = values.iter().flatten().copied().collect();
                out.write_batch(&known, Some(&levels(values)), None)?
            }
            (Column::OptionalText(values), ColumnWriter::ByteArrayColumnWriter(out)) => {
                let known: Vec<ByteArray> = values.iter().flatten().cloned().collect();
                out.write_batch(&known, Some(&levels(values)), None)?
            }
            _ => return Err(ParquetError::General("a column has another type than its field".to_owned())),
        };
        Ok(())
    }
}

/// Returns which values are there.
fn levels<T>(values: &[Option<T>]) -> Vec<i16> {
    values.iter().map(|value| i16::from(value.is_some())).collect()
}
