//! The command line.

use std::str::FromStr;
use std::time::Duration;

pub const USAGE: &str = "\
usage: nccl_all_reduce [--steps N] [--ranks N | --processes N] [OPTIONS]

  --steps N        how many steps to run, from 1 (default 24)
  --ranks N        ranks that are threads of this process (default: one a GPU; 2 on in-process streams)
  --processes N    ranks that are processes: it starts itself N times, with RANK and WORLD_SIZE set
  --host           in-process streams, also where GPUs are
  --trace FILE     where the trace goes; `{rank}` in it is the rank's number, and `all` where one process has all ranks
                   (default: rank{rank}.pftrace)
  --rendezvous FILE  ranks that are processes meet by this file, not at MASTER_ADDR:MASTER_PORT,
                   where torchrun listens itself
  --late-rank R    this rank comes late to one collective, so that `warpline stragglers` has somebody to name
  --late-ms N      so late (default 10)
  --late-at N      to the collective of this number in the group (default 9: an all-reduce)
  --limit N        seconds until it gives up (default 120)";

pub enum Asked {
    Run(Options),
    Help,
}

#[derive(Clone)]
pub struct Options {
    pub steps: usize,
    /// Threads; none where nothing is said.
    pub ranks: Option<u32>,
    pub processes: Option<u32>,
    pub host: bool,
    pub trace: String,
    pub rendezvous: Option<String>,
    pub late: Option<Late>,
    pub limit: Duration,
}

/// Which rank is late, to what, and by how much.
#[derive(Clone, Copy)]
pub struct Late {
    pub rank: u32,
    pub at: u64,
    pub by: Duration,
}

pub fn asked_for(arguments: &[String]) -> Result<Asked, String> {
    let (mut late_rank, mut late_ms, mut late_at) = (None, None, None);
    let mut options = Options {
        steps: 24,
        ranks: None,
        processes: None,
        host: false,
        trace: "rank{rank}.pftrace".to_owned(),
        rendezvous: None,
        late: None,
        limit: Duration::from_secs(120),
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("`{argument}` needs a value"));
        match argument.as_str() {
            "-h" | "--help" => return Ok(Asked::Help),
            "--host" => options.host = true,
            "--steps" => options.steps = from(1, argument, value()?)?,
            "--ranks" => options.ranks = Some(from(1, argument, value()?)?),
            "--processes" => options.processes = Some(from(1, argument, value()?)?),
            "--trace" => options.trace = value()?.clone(),
            "--rendezvous" => options.rendezvous = Some(value()?.clone()),
            "--late-rank" => late_rank = Some(from(0, argument, value()?)?),
            "--late-ms" => late_ms = Some(from(0, argument, value()?)?),
            "--late-at" => late_at = Some(from(0, argument, value()?)?),
            "--limit" => options.limit = Duration::from_secs(from(1, argument, value()?)?),
            _ => return Err(format!("unknown argument `{argument}`")),
        }
    }
    if options.ranks.is_some() && options.processes.is_some() {
        return Err("`--ranks` are threads and `--processes` are processes: say one of them".to_owned());
    }
    if late_rank.is_none() && (late_ms.is_some() || late_at.is_some()) {
        return Err("`--late-ms` and `--late-at` need a `--late-rank`".to_owned());
    }
    options.late =
        late_rank.map(|rank| Late { rank, at: late_at.unwrap_or(9), by: Duration::from_millis(late_ms.unwrap_or(10)) });
    Ok(Asked::Run(options))
}

fn from<T: FromStr + PartialOrd + From<u8>>(least: u8, name: &str, value: &str) -> Result<T, String> {
    let right = value.parse().ok().filter(|number| *number >= T::from(least));
    right.ok_or_else(|| format!("`{name} {value}` is not a whole number from {least}"))
}
