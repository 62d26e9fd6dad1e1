//! The folder that ranks write to: finds the files of one run, and says which ones are left out and why. Reads names
//! and sizes, and files that may be copies; the engine reports which files it cannot read ([`Folder::leave_out`]).
//! Never changes a file. `found` looks through the windows of a table, `merged` knows which files a merged one
//! replaces.

mod found;
mod merged;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use warpline_core::text::printable;
use warpline_judge::tables::Table;

pub use self::merged::{COMPACTED, Merged, hash};

use self::found::{Found, LEAST_BYTES};

use crate::error::{Error, Omission};

/// The begin of the name of a file made by `compact`.
pub const COMPACTED_PREFIX: &str = "compact-";

/// Further ones are counted.
const OMISSIONS_SHOWN: usize = 20;

/// A file that is read.
#[derive(Debug, Clone)]
pub struct DataFile {
    /// Its path.
    pub path: PathBuf,
    /// Its window, `win=N`.
    pub window: i64,
    /// Its size.
    pub bytes: u64,
}

impl DataFile {
    /// Its name.
    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// The first and the last of the ranks that it may have, as its name says: `rank-00042.parquet`,
    /// `rank-00042-PID-1.parquet` of a rank that was started again, or `rank-00000-00007.parquet`. Nothing if the name
    /// does not say.
    pub fn ranks(&self) -> Option<(i64, i64)> {
        let mut numbers =
            self.name().strip_prefix("rank-")?.strip_suffix(".parquet")?.split('-').map(str::parse::<i64>);
        let first = numbers.next()?.ok()?;
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(last)), None, None) => Some((first, last)),
            (None, None, None) | (Some(Ok(_)), Some(Ok(_)), None) => Some((first, first)),
            _ => None,
        }
    }
}

/// The files of one run.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The folder.
    pub path: PathBuf,
    /// The run.
    pub run: String,
    /// The other runs of the folder, the newest first.
    pub other_runs: Vec<String>,
    files: BTreeMap<Table, Arc<Vec<DataFile>>>,
    left_out: Vec<Omission>,
    /// Files that another process has begun and not finished.
    unfinished: u64,
    /// Files whose rows others have.
    doubles: Vec<(Table, PathBuf)>,
}

impl Folder {
    /// Looks at `path`, and takes the run `run`, or the only one. If there are several, the caller has to choose.
    pub fn open(path: &Path, run: Option<&str>) -> Result<Self, Error> {
        let (run, other_runs) = Self::run(path, run)?;
        let mut folder = Self {
            path: path.to_owned(),
            run,
            other_runs,
            files: BTreeMap::new(),
            left_out: Vec::new(),
            unfinished: 0,
            doubles: Vec::new(),
        };
        // Each table at once with the others: a job of 10,000 ranks has a hundred thousand files a table, and each is
        // looked at.
        let found = {
            let find = |table| {
                let run = folder.path.join(Table::name(table)).join(format!("run={}", folder.run));
                Found::of(&run, table)
            };
            std::thread::scope(|scope| {
                let find = &find;
                let tables = Table::ALL.map(|table| (table, scope.spawn(move || find(table))));
                tables.map(|(table, found)| {
                    (table, found.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                })
            })
        };
        for (table, found) in found {
            folder.unfinished += found.unfinished;
            folder.doubles.extend(found.doubles.into_iter().map(|path| (table, path)));
            found.left_out.iter().for_each(|(path, why)| folder.omit(path, why));
            folder.files.insert(table, Arc::new(found.files));
        }
        if folder.files.values().all(|files| files.is_empty()) {
            let left_out = folder.left_out.len();
            return Err(no_tables(path, left_out));
        }
        Ok(folder)
    }

    /// The run `run` of those at `path`, or the only one; and the others.
    pub(crate) fn run(path: &Path, run: Option<&str>) -> Result<(String, Vec<String>), Error> {
        // Said apart from an empty folder.
        std::fs::read_dir(path).map_err(|source| Error::Folder { path: path.to_owned(), source })?;
        let runs = runs(path, &Table::ALL.map(Table::name));
        let run = choose(path, run, &runs)?;
        let other_runs = runs.into_iter().filter(|other| *other != run).collect();
        Ok((run, other_runs))
    }

    /// The files of a table.
    pub fn files(&self, table: Table) -> &[DataFile] {
        self.files.get(&table).map_or(&[], |files| files.as_slice())
    }

    /// Tables without a file.
    pub fn missing(&self) -> Vec<&'static str> {
        Table::ALL.into_iter().filter(|table| self.files(*table).is_empty()).map(Table::name).collect()
    }

