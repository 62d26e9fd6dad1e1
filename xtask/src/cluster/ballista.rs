//! A Ballista cluster on this machine: a stock scheduler and two stock executors. Their answers are compared, and one executor is killed in
//! the middle of a query: the answer must come all the same, or an error that says what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::process::{PATIENCE, Running, free_port};
use super::rows::{Answers, Row, difference, is_same};
use super::{own, printed, report};
use crate::needs;
use crate::shell::{Stop, line};

/// The version of the cluster, which is that of DataFusion in `ranks/Cargo.toml`.
pub const VERSION: &str = "55.0.0";

/// A query that takes long enough to be interrupted.
const LONG: &str = "suspect_stages";

/// The time after which the client gives up a query: an executor that is dead is noticed earlier.
const TIMEOUT: Duration = Duration::from_secs(200);

/// The processes, which end with this value.
pub struct Cluster {
    _scheduler: Running,
    executors: Vec<Executor>,
    url: String,
}

/// Builds a stock scheduler, a stock executor and our client into the folder, and returns where they are.
///
/// # Errors
/// One of them cannot be built.
pub fn install(folder: &Path) -> Result<PathBuf, Stop> {
    let into = format!("--locked --debug --root {0} --target-dir {0}/build", folder.display());
    line(&format!("cargo install ballista-scheduler@{VERSION} ballista-executor@{VERSION} {into}")).run()?;
    // No step of `cargo xtask test` builds this feature, so it is linted here.
    needs::linted(line(&format!("cargo install --path ranks --features ballista {into}"))).run()?;
    Ok(folder.join("bin"))
}

impl Cluster {
    /// Starts those of `programs`; their logs and files go to `folder`.
    ///
    /// # Errors
    /// A program does not begin to listen.
    pub fn start(programs: &Path, folder: &Path) -> Result<Self, Stop> {
        let [scheduler, executor] =
            ["ballista-scheduler", "ballista-executor"].map(|name| programs.join(name).display().to_string());
        // A silent executor is given up after 180 s by default.
        let port = free_port()?;
        let mut scheduler = Running::start(
            folder.join("scheduler.log"),
            &format!(
                "{scheduler} --bind-host 127.0.0.1 --bind-port {port} --executor-timeout-seconds 15 \
                 --expire-dead-executor-interval-seconds 3"
            ),
        )?;
        scheduler.wait_for(port)?;
        let mut executors = Vec::new();
        for number in 1..=2 {
            let (flight, grpc, health) = (free_port()?, free_port()?, free_port()?);
            let work = folder.join(format!("executor-{number}"));
            std::fs::create_dir_all(&work)
                .map_err(|error| Stop::Failed(format!("cannot make the folder `{}`: {error}", work.display())))?;
            let mut running = Running::start(
                folder.join(format!("executor-{number}.log")),
                &format!(
                    "{executor} --scheduler-host 127.0.0.1 --scheduler-port {port} --bind-host 127.0.0.1 --external-host 127.0.0.1 \
                     --bind-port {flight} --bind-grpc-port {grpc} --bind-health-port {health} --vcores 2 \
                     --executor-heartbeat-interval-seconds 3 --work-dir {}",
                    work.display()
                ),
            )?;
            running.wait_for(flight)?;
            executors.push(Executor { running, work });
        }
        Ok(Self { _scheduler: scheduler, executors, url: format!("ballista://127.0.0.1:{port}") })
    }

    /// What goes wrong where the whole report is asked for, and where an executor is killed.
    pub fn faults(&mut self, reader: &Path, tables: &Path, here: &Answers) -> Result<Vec<String>, Stop> {
        let mut faults = Vec::new();
        let at = tables.display().to_string();
        let report = |options: &str| report(reader, &at, options, &[]);
        if !is_same(&report("")?, &report(&self.options())?) {
            faults.push("the report of Ballista is not that of one process".to_owned());
        }
        faults.extend(self.kill_one(reader, tables, here.get(LONG).map_or(&[], Vec::as_slice))?);
        let alone = own(reader, &at, &[LONG.to_owned()], &self.options(), &[])?;
        let difference = difference(here.get(LONG).map_or(&[], Vec::as_slice), &alone[LONG]);
        faults.extend(difference.map(|how| format!("with one executor left, `{LONG}` differs: {how}")));
        Ok(faults)
    }

