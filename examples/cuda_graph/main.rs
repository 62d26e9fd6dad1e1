//! A transformer block, captured once as a CUDA graph and replayed: what a profiler alone knows of the replays, and what it knows
//! with the marks.
//!
//! `cargo run --release --example cuda_graph [-- --replays N]`
//!
//! The block is that of PyTorch's tutorial on graph annotations: 4 sequences of 256 tokens, 1,024 numbers a token, 8 heads. The
//! library `transformer` computes it with cuBLAS and kernels of its own, and its marks know nothing of graphs. With two GPUs two
//! ranks share it, and their all-reduces are captured, too.
//!
//! The program compares the replays with the block as it runs without a graph, bit for bit, and with a reference on the host; and
//! each kernel of each replay, as CUPTI reports it, with the node that it should be. `block` is what a rank does, `launch` starts
//! ranks, `seen` puts kernels and zones together, `table` shows them, `options` is the command line.

mod block;
mod launch;
mod options;
mod seen;
mod table;

use std::process::ExitCode;

use options::{Asked, USAGE};

fn main() -> ExitCode {
    ExitCode::from(program(std::env::args().skip(1)))
}

/// Runs it, and returns its exit code: 0 also where there is nothing to run it on, 1 if it failed, 2 for wrong arguments.
fn program(arguments: impl Iterator<Item = String>) -> u8 {
    let options = match options::asked_for(arguments) {
        Ok(Asked::Run(options)) => options,
        Ok(Asked::Help) => {
            println!("{USAGE}");
            return 0;
        }
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            return 2;
        }
    };
    let gpus = match launch::gpus() {
        Ok(gpus) => gpus,
        Err(missing) => {
            println!("nothing to run: {missing}");
            return 0;
        }
    };
    match launch::run(&options, gpus) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("error: {error}");
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::{env, fs};

    use super::{USAGE, program};

    const TEST: &str = "tests::without_a_driver_every_option_is_taken_and_the_program_says_what_is_missing";

    /// Says to the child that it is one.
    const CHILD: &str = "CUDA_GRAPH_TEST_CHILD";

    /// Runs again in a child process that finds no loadable driver, also on a machine that has one.
    #[test]
    fn without_a_driver_every_option_is_taken_and_the_program_says_what_is_missing() {
        let folder = env::temp_dir().join(format!("cuda-graph-no-driver-{}", std::process::id()));
        if env::var_os(CHILD).is_some() {
            return every_option();
        }
        fs::create_dir_all(&folder).unwrap();
        for name in ["libcuda.so", "libcuda.so.1"] {
            fs::write(folder.join(name), "this is no library").unwrap();
        }
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(CHILD, "1")
            .env("LD_LIBRARY_PATH", &folder)
            .current_dir(&folder)
            .output()
            .unwrap();
        let left = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        let (said, errors) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        assert!(child.status.success() && said.contains("1 passed"), "{said}{errors}");
        let missing = "nothing to run: this machine has no CUDA driver (`libcuda.so.1`). Run it where `nvidia-smi` works, or see zones \
                       without a GPU:\ncargo run --release --example quickstart\n";
        assert_eq!((said.matches(missing).count(), said.matches(USAGE).count()), (8, 2), "{said}");
        assert_eq!(errors.matches("error: ").count(), 2, "{errors}");
        assert_eq!(left, 2, "a run on nothing writes nothing");
    }

    fn every_option() {
        let run = |line: &str| program(line.split_whitespace().map(str::to_owned));
        for line in
            ["", "--replays 3", "--ranks 1", "--ranks 2", "--trace a.pftrace", "--annotations a.json", "--limit 9"]
        {
            assert_eq!(run(line), 0, "{line}");
        }
        assert_eq!(run("--replays 3 --ranks 2 --trace a.pftrace --annotations a.json --limit 9"), 0);
        assert_eq!((run("--help"), run("-h")), (0, 0));
        assert_eq!((run("--ranks 3"), run("--host")), (2, 2));
        // No option is without a line above.
        let options: Vec<_> =
            USAGE.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split(' ').next()).collect();
        assert_eq!(options, ["replays", "ranks", "trace", "annotations", "limit"]);
    }
}
