//! What a session that stops and starts leaves behind: a step of the transformer block in a process that was never traced,
//! beside one after a hundred cycles, and while a session writes a trace.
//!
//! The rivals are processes of their own, since a process that was traced is what is in question. They live side by side
//! and take turns: each steps when it is told to, and the device is the other's meanwhile.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use gpu::{Gpu, Result, require_driver};
use warpline::{Session, SessionBuilder};

use crate::figures::{Table, median, ratio, verdict};
use crate::options::Options;
use crate::steps::{BUDGET, MEASURED, Model, SETTLED};

const CYCLES: u64 = 100;

/// Dim, texts and tokens: the first is bound by the device, the second by the launching thread.
const SHAPES: [(u64, usize, usize); 2] = [(4096, 8, 2048), (1024, 4, 256)];

pub fn run(options: &Options) -> Result {
    if let Some(dim) = options.dim {
        return as_told(dim);
    }
    let rounds = options.size("rounds", 8);
    require_driver()?;
    let title = format!("live: us per step of a transformer block, medians of {rounds} rounds");
    let columns = [
        "dim",
        "never traced",
        "after 100 cycles",
        "over never",
        "goal 1.00 ± 0.01",
        "on, a trace",
        "over never",
        "goal 1.01",
        "on, a trace, budget 0.5%",
        "over never",
        "goal 1.01",
    ];
    let mut table = Table::new(&title, &columns);
    for (dim, ..) in SHAPES {
        let (mut never, mut cycled) = (Rival::start(dim)?, Rival::start(dim)?);
        cycled.tell("cycles")?;
        let mut us = [const { Vec::new() }; 4];
        for _ in 0..rounds {
            let [is_never, stopped, on, budget] = &mut us;
            is_never.push(never.tell("step")?);
            stopped.push(cycled.tell("step")?);
            on.push(cycled.tell("on")?);
            budget.push(cycled.tell("budget")?);
        }
        let [is_never, stopped, on, budget] = &us;
        let over = |samples: &[f64]| ratio(samples, is_never);
        let mut cells = vec![dim.to_string(), format!("{:.1}", median(is_never))];
        for (samples, error, goal) in
            [(stopped, (over(stopped) - 1.0).abs(), 0.01), (on, over(on), 1.01), (budget, over(budget), 1.01)]
        {
            cells.extend([
                format!("{:.1}", median(samples)),
                format!("{:.4}", over(samples)),
                verdict(error, goal).to_owned(),
            ]);
        }
        table.row(&cells);
    }
    table.print();
    Ok(())
}

/// A process that does what it is told, a line each, and answers with microseconds a step.
struct Rival {
    child: Child,
    tell: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Rival {
    fn start(dim: u64) -> Result<Rival> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["live", &format!("--dim={dim}")])
            .env_remove("WARPLINE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let tell = child.stdin.take().ok_or("no way to tell the process anything")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no way to hear the process")?);
        let mut rival = Rival { child, tell, answers };
        rival.tell("step")?; // warms up
        Ok(rival)
    }

    fn tell(&mut self, what: &str) -> Result<f64> {
        writeln!(self.tell, "{what}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer.trim().parse().map_err(|_| format!("told `{what}`, the process said `{answer}`"))?)
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn as_told(dim: u64) -> Result {
    let shape = SHAPES.iter().find(|(of, ..)| *of == dim).ok_or("there is no such shape")?;
    let gpu = Gpu::new(0)?;
    let model = Model::new(&gpu, dim as usize, shape.1, shape.2)?;
    for line in std::io::stdin().lines() {
        let us = match &*line? {
            "cycles" => {
                let session = Session::builder().start()?;
                for _ in 0..CYCLES {
                    session.start();
                    model.steps_for(MEASURED / 100)?;
                    session.stop();
                    model.steps_for(MEASURED / 100)?;
                }
                session.finish();
                0.0
            }
            "on" => in_session(&model, dim, |session| session)?,
            "budget" => in_session(&model, dim, |session| session.budget(BUDGET))?,
            _ => measured(&model)?,
        };
        println!("{us}");
    }
    Ok(())
}

fn measured(model: &Model<'_>) -> Result<f64> {
    model.steps_for(SETTLED)?;
    Ok(model.steps_for(MEASURED)?.us)
}

/// While a trace is written, as whoever traces has it.
fn in_session(model: &Model<'_>, dim: u64, set: impl FnOnce(SessionBuilder) -> SessionBuilder) -> Result<f64> {
    let trace = std::env::temp_dir().join(format!("warpline-bench-live-{dim}-{}.pftrace", std::process::id()));
    let session = set(Session::builder().perfetto(&trace)).start()?;
    let us = measured(model);
    let report = session.finish();
    let written = std::fs::metadata(&trace)?.len();
    std::fs::remove_file(&trace)?;
    if written == 0 {
        return Err("the trace is empty".into());
    }
    if report.begun != report.recorded + report.captured + report.dropped.total() {
        return Err(format!("the account is wrong: {report}").into());
    }
    us
}
