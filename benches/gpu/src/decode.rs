//! What zones cost a program that is bound by its launches: a loop like the decoding of a language model, 100 tiny kernels in 13 zones
//! a token, and the small transformer block of `steps`. Every way of recording takes its turn, round by round, in one process.
//!
//! The speed of a launch changes within seconds on some machines. So a turn is short, and the program runs without a session right before and
//! right behind it: a turn is compared with the mean of these two.
//!
//! The program waits for the device once a token, as one that samples the next token does. The same loop is also captured into one graph
//! and replayed. A way of recording is a line of settings, so that a new one is a new line in [`WAYS`].

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use gpu::{Gpu, Graph, Result, cupti_name};
use warpline::graph::GraphZones;
use warpline::{Session, block};

use crate::clock::cpu_ns_of_thread;
use crate::cupti::{Bare, KERNELS_AND_CALLS};
use crate::figures::{Table, median, percentile, ratio, verdict};
use crate::graph::MODE;
use crate::options::Options;
use crate::steps::Model;

/// Kernels of a token outside of the layers: the embedding, two of the head, and the sampling.
const OUTSIDE: usize = 4;
const LAYERS: usize = 12;
const KERNELS_A_LAYER: usize = 8;
const ZONES: usize = 1 + LAYERS;

const SETTLED: Duration = Duration::from_millis(100);
const MEASURED: Duration = Duration::from_millis(150);
/// By then the command records, and a session with windows has seen some.
const SETTLED_LATE: Duration = Duration::from_millis(500);
const GRAPH_MEASURED: Duration = Duration::from_millis(200);

