//! `warpline recover`: converts the files of flight recorders to traces. An output appears only when it is complete.
//! `chrome` recovers Chrome traces.

pub(crate) mod chrome;

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use tempfile::NamedTempFile;
use warpline_core::recovered::{RecoverError, Recovered};
use warpline_trace::flight::format::{HEADER_BYTES, Layout, MOST_BYTES};
use warpline_trace::{files, flight};

use crate::inputs::{self, CHROME, FLIGHT, InputError};
use crate::output::{self, remedy};
use crate::output_file::{self, PlaceError, TracePlace};

/// Why there is no trace. No partial output is left.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoverFileError {
    #[error("cannot read {}: {error}; {}", path.display(), remedy(error, "name the file of the setting `flight=64MiB:FILE`"))]
    Open { path: PathBuf, error: io::Error },
    #[error("{} {error}", path.display())]
    Recover { path: PathBuf, error: RecoverError },
    #[error("{} is the input; choose another output with `-o`", path.display())]
    Same { path: PathBuf },
    #[error("{}: {why}", path.display())]
    Chrome { path: PathBuf, why: String },
    #[error("{}: the name must end with `.json`, because the output is Chrome JSON", path.display())]
    Ending { path: PathBuf },
    #[error("{}: the folder has {count} files; put `{{pid}}` into the name of the output, so that each file has its own output", path.display())]
    OneOutput { path: PathBuf, count: usize },
    #[error("{}: an earlier file with the same process id was recovered into {}; recover this file alone", path.display(), output.display())]
    Written { path: PathBuf, output: PathBuf },
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// The result of a recovery, for people.
pub(crate) struct Recovery {
    pub(crate) text: String,
    /// The trace.
    pub(crate) path: PathBuf,
    pub(crate) warnings: Vec<String>,
}

/// Returns the files that the argument names: in a folder, those that become traces of the output's format.
pub(crate) fn files(file: &Path, output: &Path) -> Result<Vec<PathBuf>, RecoverFileError> {
    let files = inputs::expand(&[file.to_owned()], if chrome::is_named(output) { CHROME } else { FLIGHT })?;
    if files.len() > 1 && !output.to_string_lossy().contains("{pid}") {
        return Err(RecoverFileError::OneOutput { path: file.to_owned(), count: files.len() });
    }
    Ok(files)
}

/// Recovers a file. `written` are the outputs of earlier files, which are not replaced.
pub(crate) fn recover(
    file: &Path,
    output: &Path,
    written: &mut HashSet<PathBuf>,
    on_temporary: fn(&Path),
) -> Result<Recovery, RecoverFileError> {
    let is_chrome = chrome::is_json(file);
    let place = if is_chrome { chrome::place(file, output)? } else { place(file, output)? };
    let wanted = place.wanted();
    if written.contains(&wanted) {
        return Err(RecoverFileError::Written { path: file.to_owned(), output: wanted });
    }
    let recovery = if is_chrome {
        let (found, path) = chrome::recover_file(file, &place, on_temporary)?;
        let cut = found
            .cut
            .map(|at| format!("warning: {}: cut or damaged at {at}; the rest of the file is left out", file.display()));
        Recovery { text: chrome::describe(&found, &path), path, warnings: cut.into_iter().collect() }
    } else {
        let (found, path) = recover_file(file, &place, on_temporary)?;
        Recovery { text: describe(&found, &path), path, warnings: gaps(&found, file) }
    };
    written.insert(recovery.path.clone());
    Ok(recovery)
}

/// Recovers into a temporary file beside the output, and renames it when it is complete. `on_temporary` gets the path
/// of the temporary file. Returns what was found, and the path of the trace.
pub(crate) fn recover_file(
    path: &Path,
    place: &TracePlace,
    on_temporary: impl FnOnce(&Path),
) -> Result<(Recovered, PathBuf), RecoverFileError> {
    let file = open(path)?;
    let unfinished = place.begin()?;
    on_temporary(unfinished.path());
    let bar = inputs::steps(file.metadata().map_or(0, |file| file.len()), "recovering");
    let written = write_into(&file, &unfinished, &bar);
    bar.finish_and_clear();
    let found = written.map_err(|error| match error {
        RecoverError::Write(error) => PlaceError::Write { path: place.wanted(), error }.into(),
        error => RecoverFileError::Recover { path: path.to_owned(), error },
    })?;
    Ok((found, place.keep(unfinished)?))
}

