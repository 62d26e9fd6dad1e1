//! `cargo xtask`: the project's own commands. Developers and CI call it; no published crate depends on it.

mod api;
mod attack;
mod cluster;
mod compiler;
mod cost;
mod cycles;
mod deny;
mod dist;
mod docs;
mod features;
mod gate;
mod gpu;
mod markdown;
mod miri;
mod msrv;
mod needs;
mod package;
mod pages;
mod picture;
mod prometheus;
mod promises;
mod query;
mod quickstart;
mod ranks;
mod readme;
mod sanitize;
mod shell;
mod size;
mod soak;
mod steps;
mod test;
mod tokens;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask test [--all] [--list | --only STEP | --from STEP]
       cargo xtask attack [--minutes N] [--only NAME] [--seed N]
       cargo xtask api [--bless]
       cargo xtask cluster [--only ENGINE] [--bin FOLDER]
       cargo xtask cost
       cargo xtask cycles [CRATE…]
       cargo xtask dist
       cargo xtask gate TRACE [--expect FILE | --killed | --pieces | --foreign]
       cargo xtask gate --self-test [PART]
       cargo xtask gpu [FOLDER]
       cargo xtask picture TRACE OUT.svg [--from MS --length MS]
       cargo xtask picture TRACE OUT.png [--size WIDTHxHEIGHT] [--from MS --length MS]
       cargo xtask picture PAGE.html[#FRAGMENT] OUT.png [--size WIDTHxHEIGHT] [--dark]
       cargo xtask size [--bless [REASON]]
       cargo xtask soak [--minutes N [--keep FOLDER]]

  test          what each change has to pass, step by step; the first failure ends it
  --all         everything that CI runs: also the steps that take long
  --list        the steps, in order, and which of them need `--all`
  --only STEP   this step alone, with or without `--all`
  --from STEP   this step and those after it

  attack        runs the attacks of `attack/`, which CI runs for seconds, for N minutes in all (5), and prints a table; inputs that
                failed are kept in target/attack
  --only NAME   this attack alone
  --seed N      with this seed, which a failure names

  api           compares the public API of `warpline` with runtime/public-api.txt
  --bless       writes that list anew

  cluster       the queries of `ranks/sql/` on DuckDB, ClickHouse, where Java is Spark, tables in an object store, and a Ballista cluster of which
                an executor is killed; it installs them into target/cluster; fails if an answer is not that of `warpline-ranks query`
  --only ENGINE duckdb, clickhouse, spark, s3 or ballista alone
  --bin FOLDER  with `ballista-scheduler`, `ballista-executor` and `warpline-ranks` (feature `ballista`) of this folder, in place of building them

  cost          what a dependent pays: crates, time and size of small programs, each built from nothing, with programs of peers

  cycles        the cycles between the modules of the crates in these folders, such as `runtime/core` (those that CI checks)

  dist          the command `warpline` for download: a stripped program for this system in target/dist, with its SHA-256 and the licenses; fails if
                it is too large

  gate          refuses a trace of which Perfetto's own reader would lose something
  --expect FILE also compares rows: an array of {\"what\", \"sql\": [lines], \"rows\"}
  --killed      the process was killed: the last packet may be cut short
  --pieces      a rotated trace or one of a flight recorder: it is a part of a session
  --foreign     `warpline annotate` wrote it: there was no session, and so no account
  --self-test   checks the sinks' traces row by row, and that broken traces are refused; PART is one part of it, such as `pieces`

  gpu           packs the GPU tests, the GPU benches and the examples for a host with an NVIDIA driver and no Rust;
                there, `bash FOLDER/run.sh` runs them (default folder: .gpu-bundle)

  picture       draws a part of a trace as the UI shows it, or takes a picture of the UI or of a page in a headless browser
  size          lines, conditions and public names of each crate, and the crates that a dependent of `warpline` compiles; fails if one is more
                than in xtask/size.txt
  --bless       writes that table anew; REASON says why a crate grew

  soak          eight ranks that write their tables for N minutes (30) while one is killed and started again and clocks are stepped;
                fails if `warpline-ranks` blames a rank for what did not happen
  --keep FOLDER keeps the tables";

fn main() -> ExitCode {
    if let Some(code) = compiler::run() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["test", options @ ..] => test::run(options),
        ["attack", options @ ..] => attack::run(options),
        ["api", options @ ..] => api::run(options),
        ["cluster", options @ ..] => cluster::run(options),
        ["cost", options @ ..] => cost::run(options),
        ["cycles", options @ ..] => cycles::run(options),
        ["dist", options @ ..] => dist::run(options),
        ["gate", options @ ..] => gate::run(options),
        ["gpu", options @ ..] => gpu::run(options),
        ["picture", options @ ..] => picture::run(options),
        ["size", options @ ..] => size::run(options),
        ["soak", options @ ..] => soak::run(options),
        ["help" | "-h" | "--help"] => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        [] => Err("a command is missing".to_owned()),
        [other, ..] => Err(format!("unknown command `{other}`")),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}\n\n{USAGE}");
        ExitCode::from(2)
    })
}
