//! The progress file of a rank: what it is doing now, for the case that it hangs.
//!
//! A thread of its own rewrites it each second. It makes no call that could wait for a GPU, and takes no lock that a thread holds during such a
//! call. `standing` has what it says.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::identity::Identity;
use super::standing::{MOST_BYTES, Standing};
use super::writer::replace;
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
    pub(super) fn start(identity: Identity, recorder: Arc<Recorder>, flight: Option<PathBuf>) -> io::Result<Progress> {
        let (end, ends) = mpsc::channel();
        ledger::turn(true);
        let run = move || {
            warpline_core::inside::stay();
            ProgressFile { standing: Standing::new(identity, recorder, flight), folder: None }.run(&ends);
        };
        let thread = thread::Builder::new().name("warpline-progress".to_owned()).spawn(run)?;
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
    /// Where the file is, once the folder was made.
    folder: Option<PathBuf>,
}

impl ProgressFile {
    fn run(mut self, ends: &Receiver<()>) {
        loop {
            let is_over = matches!(ends.recv_timeout(EVERY), Err(RecvTimeoutError::Disconnected));
            let text = self.text(is_over);
            // A failure here also affects the tables, and is reported there. The next second may be better.
            let _ = self.write(&text);
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

    /// Writes over the file in one call. That costs less than a new file. The file has a check, by which a reader that reads
    /// it at the same moment sees that it must read it again. The first time, and where the file is gone, another file is written and renamed.
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let identity = &self.standing.identity;
        let stem = identity.stem();
        if let Some(folder) = &self.folder {
            match write_over(&folder.join(format!("{stem}.json")), text) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                outcome => return outcome,
            }
        }
        let folder = identity.make_folder("progress", None).map_err(io::Error::other)?;
        let unfinished = folder.join(format!(".{stem}-{}.tmp", identity.process_id));
        let file = folder.join(format!("{stem}.json"));
        // A full disk may have the file of a process that ran before.
        replace(&unfinished, &file, text).or_else(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => write_over(&file, text),
            _ => Err(error),
        })?;
        self.folder = Some(folder);
        Ok(())
    }
}

/// Writes over a file that is there, in one call. It is closed each time: on NFS, others see it then.
fn write_over(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let write = || File::options().write(true).open(file)?.write_all(bytes);
    warpline_core::signals::without_signals(write)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::num::NonZeroU32;
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::Value;
    use warpline_core::backend::Limits;
    use warpline_core::fixture;
    use warpline_core::hashing::fnv1a64;
    use warpline_core::timing::EndMode;

    use super::*;

    fn progress_file(root: &Path) -> ProgressFile {
        let limits = Limits { zones: 16, events: 16, ends: EndMode::Eager, watch: true };
        let recorder = Arc::new(Recorder::new(NonZeroU32::MIN, limits));
        let standing = Standing::new(Identity::new(root, &fixture::session()), recorder, None);
        ProgressFile { standing, folder: None }
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

    /// Whether a text is JSON with the check of the whole of it, as docs/ranks.md states it.
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
        let path = file.folder.as_ref().expect("a folder").join("rank-00000.json");
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
        let path = file.folder.as_ref().expect("a folder").join("rank-00000.json");
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
}
