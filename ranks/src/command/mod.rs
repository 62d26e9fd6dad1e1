//! The command line: parses, calls the library, and prints. 0: judged; 1: it could not be; 2: wrong arguments; 3:
//! `hang` found one, or `report --exit-code` names a rank, a link or a call.

mod output;
mod query;
mod rows;
mod secrets;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};

use self::output::{complain, print, to_json};
use self::query::Query;
use crate::clocks::{self, Options, clocks};
use crate::compact::{Compacted, compact};
use crate::engine::{Engine, Scheduler};
use crate::error::Error;
use crate::generate::{self, Late, Slow, Stage, replace_file};
use crate::hang::Hang;
use crate::perfetto::{Plan, Ranks, Window, merge};
use crate::progress::busy;
use crate::reading::quiet;
use crate::report::Report;
use crate::shell::Shell;
use crate::store::{Tables, only_folders};
use warpline_core::text::printable;

#[derive(Parser)]
#[command(name = "warpline-ranks", version, about = "Reads the tables that the ranks of a job write with `ranks=DIR`.")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Which ranks are late or slow, by how much, since when and why.
    Report {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        on: On,
        /// Wait no longer than this for the cluster's answer to a query: 600 s by default.
        #[arg(long, value_name = "SECONDS", requires = "engine", value_parser = clap::value_parser!(u64).range(1..))]
        timeout: Option<u64>,
        /// Exit with 3 if the report names a rank, a link or a call, and with 1 if there is not enough to judge by.
        #[arg(long)]
        exit_code: bool,
        /// Print the report as JSON.
        #[arg(long)]
        json: bool,
        /// Write the report as one self-contained HTML page, with a heat map of ranks and steps.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Why a job hangs, from its progress files: exits with 3 if it does.
    Hang {
        /// The folder that the setting `ranks=DIR` named.
        folder: PathBuf,
        /// The run; the newest by default.
        #[arg(long)]
        run: Option<String>,
        /// Seconds between two reads of the files: ranks that make progress between them do not wait. 0 reads them
        /// once, for a job that has ended.
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(0..=3600))]
        between: u64,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// The clocks of the hosts: estimated and certified.
    Clocks {
        #[command(flatten)]
        of: Of,
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
        /// Write them to the folder as the table `clocks`, which other engines need for `late` and the views that build
        /// on it.
        #[arg(long, conflicts_with = "json")]
        write: bool,
    },
    /// Answer a query over the tables and views of a folder, or over one trace.
    Query(Query),
    /// Merge the files of old windows into one for each table and window.
    Compact {
        /// The folder that the setting `ranks=DIR` named.
        folder: PathBuf,
        /// The run, if the folder has several.
        #[arg(long)]
        run: Option<String>,
    },
    /// Merge the traces of ranks for one step into an archive that Perfetto opens on one time line.
    Perfetto(Perfetto),
    /// Write the tables of a job that never ran, for tests and for sizing.
    Generate(Generate),
    #[command(flatten)]
    Shell(Shell),
}

#[derive(Args)]
struct Of {
    /// The folder that the setting `ranks=DIR` named, or the URL to which it was copied: s3://BUCKET/FOLDER.
    folder: PathBuf,
    /// The run, if the folder has several.
    #[arg(long)]
    run: Option<String>,
    /// The maximum rate at which two clocks drift apart, for the certified bounds.
    #[arg(long, default_value_t = warpline_judge::clocks::MAX_DRIFT_PPM)]
    max_drift_ppm: f64,
}

#[derive(Args)]
struct On {
    /// Run the queries on a Ballista cluster, whose scheduler and executors reach the folder under the same path:
    /// ballista://HOST:50050. Without this option, queries run in this process.
    #[arg(long, value_name = "URL")]
    engine: Option<Scheduler>,
}

impl On {
    /// The cluster, if the queries run on one, and how many seconds it has for the answer to each.
    fn scheduler(&self, timeout: Option<u64>) -> Option<Scheduler> {
        let scheduler = self.engine.clone()?;
        Some(match timeout {
            Some(seconds) => scheduler.with_timeout(Duration::from_secs(seconds)),
            None => scheduler,
        })
    }

