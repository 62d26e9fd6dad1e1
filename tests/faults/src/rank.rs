//! One rank: what it computes, and the fault that a case gives it.
//!
//! Its thread queues a step while the device does the one before: a delay of the thread of less than a step delays nobody. Each run begins
//! with an all-reduce that no session records, so that the ranks begin together.

use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use warpline::collective::ProcessGroup;
use warpline::timing::EndMode;
use warpline::{Session, collective, gpu_zone, host_zone};

use crate::case::{BUCKETS, COUNT, Case, Fault, Size};
use crate::device::{Comm, Device, Mark, Queue, Result};
use crate::judge::traces;
use crate::line::{Line, PATIENCE};

/// Runs a rank until the driver lets it go.
pub fn run(driver: &str) -> Result {
    let line = Line::new(TcpStream::connect(driver)?)?;
    let of = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set; the driver sets it"));
    let (me, ranks) = (of("RANK")?.parse()?, of("WORLD_SIZE")?.parse()?);
    line.say(&format!("rank {me}"))?;
    let outcome = obey(&line, me, ranks, of("FAULTS_HOST")? == "yes", &of("FAULTS_HUB")?);
    if let Err(error) = &outcome {
        // The driver ends the others.
        line.say(&format!("failed {error}"))?;
    }
    outcome
}

fn obey(line: &Line, me: u32, ranks: u32, host: bool, hub: &str) -> Result {
    let device = Device::new(host, me as usize)?;
    let mut rank = Rank {
        compute: device.queue("compute")?,
        exchange: device.queue("comm")?,
        other: device.queue("other")?,
        size: Size::of(host),
        device,
        me,
        ranks,
        comms: None,
    };
    loop {
        let text = line.hear(Instant::now() + Duration::from_secs(3600))?;
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match word {
            "connect" => rank.connect(line, hub, rest.parse()?)?,
            "run" => {
                let (case, folder) = rest.split_once('|').ok_or("a case without a folder")?;
                let case = Case::from_text(case).ok_or("a case that is none")?;
                rank.run(line, &case, folder)?;
            }
            "quit" => return Ok(()),
            _ => return Err(format!("the driver said `{text}`").into()),
        }
    }
}

warpline::range! {
    MEET = "faults.meet": "The zone by which a session meets a stream.";
}

/// How long a session takes to meet its streams.
const MET: Duration = Duration::from_millis(60);

struct Rank {
    me: u32,
    ranks: u32,
    size: Size,
    comms: Option<Comms>,
    compute: Queue,
    /// What the collectives are queued on.
    exchange: Queue,
    /// Work of another program.
    other: Queue,
    /// Last: the others are of it.
    device: Device,
}

/// Communicators of all ranks, and their groups.
struct Comms {
    /// For the gradients.
    data: Comm,
    dp: ProcessGroup,
    /// For their norm.
    norm: Comm,
    of_norm: ProcessGroup,
}

impl Comms {
    /// Ends both. Giving back memory may wait for the device: what runs and does not end by itself comes first.
    fn abort(self, norm_first: bool) -> Result {
        let (first, then) = if norm_first { (self.norm, self.data) } else { (self.data, self.norm) };
        first.abort()?;
        then.abort()
    }
}

impl Rank {
    /// Makes the communicators.
    fn connect(&mut self, line: &Line, hub: &str, generation: u64) -> Result {
        if self.me == 0 {
            line.say(&format!("ids {} {}", Comm::id(&self.device)?, Comm::id(&self.device)?))?;
        }
        let ids = line.expect("ids", Instant::now() + PATIENCE)?;
        let (data, norm) = ids.split_once(' ').ok_or("one id and not two")?;
        let comm = |which: u64, id: &str| Comm::new(&self.device, hub, 2 * generation + which, id, self.ranks, self.me);
        let group = |name| ProcessGroup::new(name, 0..self.ranks, self.me);
        let comms = Comms { data: comm(0, data)?, dp: group("dp"), norm: comm(1, norm)?, of_norm: group("norm") };
        // The first collective connects the ranks, and the first launch of a kernel loads it, which takes its time.
        self.device.work(&self.compute, 1)?;
        self.device.wait(&self.compute, 1)?;
        self.compute.synchronize()?;
        for comm in [&comms.data, &comms.norm] {
            comm.all_reduce(&self.exchange)?;
        }
        self.exchange.synchronize()?;
        self.comms = Some(comms);
        Ok(line.say("ready")?)
    }