    /// The first omissions, and the number of all of them.
    pub fn left_out(&self) -> (&[Omission], usize) {
        (&self.left_out[..self.left_out.len().min(OMISSIONS_SHOWN)], self.left_out.len())
    }

    /// Files under a temporary name.
    pub fn unfinished(&self) -> u64 {
        self.unfinished
    }

    /// The files that were left out so far, in sentences for people: the first omissions by name, and how many more
    /// there are.
    pub fn warnings(&self) -> Vec<String> {
        let (shown, all) = self.left_out();
        let one =
            |omission: &Omission| format!("`{}` is left out: {}", printable(&omission.file), printable(&omission.why));
        let more = (all > shown.len()).then(|| format!("{} more files are left out", all - shown.len()));
        shown.iter().map(one).chain(more).collect()
    }

    /// Files whose rows other files have: copies, and what a `compact` that was stopped did not remove.
    pub fn doubles(&self) -> &[(Table, PathBuf)] {
        &self.doubles
    }

    fn omit(&mut self, path: &Path, why: &str) {
        let file = path.strip_prefix(&self.path).unwrap_or(path).display().to_string();
        self.left_out.push(Omission { file, why: why.to_owned() });
    }

    /// Takes a file that cannot be read out of the table.
    pub fn leave_out(&mut self, table: Table, file: &DataFile, why: &str) {
        if let Some(files) = self.files.get_mut(&table) {
            let before = files.len();
            Arc::make_mut(files).retain(|known| known.path != file.path);
            // Two threads may have found it.
            if files.len() == before {
                return;
            }
        }
        self.omit(&file.path, why);
    }
}

/// Takes the run `run` of those at `path`, or the only one.
pub(crate) fn choose(path: &Path, run: Option<&str>, runs: &[String]) -> Result<String, Error> {
    let path = || path.to_owned();
    match (run, runs) {
        (_, []) => Err(no_tables(&path(), 0)),
        (Some(run), _) if runs.iter().any(|known| known == run) => Ok(run.to_owned()),
        (Some(run), _) => Err(Error::NoRun { path: path(), run: run.to_owned(), runs: runs.to_vec() }),
        (None, [run]) => Ok(run.clone()),
        (None, _) => Err(Error::ManyRuns { path: path(), runs: runs.to_vec() }),
    }
}

/// Why there is nothing to read: ranks that run write their progress long before their first window.
fn no_tables(path: &Path, left_out: usize) -> Error {
    let path = path.to_owned();
    match left_out == 0 && !runs(&path, &["progress"]).is_empty() {
        true => Error::NoWindow { path },
        false => Error::NoTables { path, table: Table::Windows.name(), left_out },
    }
}

/// The runs that have a folder `run=ID` in one of `tables`, the newest first.
pub fn runs(path: &Path, tables: &[&str]) -> Vec<String> {
    let mut found: BTreeMap<String, SystemTime> = BTreeMap::new();
    for table in tables {
        for (name, run) in entries(&path.join(table)) {
            let Some(id) = name.strip_prefix("run=").filter(|id| is_run(id) && run.is_dir()) else { continue };
            let changed = std::fs::metadata(&run).and_then(|facts| facts.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            let newest = found.entry(id.to_owned()).or_insert(changed);
            *newest = changed.max(*newest);
        }
    }
    let mut runs: Vec<_> = found.into_iter().collect();
    runs.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| b.0.cmp(&a.0)));
    runs.into_iter().map(|(id, _)| id).collect()
}

/// Whether it is the id of a run, as ranks write it: plain characters, and no name that a path gives a meaning.
pub(crate) fn is_run(id: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !matches!(id, "" | "." | "..") && id.chars().all(is_plain)
}

/// The entries of a folder, in the order of names; none if there is no such folder.
fn entries(path: &Path) -> Vec<(String, PathBuf)> {
    let Ok(folder) = std::fs::read_dir(path) else { return Vec::new() };
    let named = |entry: std::fs::DirEntry| Some((entry.file_name().into_string().ok()?, entry.path()));
    let mut found: Vec<_> = folder.flatten().filter_map(named).collect();
    found.sort();
    found
}

/// Whether the bytes have both ends of a Parquet file.
pub fn check_ends(bytes: &[u8]) -> Result<(), String> {
    let (Some(begin), Some(end)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<8>()) else {
        return Err("its end is missing".to_owned());
    };
    let footer = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
    match (begin, &end[4..]) {
        (b"PAR1", b"PAR1") if footer + LEAST_BYTES <= bytes.len() as u64 => Ok(()),
        (b"PAR1", _) => Err("its end is missing".to_owned()),
        _ => Err("is not a Parquet file".to_owned()),
    }
}
