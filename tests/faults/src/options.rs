//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::case::Fault;

pub const USAGE: &str = "\
usage: faults [--ranks N] [--host] [--repeat N] [--only FAULT]… [OPTIONS]

  --ranks N      how many ranks (default: one for each GPU; 2 on in-process streams)
  --host         in-process streams, also where there are GPUs
  --repeat N     cases of each fault, and clean ones (default 20)
  --only FAULT   this fault alone; may stand several times: clean, late, slow-gpu, slow-stage, restart, hang, mismatch, cycle
  --judge FILE   the command `warpline-ranks` (default: beside this program)
  --stragglers FILE  the command `warpline`, which must say the same of the traces (default: beside this program)
  --tables DIR   where the ranks write (default: a folder in the system's place for temporary files, which is removed)
  --markdown FILE  write the table there as well
  --limit N      seconds until a case is given up (default 30)";

pub enum Asked {
    Help,
    Job(Options),
    /// One rank, which the driver at this address leads.
    Rank(String),
}

pub struct Options {
    pub ranks: Option<u32>,
    pub host: bool,
    pub repeat: u32,
    pub only: Vec<Fault>,
    pub judge: Option<PathBuf>,
    pub stragglers: Option<PathBuf>,
    pub tables: Option<PathBuf>,
    pub markdown: Option<PathBuf>,
    pub limit: Duration,
}

pub fn parse(arguments: &[String]) -> Result<Asked, String> {
    let mut options = Options {
        ranks: None,
        host: false,
        repeat: 20,
        only: Vec::new(),
        judge: None,
        stragglers: None,
        tables: None,
        markdown: None,
        limit: Duration::from_secs(30),
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("`{argument}` needs a value"));
        match argument.as_str() {
            "-h" | "--help" => return Ok(Asked::Help),
            "--rank-of" => return Ok(Asked::Rank(value()?.clone())),
            "--ranks" => options.ranks = Some(number(argument, value()?, 2)?),
            "--host" => options.host = true,
            "--repeat" => options.repeat = number(argument, value()?, 1)?,
            "--only" => {
                let name = value()?;
                let fault = Fault::ALL.into_iter().find(|fault| fault.name() == name);
                options.only.push(fault.ok_or_else(|| format!("there is no fault `{name}`"))?);
            }
            "--judge" => options.judge = Some(value()?.into()),
            "--stragglers" => options.stragglers = Some(value()?.into()),
            "--tables" => options.tables = Some(value()?.into()),
            "--markdown" => options.markdown = Some(value()?.into()),
            "--limit" => options.limit = Duration::from_secs(u64::from(number(argument, value()?, 1)?)),
            _ => return Err(format!("unknown argument `{argument}`")),
        }
    }
    Ok(Asked::Job(options))
}

fn number(name: &str, value: &str, least: u32) -> Result<u32, String> {
    let number = value.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| format!("`{name} {value}` is not a whole number from {least}"))
}
