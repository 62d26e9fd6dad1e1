//! Numbered files, of which the newest are kept.
//!
//! `trace.pftrace` becomes `trace.0001.pftrace`, `trace.0002.pftrace`, and so on, after the highest number of earlier runs. A
//! session removes only files that it created: no file of an earlier run, and no file that has replaced its own. It may take over
//! an empty file that a killed process has left. An older file is removed only when the newest one contains its beginning, so a
//! process that is killed in between leaves as many readable files as configured.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::pieces::{Holds, Medium};
use crate::files::own::OwnFile;
use crate::files::system::{identity, is_at};
use crate::write::accounting::write_counted;
use warpline_core::file_name;
use warpline_core::sorting;
use warpline_report::{Retention, TraceFile};

pub struct Files {
    series: Series,
    limit: u64,
    keep: usize,
    next: u64,
    file: OwnFile,
    /// The existing files, the current one last.
    kept: VecDeque<Ours>,
    removed: u64,
    removed_zones: u64,
}

/// A file that this session has created, or an empty one that it has taken over.
struct Ours {
    file: TraceFile,
    /// The number of all records in the file, including zones.
    records: u64,
    identity: Option<Identity>,
}

type Identity = (u64, u64);

impl Files {
    /// Creates the first file. Returns the path from which its name is made: the requested one, or another if another session
    /// writes to files of the requested path.
    pub(super) fn create(asked: &Path, limit: u64, keep: usize) -> io::Result<(Files, PathBuf)> {
        refuse_other_than_files(asked)?;
        let mut path = asked.to_owned();
        for attempt in 1.. {
            let files = Files::open(&path, limit, keep)?;
            if let Some(files) = files {
                return Ok((files, path));
            }
            path = file_name::of_process(asked, attempt);
        }
        Err(io::Error::other("other processes write to files of that name; choose another path"))
    }

    /// Returns none if another session writes to files of this path.
    fn open(path: &Path, limit: u64, keep: usize) -> io::Result<Option<Files>> {
        // The program may change its working directory, but later files must be in the same directory as the first one.
        let path = &std::path::absolute(path)?;
        let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let series = Series {
            folder: path.parent().unwrap_or(Path::new("/")).to_owned(),
            stem: text(path.file_stem()).ok_or_else(|| io::Error::other("it names no file; choose another path"))?,
            extension: text(path.extension()).map(|extension| format!(".{extension}")).unwrap_or_default(),
        };
        let Some((number, ours, file)) = series.first()? else { return Ok(None) };
        Ok(Some(Files {
            series,
            limit,
            keep: keep.max(1),
            next: number + 1,
            file,
            kept: VecDeque::from([ours]),
            removed: 0,
            removed_zones: 0,
        }))
    }

    /// Returns the files that are not known to be unreadable. The last one is unreadable if it was removed or truncated while it
    /// was written.
    fn readable(&self) -> impl Iterator<Item = &Ours> {
        let lost = usize::from(self.file.has_lost_all());
        self.kept.iter().take(self.kept.len().saturating_sub(lost))
    }

    /// Returns the files whose records are lost because another program has changed them.
    fn changed(&self) -> impl Iterator<Item = &Ours> {
        self.readable().filter(|ours| ours.is_changed())
    }

    fn remove_oldest(&mut self) {
        while self.kept.len() > self.keep {
            let Some(ours) = self.kept.pop_front() else { return };
            self.removed += 1;
            self.removed_zones += ours.file.zones;
            if ours.is_there() {
                // A file that cannot be removed is one too many, but not a reason to stop.
                let _ = fs::remove_file(&ours.file.path);
            }
        }
    }
}

impl Ours {
    fn hold(&mut self, holds: Holds) {
        (self.file.zones, self.records) = (holds.zones, holds.records);
    }

    /// Whether the file was not moved, removed or replaced.
    fn is_there(&self) -> bool {
        self.metadata().is_some()
    }

    /// Whether the file exists and another program has truncated it or written to it.
    fn is_changed(&self) -> bool {
        self.metadata().is_some_and(|there| there.len() != self.file.bytes)
    }

    fn metadata(&self) -> Option<Metadata> {
        fs::symlink_metadata(&self.file.path).ok().filter(|there| identity(there) == self.identity)
    }
}

