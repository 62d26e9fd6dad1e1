//! A job of ranks into which faults are injected, one at a time, and what `warpline-ranks` then says.
//!
//! ```text
//! faults --ranks 2                    ranks on GPUs, one each
//! faults --host --repeat 1            ranks on in-process streams: no GPU is needed
//! ```
//!
//! The program starts one process for each rank. The ranks train on synthetic data: input, forward, backward, all-reduces of gradients,
//! optimizer. Each case is a session of its own with `ranks=FOLDER`. In most cases one rank is late, slow, hangs or calls something else, and
//! the verdict of `warpline-ranks report` or `hang` must name that rank, the number of the collective and the line in the source. In clean
//! cases it must name nobody. Each rank also writes a Perfetto trace, of which `warpline stragglers` must say the same.
//!
//! `case` says which cases there are, `driver` runs them, `rank` is one rank, on the streams and communicators of `device`, `hub` connects
//! in-process ranks, and `judge` compares the verdicts with the cases.

mod case;
mod catalog;
mod device;
mod driver;
mod hub;
mod judge;
mod line;
mod options;
mod rank;
mod table;

use std::process::ExitCode;

use options::{Asked, USAGE};

warpline::namespace!("faults", "a job of ranks with a fault in one of them");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match options::parse(&arguments) {
        Ok(Asked::Help) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(Asked::Rank(address)) => rank::run(&address).map(|()| true),
        Ok(Asked::Job(options)) => driver::run(&options),
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
