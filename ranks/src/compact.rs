//! Merges the files of all ranks into one file for each table, for windows that no rank writes any more.
//!
//! The new file lists the files whose rows it contains, each with a hash, and is complete before the first of them is removed. If the process is
//! stopped in between, a reader therefore counts no row twice; and it reads a new file that a rank later writes under an old name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::parquet::file::metadata::KeyValue;
use serde::Serialize;

use crate::error::Error;
use crate::folder::{COMPACTED, COMPACTED_PREFIX, DataFile, Folder, hash};
use crate::generate::write_table;
use crate::table::Table;

/// The newest windows are left alone: a rank may still write there.
const LEFT_ALONE: usize = 2;

/// Rows of one file; more make another.
const MOST_ROWS: usize = 2_000_000;

/// What was done.
#[derive(Debug, Clone, Copy, Default, Serialize, PartialEq, Eq)]
pub struct Compacted {
    /// Files that are no more.
    pub removed: usize,
    /// Files that were written.
    pub written: usize,
    /// Their rows.
    pub rows: usize,
    /// Files that cannot be read: they stay.
    pub damaged: usize,
}

/// Merges the small files of each table and window.
pub fn compact(folder: &mut Folder) -> Result<Compacted, Error> {
    let mut done = Compacted::default();
    let mut windows: Vec<i64> =
        Table::ALL.iter().flat_map(|table| folder.files(*table)).map(|file| file.window).collect();
    windows.sort_unstable();
    windows.dedup();
    windows.truncate(windows.len().saturating_sub(LEFT_ALONE));
    for table in Table::ALL {
        let mut by_window: BTreeMap<i64, Vec<DataFile>> = BTreeMap::new();
        for file in folder.files(table).iter().filter(|file| windows.binary_search(&file.window).is_ok()) {
            by_window.entry(file.window).or_default().push(file.clone());
        }
        for files in by_window.into_values().filter(|files| files.len() > 1) {
            one_window(table, &files, &mut done)?;
        }
    }
    Ok(done)
}

fn one_window(table: Table, files: &[DataFile], done: &mut Compacted) -> Result<(), Error> {
    let mut batches: Vec<RecordBatch> = Vec::new();
    let mut sources: Vec<(PathBuf, String)> = Vec::new();
    let mut rows = 0;
    for file in files {
        let Ok(bytes) = std::fs::read(&file.path) else {
            done.damaged += 1;
            continue;
        };
        let of_file = hash(&bytes);
        match read(table, bytes.into()) {
            Some(read) => {
                rows += read.iter().map(RecordBatch::num_rows).sum::<usize>();
                batches.extend(read);
                sources.push((file.path.clone(), of_file));
            }
            None => done.damaged += 1,
        }
        if rows >= MOST_ROWS {
            replace(table, &std::mem::take(&mut batches), &std::mem::take(&mut sources), done)?;
            rows = 0;
        }
    }
    replace(table, &batches, &sources, done)
}

fn replace(
    table: Table,
    batches: &[RecordBatch],
    sources: &[(PathBuf, String)],
    done: &mut Compacted,
) -> Result<(), Error> {
    let [(first, _), _, ..] = sources else { return Ok(()) };
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let names: BTreeMap<String, &String> = sources.iter().map(|(path, hash)| (name(path), hash)).collect();
    let first_name = name(first);
    // A name that no file has had: a compacted file that is compacted again is one of the sources.
    let stem = first_name.trim_end_matches(".parquet").trim_start_matches(COMPACTED_PREFIX);
    let taken = |path: &PathBuf| path.exists();
    let numbered = |number: usize| first.with_file_name(format!("{COMPACTED_PREFIX}{stem}-{number}.parquet"));
    let path = (0..).map(numbered).find(|path| !taken(path)).unwrap_or_else(|| numbered(0));
    let list = serde_json::to_string(&names).map_err(|error| Error::write(&path, error))?;
    write_table(&path, table, batches, vec![KeyValue::new(COMPACTED.to_owned(), list)])?;
    for (source, _) in sources {
        std::fs::remove_file(source).map_err(|error| Error::write(source, error))?;
    }
    done.removed += sources.len();
    done.written += 1;
    done.rows += batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    Ok(())
}

/// The rows of a file of this table; nothing of a damaged or foreign one.
fn read(table: Table, bytes: Bytes) -> Option<Vec<RecordBatch>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).ok()?;
    if table.misses(reader.schema()).is_some() {
        return None;
    }
    let schema = table.written();
    let batches = reader.with_batch_size(65_536).build().ok()?;
    batches
        .map(|batch| {
            let batch = batch.ok()?;
            let column = |field: &Arc<datafusion::arrow::datatypes::Field>| {
                let absent = || -> Option<ArrayRef> {
                    table.may_lack(field.name()).then(|| Arc::new(Int64Array::from_value(0, batch.num_rows())) as _)
                };
                let array = batch.column_by_name(field.name()).cloned().or_else(absent)?;
                datafusion::arrow::compute::cast(&array, field.data_type()).ok()
            };
            let columns = schema.fields().iter().map(column).collect::<Option<Vec<_>>>()?;
            RecordBatch::try_new(schema.clone(), columns).ok()
        })
        .collect()
}
