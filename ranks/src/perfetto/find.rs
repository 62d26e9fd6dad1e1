//! The traces that ranks have written: which files belong to which rank of the run.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use warpline_trace::read::inputs::{PERFETTO, stem, uncompressed, unpacked};

use super::cut::head;
use crate::engine::Engine;
use crate::error::Error;

/// A process of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    pub rank: i64,
    pub boot_id: Arc<str>,
    pub pid: i64,
    pub host: Arc<str>,
}

/// The processes of the run; a rank that was started again has several.
pub fn processes(engine: &Engine) -> Result<Vec<Process>, Error> {
    let rows = engine.query("processes", "SELECT DISTINCT rank, host, boot_id, pid FROM windows")?;
    let (rank, host, boot, pid) = (rows.ints("rank")?, rows.texts("host")?, rows.texts("boot_id")?, rows.ints("pid")?);
    let of =
        |row: usize| Process { rank: rank[row], boot_id: boot[row].clone(), pid: pid[row], host: host[row].clone() };
    let mut all: Vec<Process> = (0..rows.len()).map(of).collect();
    all.sort();
    Ok(all)
}

/// The traces of the run's processes, and the files that are not a trace of one of them, with the reason.
#[derive(Debug, Default)]
pub struct Found {
    pub traces: HashMap<Process, Vec<PathBuf>>,
    pub unused: Vec<(PathBuf, String)>,
}

/// Folders in folders are searched to this depth.
const DEPTH: usize = 4;

/// Looks for traces in `traces`, or else in the folder of the tables and beside it.
pub fn traces(tables: &Path, traces: Option<&Path>, processes: &[Process]) -> Result<Found, Error> {
    let mut files = Vec::new();
    match traces {
        Some(folder) => {
            let of_folder = |source| Error::Read { path: folder.to_owned(), source };
            find(folder, DEPTH, &mut files).map_err(of_folder)?;
        }
        None => {
            // A file that cannot be read there is not one that was asked for.
            let beside = std::path::absolute(tables).ok().and_then(|tables| tables.parent().map(Path::to_owned));
            let _ = find(tables, DEPTH, &mut files);
            let _ = beside.map(|beside| find(&beside, 1, &mut files));
        }
    }
    let mut found = Found::default();
    for file in files {
        let head = open(&file).and_then(head);
        let mut unused = |why: String| found.unused.push((file.clone(), why));
        match head {
            Err(error) => unused(format!("cannot be read: {error}")),
            Ok(None) => unused("is not a trace of warpline".to_owned()),
            Ok(Some(head)) => {
                let is_it = |process: &&Process| *process.boot_id == *head.boot_id && process.pid == head.pid;
                match processes.iter().find(is_it) {
                    Some(process) => found.traces.entry(process.clone()).or_default().push(file),
                    None => unused("is from no process of this run".to_owned()),
                }
            }
        }
    }
    Ok(found)
}

fn find(folder: &Path, depth: usize, all: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries = std::fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (name, path) = (entry.file_name().to_string_lossy().to_lowercase(), entry.path());
        let is_table = name.starts_with("run=");
        if path.is_dir() && depth > 1 && !is_table && !name.starts_with('.') {
            find(&path, depth - 1, all)?;
        } else if is_trace(&name) && path.is_file() {
            all.push(path);
        }
    }
    Ok(())
}

fn is_trace(name: &str) -> bool {
    !name.starts_with('.') && stem(uncompressed(name), PERFETTO).is_some()
}

/// Opens a trace, and decompresses it if it is compressed.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    unpacked(File::open(path)?)
}
