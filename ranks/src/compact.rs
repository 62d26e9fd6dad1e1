//! Merges the files of all ranks into one file for each table, for windows that no rank writes any more: all of a run
//! that has ended.
//!
//! The merged file lists the files whose rows it has, each with a hash, and is whole on the disk before the first of
//! them is removed. If the process is stopped in between, a reader therefore counts no row twice, and it reads a new
//! file that a rank writes later under an old name. The next `compact` first removes the remaining ones of those files.
//! A list outlives its file: the next merged file carries it over. One process merges a run at a time.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use datafusion::arrow::array::RecordBatch;
use datafusion::parquet::file::metadata::KeyValue;
use serde::Serialize;
use warpline_judge::tables::Table;

use crate::engine::Wanted;
use crate::error::Error;
use crate::folder::{COMPACTED, COMPACTED_PREFIX, DataFile, Folder, Merged, hash};
use crate::generate::write_table;
use crate::hang;
use crate::table::Schemas;

/// The newest windows of a run that has not ended are left alone: a rank may still write there.
const LEFT_ALONE: usize = 2;

/// Rows of one file; more make another.
const MOST_ROWS: usize = 2_000_000;

/// The result of a merge.
#[derive(Debug, Clone, Default, Serialize, PartialEq, Eq)]
pub struct Compacted {
    /// Files that were removed.
    pub removed: usize,
    /// Files that were written.
    pub written: usize,
    /// Their rows.
    pub rows: usize,
    /// Files that cannot be read: they stay.
    pub damaged: usize,
    /// The files that were left out, in sentences for people.
    pub warnings: Vec<String>,
}

/// Merges the small files of each table and window of the run `run`, or of the only one.
///
/// # Errors
/// The folder cannot be read or written, or another process merges the files of this run.
pub fn compact(path: &Path, run: Option<&str>) -> Result<Compacted, Error> {
    let (run, _) = Folder::run(path, run)?;
    let _lock = lock(path, &run)?;
    // The content of the folder changes only while the lock is held.
    let mut folder = Folder::open(path, Some(&run))?;
    let mut done = Compacted::default();
    remove_doubles(&mut folder, &mut done)?;
    let mut windows: Vec<i64> =
        Table::ALL.iter().flat_map(|table| folder.files(*table)).map(|file| file.window).collect();
    windows.sort_unstable();
    windows.dedup();
    if !hang::has_ended(&folder.path, &folder.run) {
        windows.truncate(windows.len().saturating_sub(LEFT_ALONE));
    }
    for table in Table::ALL {
        let mut by_window: BTreeMap<i64, Vec<DataFile>> = BTreeMap::new();
        for file in folder.files(table).iter().filter(|file| windows.binary_search(&file.window).is_ok()) {
            by_window.entry(file.window).or_default().push(file.clone());
        }
        for files in by_window.into_values().filter(|files| files.len() > 1) {
            one_window(table, &files, &mut folder, &mut done)?;
        }
    }
    done.warnings = folder.warnings();
    Ok(done)
}

/// Takes the lock of the run, which ends with the value or with the process. The file stays: whoever removed it could
/// take it from another one.
fn lock(path: &Path, run: &str) -> Result<File, Error> {
    let file = path.join(format!(".compact-{run}.lock"));
    let open = File::options().create(true).truncate(false).write(true).open(&file);
    let open = open.map_err(|error| Error::write(&file, error))?;
    match open.try_lock() {
        Ok(()) => Ok(open),
        Err(TryLockError::WouldBlock) => Err(Error::Asked(format!(
            "another `compact` of the run `{run}` is running in `{}`; wait until it ends",
            path.display()
        ))),
        Err(TryLockError::Error(error)) => Err(Error::Asked(format!(
            "cannot lock `{}`: {error}; two `compact` commands at once would write rows twice, so copy the folder to a file system that supports locks",
            file.display()
        ))),
    }
}

