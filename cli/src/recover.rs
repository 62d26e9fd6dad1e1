//! `warpline recover`: converts the file of a flight recorder to a trace. The output appears only when it is complete. `chrome` recovers
//! Chrome traces.

pub(crate) mod chrome;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use warpline_core::recovered::{RecoverError, Recovered};
use warpline_trace::flight::recover;

use crate::inputs;
use crate::output::{self, remedy};
use crate::place::{self, PlaceError, TracePlace};

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
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// Recovers into a temporary file beside the output, and renames it when it is complete. `on_temporary` gets the path of the temporary
/// file. Returns what was found, and the path of the trace.
pub(crate) fn recover_file(
    path: &Path,
    place: &TracePlace,
    on_temporary: impl FnOnce(&Path),
) -> Result<(Recovered, PathBuf), RecoverFileError> {
    let file = open(path)?;
    let unfinished = place.begin()?;
    on_temporary(unfinished.path());
    let found = write_into(&file, &unfinished).map_err(|error| match error {
        RecoverError::Write(error) => PlaceError::Write { path: place.wanted(), error }.into(),
        error => RecoverFileError::Recover { path: path.to_owned(), error },
    })?;
    Ok((found, place.keep(unfinished)?))
}

fn open(path: &Path) -> Result<File, RecoverFileError> {
    let open = |error| RecoverFileError::Open { path: path.to_owned(), error };
    let mut options = File::options();
    // Opening a pipe would block.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let file = options.read(true).open(path).map_err(open)?;
    if !file.metadata().map_err(open)?.is_file() {
        return Err(open(io::Error::other("it is not a file")));
    }
    unpacked(file).map_err(open)
}

/// The file, or what it contains if it is compressed: in a file without a name, since a flight recorder's file is not read in order.
fn unpacked(mut file: File) -> io::Result<File> {
    let mut begin = Vec::new();
    (&file).take(4).read_to_end(&mut begin)?;
    file.rewind()?;
    if !inputs::is_compressed(&begin) {
        return Ok(file);
    }
    let mut whole = tempfile::tempfile()?;
    match io::copy(&mut inputs::unpacked(file)?, &mut whole) {
        // What is there may be recovered.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
        _ => {}
    }
    whole.rewind()?;
    Ok(whole)
}

/// The output for the trace of this recorder. `{pid}` in the name stands for the recorded process.
pub(crate) fn place(path: &Path, output: &Path) -> Result<TracePlace, RecoverFileError> {
    let mut process = std::process::id();
    if output.to_string_lossy().contains("{pid}") {
        // The file is read twice in this case, because the output is opened before the file is read.
        let recorder = &mut BufReader::with_capacity(1 << 16, open(path)?);
        let found = recover(recorder, &mut io::sink());
        process = found.map_err(|error| RecoverFileError::Recover { path: path.to_owned(), error })?.process_id;
    }
    let output = &place::expand(output, process, |name| std::env::var(name).ok())?;
    if let (Ok(path), Ok(output)) = (path.canonicalize(), output.canonicalize())
        && path == output
    {
        return Err(RecoverFileError::Same { path });
    }
    Ok(TracePlace::named(output)?)
}

fn write_into(file: &File, unfinished: &NamedTempFile) -> Result<Recovered, RecoverError> {
    let mut trace = BufWriter::with_capacity(1 << 20, unfinished.as_file());
    recover(&mut BufReader::with_capacity(1 << 16, file), &mut trace)
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
        text += "; it says what happened";
    }
    output::printable(&format!("{}: {text}", output.display())) + "\n"
}
