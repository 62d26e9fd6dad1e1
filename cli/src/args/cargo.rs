//! The commands of `cargo warpline`, with their arguments and their help.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};

use super::Show;

/// The command that Cargo runs: `cargo warpline …` runs `cargo-warpline warpline …`.
#[derive(Parser)]
#[command(name = "cargo", bin_name = "cargo", version)]
pub(crate) enum Cargo {
    /// Builds, then shows or checks the GPU ranges that warpline's marks leave in the binary
    #[command(version, arg_required_else_help = true)]
    #[command(
        after_help = "Exit status: 0 done, 1 faults found (`check`, `doctor`), 2 wrong usage, failed build, no catalog."
    )]
    Warpline {
        #[command(subcommand)]
        command: CargoCommand,
    },
}

impl Cargo {
    /// Parses the arguments of the process. An invalid argument ends the process.
    pub(crate) fn from_process() -> Cargo {
        super::parse(Cargo::command())
    }
}

#[derive(Subcommand)]
pub(crate) enum CargoCommand {
    /// Build, then show the ranges in the binary
    ///
    /// Without a target, the package's binary, or its library if it has none. A library shows only its own ranges; the ranges of its
    /// dependencies are in the binary that links them.
    Catalog {
        #[command(flatten)]
        build: Build,
        #[command(flatten)]
        show: Show,
    },
    /// Build, then check the ranges in the binaries: one line per fault
    ///
    /// Without a target, the package's binaries, or its library if it has none.
    Check {
        #[command(flatten)]
        build: Build,
        /// Also report each collective whose mark omits an option that describes it
        #[arg(long)]
        strict: bool,
    },
}

/// The target options of `cargo build`, which are passed on unchanged.
#[derive(Args, Default)]
pub(crate) struct Build {
    /// Build this package
    #[arg(short, long, value_name = "SPEC", help_heading = "Packages")]
    pub(crate) package: Vec<String>,
    /// Build all packages of the workspace
    #[arg(long, help_heading = "Packages")]
    pub(crate) workspace: bool,
    /// Inspect the library
    #[arg(long, help_heading = "Targets")]
    pub(crate) lib: bool,
    /// Inspect this binary
    #[arg(long, value_name = "NAME", help_heading = "Targets")]
    pub(crate) bin: Vec<String>,
    /// Inspect all binaries
    #[arg(long, help_heading = "Targets")]
    pub(crate) bins: bool,
    /// Inspect this example
    #[arg(long, value_name = "NAME", help_heading = "Targets")]
    pub(crate) example: Vec<String>,
    /// Inspect all examples
    #[arg(long, help_heading = "Targets")]
    pub(crate) examples: bool,
    /// Inspect this integration test
    #[arg(long, value_name = "NAME", help_heading = "Targets")]
    pub(crate) test: Vec<String>,
    /// Build with the release profile
    #[arg(short, long, help_heading = "Build")]
    pub(crate) release: bool,
    /// Build with this profile
    #[arg(long, value_name = "NAME", help_heading = "Build")]
    pub(crate) profile: Option<String>,
    /// Turn on these features
    #[arg(short = 'F', long, value_name = "FEATURES", help_heading = "Build")]
    pub(crate) features: Vec<String>,
    /// Turn on all features
    #[arg(long, help_heading = "Build")]
    pub(crate) all_features: bool,
    /// Do not activate the default features
    #[arg(long, help_heading = "Build")]
    pub(crate) no_default_features: bool,
    /// Build for this target triple
    #[arg(long, value_name = "TRIPLE", help_heading = "Build")]
    pub(crate) target: Option<String>,
    /// The directory for build output
    #[arg(long, value_name = "DIR", help_heading = "Build")]
    pub(crate) target_dir: Option<PathBuf>,
    /// The path of the package's Cargo.toml
    #[arg(long, value_name = "PATH", help_heading = "Build")]
    pub(crate) manifest_path: Option<PathBuf>,
    /// Do not change Cargo.lock
    #[arg(long, help_heading = "Build")]
    pub(crate) locked: bool,
    /// Do not use the network
    #[arg(long, help_heading = "Build")]
    pub(crate) offline: bool,
    /// Both `--locked` and `--offline`
    #[arg(long, help_heading = "Build")]
    pub(crate) frozen: bool,
}
