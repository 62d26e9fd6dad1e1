//! Starts the ranks, makes things happen to them, and has the tables judged meanwhile and at the end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::{self, Clock, Step, machine_ns};
use crate::hub::Hub;
use crate::judge::{Judge, bytes, names_the_late};
use crate::rank::{LATE, RANKS};

/// The first rank of the second host.
const SECOND_HOST: u32 = 4;

/// The rank that is killed and started again.
const KILLED: u32 = 5;

/// Seconds.
const S: i64 = 1_000_000_000;

/// How a process of the second host is started, where the system lets this program give it a name and a boot of its own.
const APART: [&[&str]; 2] = [
    &["unshare", "--mount", "--uts", "--propagation", "private"],
    &["unshare", "--user", "--map-root-user", "--mount", "--uts", "--propagation", "private"],
];
const AS_ANOTHER: &str =
    r#"mount --bind "$SOAK_BOOT_ID" /proc/sys/kernel/random/boot_id && hostname soak-b && exec "$@""#;

/// The running job. Dropping it ends the ranks.
struct Job {
    hub: Hub,
    folder: PathBuf,
    boot_id: PathBuf,
    /// How long it runs, and since when on the machine's clock.
    length: Duration,
    begin_ns: i64,
    /// The command before that of a rank of the second host; none where the system does not allow it.
    apart: Option<&'static [&'static str]>,
    ranks: Vec<Child>,
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// Runs the job, and compares. The error lists what is wrong.
pub fn run(minutes: f64, reader: &Path, keep: Option<&Path>) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("cannot prepare the folder: {error}");
    let scratch = tempfile::tempdir().map_err(wrong)?;
    let folder = keep.map_or_else(|| scratch.path().join("ranks"), Path::to_owned);
    std::fs::create_dir_all(&folder).map_err(wrong)?;
    let boot_id = scratch.path().join("boot_id");
    std::fs::write(&boot_id, "50a00000-0000-4000-8000-00000000000b\n").map_err(wrong)?;
    let mut job = Job {
        hub: Hub::start().map_err(|error| format!("cannot listen: {error}"))?,
        folder: folder.clone(),
        boot_id,
        length: Duration::from_secs_f64(minutes * 60.0),
        begin_ns: machine_ns(),
        apart: None,
        ranks: Vec::new(),
    };
    job.apart = APART.into_iter().find(|apart| job.can(apart));
    match job.apart {
        Some(_) => job.say("eight ranks on two hosts, whose clocks differ by 0.7 ms and 20 ppm"),
        None => job.say("eight ranks on one host: this system gives no process a name and a boot of its own"),
    }
    job.ranks = (0..RANKS).map(|rank| job.start(rank)).collect::<Result<_, _>>()?;
    let mut judge = Judge { reader: reader.to_owned(), folder, compared: 0, differ: 0 };
    let mut faults = Vec::new();
    for tenth in 1..10_u32 {
        job.sleep_until(f64::from(tenth) / 10.0)?;
        if tenth == 2 {
            job.kill_and_start_again(&mut judge, &mut faults)?;
        }
        if tenth == 3 {
            let length = (job.length / 10).clamp(Duration::from_secs(6), Duration::from_secs(60));
            job.say(&format!("rank {LATE} is late for {} s", length.as_secs()));
            job.hub.make_late(Some(LATE));
            thread::sleep(length);
            job.hub.make_late(None);
        }
        let nothing = judge.nothing_hangs(&job.hub);
        job.say(&format!("{tenth}0 %: {}", nothing.as_ref().err().map_or("nothing hangs", String::as_str)));
        faults.extend(nothing.err());
        if tenth % 3 == 0 {
            let (report, wrong) = judge.report(&job.hub)?;
            wrong.iter().for_each(|wrong| job.say(wrong));
            faults.extend(wrong);
            let Judge { compared, differ, .. } = &judge;
            job.say(&format!("{compared} late arrivals compared, {differ} differ; the report: {}", report["verdict"]));
        }
    }
    job.sleep_until(1.0)?;
    job.hub.end();
    job.wait(Duration::from_secs(120))?;
    let (report, wrong) = judge.report(&job.hub)?;
    faults.extend(wrong);
    faults.extend(names_the_late(&report).err());
    faults.extend(judge.nothing_hangs(&job.hub).err());
    let (_, meetings) = job.hub.last();
    let steps = job.hub.truth(|truth| truth.worked.len()) as u64;
    let (bytes, hosts) = (bytes(&judge.folder), &report["size"]["hosts"]);
    println!(
        "{steps} steps of {RANKS} ranks on {hosts} hosts, {meetings} collectives; {} bytes a rank and step; {} late arrivals compared, \
         {} are not true",
        bytes / (steps.max(1) * u64::from(RANKS)),
        judge.compared,
        judge.differ
    );
    println!("the report: {}\nnot judged: {}", report["verdict"], report["not_judged"]);
    if faults.is_empty() {
        println!("no wrong blame");
        return Ok(());
    }
    Err(faults.join("\n"))
}

