//! A progress file, as docs/ranks.md states it, and the reading of all of them.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use warpline_core::hashing::fnv1a64;
use warpline_trace::files::regular;

use crate::error::Omission;

/// A file is not longer; a reader takes no more.
const MOST_BYTES: u64 = 64 << 10;

/// The time after which a file that is damaged is read again.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(20);

/// What a rank wrote last.
#[derive(Debug, Clone, Deserialize)]
pub struct Progress {
    /// The rank.
    pub rank: u32,
    /// Its host.
    #[serde(default)]
    pub host: String,
    /// Its process.
    #[serde(default)]
    pub pid: i64,
    /// The boot of its host: ranks with one share a clock.
    #[serde(default)]
    pub boot_id: String,
    /// Its process, as the name of its socket says it.
    #[serde(default)]
    pub process: Option<String>,
    /// The file of its flight recorder.
    #[serde(default)]
    pub flight: Option<String>,
    /// A hash of the text.
    #[serde(default)]
    pub check: Option<String>,
    /// When the file was changed, by the clock of its file system.
    #[serde(skip)]
    pub changed: Option<std::time::SystemTime>,
    /// When it wrote.
    #[serde(default)]
    pub updated_realtime_ns: i64,
    /// On its clock.
    #[serde(default)]
    pub updated_boottime_ns: i64,
    /// Its session is over.
    #[serde(default)]
    pub ended: bool,
    /// The step that it is in.
    #[serde(default)]
    pub step: Option<i64>,
    /// Its groups.
    #[serde(default)]
    pub comms: Vec<Group>,
    /// Its oldest open zone.
    #[serde(default)]
    pub open: Option<Open>,
    /// Something had no room.
    #[serde(default)]
    pub truncated: bool,
}

/// How far a rank is in a group.
#[derive(Debug, Clone, Deserialize)]
pub struct Group {
    /// The group.
    pub comm: String,
    /// How many ranks it has.
    #[serde(default)]
    pub size: u32,
    /// They.
    #[serde(default)]
    pub members: Option<String>,
    /// The last number that the host launched.
    #[serde(default)]
    pub entered: Option<i64>,
    /// The last number that the device began.
    #[serde(default)]
    pub started: Option<i64>,
    /// The last number that the device ended.
    #[serde(default)]
    pub completed: Option<i64>,
    /// The first number that its signatures cover.
    #[serde(default)]
    pub first: Option<i64>,
    /// The last calls.
    #[serde(default)]
    pub recent: Vec<Call>,
}

/// A call: number, operation, type, items, root, and the signature of all calls up to it.
#[derive(Debug, Clone, Deserialize)]
pub struct Call(
    pub i64,
    pub String,
    #[serde(default)] pub Option<String>,
    #[serde(default)] pub Option<i64>,
    #[serde(default)] pub Option<i64>,
    #[serde(default)] pub String,
);

impl Call {
    /// What it called.
    pub fn sentence(&self) -> String {
        let kind = self.2.as_deref().unwrap_or("?");
        let items = self.3.map_or("?".to_owned(), |items| items.to_string());
        let root = self.4.map_or(String::new(), |root| format!(", root {root}"));
        format!("{} of {items} {kind}{root}", self.1)
    }
}

/// An open zone.
#[derive(Debug, Clone, Deserialize, Serialize, PartialEq)]
pub struct Open {
    /// The range.
    pub name: String,
    /// The source file.
    #[serde(default)]
    pub file: String,
    /// Its line.
    #[serde(default)]
    pub line: u32,
    /// The thread.
    #[serde(default)]
    pub thread: String,
    /// Since when, on the host's clock.
    #[serde(default)]
    pub since_ns: i64,
    /// Its fields.
    #[serde(default)]
    pub fields: BTreeMap<String, String>,
    /// The group, of a collective.
    #[serde(default)]
    pub comm: Option<String>,
    /// Its number.
    #[serde(default)]
    pub seq: Option<i64>,
}

impl Open {
    /// Where it is.
    pub fn sentence(&self) -> String {
        let fields: Vec<String> = self.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let fields = if fields.is_empty() { String::new() } else { format!(" ({})", fields.join(", ")) };
        format!("`{}`{fields} at {}:{}, thread `{}`", self.name, self.file, self.line, self.thread)
    }
}

impl Progress {
    /// Whether the rank has begun a step, or begun or completed a collective, since it wrote the other file.
    pub fn has_moved_since(&self, before: &Progress) -> bool {
        let of = |file: &Progress| -> BTreeMap<String, (Option<i64>, Option<i64>)> {
            file.comms.iter().map(|group| (group.comm.clone(), (group.entered, group.completed))).collect()
        };
        self.pid != before.pid || self.step != before.step || of(self) != of(before)
    }

    /// Takes what it has begun for completed.
    pub fn waits_for_nobody(&mut self) {
        self.comms.iter_mut().for_each(|group| group.completed = group.entered);
    }

    /// Takes what it has not completed for not begun: a dead rank does not wait, and others wait for it.
    pub fn is_dead(&mut self) {
        self.comms.iter_mut().for_each(|group| group.entered = group.completed);
    }

    /// Whether it has entered this collective.
    pub fn has_entered(&self, comm: &str, seq: i64) -> bool {
        self.comms.iter().any(|group| group.comm == comm && group.entered >= Some(seq))
    }
}

