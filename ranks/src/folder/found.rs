//! The files of one table in the windows of a run, and which of them have no rows of their own: copies, and what a
//! `compact` that was stopped left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use warpline_judge::tables::Table;

use super::merged::{Merged, hash};
use super::{COMPACTED_PREFIX, DataFile, entries};

/// The least that a Parquet file has: the magic number twice, and the length of its footer.
pub(super) const LEAST_BYTES: u64 = 12;

/// The files of a table.
#[derive(Default)]
pub(super) struct Found {
    pub(super) files: Vec<DataFile>,
    pub(super) left_out: Vec<(PathBuf, String)>,
    pub(super) unfinished: u64,
    /// Files whose rows others have.
    pub(super) doubles: Vec<PathBuf>,
}

impl Found {
    /// The files in the windows of a run.
    pub(super) fn of(run: &Path, table: Table) -> Self {
        let mut all = Self::default();
        for (name, window) in entries(run) {
            let Some(number) = name.strip_prefix("win=").and_then(|number| number.parse::<i64>().ok()) else {
                if !name.starts_with('.') {
                    all.left_out.push((window, "its name is not `win=NUMBER`".to_owned()));
                }
                continue;
            };
            all.add(&window, number, table);
        }
        // The files of a window are in the order of their names.
        all.files.sort_by_key(|file| file.window);
        all
    }

    fn add(&mut self, window: &Path, number: i64, table: Table) {
        let mut of_window = Vec::new();
        let mut merged = Merged::default();
        for (name, path) in entries(window) {
            if let Some(hidden) = name.strip_prefix('.') {
                // The sources of a merged file that is not finished are all there.
                match hidden.starts_with(COMPACTED_PREFIX) {
                    true => self.doubles.push(path),
                    false => self.unfinished += 1,
                }
                continue;
            }
            if !name.ends_with(".parquet") {
                self.left_out.push((path, "its name does not end in `.parquet`".to_owned()));
                continue;
            }
            match size(&path) {
                Ok(bytes) => {
                    if name.starts_with(COMPACTED_PREFIX) {
                        merged.extend(Merged::of_file(&path));
                    }
                    of_window.push(DataFile { path, window: number, bytes });
                }
                Err(why) => self.left_out.push((path, why)),
            }
        }
        let (replaced, of_window) = of_window.into_iter().partition::<Vec<_>, _>(|file| is_replaced(file, &merged));
        let copies = copies(&of_window, table);
        self.doubles.extend(replaced.into_iter().map(|file| file.path));
        for (place, file) in of_window.iter().enumerate() {
            match copies.get(&place) {
                Some(of) => {
                    self.left_out.push((file.path.clone(), format!("is a copy of `{}`", of_window[*of].name())));
                    self.doubles.push(file.path.clone());
                }
                None => self.files.push(file.clone()),
            }
        }
    }
}

/// Whether a merged file has the rows of this one. Only of those very files: a rank that was started again may have
/// written a new one under the name of an old one.
fn is_replaced(file: &DataFile, merged: &Merged) -> bool {
    match (merged.has_name(file.name()), is_named_as_written(file)) {
        (true, _) => of_bytes(file).is_some_and(|hash| merged.has(file.name(), &hash)),
        (false, false) => of_bytes(file).is_some_and(|hash| merged.has_bytes(&hash)),
        (false, true) => false,
    }
}

/// The places of the files of a window that are copies, each with the place of the file that it is a copy of. Files are
/// compared where a copy is likely, because to read them all takes longer than most queries: those under a name that
/// neither a rank nor `compact` gives, and those of one rank in a table whose rows have a time, as two files without
/// one may be equal by chance.
fn copies(files: &[DataFile], table: Table) -> BTreeMap<usize, usize> {
    let has_times = matches!(table, Table::Windows | Table::Steps | Table::Collectives);
    let mut by_size: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    files.iter().enumerate().for_each(|(place, file)| by_size.entry(file.bytes).or_default().push(place));
    let mut copies = BTreeMap::new();
    for mut places in by_size.into_values().filter(|places| places.len() > 1) {
        // The first of equal files is the original: that of the plainest name.
        places.sort_by_key(|place| (!is_named_as_written(&files[*place]), files[*place].name().len()));
        let mut by_ranks: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        let mut hashes = BTreeMap::new();
        for (at, place) in places.iter().enumerate() {
            let (of_ranks, file) = (by_ranks.entry(files[*place].ranks()).or_default(), &files[*place]);
            let others = match is_named_as_written(file) {
                true if has_times => &of_ranks[..],
                true => &[],
                false => &places[..at],
            };
            let mut hash = |place: usize| hashes.entry(place).or_insert_with(|| of_bytes(&files[place])).clone();
            let of = others.iter().find(|other| hash(**other).is_some_and(|known| hash(*place) == Some(known)));
            match of {
                Some(of) => drop(copies.insert(*place, *of)),
                None => of_ranks.push(*place),
            }
        }
    }
    copies
}

/// Whether a rank, `generate` or `compact` gives such a name.
fn is_named_as_written(file: &DataFile) -> bool {
    let is_merged = |name: &str| {
        let number = name.strip_prefix(COMPACTED_PREFIX).and_then(|rest| rest.strip_suffix(".parquet"));
        number.and_then(|rest| rest.rsplit('-').next()).is_some_and(|number| number.parse::<u64>().is_ok())
    };
    file.ranks().is_some() || is_merged(file.name())
}

fn of_bytes(file: &DataFile) -> Option<String> {
    std::fs::read(&file.path).ok().map(|bytes| hash(&bytes))
}

/// The size of a file that may be a Parquet file.
fn size(path: &Path) -> Result<u64, String> {
    let facts = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    if !facts.is_file() {
        return Err("is not a file".to_owned());
    }
    match facts.len() {
        bytes if bytes < LEAST_BYTES => {
            Err(format!("has {bytes} bytes: its end is missing, or it is not a Parquet file"))
        }
        bytes => Ok(bytes),
    }
}
