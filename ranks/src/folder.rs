//! What lies in the folder that ranks write to: finds the files of one run, and says which ones are left out and why. Reads names and
//! sizes; the engine tells which files it cannot read ([`Folder::leave_out`]). Never changes a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use datafusion::parquet::file::reader::{FileReader, SerializedFileReader};
use serde::Serialize;

use crate::error::Error;
use crate::table::Table;

/// The key in the metadata of a file made by `compact`: the names of the files whose rows it has, and a hash of each.
pub const COMPACTED: &str = "warpline.compacted";

/// The begin of the name of a file made by `compact`.
pub const COMPACTED_PREFIX: &str = "compact-";

/// Further ones are counted.
const OMISSIONS_SHOWN: usize = 20;

/// The least that a Parquet file has: the magic number twice, and the length of its footer.
const LEAST_BYTES: u64 = 12;

/// A file that is read.
#[derive(Debug, Clone)]
pub struct DataFile {
    /// Where it lies.
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

    /// The first and the last of the ranks that it may have, as its name says: `rank-00042.parquet`, `rank-00042-PID-1.parquet` of a rank
    /// that was started again, or `rank-00000-00007.parquet`. Nothing if the name does not say.
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

/// A file that is not read.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Omission {
    /// Its path in the folder.
    pub file: String,
    /// Why.
    pub why: String,
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
    /// Files whose rows a compacted file has.
    replaced: u64,
}

