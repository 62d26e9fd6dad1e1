//! The files that a session leaves, and the lines on standard error that say where they are.
//!
//! `start` registers each file when it is opened, and the end of the session prints them. It asks the file system for
//! their sizes, so a session whose sinks hang prints nothing. A trace that was removed during the session is an error
//! of its sink; one that was moved is complete, and a note says so.

use std::fs;
use std::path::{Path, PathBuf};

use warpline_core::stderr;
use warpline_report::{Report, SinkReport};
use warpline_trace::files;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Perfetto,
    Chrome,
    Flight,
    Report,
}

/// A file that a session writes.
#[derive(Debug)]
pub(super) struct Written {
    format: Format,
    path: PathBuf,
    /// The absolute path: the program may change its working directory.
    absolute: PathBuf,
    /// Device and inode of the file when it was opened.
    identity: Option<(u64, u64)>,
}

impl Format {
    /// Returns how to open the file.
    fn remedy(self, path: &Path) -> String {
        match self {
            Format::Perfetto => {
                format!("open it with `warpline open {}` or at https://ui.perfetto.dev", path.display())
            }
            Format::Chrome => {
                format!(
                    "open it with `warpline open {}` or at https://ui.perfetto.dev or chrome://tracing",
                    path.display()
                )
            }
            Format::Flight => format!("`warpline recover {}` converts it to a trace", path.display()),
            Format::Report if path.extension().is_some_and(|ending| ending == "html") => {
                "open it in a browser".to_owned()
            }
            Format::Report => "it has the report".to_owned(),
        }
    }
}

impl Written {
    pub(super) fn new(format: Format, path: &Path) -> Written {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let identity = identity(&absolute);
        Written { format, path: path.to_owned(), absolute, identity }
    }

    /// Returns what to tell the user of a report that is not written.
    pub(super) fn is_not_written(&self, why: &str) -> String {
        format!("the report is not in `{}`: {why}; `summary` without a file prints it", self.path.display())
    }

    /// Returns the line for the file, if it exists and has at least some of its records.
    fn line(&self, sinks: &[SinkReport]) -> Option<String> {
        let has_none = |sink: &SinkReport| sink.taken == 0 && sink.lost > 0;
        if self.is_elsewhere() || self.sink(sinks).is_some_and(has_none) {
            return None;
        }
        let bytes = fs::metadata(&self.absolute).ok()?.len();
        // Print the path as the user wrote it if it still leads to the file.
        let is_here = std::path::absolute(&self.path).is_ok_and(|path| path == self.absolute);
        let path = if is_here { &self.path } else { &self.absolute };
        Some(format!("wrote `{}` ({}); {}", path.display(), size(bytes), self.format.remedy(path)))
    }

    /// Returns whether the file was moved or replaced. The flight recorder reports that itself.
    fn is_elsewhere(&self) -> bool {
        self.format != Format::Flight && self.identity.is_some() && identity(&self.absolute) != self.identity
    }

    /// Returns the report of the sink that wrote the file.
    fn sink<'a>(&self, sinks: &'a [SinkReport]) -> Option<&'a SinkReport> {
        let name = match self.format {
            Format::Perfetto => format!("perfetto={}", self.path.display()),
            Format::Chrome => format!("chrome={}", self.path.display()),
            Format::Flight => "flight".to_owned(),
            Format::Report => return None,
        };
        sinks.iter().find(|sink| sink.name == name)
    }
}

/// Returns a note for each trace that was moved. A removed trace is already an error of its sink.
pub(super) fn moved(written: &[Written], sinks: &[SinkReport]) -> impl Iterator<Item = String> {
    let is_moved = |file: &&Written| file.is_elsewhere() && file.sink(sinks).is_none_or(|sink| sink.errors == 0);
    written.iter().filter(is_moved).map(|file| {
        format!(
            "`{}` was moved while this session wrote to it: the whole trace is in the file that was moved",
            file.absolute.display()
        )
    })
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    files::identity(&fs::metadata(path).ok()?)
}

/// Prints where each file is: those opened at the start, and those that rotation kept.
pub(super) fn say(written: &[Written], report: &Report) {
    let rotated =
        report.sinks.iter().filter(|sink| sink.name.starts_with("perfetto=")).flat_map(|sink| &sink.kept.files);
    let rotated: Vec<_> = rotated.map(|file| Written::new(Format::Perfetto, &file.path)).collect();
    written.iter().chain(&rotated).filter_map(|file| file.line(&report.sinks)).for_each(stderr::line);
}

/// Formats a size in the units that settings use.
fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((unit, size)) => format!("{:.1} {unit}", bytes as f64 / *size as f64),
        None if bytes == 1 => "1 byte".to_owned(),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_the_units_of_settings() {
        let sizes = [0, 1, 1_023, 1_024, 1_536 << 10, 3 << 30].map(size);
        assert_eq!(sizes, ["0 bytes", "1 byte", "1023 bytes", "1.0 KiB", "1.5 MiB", "3.0 GiB"]);
    }
}
