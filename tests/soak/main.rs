//! `soak`: eight ranks on in-process streams write `ranks=DIR` for minutes, on two hosts whose clocks differ. Meanwhile a rank is late, a
//! rank is killed and started again, and clocks are stepped. The program asks `warpline-ranks` again and again, and compares what it says with
//! what happened. `cargo xtask soak` builds and calls it.
//!
//! `job` starts the ranks and makes things happen, `rank` is a rank, `hub` is where collectives meet and where the truth is recorded, `judge`
//! compares, and `clock` is the clock of a host.

#[cfg(target_os = "linux")]
mod clock;
#[cfg(target_os = "linux")]
mod hub;
#[cfg(target_os = "linux")]
mod job;
#[cfg(target_os = "linux")]
mod judge;
#[cfg(target_os = "linux")]
mod rank;

#[cfg(target_os = "linux")]
warpline::namespace!("soak", "a job that runs for a long time");

#[cfg(target_os = "linux")]
const USAGE: &str = "usage: soak --minutes N --reader PATH-OF-WARPLINE-RANKS [--keep FOLDER]";

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use std::process::ExitCode;

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["rank"] => return rank::run(),
        ["--minutes", minutes, "--reader", reader, rest @ ..] => match (minutes.parse::<f64>(), rest) {
            (Ok(minutes), [] | ["--keep", _]) if (0.5..=10_000.0).contains(&minutes) => {
                job::run(minutes, reader.as_ref(), rest.get(1).map(std::path::Path::new))
            }
            _ => Err(format!("`--minutes {minutes}` is not a number from 0.5 to 10000\n{USAGE}")),
        },
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("error: the soak is for Linux");
    std::process::ExitCode::from(2)
}