/// A way to record the program.
struct Way {
    name: &'static str,
    /// `FILE` stands for a file of this run.
    settings: &'static str,
    records: Records,
    /// The most that it may add to a token, in percent; of a way with a file, beside the way before it.
    goal: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Records {
    Here,
    /// The same as the way before it, with a file.
    WithFile,
    /// It needs CUPTI.
    Cupti,
    /// CUPTI without warpline: kernels and the calls that launch them, thrown away.
    BareCupti,
    /// In windows of the time.
    InWindows,
    /// The command records the program.
    FromOutside,
}

impl Records {
    fn settles_late(self) -> bool {
        matches!(self, Records::InWindows | Records::FromOutside)
    }
}

const fn way(name: &'static str, settings: &'static str, records: Records, goal: Option<f64>) -> Way {
    Way { name, settings, records, goal }
}

const WAYS: [Way; 11] = [
    way("CUPTI without warpline", "", Records::BareCupti, None),
    way("timing=kernels", "timing=kernels", Records::Cupti, Some(5.0)),
    way("lazy", "ends=lazy", Records::Here, Some(7.0)),
    way("lazy, a Perfetto file", "ends=lazy,perfetto=FILE,quiet", Records::WithFile, Some(2.0)),
    way("eager", "ends=eager", Records::Here, Some(14.0)),
    way("eager, a Perfetto file", "ends=eager,perfetto=FILE,quiet", Records::WithFile, Some(2.0)),
    way("auto", "ends=auto", Records::Here, None),
    way("budget 1%", "budget=1%", Records::InWindows, Some(1.0)),
    way("flight recorder", "flight=16MiB:FILE,quiet", Records::InWindows, Some(1.0)),
    way("recorded from outside", "control", Records::FromOutside, Some(1.0)),
    way("lazy, kernels", "ends=lazy,kernels,perfetto=FILE,quiet", Records::Cupti, None),
];

pub fn run(options: &Options) -> Result {
    let gpu = Gpu::new(0)?;
    let stream = gpu.stream()?;
    let rounds = options.size("rounds", 7);
    // Before CUPTI has been in the process: launches of graphs are slower behind it.
    graphs(&gpu, &stream, rounds)?;
    let title = format!(
        "decode: us a token, {} kernels in {ZONES} zones, medians of {rounds} rounds",
        OUTSIDE + LAYERS * KERNELS_A_LAYER
    );
    compare(&title, rounds, ZONES, &|time| tokens_for(&gpu, &stream, time))?;
    let model = Model::new(&gpu, 1024, 4, 256)?;
    let title = format!("decode: us a step of a small transformer block, 11 zones, medians of {rounds} rounds");
    compare(&title, rounds, 11, &|time| {
        let done = model.steps_for(time)?;
        Ok(Done { units: done.steps, us: done.us })
    })
}

/// How many tokens or steps were done, and what one took.
struct Done {
    units: u64,
    us: f64,
}

/// One token.
fn token(gpu: &Gpu, stream: &Arc<CudaStream>) -> Result {
    block::gpu_zone!("gpu_bench.token", stream, description = "One token of the decoding loop.", {
        gpu.null(stream)?;
        for _ in 0..LAYERS {
            block::gpu_zone!("gpu_bench.layer", stream, description = "One layer of the decoding loop.", {
                for _ in 0..KERNELS_A_LAYER {
                    gpu.null(stream)?;
                }
            });
        }
        for _ in 1..OUTSIDE {
            gpu.null(stream)?;
        }
    });
    Ok(())
}

fn tokens_for(gpu: &Gpu, stream: &Arc<CudaStream>, time: Duration) -> Result<Done> {
    units_for(time, || {
        token(gpu, stream)?;
        Ok(stream.synchronize()?)
    })
}

fn units_for(time: Duration, mut unit: impl FnMut() -> Result) -> Result<Done> {
    let (begin, mut units) = (Instant::now(), 0);
    while begin.elapsed() < time {
        unit()?;
        units += 1;
    }
    Ok(Done { units, us: begin.elapsed().as_secs_f64() * 1e6 / units as f64 })
}

/// What was measured of one way, by round.
#[derive(Default)]
struct Samples {
    us: Vec<f64>,
    /// Over the mean of the turns without a session before and behind.
    over_none: Vec<f64>,
    /// Tokens or steps, with those before the measured ones.
    units: u64,
    recorded: u64,
    dropped: u64,
    collector_ns: Vec<f64>,
    /// What the command printed about its last recording.
    command: String,
}

/// Compares the ways to record `work`, which has so many zones a unit.
fn compare(title: &str, rounds: u64, zones: usize, work: &dyn Fn(Duration) -> Result<Done>) -> Result {
    let command = beside("warpline");
    let ways: Vec<&Way> = WAYS
        .iter()
        .filter(|way| match way.records {
            Records::Cupti | Records::BareCupti => cupti_name().is_some(),
            Records::FromOutside => command.is_some(),
            Records::Here | Records::WithFile | Records::InWindows => true,
        })
        .collect();
    let mut none = Vec::new();
    let mut samples: Vec<Samples> = ways.iter().map(|_| Samples::default()).collect();
    work(SETTLED)?;
    for round in 0..rounds as usize {
        let mut before = work(MEASURED)?.us;
        none.push(before);
        // Another one comes first in each round, but a way with a file stays behind the one without.
        let first = round * 2 % ways.len();
        for index in (first..ways.len()).chain(0..first) {
            let us = measure(ways[index], command.as_deref(), work, &mut samples[index])?;
            let behind = work(MEASURED)?.us;
            samples[index].us.push(us);
            samples[index].over_none.push(us / ((before + behind) / 2.0));
            none.push(behind);
            before = behind;
        }
    }
    let columns = [
        "recording",
        "us",
        "p10",
        "p90",
        "over none",
        "quartiles",
        "goal",
        "zones recorded",
        "of the program's",
        "dropped",
        "collector, CPU ns a zone",
    ];
    let mut table = Table::new(title, &columns);
    let of_rounds =
        |us: &[f64]| [median(us), percentile(us, 10.0), percentile(us, 90.0)].map(|us| format!("{us:.1}")).to_vec();
    table.row(&[vec!["none".to_owned()], of_rounds(&none)].concat());
    for (index, (way, of_way)) in ways.iter().zip(&samples).enumerate() {
        let over = (median(&of_way.over_none) - 1.0) * 100.0;
        let judged = match (way.records, index.checked_sub(1).and_then(|before| samples.get(before))) {
            (Records::WithFile, Some(before)) => {
                ((ratio(&of_way.over_none, &before.over_none) - 1.0) * 100.0, " over the same without a file")
            }
            _ => (over, ""),
        };
        let goal = way.goal.map_or_else(String::new, |goal| {
            format!("{:+.2}%{}, {goal}%: {}", judged.0, judged.1, verdict(judged.0, goal))
        });
        let mut cells = vec![way.name.to_owned()];
        cells.extend(of_rounds(&of_way.us));
        cells.extend([
            format!("{over:+.2}%"),
            format!(
                "{:+.1}% to {:+.1}%",
                (percentile(&of_way.over_none, 25.0) - 1.0) * 100.0,
                (percentile(&of_way.over_none, 75.0) - 1.0) * 100.0
            ),
            goal,
        ]);
        if of_way.units > 0 {
            cells.extend([
                of_way.recorded.to_string(),
                format!("{:.1}%", 100.0 * of_way.recorded as f64 / (of_way.units * zones as u64) as f64),
                of_way.dropped.to_string(),
                format!("{:.0}", median(&of_way.collector_ns)),
            ]);
        }
        table.row(&cells);
    }
    table.print();
    for of_way in samples.iter().filter(|of_way| !of_way.command.is_empty()) {
        println!("\nthe command's last recording: {}", of_way.command);
    }
    for way in WAYS.iter().filter(|way| !ways.iter().any(|known| known.name == way.name)) {
        println!("\nnot measured: {}, which needs CUPTI or the command `warpline` beside this program", way.name);
    }
    Ok(())
}

/// One turn of one way: returns the us of a unit.
fn measure(
    way: &Way,
    command: Option<&Path>,
    work: &dyn Fn(Duration) -> Result<Done>,
    samples: &mut Samples,
) -> Result<f64> {
    if way.records == Records::BareCupti {
        let bare = Bare::start(KERNELS_AND_CALLS)?;
        work(SETTLED)?;
        let done = work(MEASURED)?;
        drop(bare);
        return Ok(done.us);
    }
    let file = Scratch::new();
    let session = Session::builder().settings(&way.settings.replace("FILE", &file.0.display().to_string()))?.start()?;
    let outside = match command {
        Some(command) if way.records == Records::FromOutside => Some(Outside::start(command, &file.0)?),
        _ => None,
    };
    let settled = work(if way.records.settles_late() { SETTLED_LATE } else { SETTLED })?;
    let before = cpu_ns_of_thread("warpline")?;
    let done = work(MEASURED);
    let after = cpu_ns_of_thread("warpline")?;
    if let Some(outside) = outside {
        samples.command = outside.end()?;
    }
    let report = session.finish();
    if report.begun != report.recorded + report.captured + report.dropped.total() {
        return Err(format!("the account is wrong: {report}").into());
    }
    let done = done?;
    samples.units += settled.units + done.units;
    samples.recorded += report.recorded;
    samples.dropped += report.dropped.total();
    if let (Some(before), Some(after)) = (before, after) {
        let share = done.units as f64 / (settled.units + done.units) as f64;
        samples.collector_ns.push((after - before) as f64 / (report.begun as f64 * share).max(1.0));
    }
    Ok(done.us)
}

/// The command, which records this process until it is told to end.
struct Outside(Child);

impl Outside {
    fn start(command: &Path, trace: &Path) -> Result<Outside> {
        let child = Command::new(command)
            .args(["record", &std::process::id().to_string(), "--for", "30s", "-o"])
            .arg(trace)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Outside(child))
    }

