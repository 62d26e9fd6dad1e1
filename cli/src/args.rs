//! The arguments of `warpline` and `cargo warpline`. `commands.rs` and `cargo.rs` carry them out.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::doctor::Part;
use crate::output::printable;

/// Reads the GPU ranges that warpline's marks leave in a binary, without running it; finds the ranks that came late to collectives, from
/// the traces of several ranks; adds zones to the kernels of CUDA graphs in a trace of PyTorch's profiler; converts the file of a flight
/// recorder to a trace; queries and controls programs that run with `WARPLINE=control`; and says what works on this host.
#[derive(Parser)]
#[command(name = "warpline", bin_name = "warpline", version, arg_required_else_help = true)]
#[command(
    after_help = "Exit status: 0 done, 1 faults found (`check`, `doctor`) or slower than the limit (`compare`), 2 wrong usage, unreadable file, no catalog, no collective, \
                  nothing to annotate, nothing to recover, a program that cannot be reached or that ended meanwhile, zones that did not come in time (`arm`), \
                  128 and the number of the signal that ended it.\n\n\
                  In the name of an output file, `{pid}` stands for the process id, `{rank}` for the rank in the job (0 without \
                  a launcher), `{host}` for the machine's name, and `{{` for a brace: with `record` and `dump` of the program \
                  that is asked, else of this command; with `recover`, `{pid}` is the process that was recorded."
)]
pub(crate) struct Warpline {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands by what the user has, in the order of the help.
const GROUPS: [(&str, &[&str]); 6] = [
    ("You have a binary:", &["catalog", "check"]),
    (
        "You have traces, or the file of a flight recorder:",
        &["open", "report", "compare", "query", "stragglers", "annotate", "recover"],
    ),
    ("You have the tables of many ranks, of `ranks=FOLDER`:", &["ranks"]),
    (
        "A program runs, started with `WARPLINE=control` (Linux):",
        &["ps", "status", "record", "top", "arm", "dump", "stop"],
    ),
    ("A new machine, or something does not work:", &["doctor"]),
    ("Else:", &["completions", "man", "help"]),
];

impl Warpline {
    /// Parses the arguments of the process. An invalid argument ends the process.
    pub(crate) fn from_process() -> Warpline {
        parse(Warpline::grouped())
    }

    /// Returns the definition.
    pub(crate) fn definition() -> clap::Command {
        Warpline::command()
    }

    /// Returns the definition, with a help in which the commands are grouped.
    pub(crate) fn grouped() -> clap::Command {
        let mut command = Warpline::command();
        command.build();
        let about = |name: &str| {
            let command = command.find_subcommand(name);
            command.and_then(clap::Command::get_about).map(ToString::to_string).unwrap_or_default()
        };
        let mut groups = String::new();
        for (head, names) in GROUPS {
            let lines: String = names.iter().map(|name| format!("  {name:<11} {}\n", about(name))).collect();
            groups += &format!("{head}\n{lines}\n");
        }
        let template = format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
        );
        Warpline::command().help_template(template)
    }
}

/// Parses the arguments of the process, and ends it if they are invalid.
fn parse<T: FromArgMatches>(definition: clap::Command) -> T {
    let matches = definition.clone().try_get_matches();
    matches.and_then(|matches| T::from_arg_matches(&matches)).unwrap_or_else(|error| refuse(definition, &error))
}

