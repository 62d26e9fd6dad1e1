//! Runs the commands and returns their exit status: 0 for success, 1 for faults that `check` or `doctor` found, 2 for any error.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use warpline_core::catalog::Records;
use warpline_core::recovered::Recovered;

use warpline_annotate::{AnnotateError, By, Options};

use crate::annotate;
#[cfg(target_os = "linux")]
use crate::args::ReplyFormat;
use crate::args::{Cargo, CargoCommand, Command, DoctorFormat, FindingsFormat, Format, JoinBy, Show, Warpline};
use crate::binary::{self, BinaryError};
use crate::cargo::{self, CargoError};
#[cfg(target_os = "linux")]
use crate::control::{self, ControlError};
use crate::doctor;
use crate::output::{self, OutputError};
use crate::place::{self, PlaceError};
use crate::recover::{self, RecoverFileError};
use crate::stragglers::{Calls, Skipped, TraceError};
use crate::trace_catalog::{self, CatalogError};

const DONE: u8 = 0;
const FAULTS: u8 = 1;
const FAILED: u8 = 2;
/// The exit status that shells report for an interrupted process.
const INTERRUPTED: i32 = 130;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("{}: {error}", path.display())]
    Binary { path: PathBuf, error: BinaryError },
    /// These messages already name the path.
    #[error(transparent)]
    File(BinaryError),
    #[error("{}: {error}", path.display())]
    TraceCatalog { path: PathBuf, error: CatalogError },
    #[error("{}: {error}{}", path.display(), trace_remedy(error))]
    Trace { path: PathBuf, error: TraceError },
    #[error("no collective in {}; mark them with `#[collective]` and record them", count(*traces))]
    NoCollective { traces: usize },
    /// Warnings have given the reason for each trace.
    #[error("every collective in {} is left out; the warnings say why and what to do", count(*traces))]
    NoneToCompare { traces: usize },
    #[error(transparent)]
    Annotate(#[from] AnnotateError),
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Control(#[from] ControlError),
    #[cfg(not(target_os = "linux"))]
    #[error("running programs can be controlled on Linux only; elsewhere, record with `WARPLINE=perfetto=FILE`")]
    NotHere,
    #[error("{error}")]
    Recover { error: RecoverFileError },
    #[error(transparent)]
    Cargo(#[from] CargoError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// `warpline`, with the arguments of the process.
pub fn warpline() -> ExitCode {
    end(match Warpline::from_process().command {
        Command::Catalog { binary, show } => catalog(&binary, &show),
        Command::Check { binaries, strict } => check(&binaries, strict),
        Command::Stragglers { traces, top, format, output } => stragglers(&traces, top, format, output.as_deref()),
        Command::Annotate { annotations, trace, output, by, before_after, limit } => {
            let by = if by == JoinBy::Order { By::Order } else { By::Id };
            place::expand_here(&output).map_err(Into::into).and_then(|output| {
                let found = annotations.is_none();
                let annotations = annotations.map_or_else(|| warpline_annotate::find_annotations(&trace), Ok)?;
                annotate(&Options { annotations, trace, output, by, limit }, found, before_after)
            })
        }
        Command::Recover { file, output } => recover(&file, &output),
        Command::Doctor { probe: Some(part), .. } => {
            output::write(&doctor::answer(part), None).map(|()| DONE).map_err(Into::into)
        }
        Command::Doctor { settings, format, within, probe: None } => {
            let (text, works) = doctor::doctor(settings, within, format == DoctorFormat::Json);
            output::write(&text, None).map(|()| if works { DONE } else { FAULTS }).map_err(Into::into)
        }
        command => ask(command),
    })
}

#[cfg(not(target_os = "linux"))]
fn ask(_: Command) -> Result<u8, CommandError> {
    Err(CommandError::NotHere)
}

/// Runs the commands that control a running program.
#[cfg(target_os = "linux")]
fn ask(command: Command) -> Result<u8, CommandError> {
    match command {
        Command::Ps { format } => {
            let (text, faults) = control::ps(format == ReplyFormat::Json, output::stdout_is_terminal())?;
            faults.iter().for_each(|fault| output::complain(format_args!("warning: {fault}")));
            output::write(&text, None)?;
        }
        Command::Status { process, format } => {
            let text = control::status(process, format == ReplyFormat::Json)?;
            output::write(&text, None)?;
        }
        Command::Record { process, time, filter, kernels, limit, output } => {
            let recording = control::Recording { process, time, filter: filter.join(","), kernels, limit, output };
            let recorded = control::record(&recording)?;
            output::write(&recorded.text, None)?;
            return Ok(recorded.cut.unwrap_or(if recorded.is_complete { DONE } else { FAILED }));
        }
        Command::Dump { process, output } => {
            let dumped = control::dump(process, output.as_deref(), remove_when_interrupted)?;
            warn_of_gaps(&dumped.found, &dumped.file);
            output::write(&dumped.text, None)?;
        }
        Command::Stop { process } => output::write(&control::stop(process)?, None)?,
        Command::Arm { process, range, n, within, format } => {
            // Needed even if the process starts with the signal ignored, as shells start the background jobs of a script.
            let _ = ctrlc::set_handler(|| std::process::exit(INTERRUPTED));
            // A closed pipe is not an error.
            let show = |line: &str| drop(output::write(line, None));
            let all = control::arm(process, &range, n, within, format == ReplyFormat::Json, show)?;
            return Ok(if all { DONE } else { FAILED });
        }
        Command::Top { process, every } => {
            if let Some(last) = control::top::top(process, every)? {
                output::write(&last, None)?;
            }
        }
        Command::Catalog { .. }
        | Command::Check { .. }
        | Command::Stragglers { .. }
        | Command::Annotate { .. }
        | Command::Recover { .. }
        | Command::Doctor { .. } => {}
    }
    Ok(DONE)
}

/// `cargo warpline`, with the arguments of the process.
pub fn cargo_warpline() -> ExitCode {
    let Cargo::Warpline { command } = Cargo::from_process();
    end(match command {
        CargoCommand::Catalog { build, show } => build_one(&build).and_then(|binary| catalog(&binary, &show)),
        CargoCommand::Check { build, strict } => {
            cargo::build(&build).map_err(Into::into).and_then(|paths| check(&paths, strict))
        }
    })
}

fn end(status: Result<u8, CommandError>) -> ExitCode {
    ExitCode::from(status.unwrap_or_else(|error| {
        output::complain(format_args!("error: {error}"));
        FAILED
    }))
}

fn build_one(build: &crate::args::Build) -> Result<PathBuf, CommandError> {
    Ok(cargo::only_one(cargo::build(build)?)?)
}

fn catalog(binary: &Path, show: &Show) -> Result<u8, CommandError> {
    let records = if trace_catalog::is_trace(binary) { of_trace(binary)? } else { open(binary)? };
    let text = match show.format {
        Format::Table => output::table(&records, show.output.is_none() && output::stdout_is_terminal()),
        Format::Json => records.to_json(),
        Format::Markdown => records.to_markdown(),
        Format::Csv => records.to_csv(),
        Format::Ncu => records.to_ncu(),
        Format::Nsys => records.to_nsys(),
        Format::Html => records.to_html(),
        Format::Perfetto => records.to_perfetto(),
    };
    write(&text, show.output.as_deref())?;
    Ok(DONE)
}

/// Reads the catalog of a trace, and warns if it is not complete.
fn of_trace(path: &Path) -> Result<Records, CommandError> {
    let (records, missing) =
        trace_catalog::open(path).map_err(|error| CommandError::TraceCatalog { path: path.to_owned(), error })?;
    if missing > 0 {
        output::complain(format_args!(
            "warning: {}: {} of the catalog {} not in the trace, which is truncated or had no room for them; name the \
             program's binary for the whole catalog",
            path.display(),
            output::counted_as(missing, "range or namespace", "ranges and namespaces"),
            output::is_or_are(missing)
        ));
    }
    Ok(records)
}

/// Writes to the file, whose placeholders are expanded, or to standard output.
fn write(text: &str, output: Option<&Path>) -> Result<(), CommandError> {
    let output = output.map(place::expand_here).transpose()?;
    Ok(output::write(text, output.as_deref())?)
}

/// Checks every binary, even if an earlier one cannot be read, and returns the worst status.
fn check(binaries: &[PathBuf], strict: bool) -> Result<u8, CommandError> {
    let mut status = DONE;
    for path in binaries {
        let records = match open(path) {
            Ok(records) => records,
            Err(error) => {
                output::complain(format_args!("error: {error}"));
                status = FAILED;
                continue;
            }
        };
        let path = path.display();
        let mut faults = records.faults();
        if strict {
            faults.extend(records.undescribed());
        }
        let mut text: String =
            faults.iter().map(|fault| output::printable(&format!("{path}: {fault}")) + "\n").collect();
        if faults.is_empty() {
            text = output::printable(&format!("{path}: {}, no faults", output::count(&records))) + "\n";
        } else {
            status = status.max(FAULTS);
        }
        output::write(&text, None)?;
    }
    Ok(status)
}

/// Stops at a trace that cannot be read: with a rank missing, the findings about the others would be wrong.
fn stragglers(
    traces: &[PathBuf],
    top: usize,
    format: FindingsFormat,
    output: Option<&Path>,
) -> Result<u8, CommandError> {
    let mut calls = Calls::default();
    let mut left_out = 0;
    for path in traces {
        let trace = |error| CommandError::Trace { path: path.to_owned(), error };
        let file = File::open(path).map_err(|error| trace(error.into()))?;
        let skipped = calls.read(BufReader::with_capacity(1 << 16, file)).map_err(trace)?;
        complain_of(path, &skipped);
        left_out += skipped.ungrouped + skipped.calls;
    }
    if calls.is_empty() {
        let traces = traces.len();
        return Err(match left_out {
            0 => CommandError::NoCollective { traces },
            _ => CommandError::NoneToCompare { traces },
        });
    }
    let findings = calls.judge(top);
    let text = match format {
        FindingsFormat::Table => findings.to_text(output.is_none() && output::stdout_is_terminal()),
        FindingsFormat::Json => findings.to_json(),
    };
    write(&text, output)?;
    Ok(DONE)
}

/// Removes the temporary file if the command is interrupted.
fn remove_when_interrupted(temporary: &Path) {
    let temporary = temporary.to_owned();
    // If the handler cannot be installed, an interrupted command leaves the temporary file.
    let _ = ctrlc::set_handler(move || {
        let _ = std::fs::remove_file(&temporary);
        std::process::exit(INTERRUPTED);
    });
}

/// `found`: the user did not name the annotations.
fn annotate(options: &Options, found: bool, before_after: bool) -> Result<u8, CommandError> {
    let summary = annotate::annotate(options, remove_when_interrupted)?;
    let mut text = String::new();
    if found {
        text = format!("annotations: {}\n", output::printable(&options.annotations.display().to_string()));
    }
    text += &annotate::describe(&summary, &options.output);
    if before_after {
        text += &annotate::before_after(&summary, output::stdout_is_terminal());
    }
    output::write(&text, None)?;
    Ok(DONE)
}

fn recover(file: &Path, output: &Path) -> Result<u8, CommandError> {
    if recover::chrome::is_json(file) {
        return recover_chrome(file, output);
    }
    let (found, path) = recover::place(file, output)
        .and_then(|place| recover::recover_file(file, &place, remove_when_interrupted))
        .map_err(|error| CommandError::Recover { error })?;
    warn_of_gaps(&found, file);
    output::write(&(recover::describe(&found, &path) + output::OPEN_IT), None)?;
    Ok(DONE)
}

fn recover_chrome(file: &Path, output: &Path) -> Result<u8, CommandError> {
    let (found, path) = recover::chrome::recover_file(file, output, remove_when_interrupted)
        .map_err(|error| CommandError::Recover { error })?;
    if let Some(at) = found.cut {
        let file = file.display();
        output::complain(format_args!("warning: {file}: cut or damaged at {at}; the rest of the file is left out"));
    }
    output::write(&(recover::chrome::describe(&found, &path) + output::OPEN_IT), None)?;
    Ok(DONE)
}

/// Warns about what is missing in the trace of a flight recorder.
fn warn_of_gaps(found: &Recovered, file: &Path) {
    if found.missing > 0 {
        output::complain(format_args!(
            "warning: {}: the file is truncated: {} of the ring {} missing",
            file.display(),
            output::counted(found.missing, "piece"),
            output::is_or_are(found.missing)
        ));
    }
    if found.damaged > 0 {
        output::complain(format_args!(
            "warning: {}: {} {} damaged or unfinished, and left out",
            file.display(),
            output::counted(found.damaged, "piece"),
            output::is_or_are(found.damaged)
        ));
    }
}

fn complain_of(path: &Path, skipped: &Skipped) {
    let path = path.display();
    if skipped.packets > 0 {
        let packets = output::counted(skipped.packets, "packet");
        let are = output::is_or_are(skipped.packets);
        output::complain(format_args!("warning: {path}: {packets} {are} malformed and left out"));
    }
    if skipped.ungrouped > 0 {
        output::complain(format_args!(
            "warning: {path}: {} no group and cannot be matched with other ranks; add `group = …` to their marks \
             (`warpline check --strict` lists them)",
            have(skipped.ungrouped)
        ));
    }
    if skipped.calls > 0 {
        output::complain(format_args!(
            "warning: {path}: {} no rank, number or known kind, and {} left out; if a newer warpline wrote the trace, update \
             warpline-cli",
            have(skipped.calls),
            output::is_or_are(skipped.calls)
        ));
    }
    if skipped.dropped > 0 {
        output::complain(format_args!(
            "warning: {path}: its session dropped {}; a dropped collective takes no number, so later ones may be \
             compared with the wrong ones; record with a larger `ring=` or a `filter=`, or give `seq`",
            output::counted(skipped.dropped, "zone")
        ));
    }
    if let Some(at) = skipped.damaged_at {
        output::complain(format_args!("warning: {path}: damaged at byte {at}; the rest of the file is left out"));
    }
}

fn have(collectives: u64) -> String {
    let have = if collectives == 1 { "has" } else { "have" };
    format!("{} {have}", output::counted(collectives, "collective"))
}

/// The remedy for an error of the system. The other errors contain theirs.
fn trace_remedy(error: &TraceError) -> &'static str {
    match error {
        TraceError::Io(_) => "; name the `.pftrace` of a rank, as `WARPLINE=perfetto=FILE` writes it",
        _ => "",
    }
}

fn count(traces: usize) -> String {
    if traces == 1 { "the trace".to_owned() } else { format!("the {traces} traces") }
}

fn open(path: &Path) -> Result<Records, CommandError> {
    let records = binary::open(path).map_err(|error| match error {
        BinaryError::Io { .. } | BinaryError::NotAFile { .. } => CommandError::File(error),
        error => CommandError::Binary { path: path.to_owned(), error },
    })?;
    if records.unreadable > 0 {
        output::complain(format_args!(
            "warning: {}: {} by a newer warpline and left out; update warpline-cli",
            path.display(),
            output::counted_as(
                records.unreadable as u64,
                "range or namespace was written",
                "ranges or namespaces were written"
            )
        ));
    }
    Ok(records)
}