impl Drop for Files {
    /// Removes an empty file: the session did not start, or the disk had no room for the file.
    fn drop(&mut self) {
        if let Some(last) = self.kept.back().filter(|last| last.file.bytes == 0)
            && is_at(&self.file, &last.file.path)
        {
            let _ = fs::remove_file(&last.file.path);
        }
    }
}

impl Medium for Files {
    fn size(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }

    fn room(&self) -> usize {
        let written = self.kept.back().map_or(0, |ours| ours.file.bytes);
        usize::try_from(self.limit.saturating_sub(written)).unwrap_or(usize::MAX)
    }

    fn append(&mut self, bytes: &[u8], holds: Holds) -> (usize, io::Result<()>) {
        let (taken, result) = write_counted(&mut self.file, bytes);
        if let Some(current) = self.kept.back_mut() {
            current.file.bytes += taken as u64;
            current.hold(holds);
        }
        // The oldest file is removed after the beginning of a new file is written, or to make room for it.
        let is_full =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        if !bytes.is_empty() && result.as_ref().err().is_none_or(is_full) {
            self.remove_oldest();
        }
        (taken, result)
    }

    fn next(&mut self, _before: u64) -> io::Result<()> {
        let (number, ours, file) = self.series.next(self.next)?;
        if self.file.has_lost_all() {
            // The sink has counted the records in it as lost.
            self.kept.pop_back();
        }
        self.next = number + 1;
        self.file = file;
        self.kept.push_back(ours);
        Ok(())
    }

    fn check(&mut self) -> io::Result<()> {
        self.file.check_again()
    }

    fn has_lost_piece(&self) -> bool {
        self.file.has_lost_all()
    }

    fn holds(&mut self, holds: Holds) {
        if let Some(current) = self.kept.back_mut() {
            current.hold(holds);
        }
    }

    fn check_complete(&mut self) -> io::Result<()> {
        self.changed().next().map_or(Ok(()), |ours| {
            Err(io::Error::other(format!(
                "`{}` was truncated or written to by another program after it was complete: its records are lost; do not change \
                 the files until the session ends",
                ours.file.path.display()
            )))
        })
    }

    fn lost(&self) -> u64 {
        self.changed().map(|ours| ours.records).sum()
    }

    /// A complete file that was moved or removed counts as removed.
    fn kept(&self) -> Retention {
        let (mut removed, mut removed_zones, mut files) = (self.removed, self.removed_zones, Vec::new());
        for ours in self.readable().filter(|ours| ours.file.bytes > 0 && !ours.is_changed()) {
            if ours.is_there() {
                files.push(ours.file.clone());
            } else {
                removed += 1;
                removed_zones += ours.file.zones;
            }
        }
        Retention { files, removed, removed_zones }
    }
}

/// Files whose names differ only in a number.
struct Series {
    folder: PathBuf,
    stem: String,
    extension: String,
}

type Made = (u64, Ours, OwnFile);

impl Series {
    /// Returns the path of the file with this number.
    fn piece(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{}.{number:04}{}", self.stem, self.extension))
    }