    fn group(&self, name: &str) -> ProcessGroup {
        ProcessGroup::new(name, 0..self.ranks, self.me)
    }

    fn run(&mut self, line: &Line, case: &Case, folder: &str) -> Result {
        let comms = self.comms.as_ref().ok_or("a case before the ranks are connected")?;
        let ends = if self.device.is_host() { EndMode::Auto } else { EndMode::Eager };
        let traces = traces(Path::new(folder));
        std::fs::create_dir_all(&traces)?;
        // A rank that is started again has another process.
        let trace = traces.join(format!("rank{}-{}.pftrace", self.me, std::process::id()));
        let session = Session::builder().quiet().ends(ends).ranks(folder).perfetto(trace).start()?;
        let run = Run { rank: self, comms, case, line };
        line.say("ready")?;
        line.expect("go", Instant::now() + PATIENCE)?;
        let worked = run.steps();
        let is_aborted = matches!(worked, Ok(End::Aborted));
        if is_aborted {
            // What the collectives wait for does not come: they end before the session does.
            let norm_first = case.rank == self.me;
            self.comms.take().map_or(Ok(()), |comms| comms.abort(norm_first))?;
        }
        self.exchange.synchronize()?;
        self.compute.synchronize()?;
        self.other.synchronize()?;
        if let Some(comms) = &self.comms {
            comms.data.check()?;
            comms.norm.check()?;
        }
        let report = session.finish();
        worked?;
        if case.fault == Fault::Mismatch {
            // From the call that differs on, signatures differ.
            let groups = (self.group("dp"), self.group("norm"));
            if let Some(comms) = &mut self.comms {
                (comms.dp, comms.of_norm) = groups;
            }
        }
        if report.dropped.total() > 0 {
            return Err(format!("{} zones were dropped: {report}", report.dropped.total()).into());
        }
        Ok(line.say("done")?)
    }
}

/// How a run ended.
enum End {
    Done,
    /// The driver said so: the ranks wait for each other.
    Aborted,
}

/// A run of a case.
struct Run<'a> {
    rank: &'a Rank,
    comms: &'a Comms,
    case: &'a Case,
    line: &'a Line,
}

