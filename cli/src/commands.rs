//! Runs the commands and returns their exit status: 0 for success, 1 for faults that `check` or `doctor` found and for what `compare` found slower, 2 for
//! any error.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use warpline_annotate::By;
use warpline_core::catalog::Records;

use crate::annotate::{Annotating, AnnotatingError};
#[cfg(target_os = "linux")]
use crate::args::ReplyFormat;
use crate::args::{
    Cargo, CargoCommand, Command, ComparisonFormat, DoctorFormat, FindingsFormat, Format, JoinBy, ReportFormat, Show,
    Warpline,
};
use crate::binary::{self, BinaryError};
use crate::cargo::{self, CargoError};
use crate::compare::{self, CompareError, Comparing};
#[cfg(target_os = "linux")]
use crate::control::{self, ControlError};
use crate::doctor;
use crate::files;
use crate::hand_over::{self, HandOverError};
use crate::inputs::{InputError, TRACES};
#[cfg(target_os = "linux")]
use crate::open::Listening;
use crate::open::{self, OpenError};
use crate::output::{self, OutputError};
use crate::output_file::{self, PlaceError};
use crate::recover::{self, RecoverFileError};
use crate::report::{self, ReportError, Shown};
use crate::shell::{self, ShellError};
use crate::stragglers::run::{self, Judged, StragglersError};
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
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Stragglers(#[from] StragglersError),
    #[error(transparent)]
    Annotate(#[from] AnnotatingError),
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Control(#[from] ControlError),
    #[cfg(not(target_os = "linux"))]
    #[error("running programs can be controlled on Linux only; elsewhere, record with `WARPLINE=perfetto=FILE`")]
    NotHere,
    #[error(transparent)]
    Recover(#[from] RecoverFileError),
    #[error(transparent)]
    HandOver(#[from] HandOverError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(transparent)]
    Compare(#[from] CompareError),
    #[error(transparent)]
    Shell(#[from] ShellError),
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
        Command::Check { files, strict } => check(&files, strict),
        Command::Report { traces, format, output, html, shown } => {
            report(&traces, &shown, format, output.as_deref(), html.as_deref())
        }
        Command::Compare { traces, base, new, fail_above, seed, format, output } => {
            let (base, new) = match traces.split_first() {
                Some((base, new)) => (vec![base.clone()], new.to_vec()),
                None => (base, new),
            };
            compare(&Comparing { base, new, limit: fail_above, seed }, format, output.as_deref())
        }
        Command::Stragglers { traces, top, format, output } => stragglers(&traces, top, format, output.as_deref()),
        Command::Ranks { arguments } => hand_over::run(hand_over::RANKS, &arguments).map_err(Into::into),
        Command::Query { arguments } => {
            let arguments: Vec<OsString> = std::iter::once("query".into()).chain(arguments).collect();
            hand_over::run(hand_over::RANKS, &arguments).map_err(Into::into)
        }
        Command::Annotate { annotations, trace, output, by, before_after, limit } => {
            let by = if by == JoinBy::Order { By::Order } else { By::Id };
            annotate(&Annotating { annotations, trace, output, by, limit, before_after })
        }
        Command::Recover { file, output } => recover(&file, &output),
        Command::Open { traces, serving } => open::open(&traces, serving).map(|()| DONE).map_err(Into::into),
        Command::Completions { shell } => shell::completions(shell).map(|()| DONE).map_err(Into::into),
        Command::Man { folder } => shell::man(&folder).map(|()| DONE).map_err(Into::into),
        Command::Doctor { probe: Some(part), .. } => {
            output::write(&doctor::answer(part), None).map(|()| DONE).map_err(Into::into)
        }
        Command::Doctor { settings, format, within, measure_peak, probe: None } => {
            let (text, works) = doctor::doctor(settings, within, measure_peak, format == DoctorFormat::Json);
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
        Command::Record { process, time, filter, kernels, limit, output, open, serving } => {
            // A port that is in use is found before anything is recorded.
            let server = if open { Some(Listening::new(serving)?) } else { None };
            let recording = control::Recording { process, time, filter: filter.join(","), kernels, limit, output };
            let recorded = control::record(&recording)?;
            match server.filter(|_| recorded.cut.is_none()) {
                Some(server) => {
                    output::write(&recorded.text, None)?;
                    server.serve(recorded.path)?;
                }
                None if recorded.cut.is_none() => {
                    output::write(&(recorded.text + &output::open_it(&recorded.path)), None)?
                }
                None => output::write(&recorded.text, None)?,
            }
            return Ok(recorded.cut.unwrap_or(if recorded.is_complete { DONE } else { FAILED }));
        }
        Command::Dump { process, output } => {
            let dumped = control::dump(process, output.as_deref(), remove_when_interrupted)?;
            recover::gaps(&dumped.found, &dumped.file).iter().for_each(output::complain);
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
        | Command::Report { .. }
        | Command::Compare { .. }
        | Command::Stragglers { .. }
        | Command::Ranks { .. }
        | Command::Query { .. }
        | Command::Annotate { .. }
        | Command::Recover { .. }
        | Command::Open { .. }
        | Command::Completions { .. }
        | Command::Man { .. }
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
    let files = files::expand(&[binary.to_owned()], TRACES)?;
    let mut records = Records::default();
    for (number, path) in files.iter().enumerate() {
        let next = read_catalog(path)?;
        records = match number {
            0 => next,
            _ => trace_catalog::merged(records, next)
                .map_err(|error| CommandError::TraceCatalog { path: path.clone(), error })?,
        };
    }
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

/// Reads the catalog of a binary or of a trace.
fn read_catalog(path: &Path) -> Result<Records, CommandError> {
    if trace_catalog::is_trace(path) { of_trace(path) } else { open(path) }
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
    let output = output.map(output_file::expand_here).transpose()?;
    Ok(output::write(text, output.as_deref())?)
}

/// Checks every binary and trace, even if an earlier one cannot be read, and returns the worst status.
fn check(files: &[PathBuf], strict: bool) -> Result<u8, CommandError> {
    let mut status = DONE;
    for path in &files::expand(files, TRACES)? {
        let records = match read_catalog(path) {
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

fn report(
    traces: &[PathBuf],
    shown: &Shown,
    format: ReportFormat,
    output: Option<&Path>,
    html: Option<&Path>,
) -> Result<u8, CommandError> {
    let report = match html {
        Some(html) => {
            let (report, page) = report::report_and_page(traces, shown)?;
            output::write_page(&page, &output_file::expand_here(html)?)?;
            report
        }
        None => report::report(traces, shown)?,
    };
    let text = match format {
        ReportFormat::Table => report::text(&report, output.is_none() && output::stdout_is_terminal()),
        ReportFormat::Json => report.to_json(),
        ReportFormat::Markdown => report.to_markdown(),
        ReportFormat::Csv => report.to_csv(),
    };
    write(&text, output)?;
    Ok(DONE)
}

fn compare(comparing: &Comparing, format: ComparisonFormat, output: Option<&Path>) -> Result<u8, CommandError> {
    let comparison = compare::compare(comparing)?;
    let text = match format {
        ComparisonFormat::Table => comparison.to_text(output.is_none() && output::stdout_is_terminal()),
        ComparisonFormat::Json => comparison.to_json(),
        ComparisonFormat::Markdown => comparison.to_markdown(),
    };
    write(&text, output)?;
    Ok(if comparison.has_regressed() { FAULTS } else { DONE })
}

/// A trace that cannot be read is an error, but the others are judged.
fn stragglers(
    traces: &[PathBuf],
    top: usize,
    format: FindingsFormat,
    output: Option<&Path>,
) -> Result<u8, CommandError> {
    let Judged { findings, is_complete } = run::judge(traces, top)?;
    let text = match format {
        FindingsFormat::Table => findings.to_text(top, output.is_none() && output::stdout_is_terminal()),
        FindingsFormat::Json => findings.to_json(),
    };
    write(&text, output)?;
    Ok(if is_complete { DONE } else { FAILED })
}

/// Removes the temporary file if the command is interrupted.
fn remove_when_interrupted(temporary: &Path) {
    static TEMPORARY: Mutex<Option<PathBuf>> = Mutex::new(None);
    let locked = || TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
    *locked() = Some(temporary.to_owned());
    // A further file of the same command needs no further handler. If none can be installed, an interrupted command leaves the file.
    let _ = ctrlc::set_handler(move || {
        let _ = locked().as_ref().map(std::fs::remove_file);
        std::process::exit(INTERRUPTED);
    });
}

/// Annotates a trace, or each trace of a folder, even if an earlier one cannot be annotated.
fn annotate(annotating: &Annotating) -> Result<u8, CommandError> {
    let mut status = DONE;
    let all = annotating.traces()?;
    for (trace, output) in &all {
        match annotating.annotate(trace, output, remove_when_interrupted) {
            Ok(text) => output::write(&text, None)?,
            Err(error) if all.len() == 1 => return Err(error.into()),
            Err(error) => {
                output::complain(format_args!("error: {error}"));
                status = FAILED;
            }
        }
    }
    Ok(status)
}

/// Recovers a file, or each file of a folder, even if an earlier one cannot be recovered.
fn recover(file: &Path, output: &Path) -> Result<u8, CommandError> {
    let mut status = DONE;
    let all = recover::files(file, output)?;
    let mut written = HashSet::new();
    for file in &all {
        match recover::recover(file, output, &mut written, remove_when_interrupted) {
            Ok(recovered) => {
                recovered.warnings.iter().for_each(output::complain);
                let open_it = if all.len() == 1 { output::open_it(&recovered.path) } else { String::new() };
                output::write(&(recovered.text + &open_it), None)?;
            }
            Err(error) if all.len() == 1 => return Err(error.into()),
            Err(error) => {
                output::complain(format_args!("error: {error}"));
                status = FAILED;
            }
        }
    }
    Ok(status)
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