/// The files of a run by rank, and those that cannot be read.
pub fn read(path: &Path, run: &str) -> (BTreeMap<u32, Progress>, Vec<Omission>) {
    let mut left_out = Vec::new();
    let named = |file: &Path| file.strip_prefix(path).unwrap_or(file).display().to_string();
    let folder = path.join("progress").join(format!("run={run}"));
    // Another user who may write to the folder of the job could lead from there to anywhere.
    for folder in [path.join("progress"), folder.clone()] {
        if folder.is_symlink() {
            left_out.push(Omission { file: named(&folder), why: "is a link, and no rank makes one".to_owned() });
            return (BTreeMap::new(), left_out);
        }
    }
    let device = std::fs::metadata(path).map(|facts| facts.dev()).ok();
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|file| file.extension().is_some_and(|end| end == "json"));
    paths.sort();
    let mut found: Vec<_> = paths.into_iter().map(|file| (one(&file, device), file)).collect();
    // A rank writes over its file, and this may have been the middle of that.
    if found.iter().any(|(read, _)| matches!(read, Err(Unread::Damaged(_)))) {
        std::thread::sleep(AGAIN);
        let damaged = found.iter_mut().filter(|(read, _)| matches!(read, Err(Unread::Damaged(_))));
        damaged.for_each(|(read, file)| *read = one(file, device));
    }
    let mut all: BTreeMap<u32, Progress> = BTreeMap::new();
    for (read, file) in found {
        let mut leave_out = |why: String| left_out.push(Omission { file: named(&file), why });
        match read {
            Ok(progress) => {
                let other = all.get(&progress.rank);
                if other.is_some() {
                    leave_out(format!("rank {} has another file; the newer one counts", progress.rank));
                }
                if other.is_none_or(|other| other.updated_realtime_ns < progress.updated_realtime_ns) {
                    all.insert(progress.rank, progress);
                }
            }
            Err(Unread::Damaged(why) | Unread::Refused(why)) => leave_out(why),
        }
    }
    (all, left_out)
}

/// Why a file is not read.
enum Unread {
    /// Its text is not whole.
    Damaged(String),
    /// It is none that a rank writes.
    Refused(String),
}

fn one(file: &Path, device: Option<u64>) -> Result<Progress, Unread> {
    let (opened, facts) = plain(file)
        .and_then(|opened| opened.ok_or_else(|| "cannot be read: it is gone".to_owned()))
        .map_err(Unread::Refused)?;
    if Some(facts.dev()) != device {
        return Err(Unread::Refused("is on another file system than the folder of the job".to_owned()));
    }
    if facts.len() > MOST_BYTES {
        return Err(Unread::Refused(format!("has {} bytes, which no rank writes", facts.len())));
    }
    let mut text = Vec::new();
    // It may have become longer since.
    let read = opened.take(MOST_BYTES).read_to_end(&mut text);
    read.map_err(|error| Unread::Refused(format!("cannot be read: {error}")))?;
    let progress = parse(&text).map_err(Unread::Damaged)?;
    Ok(Progress { changed: facts.modified().ok(), ..progress })
}

/// Opens a file of a rank, whose path another user may have made; none if it is not there. It follows no link at the end of the path and never waits
/// for who writes to a pipe.
pub(super) fn plain(path: &Path) -> Result<Option<(File, Metadata)>, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let named = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        named => named.map_err(cannot)?,
    };
    let what = named.file_type();
    if what.is_symlink() || what.is_dir() {
        let what = if what.is_dir() { "folder" } else { "link" };
        return Err(format!("is a {what}, and a rank writes a file; remove it"));
    }
    let other = || "is not a file; remove it".to_owned();
    let opened = regular(path).map_err(cannot)?.ok_or_else(other)?;
    let facts = opened.metadata().map_err(cannot)?;
    // A link may have taken the name meanwhile.
    if (facts.dev(), facts.ino()) != (named.dev(), named.ino()) {
        return Err(other());
    }
    Ok(Some((opened, facts)))
}

fn parse(text: &[u8]) -> Result<Progress, String> {
    let progress = serde_json::from_slice::<Progress>(text).map_err(|error| format!("is damaged: {error}"))?;
    if is_whole(text, progress.check.as_deref()) {
        Ok(progress)
    } else {
        Err("is damaged: its check is wrong".to_owned())
    }
}

/// Whether a text has the check that it names: the hash of it with zeros in place of the check. A text without one is taken as it is.
fn is_whole(text: &[u8], check: Option<&str>) -> bool {
    let Some(check) = check else { return true };
    let text = String::from_utf8_lossy(text.trim_ascii_end());
    let [named, zeros] = [check, "0000000000000000"].map(|check| format!(r#""check":"{check}""#));
    u64::from_str_radix(check, 16).is_ok_and(|hash| hash == fnv1a64(text.replacen(&named, &zeros, 1).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(step: i64) -> String {
        let text = format!(r#"{{"check":"0000000000000000","rank":3,"step":{step},"updated_realtime_ns":{step}000}}"#);
        let check = format!("{:016x}", fnv1a64(text.as_bytes()));
        format!("{:4095}\n", text.replacen("0000000000000000", &check, 1))
    }

    #[test]
    fn a_text_that_is_half_another_is_damaged() {
        let [before, after] = [text(41), text(42)];
        assert_eq!(parse(before.as_bytes()).unwrap().step, Some(41));
        for at in 0..before.len() {
            let mixed = format!("{}{}", &before[..at], &after[at..]);
            let is_one = mixed == before || mixed == after;
            let error = parse(mixed.as_bytes()).map(|progress| progress.step).err();
            assert_eq!(error.as_deref(), (!is_one).then_some("is damaged: its check is wrong"), "{mixed}");
        }
        let unchecked = parse(br#"{"rank":3,"step":7}"#).unwrap();
        assert_eq!((unchecked.step, unchecked.check), (Some(7), None));
        assert!(parse(br#"{"rank":3,"check":"no hash"}"#).is_err());
    }
}