/// Prints the error as clap does. Clap quotes arguments, so characters that control the terminal are escaped first.
fn refuse(definition: clap::Command, error: &clap::Error) -> ! {
    let shown = std::env::args_os().map(|argument| printable(&argument.to_string_lossy()));
    match definition.try_get_matches_from(shown) {
        Err(shown) => shown.exit(),
        // The lossy conversion made the arguments valid. Such an error quotes nothing.
        Ok(_) if error.kind() == ErrorKind::InvalidUtf8 => error.exit(),
        Ok(_) => {
            crate::output::complain("error: an argument holds characters that cannot be shown; see `warpline --help`");
            std::process::exit(2)
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show the ranges in a binary, or in a trace
    ///
    /// Reads executables, shared libraries, object files and archives (`.rlib`, `.a`) in the formats ELF, Mach-O and PE, for any machine,
    /// including stripped ones; and traces that a session wrote for Perfetto or Chrome, optionally compressed with gzip or zstd, which list
    /// all ranges of their program.
    Catalog {
        /// The binary or the trace
        #[arg(value_name = "FILE")]
        binary: PathBuf,
        #[command(flatten)]
        show: Show,
    },
    /// Check the ranges in binaries: one line per fault
    ///
    /// Every name must be in its crate's namespace and be unique there, every range must have a description, and every namespace must
    /// belong to one crate. Two versions of one crate in one binary are not a fault.
    Check {
        /// The binaries
        #[arg(required = true)]
        binaries: Vec<PathBuf>,
        /// Also report each collective whose mark omits an option that describes it
        #[arg(long)]
        strict: bool,
    },
    /// Open a trace in Perfetto's UI
    ///
    /// Serves the trace on 127.0.0.1, prints the address of the UI with it, and opens it in the browser. The browser reads the trace from this
    /// machine; nothing is uploaded. The command ends when the trace has been read.
    Open {
        /// The trace: Perfetto's format or Chrome JSON, compressed with gzip or not
        trace: PathBuf,
        /// Only print the address
        #[arg(long)]
        no_browser: bool,
        /// Serve the trace until the command is interrupted, so that the page can be loaded again
        #[arg(long)]
        keep: bool,
        /// The address of the UI
        #[arg(long, value_name = "URL", default_value = "https://ui.perfetto.dev")]
        ui: String,
        /// The port; the UI at ui.perfetto.dev reads traces from 9001 alone
        #[arg(long, value_name = "N", default_value_t = 9001)]
        port: u16,
    },
    /// Report the figures of a trace: ranges, steps, streams, collectives, kernels, waits and the critical path
    ///
    /// Reads Perfetto and Chrome traces of sessions, also those that were recovered or annotated, and Chrome traces of PyTorch's profiler as
    /// far as their events mean the same; compressed with gzip or not. Several traces, and the traces in folders, have one report. It is the
    /// report that `WARPLINE=summary` prints at the end of a session.
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
        /// Also write the report as a page that needs nothing else: tables, timeline of a step, time by call, histograms, critical path
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Compare the traces of two versions of a program: which ranges, steps, kernels and collectives became slower
    ///
    /// Compares the median and the 99th percentile of each, with an interval, and names a difference only where it is larger than the
    /// variation within and between runs explains. `warpline compare A B --fail-above 5%` compares two traces, or two folders of
    /// traces, each of which is a run; `--base A1 A2 --new B1 B2` names several. Exit status: 0 done, 1 something is slower by more than
    /// the limit, 2 an error.
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
    /// The ranks of one host share a clock, and the rank that begins last is late. The clocks of several hosts are compared through the
    /// collectives themselves, and no rank is named within their uncertainty. Ranks are matched by process group and sequence number. The
    /// first line is the verdict. A trace that cannot be read is named, and the others are judged; the exit status is 2 then.
    Stragglers {
        /// The traces of the ranks, or folders of them; they may be compressed with gzip or zstd
        #[arg(required = true, value_name = "TRACE")]
        traces: Vec<PathBuf>,
        /// The most lines of each table, and the most notes and warnings
        #[arg(long, value_name = "N", default_value_t = 20)]
        top: usize,
        /// The output format
        #[arg(long, value_enum, default_value_t = FindingsFormat::Table)]
        format: FindingsFormat,
        /// Write to this file instead of standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Name the ranks that are late or slow or hang: everything behind it goes to `warpline-ranks`
    ///
    /// Runs the `warpline-ranks` beside this command or on the PATH, which is built apart. Its exit status is the command's.
    #[command(disable_help_flag = true)]
    Ranks {
        /// The arguments of `warpline-ranks`, such as `report DIR`; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
    /// Answer SQL over one trace: everything behind it goes to `warpline-ranks query`
    ///
    /// The tables are zones, launches, kernels, collectives, waits, steps, ranges and others; `query --list` shows them, and the queries that
    /// are shipped. Runs the `warpline-ranks` beside this command or on the PATH, which is built apart. Its exit status is the command's.
    #[command(disable_help_flag = true)]
    Query {
        /// The arguments of `warpline-ranks query`, such as `T.pftrace 'SELECT * FROM ranges'`; `--help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
        arguments: Vec<OsString>,
    },
    /// Show in a trace of another tool which zone each kernel of a CUDA graph belongs to
    ///
    /// Joins the annotations that were saved when graphs were captured with the trace of a profiler that recorded their replays.
    /// Kernels get the arguments of their zones, and rows for replays and lanes are added; everything else is unchanged.
    Annotate {
        /// The file that `warpline::graph::save` wrote, or the saved result of PyTorch's `get_kernel_annotations`; without it, the file is
        /// looked for beside the trace
        #[arg(long, value_name = "FILE")]
        annotations: Option<PathBuf>,
        /// The trace: Chrome JSON, or a Perfetto trace of PyTorch's profiler, optionally compressed with gzip
        #[arg(long, value_name = "FILE")]
        trace: PathBuf,
        /// Write to this file: `.pftrace` for Perfetto, `.json` or `.json.gz` for Chrome JSON
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// How kernels are matched with graph nodes
        #[arg(long, value_enum, default_value_t = JoinBy::Id)]
        by: JoinBy,
        /// Also print how many kernels, copies and fills each stream and lane has, before and after
        #[arg(long)]
        before_after: bool,
        /// The maximum size of the decompressed trace in bytes: a number, with KiB, MiB, GiB or TiB (or K, M, G, T) for units of 1024, or
        /// KB, MB, GB or TB for units of 1000
        #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = size)]
        limit: u64,
    },
    /// Convert the file that a killed program has left into a trace: a flight recorder's file, or a truncated Chrome trace
    ///
    /// Reads the file of the setting `flight=64MiB:FILE`, or warpline-PID.flight in the program's working directory, and writes a Perfetto
    /// trace. Reads the file of `chrome=FILE`, and writes a complete JSON document that strict parsers accept. The input file is not
    /// changed, and the program may still be running.
    Recover {
        /// The flight recorder's file, or the Chrome trace; it may be compressed with gzip or zstd
        file: PathBuf,
        /// Write the trace to this `.pftrace`, or for a Chrome trace to this `.json`, replacing an existing file; `{pid}` stands for the
        /// recorded process
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
    /// If the program has its own session, the recording contains what that session records. The recording ends when the time is up, with
    /// Ctrl-C, or when this command is killed; the program then continues as before.
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
        /// End the recording when the trace reaches this size: a number, with KiB, MiB, GiB or TiB for units of 1024, or KB, MB, GB or TB
        /// for units of 1000
        #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = size)]
        limit: u64,
        /// Write to this `.pftrace`, replacing an existing file; without it, to the first of `warpline-PID.pftrace`,
        /// `warpline-PID.2.pftrace`, … that does not exist. `{pid}` and `{rank}` stand for those of the program, `{host}` for the machine's
        /// name
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Write the last zones of a program with a flight recorder into a Perfetto trace
    ///
    /// For programs that run with `WARPLINE=control,flight=64MiB`. For a program that has ended, use `warpline recover`.
    Dump {
        /// The process
        #[arg(value_name = "PID")]
        process: u32,
        /// Write to this `.pftrace`, replacing an existing file; without it, to the first of `warpline-PID.last.pftrace`,
        /// `warpline-PID.last.2.pftrace`, … that does not exist. `{pid}` and `{rank}` stand for those of the program, `{host}` for the
        /// machine's name
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
    /// Examines the NVIDIA driver, its devices, CUPTI, NVTX tools, Tracy's port, the clock, the settings, and the places of traces and
    /// sockets. It changes nothing, starts no tool and, without `--measure-peak`, creates no GPU context. Exit status: 0 everything that the
    /// settings ask for works, 1 something that they ask for is missing, or something is broken, 2 wrong usage.
    Doctor {
        /// Examine the host for these settings instead of those in `WARPLINE`, such as `perfetto=trace.pftrace,kernels`
        #[arg(long, value_name = "SETTINGS")]
        settings: Option<String>,
        /// The output format
        #[arg(long, value_enum, default_value_t = DoctorFormat::Text)]
        format: DoctorFormat,
        /// Measure what the devices reach: a copy and FP32 multiply-adds, for about a second on each kind of device
        ///
        /// It is kept in `~/.cache/warpline/peaks.tsv`. Reports compare declared work with it where the vendor's figures are not known. Measure
        /// while no other program uses the devices.
        #[arg(long)]
        measure_peak: bool,
        /// How long to wait for the driver, for CUPTI, and for a measurement; a driver may take seconds to initialise its devices
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
        within: Duration,
        /// Ask one library and print the answer; the command starts itself with it
        #[arg(long, value_enum, hide = true)]
        probe: Option<Part>,
    },
    /// Print the completions of this command for a shell
    ///
    /// For bash: `source <(warpline completions bash)` in ~/.bashrc. For zsh: write them to `_warpline` in a folder of `$fpath`. For fish:
    /// `warpline completions fish > ~/.config/fish/completions/warpline.fish`.
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write a manual page for each command into a folder
    ///
    /// `man -l FOLDER/warpline.1` shows the first; in a folder `man1` of `$MANPATH`, `man warpline` finds them.
    Man {
        /// The folder; it is made if it is missing
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// Parses a time of up to a day.
fn time(text: &str) -> Result<Duration, String> {
    let (number, seconds) = match text {
        _ if text.ends_with("ms") => (&text[..text.len() - 2], 1e-3),
        _ if text.ends_with('s') => (&text[..text.len() - 1], 1.0),
        _ if text.ends_with('m') => (&text[..text.len() - 1], 60.0),
        _ if text.ends_with('h') => (&text[..text.len() - 1], 3600.0),
        _ => ("", 1.0),
    };
    let time = number.parse::<f64>().ok().and_then(|number| Duration::try_from_secs_f64(number * seconds).ok());
    let time = time.filter(|time| (Duration::from_millis(1)..=Duration::from_secs(24 * 60 * 60)).contains(time));
    time.ok_or_else(|| "write a time up to a day, such as 5s, 250ms, 2m or 1h".to_owned())
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum JoinBy {
    /// By the `graph node id` that newer profilers record for each kernel
    Id,
    /// By the launch that caused it and the order within that launch; fails if the numbers of kernels differ
    Order,
}

/// Parses a number of bytes.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.to_ascii_uppercase();
    let power = |letter: &str| ["", "K", "M", "G", "T"].iter().position(|known| *known == letter);
    // A single letter is a unit of 1024, as in shell tools.
    let bytes = match (unit.strip_suffix("IB"), unit.strip_suffix('B')) {
        (Some(letter), _) if !letter.is_empty() => power(letter).map(|power| 1024_u64.pow(power as u32)),
        (None, Some(letter)) => power(letter).map(|power| 1000_u64.pow(power as u32)),
        _ => power(&unit).map(|power| 1024_u64.pow(power as u32)),
    };
    let size = number.parse::<u64>().ok().zip(bytes).and_then(|(number, bytes)| number.checked_mul(bytes));
    size.filter(|size| *size > 0).ok_or_else(|| "write a number of bytes, such as 8GiB or 500MB".to_owned())
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindingsFormat {
    /// For people, as wide as the terminal
    Table,
    /// For programs; docs/collectives.md describes it
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people, 80 columns wide
    Table,
    /// For programs; docs/report.md describes it
    Json,
    /// Tables for a pull request or a page
    Markdown,
    /// RFC 4180, for spreadsheets: all tables in one
    Csv,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ComparisonFormat {
    /// For people, as wide as the terminal
    Table,
    /// For programs; docs/compare-traces.md describes it
    Json,
    /// For a pull request
    Markdown,
}

/// Parses a percentage as a share.
fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).trim();
    let share = percent.parse::<f64>().ok().map(|percent| percent / 100.0);
    share
        .filter(|share| (0.0..=1000.0).contains(share))
        .ok_or_else(|| "write a percentage, such as 5% or 2.5%".to_owned())
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplyFormat {
    /// For people, as wide as the terminal
    Table,
    /// For programs; docs/control.md describes it
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DoctorFormat {
    /// For people: a line for each part
    Text,
    /// For programs; docs/troubleshooting.md describes it
    Json,
}

#[derive(Args)]
pub(crate) struct Show {
    /// The output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people, as wide as the terminal
    Table,
    /// The output of `catalog().records().to_json()` in the program, byte for byte
    Json,
    /// One table per namespace, for documentation
    Markdown,
    /// RFC 4180, for spreadsheets
    Csv,
    /// A response file for Nsight Compute: `ncu @FILE ./app`
    Ncu,
    /// A command file for Nsight Systems: `nsys profile --command-file=FILE ./app`
    Nsys,
    /// One page that loads nothing and searches the ranges, for a browser
    Html,
    /// A configuration of Perfetto's tracing service: `perfetto --txt -c FILE -o system.pftrace`
    Perfetto,
}

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
        parse(Cargo::command())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(time("2.5s"), Ok(Duration::from_millis(2_500)));
        assert_eq!(time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(time("2h"), Ok(Duration::from_secs(7_200)));
        assert_eq!(time("24h"), Ok(Duration::from_secs(86_400)));
        for wrong in ["", "5", "s", "-1s", "0s", "25h", "25000m", "NaNs", "infs"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_is_a_percentage() {
        assert_eq!((share("5%"), share("2.5"), share("0 %")), (Ok(0.05), Ok(0.025), Ok(0.0)));
        for wrong in ["", "%", "x", "-1%", "NaN", "inf", "5%%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_size_may_have_a_unit() {
        for (text, bytes) in
            [("7", 7), ("7B", 7), ("8G", 8 << 30), ("8GiB", 8 << 30), ("8gib", 8 << 30), ("2k", 2 << 10)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        assert_eq!((size("500MB"), size("1kB"), size("1TB")), (Ok(500_000_000), Ok(1_000), Ok(1_000_000_000_000)));
        assert_eq!((size("3MiB"), size("3TiB")), (Ok(3 << 20), Ok(3 << 40)));
        for wrong in ["", "0", "-1", "G", "1.5G", "8 G", "8iB", "8X", "8XiB", "99999999999T", "8GB/s"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_help_has_every_command_once_in_its_group() {
        let mut command = Warpline::grouped();
        command.build();
        let mut all: Vec<_> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        let help = command.render_help().to_string();
        let mut listed: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| (*name).to_owned()).collect();
        for (name, about) in command.get_subcommands().map(|command| (command.get_name(), command.get_about())) {
            let line = format!("  {name:<11} {}\n", about.expect("it says what it does"));
            assert_eq!(help.matches(&line).count(), 1, "{name}: {help}");
        }
        all.sort_unstable();
        listed.sort_unstable();
        assert_eq!(all, listed);
        let own = command.find_subcommand_mut("record").expect("it is there").render_help().to_string();
        assert!(own.contains("--kernels") && !own.contains("You have a binary"), "{own}");
    }

    #[test]
    fn the_definitions_are_sound() {
        Warpline::command().debug_assert();
        Cargo::command().debug_assert();
    }
}
