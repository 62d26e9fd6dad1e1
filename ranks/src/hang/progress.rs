//! Reads the progress files of all ranks: those that are whole, and no others.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use warpline_core::hashing::fnv1a64;
use warpline_judge::progress::Progress;
use warpline_trace::files::regular;

use crate::error::Omission;

/// A file is not longer; a reader takes no more.
const MOST_BYTES: u64 = 64 << 10;

/// The time after which a file that is damaged is read again.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(20);

/// The files of a run by rank, and those that cannot be read.
pub fn read(path: &Path, run: &str) -> (BTreeMap<u32, Progress>, Vec<Omission>) {
    let mut left_out = Vec::new();
    let named = |file: &Path| file.strip_prefix(path).unwrap_or(file).display().to_string();
    let folder = path.join("progress").join(format!("run={run}"));
    // Another user who may write to the folder of the job could lead from there to anywhere.
    for folder in [path.join("progress"), folder.clone()] {
        if folder.is_symlink() {
            left_out.push(Omission { file: named(&folder), why: "is a link, which no rank creates".to_owned() });
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
    /// It is not a file that a rank writes.
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

/// Opens a file of a rank, whose path another user may have made; none if it is not there. It follows no link at the
/// end of the path and never waits for the writer of a pipe.
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

/// Whether a text has the check that it names: the hash of it with zeros in place of the check. A text without one is
/// taken as it is.
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
