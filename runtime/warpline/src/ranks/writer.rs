//! The thread that writes the files of windows that are over, so that neither the program nor the collector waits for a disk.
//!
//! A file is written under a name that begins with a dot, and renamed: a killed process leaves whole files. If the disk is slow, windows wait in
//! a bounded queue; those without room, and those that cannot be written, are lost, counted and reported.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::beneath::Beneath;
use super::identity::Identity;
use super::layout::{TableFile, files};
use super::window::Window;
use warpline_core::lock::lock;

/// The most windows that wait in the queue of the thread. As many wait before it.
pub(super) const WAITING: usize = 4;

/// The most files of one rank and window, of processes that followed one another.
const MOST_SAME: u32 = 1000;

/// What the writer could not do.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    /// Windows that are not on the disk.
    pub(super) windows: u64,
    /// Records in them.
    pub(super) records: u64,
    /// The first error of a window that the disk refused, and how many it refused.
    refused: (Option<String>, u64),
    /// Why windows had no room in the queue, and how many.
    slow: (Option<String>, u64),
    /// Windows and records that the thread has dealt with, one way or the other.
    treated: (u64, u64),
}

impl Losses {
    fn refuse(&mut self, records: u64, why: String) {
        self.add(1, records);
        self.refused.0.get_or_insert(why);
        self.refused.1 += 1;
    }

    fn late(&mut self, windows: u64, records: u64, why: &str) {
        self.add(windows, records);
        self.slow.0.get_or_insert_with(|| why.to_owned());
        self.slow.1 += windows;
    }

    fn add(&mut self, windows: u64, records: u64) {
        self.windows += windows;
        self.records += records;
    }

    /// Why the windows are lost: one reason, or two with the windows of each.
    pub(super) fn why(&self) -> String {
        match (&self.refused, &self.slow) {
            ((Some(refused), n), (Some(slow), m)) => format!("{n} because of {refused}; {m} because {slow}"),
            ((Some(why), _), _) | (_, (Some(why), _)) => why.clone(),
            _ => String::new(),
        }
    }
}

/// The writer, from the side of the collector.
pub(super) struct Writer {
    windows: Option<SyncSender<Box<Window>>>,
    done: Receiver<()>,
    losses: Arc<Mutex<Losses>>,
    /// Windows and records that were handed over.
    handed: (u64, u64),
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(identity: Identity) -> io::Result<Writer> {
        let (windows, queue) = mpsc::sync_channel::<Box<Window>>(WAITING);
        let (end, done) = mpsc::channel();
        let losses = Arc::new(Mutex::new(Losses::default()));
        let its = Arc::clone(&losses);
        let run = move || {
            warpline_core::reentrancy::stay();
            for window in queue {
                let (outcome, count) = (write(&window, &identity), window.records);
                let mut losses = lock(&its);
                if let Err(why) = outcome {
                    losses.refuse(count, why);
                }
                losses.treated = (losses.treated.0 + 1, losses.treated.1 + count);
            }
            drop(end);
        };
        warpline_core::threads::spawn("warpline-ranks", run)?;
        Ok(Writer { windows: Some(windows), done, losses, handed: (0, 0) })
    }

    /// Hands over a window that is over. Never waits: if there is no room for it, it is returned.
    pub(super) fn offer(&mut self, window: Box<Window>) -> Option<Box<Window>> {
        let windows = self.windows.as_ref()?;
        let records = window.records;
        match windows.try_send(window) {
            Ok(()) => self.handed = (self.handed.0 + 1, self.handed.1 + records),
            Err(TrySendError::Full(window)) => return Some(window),
            Err(TrySendError::Disconnected(_)) => {
                lock(&self.losses).refuse(records, "the thread that writes has ended".to_owned());
            }
        }
        None
    }

    /// Counts a window for which the disk had no room in time.
    pub(super) fn lose(&self, window: &Window) {
        let why = format!("the disk is slow: {} windows already wait for it", 2 * WAITING);
        lock(&self.losses).late(1, window.records, &why);
    }

    /// Whether all that was handed over is written.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn is_idle(&self) -> bool {
        self.losses().treated == self.handed
    }

    pub(super) fn losses(&self) -> Losses {
        lock(&self.losses).clone()
    }

    /// Waits until what was handed over is written, and returns what is lost. What is not written in time counts as lost, although the thread goes
    /// on.
    pub(super) fn finish(&mut self, within: Duration) -> Losses {
        self.windows = None;
        let is_done = matches!(self.done.recv_timeout(within), Err(mpsc::RecvTimeoutError::Disconnected));
        let mut losses = self.losses();
        if !is_done {
            let (windows, records) = (self.handed.0 - losses.treated.0, self.handed.1 - losses.treated.1);
            losses.late(windows, records, "the disk did not take them in time");
        }
        losses
    }
}

/// Writes the files of a window: all of them, or after an error none.
///
/// # Errors
/// A text with the cause and the remedy.
fn write(window: &Window, identity: &Identity) -> Result<(), String> {
    let files = files(window, identity).map_err(|error| format!("a table cannot be made: {error}"))?;
    let mut written = Vec::new();
    let outcome = files.iter().try_for_each(|file| write_file(file, window.number, identity, &mut written));
    if outcome.is_err() {
        // What remains of a window would look like a rank that did little. On a full disk, it is also in the way.
        written.iter().for_each(|(folder, name): &(Beneath, String)| drop(folder.remove(name)));
    }
    outcome
}

