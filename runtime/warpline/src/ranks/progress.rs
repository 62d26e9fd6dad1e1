//! The progress file of a rank: what it is doing now, for the case that it hangs.
//!
//! A thread of its own rewrites it each second. It makes no call that could wait for a GPU, and takes no lock that a thread holds during such a
//! call. `standing` has what it says.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::activity::{MOST_BYTES, Standing};
use super::beneath::Beneath;
use super::identity::Identity;
use super::writer::replace;
use crate::collector::SessionStats;
use warpline_core::collective::ledger;
use warpline_core::stream::recorder::Recorder;

const EVERY: Duration = Duration::from_secs(1);

/// The thread that writes the file. Dropping it ends the thread without waiting.
pub(super) struct Progress {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(
        identity: Identity,
        recorder: Arc<Recorder>,
        flight: Option<PathBuf>,
        stats: Arc<SessionStats>,
    ) -> io::Result<Progress> {
        let (end, ends) = mpsc::channel();
        ledger::turn(true);
        let run = move || {
            warpline_core::reentrancy::stay();
            ProgressFile { standing: Standing::new(identity, recorder, flight), is_there: false }.run(&ends, &stats);
        };
        let thread = warpline_core::threads::spawn("warpline-progress", run)?;
        Ok(Progress { end: Some(end), thread: Some(thread) })
    }

    /// Makes the thread write a last time and end. Waits a short time for it: a disk may hang.
    pub(super) fn finish(&mut self, within: Duration) {
        ledger::turn(false);
        self.end = None;
        let Some(thread) = self.thread.take() else { return };
        let until = std::time::Instant::now() + within;
        while !thread.is_finished() && std::time::Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

struct ProgressFile {
    standing: Standing,
    /// Whether this process has made the file.
    is_there: bool,
}

impl ProgressFile {
    fn run(mut self, ends: &Receiver<()>, stats: &SessionStats) {
        loop {
            let is_over = matches!(ends.recv_timeout(EVERY), Err(RecvTimeoutError::Disconnected));
            let text = self.text(is_over);
            // A failure of the disk also affects the tables, and is reported there. The next second may be better.
            if self.write(&text).is_err()
                && let Some(why) = self.in_the_way()
            {
                stats.warn(why);
            }
            if is_over {
                return;
            }
        }
    }

    /// Returns what the file says, in as many bytes each time: no rest of another text is behind it, and a full disk has room for it.
    fn text(&mut self, is_over: bool) -> Vec<u8> {
        let mut text = self.standing.text(is_over).into_bytes();
        text.resize(MOST_BYTES - 1, b' ');
        text.push(b'\n');
        text
    }

    /// Says what has the file's name, if it is no file: `warpline-ranks hang` then knows nothing of this rank.
    fn in_the_way(&self) -> Option<String> {
        let identity = &self.standing.identity;
        let folder = identity.root.join("progress").join(format!("run={}", identity.run));
        let path = folder.join(format!("{}.json", identity.stem()));
        let there = fs::symlink_metadata(&path).ok().filter(|there| !there.is_file())?;
        let what = match there.file_type() {
            kind if kind.is_dir() => "a folder",
            kind if kind.is_symlink() => "a link",
            _ => "no file",
        };
        Some(format!("the progress of this rank is not written: `{}` is {what}; remove it", path.display()))
    }

    /// Writes over the file in one call. That costs less than a new file. The file has a check, by which a reader that reads
    /// it at the same moment sees that it must read it again. The first time, and where the file is gone, another file is written and renamed.
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let identity = &self.standing.identity;
        let (stem, folder) = (identity.stem(), identity.folder("progress", None).map_err(io::Error::other)?);
        let (unfinished, name) = (format!(".{stem}-{}.tmp", identity.process_id), format!("{stem}.json"));
        if self.is_there {
            match write_over(&folder, &name, text) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                outcome => return outcome,
            }
        }
        // A full disk may have the file of a process that ran before.
        replace(&folder, &unfinished, &name, text).or_else(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => write_over(&folder, &name, text),
            _ => Err(error),
        })?;
        self.is_there = true;
        Ok(())
    }
}