/// Removes the files whose rows others have: copies, and the remaining sources of a `compact` that was stopped.
fn remove_doubles(folder: &mut Folder, done: &mut Compacted) -> Result<(), Error> {
    let mut by_window: BTreeMap<(Table, PathBuf), Vec<PathBuf>> = BTreeMap::new();
    for (table, double) in folder.doubles() {
        let window = double.parent().unwrap_or(&folder.path).to_owned();
        by_window.entry((*table, window)).or_default().push(double.clone());
    }
    for ((table, window), doubles) in by_window {
        let is_merged =
            |file: &&DataFile| file.path.parent() == Some(&window) && file.name().starts_with(COMPACTED_PREFIX);
        let merged: Vec<DataFile> = folder.files(table).iter().filter(is_merged).cloned().collect();
        // Their sources are all that is left of the rows of a merged file that was damaged later.
        if merged.iter().all(|file| read(table, file, folder, done).is_some()) {
            doubles.iter().try_for_each(|double| remove(double))?;
            done.removed += doubles.len();
        }
    }
    Ok(())
}

fn one_window(table: Table, files: &[DataFile], folder: &mut Folder, done: &mut Compacted) -> Result<(), Error> {
    let mut batches: Vec<RecordBatch> = Vec::new();
    let mut sources: Vec<(PathBuf, String)> = Vec::new();
    let mut rows = 0;
    for file in files {
        if let Some((read, of_file)) = read(table, file, folder, done) {
            rows += read.iter().map(RecordBatch::num_rows).sum::<usize>();
            batches.extend(read);
            sources.push((file.path.clone(), of_file));
        }
        if rows >= MOST_ROWS {
            replace(table, &std::mem::take(&mut batches), &std::mem::take(&mut sources), done)?;
            rows = 0;
        }
    }
    replace(table, &batches, &sources, done)
}

/// The rows of a file and the hash of its bytes. A file that cannot be read is left out.
fn read(
    table: Table,
    file: &DataFile,
    folder: &mut Folder,
    done: &mut Compacted,
) -> Option<(Vec<RecordBatch>, String)> {
    let wanted = Wanted { table, schema: table.written(), run: folder.run.as_str().into(), scope: None };
    let read = || {
        let bytes = fs::read(&file.path).map_err(|error| format!("cannot be read: {error}"))?;
        let of_file = hash(&bytes);
        Ok((wanted.decode(file, bytes)?, of_file))
    };
    match read() {
        Ok(read) => Some(read),
        Err::<_, String>(why) => {
            folder.leave_out(table, file, &why);
            done.damaged += 1;
            None
        }
    }
}

fn replace(
    table: Table,
    batches: &[RecordBatch],
    sources: &[(PathBuf, String)],
    done: &mut Compacted,
) -> Result<(), Error> {
    let [(first, _), _, ..] = sources else { return Ok(()) };
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut list = Merged::default();
    for (source, of_file) in sources {
        list.add(&name(source), of_file.clone());
        if name(source).starts_with(COMPACTED_PREFIX) {
            list.extend(Merged::of_file(source));
        }
    }
    let first_name = name(first);
    // A name that no file has had: a merged file that is merged again is one of the sources.
    let stem = first_name.trim_end_matches(".parquet").trim_start_matches(COMPACTED_PREFIX);
    let taken = |path: &PathBuf| path.exists();
    let numbered = |number: usize| first.with_file_name(format!("{COMPACTED_PREFIX}{stem}-{number}.parquet"));
    let path = (0..).map(numbered).find(|path| !taken(path)).unwrap_or_else(|| numbered(0));
    let list = list.to_json().map_err(|error| Error::write(&path, error))?;
    write_table(&path, table, batches, vec![KeyValue::new(COMPACTED.to_owned(), list)])?;
    on_the_disk(&path).map_err(|error| Error::write(&path, error))?;
    sources.iter().try_for_each(|(source, _)| remove(source))?;
    done.removed += sources.len();
    done.written += 1;
    done.rows += batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    Ok(())
}

/// Waits until a file and its name would survive a loss of power.
fn on_the_disk(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    match path.parent() {
        // Elsewhere, a folder cannot be opened.
        Some(folder) if cfg!(unix) => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    fs::remove_file(path).map_err(|error| Error::write(path, error))
}