    /// The tables of a folder or of a URL, where this engine can read them.
    fn tables(&self, place: &Path, run: Option<&str>) -> Result<Tables, Error> {
        if self.engine.is_some() {
            only_folders("`--engine`", place)?;
        }
        Tables::at(place, run)
    }
}

#[derive(Args)]
struct Perfetto {
    #[command(flatten)]
    of: Of,
    /// The step, or the first and the last step: 400 or 400-402.
    #[arg(long, value_name = "N")]
    step: Window,
    /// Only these ranks, such as 0-7,16.
    #[arg(long, value_name = "LIST")]
    ranks: Option<Ranks>,
    /// The folder of the traces (`.pftrace`, also `.gz` and `.zst`); without it, FOLDER and the folder that it is in.
    /// For a rank without a trace, one is made from its tables.
    #[arg(long, value_name = "FOLDER")]
    traces: Option<PathBuf>,
    /// The archive; without it, `step-N.tar`.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args)]
struct Generate {
    /// The folder.
    folder: PathBuf,
    /// The number of ranks.
    #[arg(long, default_value_t = 1000)]
    ranks: u32,
    /// The number of steps, of a second each.
    #[arg(long, default_value_t = 600)]
    steps: u32,
    /// The number of hosts, which divides the ranks.
    #[arg(long, default_value_t = 125)]
    hosts: u32,
    /// The number of stages of a pipeline, which divides the hosts. Each stage works a tenth longer than the one before
    /// it.
    #[arg(long, default_value_t = 1)]
    pipeline: u32,
    /// The seed of the noise.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep one in this many of the small collectives.
    #[arg(long, default_value_t = 1)]
    sampling: u64,
    /// Ranks that share a file, as after `compact`; a real rank has one of its own.
    #[arg(long, default_value_t = 1)]
    ranks_per_file: u32,
    /// The id of the run.
    #[arg(long, default_value = "generated")]
    run: String,
    /// A rank that is late in its input: RANK:MILLISECONDS:FROM-TO.
    #[arg(long, value_parser = late)]
    late: Vec<Late>,
    /// A rank whose device is slow: RANK:PERCENT:FROM.
    #[arg(long, value_parser = slow)]
    slow: Vec<Slow>,
}

fn late(text: &str) -> Result<Late, String> {
    let parsed = || {
        let mut parts = text.split(':');
        let (rank, ms, steps) = (parts.next()?, parts.next()?, parts.next()?);
        let (from, to) = steps.split_once('-').filter(|_| parts.next().is_none())?;
        let ns = i64::from(ms.parse::<u32>().ok()?) * 1_000_000;
        Some(Late { rank: rank.parse().ok()?, stage: Stage::Load, ns, from: from.parse().ok()?, to: to.parse().ok()? })
    };
    parsed().ok_or_else(|| "write RANK:MILLISECONDS:FROM-TO, such as 42:100:300-600".to_owned())
}

fn slow(text: &str) -> Result<Slow, String> {
    let parsed = || {
        let mut parts = text.split(':');
        let (rank, percent, from) = (parts.next()?, parts.next()?, parts.next().filter(|_| parts.next().is_none())?);
        Some(Slow { rank: rank.parse().ok()?, percent: percent.parse().ok()?, from: from.parse().ok()? })
    };
    parsed().ok_or_else(|| "write RANK:PERCENT:FROM, such as 42:5:300".to_owned())
}

/// Runs the command.
pub fn main() -> ExitCode {
    quiet();
    match run(output::parse()) {
        Ok(code) => code,
        Err(error) => {
            complain(error);
            ExitCode::from(1)
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Error> {
    match cli.what {
        What::Report { of, on, timeout, exit_code, json, output } => {
            let options = options(&of)?;
            let tables = on.tables(&of.folder, of.run.as_deref())?;
            let engine = Engine::open_on(on.scheduler(timeout), tables.path(), of.run.as_deref())?;
            let mut report = busy("judging", || Report::of(&engine, options))?;
            if let Some(path) = output {
                report = busy("writing the page", || report.with_heat_map(&engine))?;
                replace_file(&path, report.to_html()?.as_bytes())?;
            }
            print(&if json { to_json(&report)? } else { report.to_text() });
            if exit_code {
                return Ok(status(report.names_somebody(), report.is_judged));
            }
        }
        What::Clocks { of, json, write } => {
            if write {
                only_folders("`clocks --write`", &of.folder)?;
            }
            let tables = Tables::at(&of.folder, of.run.as_deref())?;
            let engine = Engine::open(tables.path(), of.run.as_deref())?;
            let options = options(&of)?;
            let found = busy("comparing clocks", || clocks(&engine, options))?;
            warn(&engine.folder().warnings());
            if write {
                print(&format!("{}\n", printable(&clocks::write(&engine)?.display().to_string())));
            } else if json {
                print(&to_json(&found)?);
            } else {
                let hosts = engine.query("hosts", "SELECT DISTINCT host FROM windows ORDER BY host")?.texts("host")?;
                match (found.clocks.iter().filter(|clock| clock.meetings > 0).count(), &hosts[..]) {
                    (0, [host]) => print(&format!(
                        "all ranks ran on one host, {}, and share its clock: there are no clocks to compare\n",
                        printable(host)
                    )),
                    (0, _) => print(&format!(
                        "nothing compares the clocks of {} hosts: no collective that was kept has ranks of two hosts\n",
                        hosts.len()
                    )),
                    _ => print(&found.to_text()?),
                }
            }
        }
        What::Hang { folder, run, between, json } => {
            only_folders("`hang`", &folder)?;
            let run = run.as_deref();
            let hang = match between {
                0 => Hang::new(&folder, run)?,
                seconds => Hang::watched(&folder, run, Duration::from_secs(seconds))?,
            };
            print(&if json { to_json(&hang)? } else { hang.to_text() });
            return Ok(status(hang.is_one(), hang.is_known()));
        }
        What::Compact { folder, run } => {
            only_folders("`compact`", &folder)?;
            let done = busy("merging files", || compact(&folder, run.as_deref()))?;
            let Compacted { removed, written, rows, damaged, warnings } = done;
            warn(&warnings);
            print(&format!("{removed} files became {written}, with {rows} rows; {damaged} are damaged and remain\n"));
        }
        What::Query(query) => query.answer()?,
        What::Perfetto(asked) => {
            let Perfetto { of, step, ranks, traces, output } = asked;
            only_folders("`perfetto`", &of.folder)?;
            let steps = if step.from == step.to { step.from.to_string() } else { format!("{}-{}", step.from, step.to) };
            let output = output.unwrap_or_else(|| format!("step-{steps}.tar").into());
            let options = options(&of)?;
            let plan = Plan { folder: of.folder, run: of.run, window: step, ranks, traces, output, options };
            print(&merge(&plan)?.to_text(&plan.output));
        }
        What::Shell(shell) => shell.write(Cli::command()).map_err(|error| Error::Asked(error.to_string()))?,
        What::Generate(what) => {
            let plan = generate::Plan {
                run: what.run,
                ranks: what.ranks,
                steps: what.steps,
                hosts: what.hosts,
                pipeline: what.pipeline,
                seed: what.seed,
                sampling: what.sampling,
                ranks_per_file: what.ranks_per_file,
                late: what.late,
                slow: what.slow,
                ..generate::Plan::default()
            };
            only_folders("`generate`", &what.folder)?;
            busy("generating", || generate::generate(&what.folder, &plan))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the exit status of a verdict: 3 if something is found, 0 if nothing is, and 1 if it is not known whether something is.
fn status(is_found: bool, is_known: bool) -> ExitCode {
    match (is_found, is_known) {
        (true, _) => ExitCode::from(3),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    }
}

fn options(of: &Of) -> Result<Options, Error> {
    if of.max_drift_ppm.is_finite() && of.max_drift_ppm >= 0.0 {
        return Ok(Options { max_drift_ppm: of.max_drift_ppm });
    }
    Err(Error::Asked(format!(
        "`--max-drift-ppm {}` is not a valid drift; NTP slews a clock by up to 500",
        of.max_drift_ppm
    )))
}

/// Prints warnings about the parts that an answer lacks.
fn warn(warnings: &[String]) {
    for warning in warnings {
        complain(format!("warning: {warning}"));
    }
}