/// Writes over a file that is there, in one call. It is closed each time: on NFS, others see it then.
fn write_over(folder: &Beneath, name: &str, bytes: &[u8]) -> io::Result<()> {
    let write = || folder.file(name)?.write_all(bytes);
    warpline_core::signals::without_signals(write)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::Value;
    use warpline_core::backend::Limits;
    use warpline_core::hashing::fnv1a64;
    use warpline_core::timing::EndMode;
    use warpline_report::fixture;

    use super::*;

    fn progress_file(root: &Path) -> ProgressFile {
        let limits = Limits { zones: 16, events: 16, ends: EndMode::Eager, watch: true };
        let recorder = Arc::new(Recorder::new(NonZeroU32::MIN, limits));
        let standing = Standing::new(Identity::new(root, &fixture::session()), recorder, None);
        ProgressFile { standing, is_there: false }
    }

    fn path(root: &Path) -> PathBuf {
        let run = fs::read_dir(root.join("progress")).expect("a folder").next().expect("a run").expect("a folder");
        run.path().join("rank-00000.json")
    }

    /// Two texts that differ in their times and their checks.
    fn two_texts(file: &mut ProgressFile) -> [Vec<u8>; 2] {
        let text = file.text(false);
        thread::sleep(Duration::from_millis(1));
        [text, file.text(false)]
    }

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("warpline-progress-{}-{name}", std::process::id()))
    }

    /// Whether a text is JSON with the check of the whole of it, as docs/ranks-tables.md states it.
    fn is_whole(text: &[u8]) -> bool {
        let Ok(value) = serde_json::from_slice::<Value>(text) else { return false };
        let (Some(check), Ok(text)) = (value["check"].as_str(), std::str::from_utf8(text)) else { return false };
        format!("{:016x}", fnv1a64(text.trim_end().replacen(check, "0000000000000000", 1).as_bytes())) == check
    }

    #[test]
    fn a_text_that_is_half_another_has_a_wrong_check() {
        let [one, other] = two_texts(&mut progress_file(Path::new("ranks")));
        assert!(is_whole(&one) && is_whole(&other));
        let mixed = (0..one.len()).map(|at| [&one[..at], &other[at..]].concat());
        let mixed: Vec<_> = mixed.filter(|mixed| *mixed != one && *mixed != other).collect();
        let is_json = |text: &&Vec<u8>| serde_json::from_slice::<Value>(text).is_ok();
        assert!(mixed.iter().filter(is_json).count() > 10, "only the check tells them");
        assert!(!mixed.iter().any(|mixed| is_whole(mixed)));
    }

    #[test]
    fn a_reader_finds_a_whole_text_at_any_time() {
        let root = scratch("reader");
        let mut file = progress_file(&root);
        let texts = two_texts(&mut file);
        file.write(&texts[0]).expect("a file");
        let path = path(&root);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let until = std::time::Instant::now() + Duration::from_millis(300);
                while std::time::Instant::now() < until {
                    texts.iter().for_each(|text| file.write(text).expect("the file"));
                }
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                // It is written over all the time, and not once a second.
                let mut tries = (0..100).map(|_| fs::read(&path).expect("it is always there"));
                let found = tries.find(|text| {
                    assert_eq!(text.len(), MOST_BYTES, "and never short");
                    is_whole(text)
                });
                assert!(found.is_some_and(|found| texts.contains(&found)));
            }
        });
        fs::remove_dir_all(root).expect("a folder");
    }

    #[test]
    fn a_file_that_is_gone_is_written_again_once_its_folder_is_back() {
        let root = scratch("gone");
        let mut file = progress_file(&root);
        let texts = two_texts(&mut file);
        file.write(&texts[0]).expect("a file");
        let path = path(&root);
        fs::remove_file(&path).expect("a file");
        file.write(&texts[1]).expect("another file");
        assert_eq!(fs::read(&path).expect("a file"), texts[1]);
        fs::remove_dir_all(&root).expect("a folder");
        let why = file.write(&texts[0]).expect_err("there is no folder").to_string();
        assert!(why.contains("was removed while the session ran; put it back") && !root.exists(), "{why}");
        fs::create_dir(&root).expect("a folder");
        file.write(&texts[0]).expect("the folder is back");
        assert_eq!(fs::read(&path).expect("a file"), texts[0]);
        fs::remove_dir_all(root).expect("a folder");
    }

    #[test]
    #[cfg(unix)]
    fn a_link_in_place_of_the_file_is_not_written_through() {
        let root = scratch("link");
        let mut file = progress_file(&root);
        let texts = two_texts(&mut file);
        file.write(&texts[0]).expect("a file");
        let (path, other) = (path(&root), root.join("other"));
        fs::write(&other, "mine").expect("a file");
        fs::remove_file(&path).expect("a file");
        std::os::unix::fs::symlink(&other, &path).expect("a link");
        let why = file.write(&texts[1]).expect_err("a link").to_string();
        assert!(why.contains("is a link"), "{why}");
        assert_eq!(fs::read(&other).expect("a file"), b"mine");
        fs::remove_dir_all(root).expect("a folder");
    }

    #[test]
    #[cfg(unix)]
    fn what_is_in_place_of_the_file_is_said_and_a_pipe_blocks_nothing() {
        let root = scratch("place");
        let mut file = progress_file(&root);
        let texts = two_texts(&mut file);
        file.write(&texts[0]).expect("a file");
        assert_eq!(file.in_the_way(), None);
        let path = path(&root);
        fs::remove_file(&path).expect("a file");
        fs::create_dir(&path).expect("a folder");
        file.write(&texts[0]).expect_err("a folder");
        let why = file.in_the_way().expect("it is there");
        let path_shown = path.display();
        assert_eq!(why, format!("the progress of this rank is not written: `{path_shown}` is a folder; remove it"));
        fs::remove_dir(&path).expect("a folder");
        // A pipe without a reader, in whose place the file comes.
        assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("it starts").success());
        let (send, done) = mpsc::channel();
        let text = texts[1].clone();
        thread::spawn(move || send.send((file.write(&text).is_ok(), file.in_the_way())));
        let written = done.recv_timeout(Duration::from_secs(30)).expect("it waits for no reader");
        assert_eq!(written, (true, None));
        assert_eq!(fs::read(&path).expect("a file"), texts[1]);
        fs::remove_dir_all(&root).expect("a folder");
    }
}
