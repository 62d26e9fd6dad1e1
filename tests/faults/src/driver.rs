//! Starts the ranks, gives them one case after the other, and collects the verdicts.
//!
//! Ranks stay for many cases, so that devices and communicators are made once. If a case fails, the ranks are ended and new ones go on.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::case::{Case, Fault, Size};
use crate::device::{Result, gpus};
use crate::hub;
use crate::judge::{Judge, Verdict};
use crate::line::{Line, PATIENCE};
use crate::options::Options;
use crate::table;

/// Cases that may fail before the job is given up.
const MOST_FAILURES: usize = 5;

/// How long after a rank stands still the progress files must be written: then the others do, too.
const SETTLED: Duration = Duration::from_millis(200);

/// Runs all cases; whether all verdicts are right.
pub fn run(options: &Options) -> Result<bool> {
    let begin = Instant::now();
    let on_gpus = if options.host { Err("as asked for".to_owned()) } else { gpus().map_err(|error| error.to_string()) };
    let host = on_gpus.is_err();
    let ranks = match (&on_gpus, options.ranks) {
        (Ok((count, _)), Some(ranks)) if ranks > *count => {
            return Err(format!(
                "NCCL wants a GPU for each rank, and this host has {count}: take fewer than {ranks}, or `--host`"
            )
            .into());
        }
        (Ok((count, _)), None) if *count < 2 => {
            return Err("two ranks need two GPUs; take `--host` without them".into());
        }
        (Ok((count, _)), ranks) => ranks.unwrap_or(*count),
        (Err(_), ranks) => ranks.unwrap_or(2),
    };
    let what = match &on_gpus {
        Ok((_, version)) => format!("{ranks} ranks on GPUs, NCCL {version}"),
        Err(why) => format!("{ranks} ranks on in-process streams: {why}"),
    };
    println!("{what}");
    let judge = Judge::new(options, ranks, host)?;
    let tables = match &options.tables {
        Some(folder) => folder.clone(),
        None => std::env::temp_dir().join(format!("warpline-faults-{}", std::process::id())),
    };
    std::fs::create_dir_all(&tables).map_err(|error| format!("the folder `{}`: {error}", tables.display()))?;
    let faults: Vec<Fault> =
        Fault::ALL.into_iter().filter(|fault| options.only.is_empty() || options.only.contains(fault)).collect();
    let mut cases = Case::all(&faults, options.repeat, ranks, &Size::of(host));
    let mut verdicts = run_cases(options, &mut cases, ranks, host, &judge, &tables)?;
    let ran = begin.elapsed();
    judge_reports(&cases, &mut verdicts, &judge, &tables);
    let verdicts: Vec<Verdict> =
        verdicts.into_iter().map(|verdict| verdict.unwrap_or_else(|| Verdict::failed("it was not run"))).collect();
    for (case, verdict) in cases.iter().zip(&verdicts).filter(|(_, verdict)| !verdict.is_right) {
        println!("\nNOT RIGHT: case {} ({}): {}", case.index, case.to_text(), verdict.said.join("; "));
    }
    let table = table::markdown(&what, &judge, &cases, &verdicts);
    println!("\n{table}");
    println!(
        "{} cases in {:.0} s, {:.0} s of them for their verdicts afterwards",
        cases.len(),
        begin.elapsed().as_secs_f64(),
        (begin.elapsed() - ran).as_secs_f64()
    );
    if let Some(file) = &options.markdown {
        std::fs::write(file, &table).map_err(|error| format!("`{}`: {error}", file.display()))?;
    }
    if options.tables.is_none() {
        // What stays behind is small, and in the place for temporary files.
        let _ = std::fs::remove_dir_all(&tables);
    }
    Ok(verdicts.iter().all(|verdict| verdict.is_right))
}

fn folder(tables: &Path, case: &Case) -> PathBuf {
    tables.join(format!("case-{:03}-{}", case.index, case.fault.name()))
}

/// The verdicts of those that were judged while the ranks stood still.
fn run_cases(
    options: &Options,
    cases: &mut [Case],
    ranks: u32,
    host: bool,
    judge: &Judge,
    tables: &Path,
) -> Result<Vec<Option<Verdict>>> {
    let hub = hub::start(ranks)?.to_string();
    let mut verdicts: Vec<Option<Verdict>> = vec![None; cases.len()];
    let (mut job, mut failures) = (None::<Job>, 0);
    for (case, verdict) in cases.iter_mut().zip(&mut verdicts) {
        let folder = folder(tables, case);
        let outcome = (|| {
            let job = match &mut job {
                Some(job) => job,
                none => none.insert(Job::start(ranks, host, &hub)?),
            };
            if case.fault == Fault::Restart {
                let [first, last] = case.lives(ranks);
                job.case(&first, &folder, options.limit, judge)?;
                // Its end kills the ranks.
                *job = Job::start(ranks, host, &hub)?;
                return job.case(&last, &folder, options.limit, judge);
            }
            case.runs = job.runs;
            job.case(case, &folder, options.limit, judge)
        })();
        match outcome {
            Ok(judged) => *verdict = judged,
            Err(error) => {
                println!("case {} ({}) failed: {error}", case.index, case.to_text());
                *verdict = Some(Verdict::failed(&error.to_string()));
                // New ranks for the next one.
                job = None;
                failures += 1;
                if failures == MOST_FAILURES {
                    println!("{MOST_FAILURES} cases failed; the rest is not run");
                    break;
                }
            }
        }
    }
    if let Some(job) = job {
        job.quit();
    }
    Ok(verdicts)
}