    /// Kills the executor that wrote last for a query, in the middle of it: what it has written is lost with it.
    fn kill_one(&mut self, reader: &Path, tables: &Path, here: &[Row]) -> Result<Option<String>, Stop> {
        let query = format!(
            "{} query {} --file ranks/sql/{LONG}.sql --json{}",
            reader.display(),
            tables.display(),
            self.options()
        );
        let begin = Instant::now();
        printed(&query)?;
        let whole = begin.elapsed();
        let before: BTreeSet<PathBuf> =
            self.executors.iter().flat_map(|executor| executor.jobs().into_keys()).collect();
        let begin = Instant::now();
        let mut running = Running::start(tables.with_file_name("killed.log"), &query)?;
        std::thread::sleep(whole / 2);
        // A job has a folder in those executors that have written parts of it.
        let newest = |executor: &Executor| {
            let of_query = executor.jobs().into_iter().filter(|(job, _)| !before.contains(job));
            of_query.max_by_key(|(_, written)| *written)
        };
        let (which, job) = loop {
            let newest =
                self.executors.iter().enumerate().filter_map(|(which, executor)| Some((which, newest(executor)?)));
            let newest = newest.max_by_key(|(_, (_, written))| *written);
            if running.has_ended() {
                return Ok(Some("the query was over before an executor that had worked for it was killed".to_owned()));
            }
            match newest {
                Some((which, (job, _))) => break (which, job),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let executor = &mut self.executors[which];
        let files = executor.files(&job);
        executor.running.kill();
        let killed = Instant::now();
        if running.has_ended() {
            return Ok(Some("the query was over when the executor was killed".to_owned()));
        }
        let job = job.file_name().unwrap_or_default().to_string_lossy().into_owned();
        println!(
            "killed executor {} after {:.1} of {:.1} s, with {files} files of the job {job}, which it had written last",
            which + 1,
            begin.elapsed().as_secs_f64(),
            whole.as_secs_f64()
        );
        // The one that is left answers the next query.
        self.executors.remove(which);
        let Some(status) = running.end_within(PATIENCE) else {
            return Ok(Some(format!("no answer {} s after an executor was killed", PATIENCE.as_secs())));
        };
        let said = running.said();
        let seconds = killed.elapsed().as_secs_f64();
        if !status.success() {
            println!("an executor was killed; {seconds:.1} s later: {said}");
            let is_clear = said.contains("fails on the cluster of");
            return Ok((!is_clear).then(|| format!("the error after an executor was killed is not clear: {said}")));
        }
        println!("an executor was killed; the answer came {seconds:.1} s later");
        let rows = said.lines().filter(|line| line.starts_with('{')).map(serde_json::from_str);
        let rows: Vec<Row> = rows
            .collect::<Result<_, _>>()
            .map_err(|error| Stop::Failed(format!("the answer after the kill is no JSON: {error}")))?;
        Ok(difference(here, &rows).map(|how| format!("after an executor was killed, `{LONG}` differs: {how}")))
    }

    /// What the client is told to ask it, and how long to wait for an answer.
    pub fn options(&self) -> String {
        format!(" --engine {} --timeout {}", self.url, TIMEOUT.as_secs())
    }
}

/// An executor, and the folder that it writes parts of answers to.
struct Executor {
    running: Running,
    work: PathBuf,
}

impl Executor {
    /// The jobs of which it has written parts, and when it did last.
    fn jobs(&self) -> BTreeMap<PathBuf, SystemTime> {
        let jobs = entries(&self.work).into_iter().filter(|path| path.is_dir());
        let last = |job: PathBuf| {
            let of_files = below(&job).into_iter().filter_map(|file| std::fs::metadata(file).ok()?.modified().ok());
            Some((job, of_files.max()?))
        };
        jobs.filter_map(last).collect()
    }

    /// How many files it has of a job.
    fn files(&self, job: &Path) -> usize {
        below(job).len()
    }
}

/// The files in a folder, and in the folders in it.
fn below(folder: &Path) -> Vec<PathBuf> {
    let (folders, mut files): (Vec<_>, Vec<_>) = entries(folder).into_iter().partition(|path| path.is_dir());
    folders.iter().for_each(|folder| files.extend(below(folder)));
    files
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(all) = std::fs::read_dir(folder) else { return Vec::new() };
    all.filter_map(|entry| Some(entry.ok()?.path())).collect()
}