    /// Returns the two highest numbers of existing files, highest first.
    fn last_numbers(&self) -> io::Result<Vec<u64>> {
        let names = fs::read_dir(&self.folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let number = |name: String| -> Option<u64> {
            let digits = name.strip_prefix(&self.stem)?.strip_prefix('.')?.strip_suffix(&self.extension)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        // A number that leaves no room for more belongs to no session.
        let mut numbers: Vec<_> = names.filter_map(number).filter(|number| *number < u64::MAX / 2).collect();
        sorting::sort_by(&mut numbers, |a, b| b.cmp(a));
        numbers.truncate(2);
        Ok(numbers)
    }

    /// Returns the first file of a session: numbered after earlier ones, or an empty one that a killed process has left. Returns
    /// none if another session writes to files of this name: it has the lock of the last one, or of the one before while it creates
    /// the last.
    fn first(&self) -> io::Result<Option<Made>> {
        // Another round means that another process has created or taken a file.
        for _ in 0..1_000 {
            let numbers = self.last_numbers()?;
            let mut empty = None;
            for number in &numbers {
                // NFS locks only files that are open for writing. A file that cannot be opened is not being written by this user.
                let Ok(file) = OpenOptions::new().write(true).open(self.piece(*number)) else { continue };
                let Ok(file) = OwnFile::lock(file) else { return Ok(None) };
                let is_last = numbers.first() == Some(number);
                // Without a lock, the file may be another session's.
                if is_last
                    && !file.has_no_lock
                    && file.metadata().is_ok_and(|there| there.is_file() && there.len() == 0)
                {
                    empty = Some((*number, file));
                }
            }
            if let Some((number, file)) = empty {
                if is_at(&file, &self.piece(number)) {
                    return Ok(Some(self.made(number, file)));
                }
                continue;
            }
            if let Some(made) = self.make(numbers.first().map_or(1, |last| last + 1))? {
                return Ok(Some(made));
            }
        }
        Err(io::Error::other("other processes create files of that name at the same time; choose another path"))
    }

    /// Creates the file with this number, or with the next free one.
    fn next(&self, first: u64) -> io::Result<Made> {
        for number in first..first.saturating_add(10_000) {
            if let Some(made) = self.make(number)? {
                return Ok(made);
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Creates the file with this number. Returns none if it exists, or if another session has taken it since.
    fn make(&self, number: u64) -> io::Result<Option<Made>> {
        match OpenOptions::new().write(true).create_new(true).open(self.piece(number)) {
            Ok(file) => Ok(lock(file).map(|file| self.made(number, file))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn made(&self, number: u64, mut file: OwnFile) -> Made {
        let path = self.piece(number);
        file.watch(&path);
        let identity = file.metadata().ok().as_ref().and_then(identity);
        (number, Ours { file: TraceFile { path, zones: 0, bytes: 0 }, records: 0, identity }, file)
    }
}

/// Locks the file. Tries twice, because another session that is starting may briefly hold the lock to test it.
fn lock(file: File) -> Option<OwnFile> {
    let once_more = |file| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        OwnFile::lock(file)
    };
    OwnFile::lock(file).or_else(once_more).ok()
}

/// Refuses a device, a pipe or a directory: the numbered files are created next to this path, which makes sense only for a file.
fn refuse_other_than_files(path: &Path) -> io::Result<()> {
    let kind = match fs::metadata(path) {
        Ok(there) if there.is_dir() => "a folder",
        Ok(there) if !there.is_file() => "no regular file",
        _ => return Ok(()),
    };
    Err(io::Error::other(format!(
        "it is {kind}, and `rotate` makes numbered files of a regular one; leave out `rotate`"
    )))
}

#[cfg(all(test, unix))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    use super::*;

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("warpline-rotate-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn sessions_that_start_at_once_have_files_of_different_names() {
        const SESSIONS: usize = 8;
        let folder = folder("at_once");
        let path = folder.join("t.pftrace");
        for round in 0..50 {
            let start = Barrier::new(SESSIONS);
            let create = || {
                start.wait();
                Files::create(&path, 1 << 20, 4).expect("a name is free")
            };
            let all: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..SESSIONS).map(|_| scope.spawn(create)).collect();
                threads.into_iter().map(|thread| thread.join().expect("it starts")).collect()
            });
            let names: BTreeSet<_> = all.iter().map(|(_, path)| path.clone()).collect();
            assert_eq!(names.len(), SESSIONS, "round {round}: {names:?}");
            assert!(names.contains(&path), "round {round}: {names:?}");
            drop(all);
            assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 0, "nothing begins");
        }
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn the_moment_between_two_files_of_another_session_is_seen() {
        let folder = folder("between");
        let path = folder.join("t.pftrace");
        let (session, _) = Files::create(&path, 1 << 20, 4).expect("it can be made");
        // The other session has created the next file and has not locked it yet.
        let next = folder.join("t.0002.pftrace");
        fs::write(&next, "").expect("it can be made");
        let (other, its) = Files::create(&path, 1 << 20, 4).expect("a name is free");
        assert_ne!(its, path);
        drop(session);
        let (third, its) = Files::create(&path, 1 << 20, 4).expect("a name is free");
        assert_eq!((its, third.kept[0].file.path.as_path()), (path, next.as_path()), "it takes what nobody writes");
        drop(third);
        assert!(!next.exists(), "nobody needs an empty file");
        drop(other);
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
