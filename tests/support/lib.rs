//! What the test binaries share: the right to the one session of the process, processes of a test's own, folders, stubs that are
//! built, and what a test counts.

pub mod counting;
mod pace;
mod process;

pub use pace::Pace;
pub use process::{Said, again, in_a_process_of_its_own, in_child, is_child, test_around};

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

warpline::namespace!("support", "what the end-to-end tests share");

/// There is one session at a time in a process; tests that start one take turns.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes what a collector hands out when it comes to it, until there are so many.
#[track_caller]
pub fn taken<T>(count: usize, mut take: impl FnMut() -> Vec<T>) -> Vec<T> {
    let (mut taken, since) = (Vec::new(), Instant::now());
    while taken.len() < count && since.elapsed() < Duration::from_secs(20) {
        taken.extend(take());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(taken.len(), count);
    taken
}

/// A folder of this name for a test of this process, with nothing in it.
pub fn empty_folder(name: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("warpline-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The names of what is in the folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("it is there");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort_unstable();
    names
}

/// Resident memory of this process, in bytes.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS is there");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number of kB") * 1024
}

/// `gettid` of this thread.
pub fn tid() -> i32 {
    let link = fs::read_link("/proc/thread-self").expect("/proc is mounted");
    link.file_name().and_then(|id| id.to_str()?.parse().ok()).expect("a number")
}

/// The threads of this process with this name.
pub fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    // A thread may end while it is asked.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    // The kernel keeps 15 bytes of a name.
    names.filter(|comm| comm.trim_end() == &name[..name.len().min(15)]).count()
}

/// Builds a stub, a package of this workspace that is a library, into a folder of its own, and says where the library is.
pub fn build_stub(package: &str, target: &Path, features: &[&str]) -> PathBuf {
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--offline", "--package", package, "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .args(features)
        // The stub is loaded into whatever the tests are; it needs none of their instrumentation.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    stub_library(package, target)
}

/// Where a stub is that was built into this folder.
pub fn stub_library(package: &str, target: &Path) -> PathBuf {
    target.join("debug").join(format!("lib{}.so", package.replace('-', "_")))
}

/// A waker whose clone, wake and drop call a function, as an executor's may call whatever it likes.
pub fn waker_that_calls(call: impl Fn() + Send + Sync + 'static) -> Waker {
    type Call = Arc<dyn Fn() + Send + Sync>;
    fn raw(call: Call) -> RawWaker {
        RawWaker::new(Box::into_raw(Box::new(call)).cast_const().cast(), &TABLE)
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            // SAFETY: the data is a box that `raw` gave away, and lives until the waker is woken or dropped.
            let call = unsafe { &*data.cast::<Call>() };
            call();
            raw(Arc::clone(call))
        },
        // SAFETY: as above; the waker is gone with this.
        |data| unsafe { Box::from_raw(data.cast_mut().cast::<Call>()) }(),
        // SAFETY: as above, and the waker stays.
        |data| unsafe { &*data.cast::<Call>() }(),
        // SAFETY: as above; the waker is gone with this.
        |data| unsafe { Box::from_raw(data.cast_mut().cast::<Call>()) }(),
    );
    // SAFETY: the functions of the table may be called on any thread, as what they call may.
    unsafe { Waker::from_raw(raw(Arc::new(call))) }
}

/// The time after which work counts as hanging, even on a busy host.
const HANGS: Duration = Duration::from_secs(120);

/// Does the work on a thread of its own, and gives up on it when it hangs.
#[track_caller]
pub fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let thread = thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    match is_done.recv_timeout(HANGS) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// A panic's payload that panics when it is dropped, and so does the payload of that.
pub struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        std::panic::panic_any(PanicsInDrop);
    }
}

/// Gives a type whose one field is a stub, as a library that is loaded, a method for each function that the stub exports.
#[macro_export]
macro_rules! exports {
    ($stub:ident: $($(#[$attribute:meta])* fn $symbol:ident($($argument:ident: $type:ty),*) -> $returned:ty;)*) => {
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the stub's names")]
        impl $stub {
            $(
                $(#[$attribute])*
                pub fn $symbol(&self, $($argument: $type),*) -> $returned {
                    let symbol = concat!(stringify!($symbol), "\0").as_bytes();
                    // SAFETY: the stub exports the symbol with this signature; references are valid pointers, and it
                    // treats handles as numbers.
                    unsafe {
                        let function = self.0.get::<unsafe extern "C" fn($($type),*) -> $returned>(symbol);
                        function.unwrap_or_else(|error| panic!("{error}"))($($argument),*)
                    }
                }
            )*
        }
    };
}
