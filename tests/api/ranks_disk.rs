//! A disk that is full, that may not be written, or that is read-only for some time, while a rank writes its tables: the program goes on, the loss
//! is counted and said, what is on the disk is whole, and the writer writes again when it can.
//!
//! Each test runs itself in a process of its own, because limits, users and mounts are those of a process.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use serde_json::Value;
use warpline::report::{Report, SinkReport};
use warpline::{HostStream, Session};
use warpline_tests::{again, this_test};

use crate::tables::{files, rows, rows_of};

warpline::range! {
    PART = "api.ranks_disk.part": "A part of a step.";
}

/// Tells the process that it is there to record, and where.
const FOLDER: &str = "WARPLINE_TEST_RANKS_DISK";

const WINDOW: Duration = Duration::from_millis(100);

/// A session that writes tables, and a program that goes on.
struct Recording {
    root: PathBuf,
    session: Session,
    stream: HostStream,
    step: u64,
}

impl Recording {
    fn start(root: &Path) -> Recording {
        let session = Session::builder().quiet().ranks(root).ranks_window(WINDOW).start().expect("no other session");
        Recording { root: root.to_owned(), session, stream: HostStream::new("compute"), step: 0 }
    }

    /// Runs steps until this is so.
    fn until(&mut self, what: &str, is_so: impl Fn(&Recording) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            assert!(since.elapsed() < Duration::from_secs(60), "{what}");
            self.steps(1);
        }
    }

    fn steps(&mut self, steps: u64) {
        for _ in 0..steps {
            warpline::step(self.step);
            drop(PART.zone(&self.stream));
            self.step += 1;
            thread::sleep(Duration::from_millis(3));
        }
    }

    fn windows(&self) -> usize {
        files(&self.root, "windows").len()
    }

    /// Some windows are written.
    fn until_more_windows(&mut self, what: &str) {
        let before = self.windows();
        self.until(what, |recording| recording.windows() > before + 1);
    }

    /// Several windows end while none can be written.
    fn while_it_fails(&mut self) {
        // One may be on its way.
        self.steps(100);
        let before = self.windows();
        self.steps(200);
        assert_eq!(self.windows(), before, "nothing can be written");
    }

    /// Ends the session. Returns the account of its tables.
    fn finish(self) -> (SinkReport, Report) {
        self.stream.synchronize().expect("nothing panics");
        let report = self.session.finish();
        let sink = report.sinks.iter().find(|sink| sink.name.starts_with("ranks=")).expect("its account").clone();
        (sink, report)
    }
}

/// The loss is counted and said, and what is there is whole.
#[track_caller]
fn is_counted_and_whole(root: &Path, (sink, report): &(SinkReport, Report), why: &str) {
    let text = report.to_string();
    assert_eq!(report.begun, report.recorded + report.dropped.total(), "{text}");
    assert!(sink.errors > 0 && sink.lost > 0 && sink.taken > 0, "some are lost and some are not: {sink:?}");
    let said = sink.first_error.as_deref().expect("a reason");
    assert!(said.contains(" windows with ") || said.contains("1 window with "), "{said}");
    assert!(said.contains(&format!("{} records lost", sink.lost)) && said.contains(why), "{said}");
    assert!(text.contains(said), "the report says it: {text}");
    let of_window = |file: &Path| file.parent().and_then(Path::file_name).map(ToOwned::to_owned);
    let complete: Vec<_> = files(root, "windows").iter().map(|file| of_window(file)).collect();
    for table in ["windows", "steps", "ranges", "sketches", "stages"] {
        let files = files(root, table);
        // The first windows have no steps yet.
        let is_complete = |file: &PathBuf| complete.contains(&of_window(file));
        assert!(!files.is_empty() && files.iter().all(is_complete), "{table}: whole windows alone: {files:?}");
        assert!(files.iter().all(|file| !rows_of(file).is_empty()), "{table}: whole files");
    }
    let zones: i64 = rows(root, "windows").iter().map(|row| row.int("zones_recorded")).sum();
    assert!(zones > 0 && (zones as u64) < report.recorded, "{zones} of {text}");
    assert!(unfinished(root).is_empty(), "{:?}", unfinished(root));
}

/// Files with names of files that are being written.
fn unfinished(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(unfinished(&path)),
            path if entry.file_name().to_string_lossy().starts_with('.') => found.push(path),
            _ => {}
        }
    }
    found
}

fn progress(root: &Path) -> Value {
    let file = files(root, "progress").pop().expect("the file");
    // It may be written over now.
    serde_json::from_str(&fs::read_to_string(file).expect("a file")).unwrap_or_default()
}

