//! The commands of `warpline`, with their arguments and their help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use clap_complete::Shell;

use super::values::{
    ComparisonFormat, DoctorFormat, FindingsFormat, JoinBy, ReplyFormat, ReportFormat, Serving, Show, share, size, time,
};
use crate::doctor::Part;
use crate::report::Shown;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show the ranges in a binary, or in a trace
    ///
    /// Reads executables, shared libraries, object files and archives (`.rlib`, `.a`) in the formats ELF, Mach-O and
    /// PE, for any machine, including stripped ones; and traces that a session wrote for Perfetto or Chrome, optionally
    /// compressed with gzip or zstd, which list all ranges of their program. For a folder, it shows the ranges of all
    /// traces in it.
    Catalog {
        /// The binary, the trace, or a folder of traces
        #[arg(value_name = "FILE")]
        binary: PathBuf,
        #[command(flatten)]
        show: Show,
    },
    /// Check the ranges in binaries or traces: one line per fault
    ///
    /// Every name must be in its crate's namespace and be unique there, every range must have a description, and every
    /// namespace must belong to one crate. Two versions of one crate in one binary are not a fault.
    Check {
        /// The binaries, the traces, or folders of traces; traces may be compressed with gzip or zstd
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Also report each collective whose mark omits an option that describes it
        #[arg(long)]
        strict: bool,
    },
    /// Open traces in Perfetto's UI
    ///
    /// Serves the traces on 127.0.0.1, prints the address of the UI with them, and opens it in the browser. The browser
    /// reads them from this machine; nothing is uploaded. Several traces, such as those of the ranks of one host, open
    /// as one. The command ends when they have been read.
    Open {
        /// The traces, or folders of traces: Perfetto's format, or one file of Chrome JSON; compressed with gzip or
        /// zstd or not
        #[arg(required = true, value_name = "TRACE")]
        traces: Vec<PathBuf>,
        #[command(flatten)]
        serving: Serving,
    },
    /// Report the figures of a trace: ranges, steps, streams, collectives, kernels, waits and the critical path
    ///
    /// Reads Perfetto and Chrome traces of sessions, including recovered and annotated ones, and Chrome traces of
    /// PyTorch's profiler where their events have the same meaning; traces may be compressed with gzip or zstd. Several
    /// traces, including those in folders, have one report. It is the report that `WARPLINE=summary` prints at the end
    /// of a session.
    Report {
        /// The traces, or folders of traces
        #[arg(required = true, value_name = "TRACE")]
        traces: Vec<PathBuf>,
        /// The output format
        #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
        format: ReportFormat,
        /// Write to this file instead of standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Also write the report as a self-contained HTML page: tables, timeline of a step, time by call, histograms,
        /// critical path
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        #[command(flatten)]
        shown: Shown,
    },
    /// Compare the traces of two versions of a program: which ranges, steps, kernels and collectives became slower
    ///
    /// Compares the median and the 99th percentile of each, with an interval, and names a difference only where it is
    /// larger than the variation within and between runs explains. `warpline compare A B --fail-above 5%` compares two
    /// traces, or two folders of traces, each of which is a run; `--base A1 A2 --new B1 B2` names several. Exit status:
    /// 0 done, 1 something is slower by more than the limit, 2 an error.
    Compare {
        /// The trace, or the folder of traces, of the old version and of the new one
        #[arg(value_name = "TRACE", num_args = 2, required_unless_present_all = ["base", "new"], conflicts_with_all = ["base", "new"])]
        traces: Vec<PathBuf>,
        /// The runs of the old version
        #[arg(long, value_name = "TRACE", num_args = 1.., requires = "new")]
        base: Vec<PathBuf>,
        /// The runs of the new version
        #[arg(long, value_name = "TRACE", num_args = 1.., requires = "base")]
        new: Vec<PathBuf>,
        /// Exit with status 1 if something is slower by more than this, such as `5%`
        #[arg(long, value_name = "PERCENT", value_parser = share)]
        fail_above: Option<f64>,
        /// The seed of the random numbers: the same seed gives the same intervals
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u64,
        /// The output format
        #[arg(long, value_enum, default_value_t = ComparisonFormat::Table)]
        format: ComparisonFormat,
        /// Write to this file instead of standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Find the ranks that came late to collectives, from the Perfetto traces of several ranks
    ///
    /// The ranks of one host share a clock, and the rank that begins last is late. The clocks of several hosts are
    /// compared through the collectives themselves, and no rank is named within their uncertainty. Ranks are matched by
    /// process group and sequence number. The first line is the verdict. A trace that cannot be read is named, and the
    /// others are judged; the exit status is then 2.
    Stragglers {
        /// The traces of the ranks, or folders of them; they may be compressed with gzip or zstd
        #[arg(required = true, value_name = "TRACE")]
        traces: Vec<PathBuf>,
        /// The maximum number of lines of each table, of notes, and of warnings
        #[arg(long, value_name = "N", default_value_t = 20)]
        top: usize,
        /// The output format
        #[arg(long, value_enum, default_value_t = FindingsFormat::Table)]
        format: FindingsFormat,
        /// Write to this file instead of standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Name the ranks that are late, slow or hanging: all arguments go to `warpline-ranks`
    ///
    /// Runs the `warpline-ranks` beside this command or on the PATH, which is built separately, and exits with its
    /// status.
    #[command(disable_help_flag = true)]
    Ranks {
        /// The arguments of `warpline-ranks`, such as `report DIR`; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
    /// Answer SQL over one trace: all arguments go to `warpline-ranks query`
    ///
    /// The tables are zones, launches, kernels, collectives, waits, steps, ranges and others; `query --list` shows them
    /// and the built-in queries. Runs the `warpline-ranks` beside this command or on the PATH, which is built
    /// separately, and exits with its status.
    #[command(disable_help_flag = true)]
    Query {
        /// The arguments of `warpline-ranks query`, such as `T.pftrace 'SELECT * FROM ranges'`; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
    /// Show in a trace of another tool which zone each kernel of a CUDA graph belongs to
    ///
    /// Joins the annotations that were saved when graphs were captured with the trace of a profiler that recorded their
    /// replays. Kernels get the arguments of their zones, and rows for replays and lanes are added; everything else is
    /// unchanged.
    Annotate {
        /// The file that `warpline::graph::save` wrote, or the saved result of PyTorch's `get_kernel_annotations`;
        /// without it, the file is looked for beside the trace
        #[arg(long, value_name = "FILE")]
        annotations: Option<PathBuf>,
        /// The trace: Chrome JSON, or a Perfetto trace of PyTorch's profiler, compressed with gzip or zstd or not; or a
        /// folder of them
        #[arg(long, value_name = "FILE")]
        trace: PathBuf,
        /// Write to this file: `.pftrace` for Perfetto, `.json` or `.json.gz` for Chrome JSON; for a folder of traces,
        /// to files of the same names in this folder, which is created if it is missing
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// How kernels are matched with graph nodes
        #[arg(long, value_enum, default_value_t = JoinBy::Id)]
        by: JoinBy,
        /// Also print how many kernels, copies and fills each stream and lane has, before and after
        #[arg(long)]
        before_after: bool,
        /// The maximum size of the decompressed trace in bytes: a number, with KiB, MiB, GiB or TiB (or K, M, G, T) for
        /// units of 1024, or KB, MB, GB or TB for units of 1000
        #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = size)]
        limit: u64,
    },
    /// Convert the file that a killed program left behind into a trace: a flight recorder's file, or a truncated Chrome
    /// trace
    ///
    /// Reads the file of the setting `flight=64MiB:FILE`, or warpline-PID.flight in the program's working directory,
    /// and writes a Perfetto trace. Reads the file of `chrome=FILE`, and writes a complete JSON document that strict
    /// parsers accept. The input file is not changed, and the program may still be running.
    Recover {
        /// The flight recorder's file, or the Chrome trace; it may be compressed with gzip or zstd. For a folder, all
        /// its `.flight` files, or all its Chrome traces if the output is a `.json`
        file: PathBuf,
        /// Write the trace to this `.pftrace`, or for a Chrome trace to this `.json`, replacing an existing file;
        /// `{pid}` stands for the recorded process
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// List the running programs that accept commands
    ///
    /// These are the programs of this user on this machine that were started with `WARPLINE=control`.
    Ps {
        /// The output format
        #[arg(long, value_enum, default_value_t = ReplyFormat::Table)]
        format: ReplyFormat,
    },
    /// Show the identity of a program and what it records now
    Status {
        /// The process
        #[arg(value_name = "PID")]
        process: u32,
        /// The output format
        #[arg(long, value_enum, default_value_t = ReplyFormat::Table)]
        format: ReplyFormat,
    },
    /// Record a running program into a Perfetto trace
    ///
    /// If the program has its own session, the recording contains what that session records. The recording ends when
    /// the time is up, with Ctrl-C, or when this command is killed; the program then continues as before.
    #[command(mut_args(|arg| match arg.get_id().as_str() {
        "no_browser" | "keep" | "ui" | "port" => arg.requires("open"),
        _ => arg,
    }))]
    Record {
        /// The process
        #[arg(value_name = "PID")]
        process: u32,
        /// The duration, such as `5s`, `250ms`, `2m` or `1h`; without it, until Ctrl-C
        #[arg(long = "for", value_name = "TIME", value_parser = time)]
        time: Option<Duration>,
        /// Record only matching ranges, such as `demo.*`; `!demo.mlp` excludes ranges; can be repeated
        #[arg(long, value_name = "PATTERN")]
        filter: Vec<String>,
        /// Also record kernels and copies, if the program was built with feature `cupti`
        #[arg(long)]
        kernels: bool,
        /// End the recording when the trace reaches this size: a number, with KiB, MiB, GiB or TiB for units of 1024,
        /// or KB, MB, GB or TB for units of 1000
        #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = size)]
        limit: u64,
        /// Write to this `.pftrace`, replacing an existing file; without it, to the first of `warpline-PID.pftrace`,
        /// `warpline-PID.2.pftrace`, … that does not exist. `{pid}` and `{rank}` stand for those of the program,
        /// `{host}` for the machine's name
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Open the trace in Perfetto's UI when the recording has ended, as `warpline open` does
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        serving: Serving,
    },
    /// Write the last zones of a program with a flight recorder into a Perfetto trace
    ///
    /// For programs that run with `WARPLINE=control,flight=64MiB`. For a program that has ended, use
    /// `warpline recover`.
    Dump {
        /// The process
        #[arg(value_name = "PID")]
        process: u32,
        /// Write to this `.pftrace`, replacing an existing file; without it, to the first of
        /// `warpline-PID.last.pftrace`, `warpline-PID.last.2.pftrace`, … that does not exist. `{pid}` and `{rank}`
        /// stand for those of the program, `{host}` for the machine's name
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// End everything that was requested from outside the program; the program's own recording continues
    Stop {
        /// The process
        #[arg(value_name = "PID")]
        process: u32,
    },
    /// Time the next runs of a range in a running program
    Arm {
        /// The process
        #[arg(value_name = "PID")]
        process: u32,
        /// The range's full name
        range: String,
        /// The number of runs
        #[arg(short, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        n: u32,
        /// How long to wait for the runs
        #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
        within: Duration,
        /// The output format: `json` is one object per line
        #[arg(long, value_enum, default_value_t = ReplyFormat::Table)]
        format: ReplyFormat,
    },
    /// Show live how long the ranges of a program take
    ///
    /// Arrow keys select the sort column, `r` reverses the order, `q` quits.
    Top {
        /// The process
        #[arg(value_name = "PID")]
        process: u32,
        /// The time between two updates
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
        every: Duration,
    },
    /// Say what works on this host, what does not, and what to do about it
    ///
    /// Examines the NVIDIA driver, its devices, CUPTI, NVTX tools, Tracy's port, the clock, the settings, and the
    /// places of traces and sockets. It changes nothing, starts no tool and, without `--measure-peak`, creates no GPU
    /// context. Exit status: 0 everything that the settings ask for works, 1 something that they ask for is missing, or
    /// something is broken, 2 wrong usage.
    Doctor {
        /// Examine the host for these settings instead of those in `WARPLINE`, such as `perfetto=trace.pftrace,kernels`
        #[arg(long, value_name = "SETTINGS")]
        settings: Option<String>,
        /// The output format
        #[arg(long, value_enum, default_value_t = DoctorFormat::Text)]
        format: DoctorFormat,
        /// Measure the peak rates of the devices: a copy and FP32 multiply-adds, for about a second on each kind of
        /// device
        ///
        /// The rates are kept in `~/.cache/warpline/peaks.tsv`. Reports compare declared work with them where the
        /// vendor's figures are not known. Measure while no other program uses the devices.
        #[arg(long)]
        measure_peak: bool,
        /// How long to wait for the driver, for CUPTI, and for a measurement; a driver may take seconds to initialise
        /// its devices
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
        within: Duration,
        /// Ask one library and print the answer; the command starts itself with this option
        #[arg(long, value_enum, hide = true)]
        probe: Option<Part>,
    },
    /// Print the completions of this command for a shell
    ///
    /// For bash: `source <(warpline completions bash)` in ~/.bashrc. For zsh: write them to `_warpline` in a folder of
    /// `$fpath`. For fish: `warpline completions fish > ~/.config/fish/completions/warpline.fish`.
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write a manual page for each command into a folder
    ///
    /// `man -l FOLDER/warpline.1` shows the first; in a folder `man1` of `$MANPATH`, `man warpline` finds them.
    Man {
        /// The folder; it is created if it is missing
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}
