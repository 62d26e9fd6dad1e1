//! Checks that no two sinks write to one file, because each would destroy the other's data, and finds files whose names
//! are of another format.
//!
//! It runs before any file is created. Directories and existing files are compared by their identity in the file
//! system, so links and other spellings of a path are detected. Devices such as `/dev/null` may be named twice.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::config::Config;
use crate::error::ConfigError;

#[derive(PartialEq, Eq)]
enum Target {
    /// An existing file.
    #[cfg(unix)]
    File(u64, u64),
    /// A file to create, by its directory and its name.
    New(PathBuf, OsString),
}

/// Checks that each file is named once. Each path comes with the setting that names it.
///
/// # Errors
/// The second setting that names a file.
pub(super) fn apart(named: Vec<(&'static str, PathBuf)>) -> Result<(), ConfigError> {
    let mut targets: Vec<Target> = Vec::new();
    for (setting, path) in named {
        let Some(target) = target(&path) else { continue };
        if targets.contains(&target) {
            let setting = format!("{setting}={}", path.display());
            let problem = format!("`{}` is named twice; each trace needs a file of its own", path.display());
            return Err(ConfigError::new(setting, problem));
        }
        targets.push(target);
    }
    Ok(())
}

/// Returns a message for each trace whose name says that it has the other format. It is written as it was asked for.
pub(crate) fn misnamed(config: &Config) -> impl Iterator<Item = String> {
    let is_named = |path: &Path, ending: &str| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.to_ascii_lowercase().ends_with(ending))
    };
    let text = |path: &Path, [key, format, other]: [&str; 3]| {
        let path = path.display();
        format!("`{key}={path}` writes a {format} trace; write `{other}={path}` if the name says what you want")
    };
    let perfetto = config.perfetto.iter().filter(move |path| is_named(path, ".json"));
    let chrome = config.chrome.iter().filter(move |path| is_named(path, ".pftrace"));
    perfetto
        .map(move |path| text(path, ["perfetto", "Perfetto", "chrome"]))
        .chain(chrome.map(move |path| text(path, ["chrome", "Chrome JSON", "perfetto"])))
}

/// Returns none for a character device, which may be named twice, and for a file that cannot be created, which is
/// reported later.
fn target(path: &Path) -> Option<Target> {
    #[cfg(unix)]
    if let Ok(there) = fs::metadata(path) {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        return (!there.file_type().is_char_device()).then(|| Target::File(there.dev(), there.ino()));
    }
    // A link may lead to a file that does not exist yet.
    let path = fs::read_link(path)
        .map_or_else(|_| path.to_owned(), |to| path.parent().map_or(to.clone(), |folder| folder.join(to)));
    let name = path.file_name()?.to_owned();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(Target::New(fs::canonicalize(folder).ok()?, name))
}
