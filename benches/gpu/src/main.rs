//! `warpline-gpu-bench`: what warpline's zones on CUDA streams cost and how exact they are, beside the raw driver calls.
//!
//! Each subcommand measures one thing and prints one table. Rivals take turns, round by round, in one process, and ratios
//! are medians over the rounds. It needs a GPU and its driver; CUPTI and cuBLAS only where a subcommand says so.

mod calls;
mod clock;
mod collectives;
mod collector;
mod cupti;
mod cupti_clock;
mod decode;
mod figures;
mod first;
mod graph;
mod hidden;
mod kernels;
mod length;
mod live;
mod mirror;
mod options;
mod overlap;
mod position;
mod rest;
mod skew;
mod soak;
mod stamps;
mod steps;
mod timeline;
mod zone;

use std::process::ExitCode;

use options::Options;

warpline::namespace!("gpu_bench", "zones that the GPU benches make");

#[global_allocator]
static ALLOCATOR: warpline_benches::Counting = warpline_benches::Counting;

const USAGE: &str = "\
usage: warpline-gpu-bench BENCH… [--NAME=VALUE…]
       warpline-gpu-bench all [--NAME=VALUE…]

  calls       ns of single calls: those of a zone, and those that read events back
  zone        CPU time of a zone, eager and lazy, beside two cuEventRecord calls; 1 and 8 threads
                --rounds=40; --threads=1 for one of the two; --core=3 pins the launching thread
  mirror      a marked function with no session: with no NVTX tool, and with CUPTI attached
                --rounds=40
  collector   CPU time of the collector per zone, beside a reader that queries each event
                --zones=100000
  length      lengths beside CUPTI's kernel times; what a lazy end promises and whether it holds
                --zones=400
  kernels     what recording kernels costs a launch, beside bare CUPTI activity; zones beside the kernels in them
                --rounds=20 --zones=400
  position    positions beside the device's %globaltimer, on two streams
                --seconds=60
  first       the report of a short program with the default settings beside eager ends, each run a process of its own
                --rounds=7
  rest        positions and lengths of zones that end a rest; the longest rest:
                --seconds=60 (up to 600)
  cupti-clock times of kernels by CUPTI beside the device's %globaltimer, for minutes and after rests
                --seconds=120
  overlap     streams beside each other: no session, default, eager; 1, 8 and 32 connections
                --rounds=7
  hidden      share of the copies (and, with two GPUs, of the all-reduces) that hides behind kernels, on and off
                --rounds=9
  nccl        collectives of NCCL on two GPUs: bus bandwidth as records say it, beside plain events; 1 MiB to 1 GiB
                --rounds=7
  skew        how far apart the ends of one collective are on its GPUs, by kind and size; whether a rank leaves before the last has come
                --zones=300
  steps       a transformer block with cuBLAS, on and off, with a budget and without
                --rounds=12
  decode      a loop like the decoding of a language model, and the small block: every way of recording, and as a graph
                --rounds=7
  live        the same block never traced, after a hundred times of stop and start, and while a session is on
                --rounds=8
  graph       replays of a labelled graph beside an unlabelled one; capture and instantiation with 64 nested zones;
              stamps beside event-record nodes, and zones by stamps beside CUPTI's
                --rounds=60
  soak        many zones: memory, coverage, the account; then sessions started and stopped
                --zones=10000000 --cycles=100
  timeline    a signal and a wait beside the driver's calls, a host thread's wake-up, queues under load
                --rounds=40";

type Bench = fn(&Options) -> gpu::Result;

const BENCHES: [(&str, Bench); 20] = [
    ("calls", calls::run),
    ("zone", zone::run),
    ("mirror", mirror::run),
    ("collector", collector::run),
    ("length", length::run),
    ("kernels", kernels::run),
    ("position", position::run),
    ("first", first::run),
    ("rest", rest::run),
    ("cupti-clock", cupti_clock::run),
    ("overlap", overlap::run),
    ("hidden", hidden::run),
    ("nccl", collectives::run),
    ("skew", skew::run),
    ("steps", steps::run),
    ("decode", decode::run),
    ("live", live::run),
    ("graph", graph::run),
    ("soak", soak::run),
    ("timeline", timeline::run),
];

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => return refuse(&error),
    };
    if options.wants_help {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if options.benches.is_empty() {
        return refuse("say which bench");
    }
    let is_known = |name: &&String| *name == "all" || BENCHES.iter().any(|(known, _)| known == name);
    if let Some(unknown) = options.benches.iter().find(|name| !is_known(name)) {
        return refuse(&format!("there is no bench `{unknown}`"));
    }
    if options.connections.is_none() && options.dim.is_none() && options.program.is_none() {
        match gpu::describe() {
            Ok(device) => println!("on {device}"),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let mut failed = 0;
    for (name, bench) in BENCHES {
        if options.benches.iter().any(|wanted| wanted == name || wanted == "all")
            && let Err(error) = bench(&options)
        {
            println!("\n{name} FAILED: {error}");
            failed += 1;
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn refuse(error: &str) -> ExitCode {
    eprintln!("error: {error}\n\n{USAGE}");
    ExitCode::from(2)
}