impl Folder {
    /// Looks at `path`, and takes the run `run`, or the only one. If there are several, the caller has to choose.
    pub fn open(path: &Path, run: Option<&str>) -> Result<Self, Error> {
        let of_folder = |source| Error::Folder { path: path.to_owned(), source };
        // Said apart from an empty folder.
        std::fs::read_dir(path).map_err(of_folder)?;
        let runs = runs(path, &Table::ALL.map(Table::name));
        let run = choose(path, run, &runs)?;
        let other_runs = runs.into_iter().filter(|other| *other != run).collect();
        let mut folder = Self {
            path: path.to_owned(),
            run,
            other_runs,
            files: BTreeMap::new(),
            left_out: Vec::new(),
            unfinished: 0,
            replaced: 0,
        };
        // Each table at once with the others: a job of 10,000 ranks has a hundred thousand files a table, and each is looked at.
        let found = {
            let find = |table| Found::of(&folder.path.join(Table::name(table)).join(format!("run={}", folder.run)));
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
            folder.replaced += found.replaced;
            found.left_out.iter().for_each(|(path, why)| folder.omit(path, why));
            folder.files.insert(table, Arc::new(found.files));
        }
        if folder.files.values().all(|files| files.is_empty()) {
            let left_out = folder.left_out.len();
            return Err(Error::NoTables { path: path.to_owned(), table: Table::Windows.name(), left_out });
        }
        Ok(folder)
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

    /// Files whose rows another file has, because `compact` was stopped before it removed them.
    pub fn replaced(&self) -> u64 {
        self.replaced
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

/// The files of a table.
#[derive(Default)]
struct Found {
    files: Vec<DataFile>,
    left_out: Vec<(PathBuf, String)>,
    unfinished: u64,
    replaced: u64,
}

impl Found {
    /// Those in the windows of a run.
    fn of(run: &Path) -> Self {
        let mut all = Self::default();
        for (name, window) in entries(run) {
            let Some(number) = name.strip_prefix("win=").and_then(|number| number.parse::<i64>().ok()) else {
                if !name.starts_with('.') {
                    all.left_out.push((window, "its name is not `win=NUMBER`".to_owned()));
                }
                continue;
            };
            all.add(&window, number);
        }
        // Those of a window are in the order of their names.
        all.files.sort_by_key(|file| file.window);
        all
    }

    fn add(&mut self, window: &Path, number: i64) {
        let mut of_window = Vec::new();
        let mut replaced = BTreeMap::new();
        for (name, path) in entries(window) {
            if name.starts_with('.') {
                self.unfinished += 1;
                continue;
            }
            if !name.ends_with(".parquet") {
                self.left_out.push((path, "its name does not end in `.parquet`".to_owned()));
                continue;
            }
            match size(&path) {
                Ok(bytes) => {
                    if name.starts_with(COMPACTED_PREFIX) {
                        replaced.extend(compacted(&path));
                    }
                    of_window.push(DataFile { path, window: number, bytes });
                }
                Err(why) => self.left_out.push((path, why)),
            }
        }
        let before = of_window.len();
        // Only those very files: a rank that was started again may have written a new one under the name of an old one.
        let is_replaced = |file: &DataFile| {
            let known = replaced.get(file.name());
            known.is_some_and(|known| std::fs::read(&file.path).is_ok_and(|bytes| hash(&bytes) == *known))
        };
        of_window.retain(|file| !is_replaced(file));
        self.replaced += (before - of_window.len()) as u64;
        self.files.extend(of_window);
    }
}

/// Takes the run `run` of those at `path`, or the only one.
pub(crate) fn choose(path: &Path, run: Option<&str>, runs: &[String]) -> Result<String, Error> {
    let path = || path.to_owned();
    match (run, runs) {
        (_, []) => Err(Error::NoTables { path: path(), table: Table::Windows.name(), left_out: 0 }),
        (Some(run), _) if runs.iter().any(|known| known == run) => Ok(run.to_owned()),
        (Some(run), _) => Err(Error::NoRun { path: path(), run: run.to_owned(), runs: runs.to_vec() }),
        (None, [run]) => Ok(run.clone()),
        (None, _) => Err(Error::ManyRuns { path: path(), runs: runs.to_vec() }),
    }
}

/// The runs that have a folder `run=ID` in one of `tables`, the newest first.
pub fn runs(path: &Path, tables: &[&str]) -> Vec<String> {
    let mut found: BTreeMap<String, SystemTime> = BTreeMap::new();
    for table in tables {
        for (name, run) in entries(&path.join(table)) {
            let Some(id) = name.strip_prefix("run=") else { continue };
            let changed = std::fs::metadata(&run).and_then(|facts| facts.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            let newest = found.entry(id.to_owned()).or_insert(changed);
            *newest = changed.max(*newest);
        }
    }
    let mut runs: Vec<_> = found.into_iter().collect();
    runs.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| b.0.cmp(&a.0)));
    runs.into_iter().map(|(id, _)| id).collect()
}

/// What is in a folder, in the order of names; nothing if there is no such folder.
fn entries(path: &Path) -> Vec<(String, PathBuf)> {
    let Ok(folder) = std::fs::read_dir(path) else { return Vec::new() };
    let named = |entry: std::fs::DirEntry| Some((entry.file_name().into_string().ok()?, entry.path()));
    let mut found: Vec<_> = folder.flatten().filter_map(named).collect();
    found.sort();
    found
}

/// The size of a file that may be a Parquet file.
fn size(path: &Path) -> Result<u64, String> {
    let facts = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    if !facts.is_file() {
        return Err("is not a file".to_owned());
    }
    match facts.len() {
        bytes if bytes < LEAST_BYTES => Err(format!("has {bytes} bytes: its end is missing, or it is no Parquet file")),
        bytes => Ok(bytes),
    }
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
        _ => Err("is no Parquet file".to_owned()),
    }
}

/// A hash of a file's bytes: FNV-1a of each eight of them, to tell a file from another one of its name.
pub fn hash(bytes: &[u8]) -> String {
    let of = |hash: u64, part: &[u8]| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3)
    };
    let hash = bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64, of);
    format!("{hash:016x}")
}

/// The names of the files whose rows `path` has, and their hashes.
fn compacted(path: &Path) -> BTreeMap<String, String> {
    let names = || {
        let reader = SerializedFileReader::new(File::open(path).ok()?).ok()?;
        let facts = reader.metadata().file_metadata().key_value_metadata()?;
        let names = facts.iter().find(|fact| fact.key == COMPACTED)?.value.clone()?;
        serde_json::from_str(&names).ok()
    };
    names().unwrap_or_default()
}
