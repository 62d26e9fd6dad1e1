//! A program that starts a session, then blocks a signal and waits for it with `sigwait`: the signal is its own, whatever the session writes.
//!
//! The test runner keeps a main thread that blocks nothing, so this program has none: it starts itself for each kind of output.
#![cfg_attr(not(unix), allow(dead_code))]

#[cfg(unix)]
fn main() {
    tests::run();
}

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
mod tests {
    use std::fs;
    use std::mem::MaybeUninit;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::time::{Duration, Instant};

    use warpline::{HostStream, Session};

    /// The settings of the session, in a process that is the program; `none` for no session.
    const CASE: &str = "WARPLINE_TEST_SIGNALS";

    /// Long after a signal would have ended the program.
    const MOMENT: Duration = Duration::from_millis(50);

    /// However busy the machine is, it takes no longer.
    const LONG: Duration = Duration::from_secs(20);

    pub fn run() {
        match std::env::var(CASE) {
            Ok(settings) => wait_for_sigterm(&settings),
            Err(_) => {
                a_signal_for_which_the_program_waits_is_the_programs();
                no_thread_is_created_elsewhere();
            }
        }
    }

    fn a_signal_for_which_the_program_waits_is_the_programs() {
        let folder = warpline_tests::empty_folder("signals");
        for settings in cases() {
            let program = std::env::current_exe().expect("the program's own path");
            let mut command = Command::new(program);
            command.env(CASE, settings).env_remove("WARPLINE").env("RANK", "0").env("WORLD_SIZE", "1");
            let output = command.current_dir(&folder).env("XDG_RUNTIME_DIR", &folder).output().expect("it starts");
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(output.status.success(), "`{settings}`: {}: {said}", output.status);
        }
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    /// A session with each output, one with all of them, and a stream without a session.
    fn cases() -> Vec<&'static str> {
        let mut cases = vec!["none", "summary", "perfetto=t.pftrace", "flight=1MiB:t.flight,dump_on=sigusr2"];
        cases.extend(cfg!(target_os = "linux").then_some("control"));
        cases.extend(cfg!(feature = "ranks").then_some("ranks=tables"));
        cases.extend(cfg!(feature = "prometheus").then_some("prometheus=127.0.0.1:0"));
        cases.extend(cfg!(feature = "otlp").then_some("otlp=http://127.0.0.1:9"));
        cases
    }

    fn wait_for_sigterm(settings: &str) {
        let session = (settings != "none").then(|| Session::from_env_or(settings));
        let stream = HostStream::new("compute");
        #[cfg(feature = "timeline")]
        let _queue = warpline::timeline::Queue::new("queue", stream.clone()).expect("a thread");
        let started = Instant::now();
        while started.elapsed() < MOMENT {
            // Threads that are started later are there by now.
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut others = threads_that_take(libc::SIGTERM);
        // A thread that starts or ends blocks every signal for a moment, which is long on a busy machine.
        while !others.is_empty() && started.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(5));
            others = threads_that_take(libc::SIGTERM);
        }
        let mut signals = MaybeUninit::uninit();
        let mut taken = 0;
        // SAFETY: the first call initializes the set, the others read it; the last two take numbers.
        unsafe {
            libc::sigemptyset(signals.as_mut_ptr());
            libc::sigaddset(signals.as_mut_ptr(), libc::SIGTERM);
            libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), std::ptr::null_mut());
            libc::kill(libc::getpid(), libc::SIGTERM);
            // A thread that takes the signal has the time to.
            std::thread::sleep(MOMENT);
            assert_eq!(libc::sigwait(signals.as_ptr(), &raw mut taken), 0);
        }
        assert_eq!(taken, libc::SIGTERM);
        assert!(others.is_empty(), "threads that take the program's signals: {others:?}");
        drop(session.map(Session::finish));
    }

    /// The names of the threads but this one that do not block the signal, or block one that a fault raises.
    #[cfg(target_os = "linux")]
    fn threads_that_take(signal: libc::c_int) -> Vec<String> {
        let bit = |signal: libc::c_int| 1_u64 << (signal - 1);
        let faults =
            [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];
        let faults = faults.into_iter().map(bit).fold(0, |all, one| all | one);
        let this = warpline_tests::tid().to_string();
        let tasks = fs::read_dir("/proc/self/task").expect("/proc is mounted").flatten();
        let statuses = tasks.filter(|task| *task.file_name() != *this).filter_map(|task| {
            // A thread may end while it is asked.
            fs::read_to_string(task.path().join("status")).ok()
        });
        let found = statuses.filter_map(|status| {
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            let blocked = field("SigBlk:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).expect("a mask");
            let is_right = blocked & bit(signal) != 0 && blocked & faults == 0 && blocked & bit(libc::SIGUSR2) != 0;
            (!is_right).then(|| field("Name:").unwrap_or("a thread").to_owned())
        });
        found.collect()
    }

    #[cfg(not(target_os = "linux"))]
    fn threads_that_take(_: libc::c_int) -> Vec<String> {
        Vec::new()
    }

    /// `threads.rs` of the core creates every thread of the libraries.
    fn no_thread_is_created_elsewhere() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
        let (mut folders, mut files) = (vec![root.join("runtime"), root.join("report")], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("it is there") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => folders.push(path),
                    false if path.extension().is_some_and(|extension| extension == "rs") => files.push(path),
                    false => {}
                }
            }
        }
        assert!(files.len() > 300, "where is the code? {files:?}");
        let faults: Vec<_> = files.into_iter().filter(creates_a_thread).collect();
        assert!(faults.is_empty(), "these create threads; use `warpline_core::threads`: {faults:?}");
    }

    fn creates_a_thread(file: &PathBuf) -> bool {
        let is_exempt = file.ends_with("core/src/threads.rs")
            || file.components().any(|part| part.as_os_str() == "tests")
            || file.file_name().is_some_and(|name| name == "tests.rs" || name.to_string_lossy().ends_with("_model.rs"));
        let code = fs::read_to_string(file).expect("UTF-8");
        // The tests of a file are at its end.
        let code = code.split("\nmod tests {").next().unwrap_or_default();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let creates =
            |line: &str| ["thread::spawn", "thread::Builder", "thread::scope"].iter().any(|call| line.contains(call));
        !is_exempt && code.into_iter().any(creates)
    }
}