impl Job {
    fn at_ns(&self, share: f64) -> i64 {
        self.begin_ns + (self.length.as_nanos() as f64 * share) as i64
    }

    fn say(&self, text: &str) {
        println!("{:6.1} s  {text}", (machine_ns() - self.begin_ns) as f64 / 1e9);
    }

    /// Whether a process can be started so.
    fn can(&self, apart: &[&str]) -> bool {
        let mut command = self.apart(apart);
        command.arg("true").stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn apart(&self, apart: &[&str]) -> Command {
        let mut command = Command::new(apart[0]);
        command.args(&apart[1..]).args(["sh", "-c", AS_ANOTHER, "sh"]).env("SOAK_BOOT_ID", &self.boot_id);
        command
    }

    /// The clock of a host: the second one is ahead and drifts, and the wall clocks of both are stepped.
    fn clock(&self, is_second: bool) -> Clock {
        let step = |share: f64, by_s: i64| Step { at_ns: self.at_ns(share), by_ns: by_s * S };
        match is_second {
            false => Clock { steps: vec![step(0.75, -3600)], ..Clock::default() },
            true => Clock {
                from_ns: self.begin_ns,
                ahead_ns: 700_000,
                drift_ppb: 20_000,
                steps: vec![step(0.45, 90), step(0.6, -200)],
            },
        }
    }

    fn start(&self, rank: u32) -> Result<Child, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let is_second = rank >= SECOND_HOST;
        let mut command = match self.apart.filter(|_| is_second) {
            Some(apart) => self.apart(apart),
            None => Command::new("env"),
        };
        let window = if self.length >= Duration::from_secs(600) { "60s" } else { "5s" };
        // One host has one clock, also where it is to be two.
        let clock = self.clock(is_second && self.apart.is_some());
        command
            .arg(program)
            .arg("rank")
            .env("RANK", rank.to_string())
            .env("SOAK_HUB", &self.hub.address)
            .env(clock::VARIABLE, clock.to_text())
            .env("WARPLINE", format!("quiet,ranks={},ranks_window={window}", self.folder.display()))
            .env("WARPLINE_RUN", "soak")
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start rank {rank}: {error}"))
    }

    /// Waits. A rank that ends meanwhile is an error.
    fn sleep_until(&mut self, share: f64) -> Result<(), String> {
        while machine_ns() < self.at_ns(share) {
            thread::sleep(Duration::from_millis(200));
            for (number, rank) in self.ranks.iter_mut().enumerate() {
                if let Ok(Some(status)) = rank.try_wait() {
                    return Err(format!("rank {number} has ended early: {status}"));
                }
            }
        }
        Ok(())
    }

    /// Kills a rank, asks who hangs, and starts it again.
    fn kill_and_start_again(&mut self, judge: &mut Judge, faults: &mut Vec<String>) -> Result<(), String> {
        let rank = &mut self.ranks[KILLED as usize];
        let _ = rank.kill();
        let _ = rank.wait();
        self.say(&format!("rank {KILLED} is killed"));
        // Its last file is as new as those of the others for some time.
        thread::sleep(Duration::from_secs(12));
        let named = judge.names_the_dead(KILLED);
        self.say(match &named {
            Ok(()) => "`hang` names it",
            Err(error) => error,
        });
        faults.extend(named.err());
        self.ranks[KILLED as usize] = self.start(KILLED)?;
        let (_, before) = self.hub.last();
        let since = Instant::now();
        while self.hub.last().1 < before + 50 {
            if since.elapsed() > Duration::from_secs(120) {
                return Err(format!("rank {KILLED} was started again, and the job does not go on"));
            }
            thread::sleep(Duration::from_millis(100));
        }
        self.say(&format!("rank {KILLED} is started again, and the job goes on"));
        Ok(())
    }

    /// Waits for all ranks, which end together.
    fn wait(&mut self, within: Duration) -> Result<(), String> {
        let since = Instant::now();
        for (number, rank) in self.ranks.iter_mut().enumerate() {
            loop {
                match rank.try_wait() {
                    Ok(Some(status)) if status.success() => break,
                    Ok(None) if since.elapsed() < within => thread::sleep(Duration::from_millis(20)),
                    other => return Err(format!("rank {number} does not end as it should: {other:?}")),
                }
            }
        }
        Ok(())
    }
}
