//! The endings of the names of files, compressed or not.

/// The endings of the names of Perfetto traces.
pub const PERFETTO: &[&str] = &["pftrace", "perfetto-trace"];

/// The endings of the names of traces.
pub const TRACES: &[&str] = &["pftrace", "perfetto-trace", "json"];

/// The endings of the names of Chrome traces.
pub const CHROME: &[&str] = &["json"];

/// The endings of the names of flight recorders' files.
pub const FLIGHT: &[&str] = &["flight"];

/// The endings of the names of compressed files.
const COMPRESSED: [&str; 2] = ["gz", "zst"];

/// Whether a name has one of these endings, also with one of a compressed file.
pub fn has_ending(name: &str, endings: &[&str]) -> bool {
    let name = name.to_lowercase();
    stem(uncompressed(&name), endings).is_some()
}

/// A name without the ending of a compressed file.
pub fn uncompressed(name: &str) -> &str {
    stem(name, &COMPRESSED).unwrap_or(name)
}

/// A name without the one of these endings that it has.
pub fn stem<'a>(name: &'a str, endings: &[&str]) -> Option<&'a str> {
    endings.iter().find_map(|ending| name.strip_suffix(ending)?.strip_suffix('.'))
}
