//! The output file. It is written under a temporary name in the same folder, renamed when it is complete, and removed on an error.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::{Builder, NamedTempFile};

use super::{AnnotateError, Options};

pub(super) struct Output {
    path: PathBuf,
    pub(super) is_perfetto: bool,
    is_packed: bool,
    temporary: Option<NamedTempFile>,
}

impl Output {
    /// Checks the name; creates nothing.
    pub(super) fn new(options: &Options) -> Result<Output, AnnotateError> {
        let path = options.output.clone();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let plain = name.strip_suffix(".gz");
        let is_json = plain.unwrap_or(&name).ends_with(".json");
        let is_perfetto = [".pftrace", ".perfetto-trace"].iter().any(|end| plain.unwrap_or(&name).ends_with(end));
        if !is_json && !is_perfetto {
            return Err(AnnotateError::OutputName { path });
        }
        let same =
            |input: &Path| fs::canonicalize(input).ok().zip(fs::canonicalize(&path).ok()).is_some_and(|(a, b)| a == b);
        if same(&options.annotations) || same(&options.trace) {
            return Err(AnnotateError::OutputIsInput { path });
        }
        Ok(Output { path, is_perfetto, is_packed: plain.is_some(), temporary: None })
    }

    /// Creates the temporary file.
    pub(super) fn open(&mut self, on_temporary: impl FnOnce(&Path)) -> Result<Box<dyn Write>, AnnotateError> {
        let temporary = beside(&self.path).map_err(|error| self.failed(error))?;
        on_temporary(temporary.path());
        let file = temporary.reopen().map_err(|error| self.failed(error))?;
        self.temporary = Some(temporary);
        let file = BufWriter::with_capacity(1 << 20, file);
        Ok(if self.is_packed {
            Box::new(Packed(Some(GzEncoder::new(file, Compression::fast()))))
        } else {
            Box::new(file)
        })
    }

    /// Renames the complete file to its final name.
    pub(super) fn keep(&mut self) -> Result<(), AnnotateError> {
        let Some(temporary) = self.temporary.take() else { return Ok(()) };
        temporary.persist(&self.path).map(drop).map_err(|error| self.failed(error.error))
    }

    pub(super) fn failed(&self, error: io::Error) -> AnnotateError {
        AnnotateError::Write { path: self.path.clone(), error }
    }
}

/// Creates a temporary file in the folder of `path`, which is removed unless it is renamed.
///
/// # Errors
/// The system's error, without a path: the user does not know the temporary name.
pub fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // With the usual permissions of a new file. `tempfile` would restrict it to its owner.
    Builder::new()
        .prefix(".warpline-")
        .suffix(".part")
        .make_in(folder, |path| OpenOptions::new().read(true).write(true).create_new(true).open(path))
}

/// A gzip file. Flushing it writes its trailer, so it is flushed once, at the end.
struct Packed(Option<GzEncoder<BufWriter<File>>>);

impl Write for Packed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Some(encoder) => encoder.write(bytes),
            None => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.take() {
            Some(encoder) => encoder.finish()?.flush(),
            None => Ok(()),
        }
    }
}
