//! Which job, rank and window a file belongs to. Ranks agree on all of it without talking to one another.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::beneath::Beneath;
use warpline_core::clock::utc_date;
use warpline_core::environment;
use warpline_core::hashing::fnv1a64;
use warpline_report::sink::SessionInfo;

/// What all files of a session have in common.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// The folder of all ranks.
    pub(super) root: PathBuf,
    /// The name of the job.
    pub(super) run: String,
    pub(super) rank: i32,
    pub(super) host: String,
    pub(super) boot_id: String,
    pub(super) process_id: u32,
    /// Whether the folder of all ranks was made.
    is_made: Arc<AtomicBool>,
}

impl Identity {
    pub(super) fn new(root: &Path, info: &SessionInfo) -> Identity {
        let run = run_of(|name| environment::var(name).ok(), info.begin_unix_ns, info.process_id);
        Identity {
            // The path must stay valid if the program changes its working directory.
            root: std::path::absolute(root).unwrap_or_else(|_| root.to_owned()),
            run,
            rank: info.rank.map_or(0, |rank| i32::try_from(rank).unwrap_or(i32::MAX)),
            host: info.host.clone(),
            boot_id: info.boot_id.clone().unwrap_or_default(),
            process_id: info.process_id,
            is_made: Arc::default(),
        }
    }

    /// Opens the folder of a table's files, or of what has no windows, and makes it if there is none. The folder of all ranks is made once in
    /// a session, and not again, because it may be the place where another disk was mounted.
    ///
    /// # Errors
    /// A text with the cause and the remedy.
    pub(super) fn folder(&self, table: &str, window: Option<i64>) -> Result<Beneath, String> {
        let wrong = |path: &Path, error: io::Error| format!("`{}`: {error}", path.display());
        if !self.is_made.load(Ordering::Relaxed) {
            fs::create_dir_all(&self.root).map_err(|error| wrong(&self.root, error))?;
            self.is_made.store(true, Ordering::Relaxed);
        }
        let wrong = |path: &Path, error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => {
                format!("`{}` was removed while the session ran; put it back", self.root.display())
            }
            _ => wrong(path, error),
        };
        let root = Beneath::root(&self.root).map_err(|error| wrong(&self.root, error))?;
        let parts = [Some(table.to_owned()), Some(format!("run={}", self.run)), window.map(|n| format!("win={n}"))];
        parts.into_iter().flatten().try_fold(root, |folder, part| {
            folder.enter(&part).map_err(|error| wrong(&folder.path().join(&part), error))
        })
    }

    /// Returns the name of this rank's files, without the ending.
    pub(super) fn stem(&self) -> String {
        format!("rank-{:05}", self.rank)
    }
}

/// Returns the name of the job, from the variables of its launcher; without one, a name for this process alone.
fn run_of(variable: impl Fn(&str) -> Option<String>, begin_unix_ns: i64, process_id: u32) -> String {
    let variable = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let slurm = || {
        let (job, step) = (variable("SLURM_JOB_ID")?, variable("SLURM_STEP_ID"));
        Some(step.map_or(job.clone(), |step| format!("{job}.{step}")))
    };
    let names = ["WARPLINE_RUN", "TORCHELASTIC_RUN_ID"].iter().find_map(|name| variable(name));
    let name = names
        .or_else(slurm)
        .or_else(|| variable("OMPI_MCA_ess_base_jobid"))
        .or_else(|| variable("PMI_JOBID"))
        .or_else(|| variable("PMI_ID"));
    let name = name.unwrap_or_else(|| format!("{}-{process_id}", utc(begin_unix_ns)));
    plain(&name)
}

/// The most characters of a run's name.
const MOST_CHARACTERS: usize = 100;

/// Returns a name that every file system has and a path gives no meaning. A name that loses something by that gets a hash of itself, so that jobs
/// of different names stay different runs.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.len() <= MOST_CHARACTERS && name.chars().all(is_plain) && !matches!(name, "." | "..") {
        return name.to_owned();
    }
    let hash = format!("-{:016x}", fnv1a64(name.as_bytes()));
    let plain = name.chars().take(MOST_CHARACTERS - hash.len()).map(|c| if is_plain(c) { c } else { '_' });
    plain.chain(hash.chars()).collect()
}

/// Returns a time as text: `20261124T174300Z`.
fn utc(unix_ns: i64) -> String {
    let seconds = unix_ns.div_euclid(1_000_000_000);
    let (day, second) = (utc_date(seconds).replace('-', ""), seconds.rem_euclid(86_400));
    format!("{day}T{:02}{:02}{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

/// Returns the time, in ns since the Unix epoch.
pub(super) fn unix_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_job_is_named_by_its_launcher_and_alone_by_time_and_process() {
        let run = |set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            run_of(value, 1_795_542_180_000_000_000, 77)
        };
        assert_eq!(run(&[]), "20261124T174300Z-77");
        assert_eq!(run(&[("SLURM_JOB_ID", "12"), ("SLURM_STEP_ID", "3")]), "12.3");
        assert_eq!(run(&[("SLURM_JOB_ID", "12"), ("TORCHELASTIC_RUN_ID", "none/1")]), "none_1-6194606e9b2fd697");
        assert_eq!(run(&[("WARPLINE_RUN", "a_b"), ("TORCHELASTIC_RUN_ID", "x")]), "a_b");
        assert_eq!(run(&[("WARPLINE_RUN", " "), ("OMPI_MCA_ess_base_jobid", "99")]), "99");
        let long = "x".repeat(101);
        let names = ["a b", "a/b", "a\nb", "a\u{e9}b", "..", ".", &long, &format!("{long}x"), &long[..100]];
        let runs: BTreeSet<String> = names.iter().map(|name| run(&[("WARPLINE_RUN", name)])).collect();
        assert_eq!(runs.len(), names.len(), "{runs:?}");
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        assert!(runs.iter().all(|run| run.len() <= 100 && run.chars().all(is_plain) && run.len() > 2), "{runs:?}");
        assert_eq!((utc(0).as_str(), utc(951_782_399_000_000_000).as_str()), ("19700101T000000Z", "20000228T235959Z"));
        assert_eq!(utc(951_782_400_000_000_000), "20000229T000000Z");
    }
}
