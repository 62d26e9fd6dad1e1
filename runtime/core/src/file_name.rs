//! Placeholders in file names: `{pid}`, `{rank}` and `{host}`; and the alternative name of a file whose requested name is taken.
//!
//! Settings check names when they are read, with and without feature `enable`; a session expands them when it starts, so that a
//! forked process gets its own names. The command `warpline` expands the names of its outputs by the same rules.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

pub use crate::environment::launched_rank;

/// The placeholders, as error messages list them.
const PLACEHOLDERS: &str = "`{pid}`, `{rank}` and `{host}`";

/// Checks that the path has no unknown placeholders.
///
/// # Errors
/// The error, with its remedy.
pub fn check(path: &Path) -> Result<(), String> {
    replace(path, |name| matches!(name, "pid" | "rank" | "host").then_some(Cow::Borrowed(""))).map(drop)
}

/// Returns the path with its placeholders expanded for this process, with the current values.
///
/// # Errors
/// The error, with its remedy.
pub fn expand(path: &Path) -> Result<PathBuf, String> {
    use crate::process;
    expand_as(path, std::process::id(), process::launched_rank().unwrap_or(0), &process::host())
}

/// Returns the path with its placeholders replaced by the process id, the rank and the host.
///
/// # Errors
/// The error, with its remedy.
pub fn expand_as(path: &Path, process: u32, rank: u32, host: &str) -> Result<PathBuf, String> {
    replace(path, |name| match name {
        "pid" => Some(process.to_string().into()),
        "rank" => Some(rank.to_string().into()),
        // A separator would name another folder.
        "host" => Some(host.replace(['/', '\\'], "_").into()),
        _ => None,
    })
}

/// Returns the path with the process id before the extension of its name, followed by a number from the second attempt on.
pub fn of_process(path: &Path, attempt: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    if attempt > 1 {
        name.push(format!("-{attempt}"));
    }
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

fn replace<'a>(path: &Path, value: impl Fn(&str) -> Option<Cow<'a, str>>) -> Result<PathBuf, String> {
    if !path.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b'{' | b'}')) {
        return Ok(path.to_owned());
    }
    let text = path.to_str().ok_or("is not UTF-8 and has a brace: write a path with placeholders in UTF-8")?;
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        let (brace, after) = from.split_at(1);
        replaced.push_str(before);
        rest = match (after.strip_prefix(brace), brace) {
            (Some(after), _) => {
                replaced.push_str(brace);
                after
            }
            (None, "}") => {
                replaced.push_str(brace);
                after
            }
            (None, _) => {
                let (name, after) = after.split_once('}').ok_or_else(|| {
                    format!("has a `{{` without its `}}`; there are {PLACEHOLDERS}; write `{{{{` for a brace")
                })?;
                replaced.push_str(&value(name).ok_or_else(|| {
                    format!("has no placeholder `{{{name}}}`; there are {PLACEHOLDERS}; write `{{{{` for a brace")
                })?);
                after
            }
        };
    }
    replaced.push_str(rest);
    Ok(replaced.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_placeholder_is_refused_with_those_that_there_are() {
        let problem = |path: &str| check(Path::new(path)).expect_err(path);
        assert_eq!(
            problem("t.{node}.pftrace"),
            "has no placeholder `{node}`; there are `{pid}`, `{rank}` and `{host}`; write `{{` for a brace"
        );
        assert!(problem("{}").contains("no placeholder `{}`") && problem("t.{pid").contains("`{` without its `}`"));
        for path in ["t.pftrace", "{host}/t.{rank}-{pid}.pftrace", "a{{b}}", "a}b", "{{pid}}"] {
            assert_eq!(check(Path::new(path)), Ok(()), "{path}");
        }
    }

    #[test]
    fn placeholders_stand_for_the_process_and_its_rank_and_host() {
        let expand = |path: &str| expand(Path::new(path)).expect(path).to_str().expect("UTF-8").to_owned();
        let pid = std::process::id();
        assert_eq!(expand("a/t.{pid}.pftrace"), format!("a/t.{pid}.pftrace"));
        assert_eq!(expand("{{{pid}}}"), format!("{{{pid}}}"));
        assert_eq!((expand("{{pid}}"), expand("a}b")), ("{pid}".to_owned(), "a}b".to_owned()));
        assert_eq!(expand("{rank}"), crate::process::launched_rank().unwrap_or(0).to_string());
        let host = expand("{host}");
        assert!(!host.is_empty() && !host.contains('/'), "{host}");
    }

    #[test]
    fn the_process_id_stands_before_the_extension() {
        let pid = std::process::id();
        let name = |path: &str, attempt| of_process(Path::new(path), attempt).to_str().expect("UTF-8").to_owned();
        assert_eq!(name("a/t.pftrace", 1), format!("a/t.{pid}.pftrace"));
        assert_eq!(name("a.b/trace", 1), format!("a.b/trace.{pid}"));
        assert_eq!(name("t.json", 3), format!("t.{pid}-3.json"));
    }
}