    /// Interrupts it, as a person does, and returns what it printed.
    fn end(self) -> Result<String> {
        // SAFETY: a plain system call; the process is a child that has not been waited for, so its id is not reused.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGINT) };
        let output = self.0.wait_with_output()?;
        Ok([output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat())
    }
}

/// A program that lies beside this one.
fn beside(name: &str) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(name);
    path.exists().then_some(path)
}

/// A file that goes when this goes.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        Scratch(std::env::temp_dir().join(format!("warpline-bench-decode-{}.pftrace", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(self.0.with_extension("previous"));
    }
}

/// The token as one graph: a zone around its replay, stamps at its zones, and what a session with `kernels` leaves behind.
fn graphs(gpu: &Gpu, stream: &Arc<CudaStream>, rounds: u64) -> Result {
    let replays = |graph: &Graph, zone: bool| {
        units_for(GRAPH_MEASURED, || {
            if zone {
                block::gpu_zone!("gpu_bench.replay", stream, description = "The replay of a token.", {
                    graph.launch(0, stream)?;
                });
            } else {
                graph.launch(0, stream)?;
            }
            Ok(stream.synchronize()?)
        })
    };
    let plain = Graph::capture(stream, MODE, || token(gpu, stream))?;
    let stamped = |timing: &'static str| -> Result<_> {
        let session = Session::builder().settings(timing)?.start()?;
        let graph = Graph::capture(stream, MODE, || token(gpu, stream))?;
        let zones = GraphZones::for_graph(&graph.raw(0))?;
        replays(&graph, false)?;
        let borders = session.finish().graph_timing.captured;
        Ok((timing, graph, zones, borders))
    };
    let stamped = [stamped("graph_timing=stamps")?, stamped("graph_timing=launch-order-stamps")?];
    let (mut none, mut in_zone, mut in_stamps) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..rounds {
        none.push(replays(&plain, false)?.us);
        let session = Session::builder().start()?;
        replays(&plain, true)?;
        in_zone.push(replays(&plain, true)?.us);
        session.finish();
        for ((timing, graph, ..), us) in stamped.iter().zip(&mut in_stamps) {
            let session = Session::builder().settings(timing)?.start()?;
            replays(graph, false)?;
            us.push(replays(graph, false)?.us);
            session.finish();
        }
    }
    let mut table = Table::new(
        &format!(
            "decode: us a token as one graph of {} nodes, medians of {rounds} rounds",
            OUTSIDE + LAYERS * KERNELS_A_LAYER
        ),
        &["recording", "us", "over none", "goal"],
    );
    table.row(&["none".to_owned(), format!("{:.1}", median(&none))]);
    let mut row = |name: &str, us: &[f64], goal: f64| {
        let over = (ratio(us, &none) - 1.0) * 100.0;
        table.row(&[
            name.to_owned(),
            format!("{:.1}", median(us)),
            format!("{over:+.2}%"),
            format!("{goal}%: {}", verdict(over, goal)),
        ]);
    };
    row("a zone around the replay", &in_zone, 3.0);
    for ((timing, .., borders), us) in stamped.iter().zip(&in_stamps) {
        row(&format!("{timing}, {borders} borders"), us, 12.0);
    }
    if cupti_name().is_some() {
        let session = Session::builder().settings("kernels,quiet")?.start()?;
        tokens_for(gpu, stream, SETTLED)?;
        let report = session.finish();
        let after = (0..rounds).map(|_| Ok(replays(&plain, false)?.us)).collect::<Result<Vec<_>>>()?;
        row("none, behind a session with kernels", &after, 1.0);
        table.print();
        println!("\nthe session with kernels says: {}", report.notes.join("; "));
    } else {
        table.print();
    }
    Ok(())
}