fn write_file(
    file: &TableFile,
    window: i64,
    identity: &Identity,
    written: &mut Vec<(Beneath, String)>,
) -> Result<(), String> {
    let folder = identity.folder(file.table, Some(window))?;
    let stem = identity.stem();
    let unfinished = format!(".{stem}-{}", identity.process_id);
    let name = |again: u32| match again {
        0 => format!("{stem}.parquet"),
        again => format!("{stem}-{}-{again}.parquet", identity.process_id),
    };
    // An earlier process of this rank, or an earlier session, may have written the same window.
    let Some(name) = (0..MOST_SAME).map(name).find(|name| !folder.has(name)) else {
        return Err(format!("`{}` has {MOST_SAME} files of this rank; name another folder", folder.path().display()));
    };
    let outcome = replace(&folder, &unfinished, &name, &file.bytes);
    outcome.map_err(|error| format!("`{}`: {error}", folder.path().join(&name).display()))?;
    written.push((folder, name));
    Ok(())
}

/// Writes a file under another name and renames it. After an error, nothing is left.
pub(super) fn replace(folder: &Beneath, unfinished: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let write = || {
        folder.create(unfinished)?.write_all(bytes)?;
        folder.rename(unfinished, name)
    };
    // A limit of the file size sends a signal that would end the program.
    warpline_core::signals::without_signals(write).inspect_err(|_| drop(folder.remove(unfinished)))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;
    use std::time::Instant;

    use super::*;
    use warpline_report::fixture;

    /// A pipe without a reader: who opens it to write waits, as on a file system that stalls.
    #[test]
    fn a_disk_that_stalls_delays_nobody_and_the_loss_is_counted() {
        let root = std::env::temp_dir().join(format!("warpline-stalled-{}", std::process::id()));
        let info = fixture::session();
        let identity = Identity::new(&root, &info);
        let folder = identity.folder("sketches", Some(1)).expect("a folder");
        let zone = fixture::zone(&fixture::LOAD, None, &fixture::main_thread(), fixture::span(0, 10), None);
        let window = |number| {
            let mut window = Window::new(number, fixture::BEGIN_NS);
            (0..3).for_each(|_| window.zone(&zone));
            Box::new(window)
        };
        let pipe = folder.path().join(format!(".{}-{}", identity.stem(), identity.process_id));
        assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
        let mut writer = Writer::start(identity.clone()).expect("a thread");
        let since = Instant::now();
        for number in 0..20 {
            if let Some(back) = writer.offer(window(number)) {
                writer.lose(&back);
            }
        }
        assert!(since.elapsed() < Duration::from_millis(500), "a window is handed over without waiting");
        let losses = writer.finish(Duration::from_millis(300));
        // Of 20 windows, the first is written or waits; a few more wait for the one that stalls.
        assert!(losses.windows >= 18 && losses.records == 3 * losses.windows, "{losses:?}");
        assert!(losses.why().contains("the disk is slow"), "{losses:?}");
        // Where the disk comes back, the thread deals with the rest.
        drop(fs::File::open(&pipe));
        let _ = writer.done.recv_timeout(Duration::from_secs(20));
        let Losses { windows, treated, .. } = writer.losses();
        assert!(treated == writer.handed && windows < losses.windows, "{treated:?} of {:?}", writer.handed);
        fs::remove_dir_all(root).expect("a folder");
    }

    /// A machine that stalls once fills the queue; that must not stand for the windows that a full disk refuses.
    #[test]
    fn each_reason_has_its_windows() {
        let mut losses = Losses::default();
        losses.late(1, 5, "the disk is slow: 8 windows already wait for it");
        assert_eq!(losses.why(), "the disk is slow: 8 windows already wait for it");
        (0..9).for_each(|n| losses.refuse(10, format!("`{n}`: No space left on device")));
        assert_eq!(
            losses.why(),
            "9 because of `0`: No space left on device; 1 because the disk is slow: 8 windows already wait for it"
        );
        assert_eq!((losses.windows, losses.records), (10, 95));
    }

    /// Another user of a shared disk may write to the folder, and this process to more than that user may.
    #[test]
    fn a_link_below_the_folder_leads_no_file_elsewhere() {
        let root = std::env::temp_dir().join(format!("warpline-links-{}", std::process::id()));
        let (ranks, home) = (root.join("ranks"), root.join("home"));
        let identity = Identity::new(&ranks, &fixture::session());
        let zone = fixture::zone(&fixture::LOAD, None, &fixture::main_thread(), fixture::span(0, 10), None);
        let mut window = Window::new(1, fixture::BEGIN_NS);
        window.zone(&zone);
        fs::create_dir_all(&home).expect("a folder");
        fs::write(home.join("mine"), "mine").expect("a file");
        let (table, run) = (ranks.join("ranges"), format!("run={}", identity.run));
        let file = format!(".{}-{}", identity.stem(), identity.process_id);
        let last = table.join(&run).join("win=1");
        for (link, to) in
            [(&table, &home), (&table.join(&run), &home), (&last, &home), (&last.join(file), &home.join("mine"))]
        {
            fs::create_dir_all(link.parent().expect("a folder")).expect("a folder");
            symlink(to, link).expect("a link");
            let why = write(&window, &identity).expect_err("a link");
            assert!(why.contains("is a link, and links below the folder of `ranks` are not followed"), "{why}");
            assert_eq!(fs::read(home.join("mine")).expect("a file"), b"mine", "{}", link.display());
            assert_eq!(fs::read_dir(&home).expect("a folder").count(), 1, "{}", link.display());
            // The last one is a file of this process, which is removed after an error, as it would be otherwise.
            let _ = fs::remove_file(link);
        }
        write(&window, &identity).expect("no link is left");
        fs::remove_dir_all(root).expect("a folder");
    }
}
