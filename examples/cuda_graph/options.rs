//! The command line.

use std::time::Duration;

pub const USAGE: &str = "\
usage: cuda_graph [--replays N] [--ranks N] [OPTIONS]

  --replays N         how often to launch the graph, from 1 to 10000 (default 5)
  --ranks N           1, or 2 with a GPU each (default: 2 where there are two GPUs and NCCL)
  --trace FILE        where the trace goes (default: cuda_graph.pftrace)
  --annotations FILE  write the graph's zones as JSON, too: `warpline annotate` joins them with traces of other tools
  --limit N           seconds until it gives up (default 120)";

/// All their kernels must find room.
const MOST_REPLAYS: u32 = 10_000;

pub enum Asked {
    Run(Options),
    Help,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    pub replays: usize,
    /// None where nothing is said.
    pub ranks: Option<u32>,
    pub trace: String,
    pub annotations: Option<String>,
    pub limit: Duration,
}

pub fn asked_for(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut options = Options {
        replays: 5,
        ranks: None,
        trace: "cuda_graph.pftrace".to_owned(),
        annotations: None,
        limit: Duration::from_secs(120),
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("`{argument}` needs a value"));
        match argument.as_str() {
            "-h" | "--help" => return Ok(Asked::Help),
            "--replays" => {
                let replays = from_one(&argument, &value()?)?;
                if replays > MOST_REPLAYS {
                    return Err(format!(
                        "`--replays {replays}`: each kernel is kept to be compared; take at most {MOST_REPLAYS}"
                    ));
                }
                options.replays = replays as usize;
            }
            "--ranks" => {
                let ranks = from_one(&argument, &value()?)?;
                if ranks > 2 {
                    return Err(format!("`--ranks {ranks}`: the block runs on one GPU or on two; take 1 or 2"));
                }
                options.ranks = Some(ranks);
            }
            "--trace" => options.trace = value()?,
            "--annotations" => options.annotations = Some(value()?),
            "--limit" => options.limit = Duration::from_secs(from_one(&argument, &value()?)?.into()),
            _ => return Err(format!("unknown argument `{argument}`")),
        }
    }
    Ok(Asked::Run(options))
}

fn from_one(name: &str, value: &str) -> Result<u32, String> {
    let right = value.parse().ok().filter(|number| *number > 0);
    right.ok_or_else(|| format!("`{name} {value}` is not a whole number from 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        match asked_for(line.split_whitespace().map(str::to_owned))? {
            Asked::Run(options) => Ok(options),
            Asked::Help => Err("help".to_owned()),
        }
    }

    #[test]
    fn options_have_values_and_defaults() {
        let options = parse("").expect("nothing is needed");
        assert_eq!((options.replays, options.ranks, options.trace.as_str()), (5, None, "cuda_graph.pftrace"));
        let options = parse("--ranks 2 --replays 7 --trace a --annotations b --limit 9").expect("all of them");
        let said = (options.replays, options.ranks, options.trace.as_str(), options.annotations.as_deref());
        assert_eq!(said, (7, Some(2), "a", Some("b")));
        assert_eq!(options.limit, Duration::from_secs(9));
        assert_eq!(parse("--help"), Err("help".to_owned()));
    }

    #[test]
    fn what_is_no_option_is_named() {
        for (line, because) in [
            ("--replays", "`--replays` needs a value"),
            ("--replays 0", "`--replays 0` is not a whole number from 1"),
            ("--replays 10001", "`--replays 10001`: each kernel is kept to be compared; take at most 10000"),
            ("--ranks 3", "`--ranks 3`: the block runs on one GPU or on two; take 1 or 2"),
            ("--limit soon", "`--limit soon` is not a whole number from 1"),
            ("--steps 4", "unknown argument `--steps`"),
        ] {
            assert_eq!(parse(line), Err(because.to_owned()));
        }
    }
}