/// Opens a recorder's file.
fn open(path: &Path) -> Result<File, RecoverFileError> {
    let open = |error| RecoverFileError::Open { path: path.to_owned(), error };
    unpacked(open_packed(path)?).map_err(open)
}

/// Opens a file as it is.
fn open_packed(path: &Path) -> Result<File, RecoverFileError> {
    let open = |error| RecoverFileError::Open { path: path.to_owned(), error };
    files::regular(path).map_err(open)?.ok_or_else(|| open(io::Error::other("it is not a file")))
}

/// The file, or its content in an unnamed temporary file if it is compressed, since a flight recorder's file is not
/// read in order. The content is at most as long as the recorder's header says.
fn unpacked(mut file: File) -> io::Result<File> {
    let mut begin = Vec::new();
    (&file).take(4).read_to_end(&mut begin)?;
    file.rewind()?;
    if !inputs::is_compressed(&begin) {
        return Ok(file);
    }
    let mut packed = inputs::unpacked(file)?;
    let (mut whole, mut header) = (tempfile::tempfile()?, Vec::new());
    // The part that was decompressed may be recoverable.
    let unless_cut =
        |read: io::Result<()>| read.or_else(|error| if inputs::is_damage(&error) { Ok(()) } else { Err(error) });
    unless_cut(packed.by_ref().take(HEADER_BYTES).read_to_end(&mut header).map(drop))?;
    whole.write_all(&header)?;
    if let Some(layout) = Layout::read(&header) {
        let rest = layout.file_bytes().min(MOST_BYTES).saturating_sub(header.len() as u64);
        unless_cut(io::copy(&mut packed.take(rest), &mut whole).map(drop))?;
    }
    whole.rewind()?;
    Ok(whole)
}

/// The output for the trace of this recorder. `{pid}` in the name stands for the recorded process.
fn place(path: &Path, output: &Path) -> Result<TracePlace, RecoverFileError> {
    let mut process = std::process::id();
    if output.to_string_lossy().contains("{pid}") {
        // The file is read twice in this case, because the output is opened before the file is read.
        let recorder = &mut BufReader::with_capacity(1 << 16, open(path)?);
        let found = flight::recover(recorder, &mut io::sink());
        process = found.map_err(|error| RecoverFileError::Recover { path: path.to_owned(), error })?.process_id;
    }
    let output = &output_file::expand(output, process, |name| std::env::var(name).ok())?;
    if let (Ok(path), Ok(output)) = (path.canonicalize(), output.canonicalize())
        && path == output
    {
        return Err(RecoverFileError::Same { path });
    }
    Ok(TracePlace::named(output)?)
}

/// The bar counts the bytes of the trace, which has about as many as the file.
fn write_into(file: &File, unfinished: &NamedTempFile, bar: &ProgressBar) -> Result<Recovered, RecoverError> {
    let mut trace = BufWriter::with_capacity(1 << 20, bar.wrap_write(unfinished.as_file()));
    flight::recover(&mut BufReader::with_capacity(1 << 16, file), &mut trace)
}

/// Warnings about what is missing in the trace of a flight recorder.
pub(crate) fn gaps(found: &Recovered, file: &Path) -> Vec<String> {
    let mut gaps = Vec::new();
    if found.missing > 0 {
        gaps.push(format!(
            "warning: {}: the file is truncated: {} of the ring {} missing",
            file.display(),
            output::counted(found.missing, "piece"),
            output::is_or_are(found.missing)
        ));
    }
    if found.damaged > 0 {
        gaps.push(format!(
            "warning: {}: {} {} damaged or unfinished, and left out",
            file.display(),
            output::counted(found.damaged, "piece"),
            output::is_or_are(found.damaged)
        ));
    }
    gaps
}

/// A line that says what was found.
pub(crate) fn describe(found: &Recovered, output: &Path) -> String {
    let Recovered { process_id, process_name, zones, zones_before, open_zones, .. } = found;
    let zones_of = if *zones == 1 { "the last zone".to_owned() } else { format!("the last {zones} zones") };
    let mut text = format!("{zones_of} of {process_name} (process {process_id})");
    if *zones_before > 0 {
        text += &format!(", of {}", zones_before.saturating_add(*zones));
    }
    if *open_zones > 0 {
        text += &format!("; {open_zones} {} open", if *open_zones == 1 { "was" } else { "were" });
    }
    if found.has_incident {
        text += "; the trace says what happened";
    }
    output::printable(&format!("{}: {text}", output.display())) + "\n"
}
