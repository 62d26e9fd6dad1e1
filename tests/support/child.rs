//! Runs a test again in a process of its own, which is to be killed or to abort.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs};

use warpline_tests::again;

/// Says which test the process is there for, and which file is its.
const CHILD: &str = "WARPLINE_FLIGHT_CHILD";
const FILE: &str = "WARPLINE_FLIGHT_FILE";

/// What a process says when it is to be killed, and has done all that it should.
const READY: &str = "ready to be killed";

/// The file of the process that is there for this test; none in the test itself.
pub fn when_killed(test: &str) -> Option<String> {
    (env::var(CHILD).as_deref() == Ok(test)).then(|| env::var(FILE).expect("it was given"))
}

/// A place for a file and for those whose names begin with its name; they go with it.
pub struct Scratch(PathBuf);

/// With nothing there.
pub fn scratch(test: &str) -> Scratch {
    let test = test.rsplit("::").next().unwrap_or(test);
    let folder = env::temp_dir().join(format!("warpline-flight-{}-{test}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for tests");
    Scratch(folder.join(format!("{test}.flight")))
}

impl std::ops::Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let (Some(folder), Some(name)) = (self.0.parent(), self.0.file_stem()) else { return };
        let name = format!("{}.", name.to_string_lossy());
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&name) {
                let path = entry.path();
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
        }
        let _ = fs::remove_dir(folder);
    }
}

pub struct Child(std::process::Child);

impl Child {
    pub fn start(test: &str, file: &Path) -> Child {
        let child = again(test, CHILD, test).env(FILE, file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Child(child.expect("the test can run itself"))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it runs");
    }

    fn wait(self) -> (ExitStatus, String) {
        let output = self.0.wait_with_output().expect("it ends");
        let said = [output.stdout, output.stderr].concat();
        (output.status, String::from_utf8_lossy(&said).into_owned())
    }

    /// It has done what it should, and was killed with SIGKILL.
    #[track_caller]
    pub fn wait_until_killed(self) {
        let (status, said) = self.wait();
        assert!(said.contains(READY), "{status}: {said}");
        assert_eq!(signal(status), Some(libc::SIGKILL), "{status}: {said}");
    }

    /// It has aborted; what it said.
    #[track_caller]
    pub fn wait_until_aborted(self) -> String {
        let (status, said) = self.wait();
        assert_eq!(signal(status), Some(libc::SIGABRT), "{status}: {said}");
        said
    }
}

fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

/// `kill -9` of this process.
pub fn kill_me() -> ! {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{READY}");
    // SAFETY: the call takes numbers.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    std::process::abort()
}

/// Lets a forked process work on a copy of this, and say whether all was well; gives it back.
pub fn forked<T>(shared: T, work: impl FnOnce(T) -> bool) -> T {
    // SAFETY: the child uses what the libraries make safe to use after a fork, and ends without a look back.
    match unsafe { libc::fork() } {
        0 => {
            let is_well = work(shared);
            // SAFETY: the call takes a number.
            unsafe { libc::_exit(i32::from(!is_well)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the place is valid for the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "how the forked process ended");
            shared
        }
    }
}

/// No file of this process may grow beyond so many bytes; one that does ends the process.
pub fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the limit is valid for the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

/// Handles SIGUSR2 as a program would; how often it came.
pub fn count_sigusr2() -> impl Fn() -> u64 {
    static CAME: AtomicU64 = AtomicU64::new(0);
    extern "C" fn count(_: i32) {
        CAME.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler only adds to a number.
    unsafe { libc::signal(libc::SIGUSR2, count as *const () as libc::sighandler_t) };
    || CAME.load(Ordering::Relaxed)
}

pub fn raise_sigusr2() {
    // SAFETY: the call takes a number.
    unsafe { libc::raise(libc::SIGUSR2) };
}

/// What the disk of a folder has left.
pub fn free_bytes(folder: &Path) -> u64 {
    let folder = std::ffi::CString::new(folder.to_str().expect("UTF-8")).expect("no NUL");
    // SAFETY: all zeros are a valid `statvfs`.
    let mut said: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    assert_eq!(unsafe { libc::statvfs(folder.as_ptr(), &raw mut said) }, 0);
    said.f_bavail * said.f_frsize
}