/// Judges the runs that came to their end, several at a time.
fn judge_reports(cases: &[Case], verdicts: &mut [Option<Verdict>], judge: &Judge, tables: &Path) {
    let open: Vec<usize> = (0..cases.len())
        .filter(|at| verdicts[*at].is_none() && !cases[*at].fault.stops() && folder(tables, &cases[*at]).is_dir())
        .collect();
    let (next, judged) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = thread::available_parallelism().map_or(1, |count| count.get().div_ceil(2)).min(8);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(at) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = judge.report(&cases[*at], &folder(tables, &cases[*at]));
                    judged.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((*at, verdict));
                }
            });
        }
    });
    for (at, verdict) in judged.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        verdicts[at] = Some(verdict);
    }
}

/// The ranks, as processes.
struct Job {
    processes: Vec<Child>,
    lines: Vec<Line>,
    generation: u64,
    /// Runs since the groups were made.
    runs: u64,
}

impl Drop for Job {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // One that has ended already is no failure.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Job {
    fn start(ranks: u32, host: bool, hub: &str) -> Result<Job> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        // Communicators of jobs before this one have other numbers.
        let generation =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let mut job = Job { processes: Vec::new(), lines: Vec::new(), generation, runs: 0 };
        let program = std::env::current_exe()?;
        for rank in 0..ranks {
            let mut command = Command::new(&program);
            command.args(["--rank-of", &address]).stdin(Stdio::null());
            command
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", ranks.to_string())
                .env("LOCAL_RANK", rank.to_string());
            command.env("FAULTS_HOST", if host { "yes" } else { "no" }).env("FAULTS_HUB", hub);
            command.env("WARPLINE_RUN", "faults").env_remove("WARPLINE");
            // Few multiprocessors for NCCL: the rest is left to the other kernels.
            command.env("NCCL_MAX_NCHANNELS", "8");
            job.processes.push(command.spawn()?);
        }
        let until = Instant::now() + PATIENCE;
        let mut lines: Vec<Option<Line>> = (0..ranks).map(|_| None).collect();
        while lines.iter().any(Option::is_none) {
            match listener.accept() {
                Ok((socket, _)) => {
                    socket.set_nonblocking(false)?;
                    let line = Line::new(socket)?;
                    let rank: usize = line.expect("rank", until)?.parse()?;
                    *lines.get_mut(rank).ok_or("a rank too many")? = Some(line);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    job.check()?;
                    if Instant::now() > until {
                        return Err("a rank does not come".into());
                    }
                    thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error.into()),
            }
        }
        job.lines = lines.into_iter().flatten().collect();
        job.connect()?;
        Ok(job)
    }

    fn check(&mut self) -> Result {
        for (rank, process) in self.processes.iter_mut().enumerate() {
            if let Some(status) = process.try_wait()? {
                return Err(format!("rank {rank} ended with {status}").into());
            }
        }
        Ok(())
    }

    /// New communicators for all ranks.
    fn connect(&mut self) -> Result {
        self.generation += 1;
        self.runs = 0;
        self.say(&format!("connect {}", self.generation))?;
        let until = Instant::now() + PATIENCE;
        let ids = self.lines[0].expect("ids", until).map_err(|error| format!("rank 0: {error}"))?;
        self.say(&format!("ids {ids}"))?;
        self.expect("ready", until)
    }

    fn say(&self, text: &str) -> Result {
        self.lines.iter().try_for_each(|line| line.say(text))?;
        Ok(())
    }

    fn expect(&self, what: &str, until: Instant) -> Result {
        for (rank, line) in self.lines.iter().enumerate() {
            line.expect(what, until).map_err(|error| format!("rank {rank}: {error}"))?;
        }
        Ok(())
    }

    /// Runs a case. One in which the ranks stand still is judged while they do.
    fn case(&mut self, case: &Case, folder: &Path, limit: Duration, judge: &Judge) -> Result<Option<Verdict>> {
        let until = Instant::now() + limit;
        self.say(&format!("run {}|{}", case.to_text(), folder.display()))?;
        self.expect("ready", until)?;
        self.say("go")?;
        let mut verdict = None;
        if case.fault.stops() {
            let stopped = &self.lines[case.rank as usize];
            stopped.expect("stopped", until).map_err(|error| format!("rank {}: {error}", case.rank))?;
            self.wait_for_progress(folder, until)?;
            verdict = Some(judge.hang(case, folder));
            match case.fault {
                Fault::Cycle => self.say("abort")?,
                _ => stopped.say("go")?,
            }
        }
        self.expect("done", until)?;
        match case.fault {
            Fault::Cycle => self.connect()?,
            // The ranks count from 0 again.
            Fault::Mismatch => self.runs = 0,
            _ => self.runs += 1,
        }
        Ok(verdict)
    }

    /// Waits until all ranks have written their progress since they stand still.
    fn wait_for_progress(&self, folder: &Path, until: Instant) -> Result {
        let unix =
            |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos() as i64);
        let settled = unix(SystemTime::now() + SETTLED);
        let is_written = |rank: usize| {
            let file = folder.join(format!("progress/run=faults/rank-{rank:05}.json"));
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let progress: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            progress["updated_realtime_ns"].as_i64().is_some_and(|at| at > settled)
        };
        while !(0..self.lines.len()).all(is_written) {
            if Instant::now() > until {
                return Err("a rank that stands still writes no progress".into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Lets the ranks end.
    fn quit(mut self) {
        if self.say("quit").is_err() {
            return;
        }
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until && self.processes.iter_mut().any(|process| matches!(process.try_wait(), Ok(None)))
        {
            thread::sleep(Duration::from_millis(10));
        }
    }
}