/// A folder that is not there yet.
fn scratch(name: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("warpline-ranks-disk-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

#[track_caller]
fn assert_passed(Output { status, stdout, stderr }: &Output) {
    let said = String::from_utf8_lossy(stdout);
    assert!(status.success() && said.contains("it passed"), "{status}: {said}{}", String::from_utf8_lossy(stderr));
}

/// No file of this process may be longer, until the limit is changed again.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is valid for the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

#[test]
fn a_disk_without_room_loses_windows_and_then_has_them_again() {
    let test = this_test!();
    if let Some(root) = env::var_os(FOLDER) {
        let mut recording = Recording::start(root.as_ref());
        recording.until_more_windows("before");
        // A file may have so many bytes: the first tables fit, and others do not.
        limit_files(900);
        recording.while_it_fails();
        limit_files(libc::RLIM_INFINITY);
        recording.until_more_windows("after");
        let ended = recording.finish();
        is_counted_and_whole(root.as_ref(), &ended, "File too large");
        return println!("\nit passed");
    }
    let root = scratch("limit");
    assert_passed(&again(test, FOLDER, &root).output().expect("the test can run itself"));
    fs::remove_dir_all(root).expect("a folder");
}

#[test]
fn a_folder_that_may_not_be_written_loses_windows_and_then_has_them_again() {
    let test = this_test!();
    if let Some(root) = env::var_os(FOLDER) {
        let root = Path::new(&root);
        // Nothing is forbidden to root.
        // SAFETY: the calls have no memory arguments.
        unsafe {
            if libc::geteuid() == 0 {
                assert_eq!((libc::setgid(65_534), libc::setuid(65_534)), (0, 0));
            }
        }
        let mode = |mode: u32| {
            for table in fs::read_dir(root).expect("a folder").flatten() {
                for run in fs::read_dir(table.path()).expect("a folder").flatten() {
                    fs::set_permissions(run.path(), fs::Permissions::from_mode(mode)).expect("its owner may");
                }
            }
        };
        let mut recording = Recording::start(root);
        recording.until_more_windows("before");
        mode(0o555);
        recording.while_it_fails();
        mode(0o755);
        recording.until_more_windows("after");
        let ended = recording.finish();
        is_counted_and_whole(root, &ended, "Permission denied");
        return println!("\nit passed");
    }
    let root = scratch("permissions");
    fs::create_dir_all(&root).expect("a folder");
    // Where the tests run as root, the child is another user.
    let _ = chown(&root, Some(65_534), Some(65_534));
    assert_passed(&again(test, FOLDER, &root).output().expect("the test can run itself"));
    fs::remove_dir_all(root).expect("a folder");
}

/// Mounts a small file system in its first argument and runs the rest.
const MOUNTED: &str = r#"mount -t tmpfs -o size=512k,mode=777 none "$1" && shift && exec "$@""#;

/// Runs a test again with a small disk of its own; none where the system lets this user mount nothing.
fn on_a_small_disk(test: &str, disk: &Path) -> Option<Output> {
    let ways: [&[&str]; 2] = [&["--mount", "--propagation", "private"], &["--user", "--map-root-user", "--mount"]];
    let run = |way: &[&str], command: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(way).args(["sh", "-c", MOUNTED, "sh"]).arg(disk).args(command);
        unshare
    };
    let way = ways.into_iter().find(|way| run(way, &["true"]).output().is_ok_and(|output| output.status.success()))?;
    let again = again(test, FOLDER, disk.join("run"));
    let mut command = run(way, &[]);
    command.arg(again.get_program()).args(again.get_args());
    for (name, value) in again.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Some(command.output().expect("it has just run"))
}

fn on_a_small_disk_or_say_so(name: &str, test: &str) {
    let disk = scratch(name);
    fs::create_dir_all(&disk).expect("a folder");
    match on_a_small_disk(test, &disk) {
        Some(output) => assert_passed(&output),
        // Past the harness, which shows nothing of a test that passes. The tests above run everywhere.
        None => drop(std::io::Write::write_all(
            &mut std::io::stderr(),
            format!("skipped `{test}`: this user may not mount a file system; run it as root\n").as_bytes(),
        )),
    }
    fs::remove_dir_all(disk).expect("a folder");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_still_says_what_the_rank_is_doing() {
    let test = this_test!();
    if let Some(root) = env::var_os(FOLDER) {
        let root = Path::new(&root);
        let mut recording = Recording::start(root);
        recording.until_more_windows("before");
        recording.until("a progress file", |recording| !files(&recording.root, "progress").is_empty());
        let filler = root.with_file_name("filler");
        // Until nothing more fits.
        let fill = fs::write(&filler, vec![1; 1 << 20]).expect_err("the disk is small");
        assert_eq!(fill.kind(), std::io::ErrorKind::StorageFull);
        recording.while_it_fails();
        let step = recording.step;
        recording.until("the progress file is written over", |recording| {
            progress(&recording.root)["step"].as_u64().is_some_and(|said| said > step)
        });
        fs::remove_file(filler).expect("a file");
        recording.until_more_windows("after");
        let ended = recording.finish();
        is_counted_and_whole(root, &ended, "No space left on device");
        return println!("\nit passed");
    }
    on_a_small_disk_or_say_so("full", test);
}

#[test]
#[cfg(target_os = "linux")]
fn a_disk_that_is_mounted_read_only_loses_windows_and_then_has_them_again() {
    let test = this_test!();
    if let Some(root) = env::var_os(FOLDER) {
        let root = Path::new(&root);
        let remount = |how: &str| {
            let disk = root.parent().expect("its disk");
            let since = Instant::now();
            let mut command = Command::new("mount");
            command.args(["-o", &format!("remount,{how}")]).arg(disk);
            // A file that is being written keeps it busy.
            while !command.output().expect("it has mounted it").status.success() {
                assert!(since.elapsed() < Duration::from_secs(20), "{how}");
            }
        };
        let mut recording = Recording::start(root);
        recording.until_more_windows("before");
        remount("ro");
        recording.while_it_fails();
        remount("rw");
        recording.until_more_windows("after");
        let ended = recording.finish();
        is_counted_and_whole(root, &ended, "Read-only file system");
        return println!("\nit passed");
    }
    on_a_small_disk_or_say_so("read_only", test);
}
