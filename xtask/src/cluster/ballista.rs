//! A Ballista cluster on this machine: a stock scheduler and two stock executors. Their answers are compared, and one executor is killed in
//! the middle of a query: the answer must come all the same, or an error that says what happened.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::rows::{Answers, Row, difference, is_same};
use super::{own, printed};
use crate::shell::{Stop, line};

/// The version of the cluster, which is that of DataFusion in `ranks/Cargo.toml`.
pub const VERSION: &str = "55.0.0";

/// How long a program may take to begin, and a query to end, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(300);

/// A query that takes long enough to be interrupted.
const LONG: &str = "suspect_stages";

/// The processes, which end with this value.
pub struct Cluster {
    _scheduler: Running,
    executors: Vec<Running>,
    url: String,
}

/// Builds a stock scheduler, a stock executor and our client into the folder, and returns where they are.
///
/// # Errors
/// One of them cannot be built.
pub fn install(folder: &Path) -> Result<PathBuf, Stop> {
    let into = format!("--locked --debug --root {0} --target-dir {0}/build", folder.display());
    line(&format!("cargo install ballista-scheduler@{VERSION} ballista-executor@{VERSION} {into}")).run()?;
    line(&format!("cargo install --path ranks --features ballista {into}")).run()?;
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
            executors.push(running);
        }
        Ok(Self { _scheduler: scheduler, executors, url: format!("ballista://127.0.0.1:{port}") })
    }

    /// What goes wrong where the whole report is asked for, and where an executor is killed.
    pub fn faults(&mut self, reader: &Path, tables: &Path, here: &Answers) -> Result<Vec<String>, Stop> {
        let mut faults = Vec::new();
        let report = |options: &str| {
            let text = printed(&format!("{} report {} --json{options}", reader.display(), tables.display()))?;
            serde_json::from_str::<Value>(&text).map_err(|error| Stop::Failed(format!("a report is no JSON: {error}")))
        };
        if !is_same(&report("")?, &report(&self.options())?) {
            faults.push("the report of Ballista is not that of one process".to_owned());
        }
        faults.extend(self.kill_one(reader, tables, here.get(LONG).map_or(&[], Vec::as_slice))?);
        let alone = own(reader, tables, &[LONG.to_owned()], &self.options())?;
        let difference = difference(here.get(LONG).map_or(&[], Vec::as_slice), &alone[LONG]);
        faults.extend(difference.map(|how| format!("with one executor left, `{LONG}` differs: {how}")));
        Ok(faults)
    }

    /// Kills an executor in the middle of a query.
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
        let mut running = Running::start(tables.with_file_name("killed.log"), &query)?;
        std::thread::sleep(whole / 2);
        if running.has_ended() {
            return Ok(Some("the query was over before the executor was killed".to_owned()));
        }
        println!("killing an executor after {:.1} of {:.1} s", whole.as_secs_f64() / 2.0, whole.as_secs_f64());
        let killed = Instant::now();
        self.executors[0].kill();
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

    /// What the client is told to ask it.
    pub fn options(&self) -> String {
        format!(" --engine {}", self.url)
    }
}

/// A program whose output goes to a file, and which is killed with this value.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn start(log: PathBuf, command: &str) -> Result<Self, Stop> {
        println!("$ {command} &");
        let failed = |error| Stop::Failed(format!("`{command}` did not start: {error}"));
        let out = File::create(&log).map_err(failed)?;
        let mut words = command.split_whitespace();
        let mut program = Command::new(words.next().unwrap_or_default());
        let program = program.args(words).current_dir(crate::shell::root()).stdin(Stdio::null());
        let child = program.stdout(out.try_clone().map_err(failed)?).stderr(out).spawn().map_err(failed)?;
        Ok(Self { child, log })
    }

    /// Waits until its port answers.
    fn wait_for(&mut self, port: u16) -> Result<(), Stop> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if self.has_ended() || Instant::now() > deadline {
                return Err(Stop::Failed(format!("nothing answers on port {port}: {}", self.said())));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn end_within(&mut self, time: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        None
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it at once, as a machine that loses its power.
    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port of the loopback interface that nobody has.
fn free_port() -> Result<u16, Stop> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    listener
        .map(|address| address.port())
        .map_err(|error| Stop::Failed(format!("no port of 127.0.0.1 is free: {error}")))
}