impl Run<'_> {
    fn steps(&self) -> Result<End> {
        let Rank { compute, exchange, size, device, .. } = self.rank;
        let mut before = self.begin_together()?;
        for step in 0..size.steps {
            warpline::step(step);
            load(self, step)?;
            if self.has(Fault::SlowGpu) {
                device.burden(&self.rank.other, size.work_us())?;
            }
            forward(self)?;
            for bucket in 0..BUCKETS {
                backward(self, bucket)?;
                exchange.after(compute)?;
                let is_here = step == self.case.step && bucket == self.case.bucket;
                if is_here && self.has(Fault::Late) {
                    thread::sleep(size.late);
                }
                if step == self.case.step && bucket + 1 == BUCKETS && self.case.fault == Fault::Cycle {
                    return self.cycle(bucket);
                }
                sync(self, bucket, if is_here && self.has(Fault::Mismatch) { COUNT / 2 } else { COUNT })?;
            }
            clip(self)?;
            compute.after(exchange)?;
            optimizer(self)?;
            let mark = device.mark(compute)?;
            self.wait(&before)?;
            before = mark;
        }
        self.wait(&before)?;
        // The end of the last step.
        warpline::step(size.steps);
        Ok(End::Done)
    }

    /// Whether this rank has this fault.
    fn has(&self, fault: Fault) -> bool {
        self.case.fault == fault && self.case.rank == self.rank.me
    }

    /// Holds the device until the thread is ahead of it, and until all ranks have come.
    fn begin_together(&self) -> Result<Mark> {
        let Rank { compute, exchange, size, device, .. } = self.rank;
        // The session has met the streams before the first step, and has measured what it measures once.
        for queue in [compute, exchange] {
            drop(MEET.zone(queue));
        }
        thread::sleep(MET);
        device.wait(compute, 2 * (size.work_us() + size.optimizer_us))?;
        exchange.after(compute)?;
        self.comms.data.all_reduce(exchange)?;
        compute.after(exchange)?;
        device.mark(compute)
    }

    /// The last collectives of a step, each of them awaited before the next one is called. One rank calls them in the other order.
    fn cycle(&self, bucket: u32) -> Result<End> {
        let norm_first = self.has(Fault::Cycle);
        if norm_first { clip(self) } else { sync(self, bucket, COUNT) }?;
        if self.has(Fault::Cycle) {
            self.line.say("stopped")?;
        }
        let mark = self.rank.device.mark(&self.rank.exchange)?;
        let until = Instant::now() + PATIENCE;
        while self.line.heard()?.as_deref() != Some("abort") {
            if Instant::now() > until {
                let what = if mark.is_reached()? {
                    "there is no cycle: the other ranks came"
                } else {
                    "nobody ends the cycle"
                };
                return Err(what.into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(End::Aborted)
    }

    /// Stands still until the driver says to go on.
    fn stop(&self) -> Result {
        self.line.say("stopped")?;
        self.line.expect("go", Instant::now() + PATIENCE)?;
        Ok(())
    }

    fn wait(&self, mark: &Mark) -> Result {
        let until = Instant::now() + PATIENCE;
        while !mark.is_reached()? {
            if Instant::now() > until {
                return Err("the device does not come to the end of a step".into());
            }
            thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }
}

/// Reads the next batch.
#[host_zone("faults.load")]
fn load(run: &Run<'_>, step: u64) -> Result {
    let size = &run.rank.size;
    let is_slow = run.has(Fault::SlowStage) && step >= run.case.step;
    thread::sleep(if is_slow { size.load + size.slow } else { size.load });
    if run.has(Fault::Hang) && step == run.case.step {
        return run.stop();
    }
    Ok(())
}

/// Computes the loss.
#[gpu_zone("faults.forward", stream = run.rank.compute)]
fn forward(run: &Run<'_>) -> Result {
    run.rank.device.work(&run.rank.compute, run.rank.size.forward_us)
}

/// Computes the gradients of a bucket.
#[gpu_zone("faults.backward", stream = run.rank.compute, fields(bucket = bucket))]
fn backward(run: &Run<'_>, bucket: u32) -> Result {
    run.rank.device.work(&run.rank.compute, run.rank.size.backward_us)
}

/// Sums the gradients of a bucket over the ranks.
#[collective("faults.sync", kind = "all_reduce", stream = run.rank.exchange, count = count, dtype = f32, group = run.comms.dp, fields(bucket = bucket), op = "sum")]
fn sync(run: &Run<'_>, bucket: u32, count: usize) -> Result {
    if count != COUNT {
        // NCCL may hang for good, or write beyond a buffer. It is called with the other ranks' count once the verdict is there.
        run.stop()?;
    }
    run.comms.data.all_reduce(&run.rank.exchange)
}

/// Sums the norms of the gradients over the ranks.
#[collective("faults.clip", kind = "all_reduce", stream = run.rank.exchange, count = COUNT, dtype = f32, group = run.comms.of_norm, op = "sum")]
fn clip(run: &Run<'_>) -> Result {
    run.comms.norm.all_reduce(&run.rank.exchange)
}

/// Updates the parameters.
#[gpu_zone("faults.optimizer", stream = run.rank.compute)]
fn optimizer(run: &Run<'_>) -> Result {
    run.rank.device.wait(&run.rank.compute, run.rank.size.optimizer_us)
}
