//! A program that runs and listens, for tests that ask it from outside: this test binary, started again.
//!
//! It begins zones until its standard input ends. A line tells it to begin or finish a session of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use warpline::{HostStream, Session};

warpline::range! {
    STEP = "cli.target.step": "A step.", fields(n);
    PART = "cli.target.part": "A part of a step.";
    LOAD = "cli.target.load": "Work with no stream.", kind = host;
    SYNC = "cli.target.sync": "What ranks do together.", kind = collective;
    RARE = "cli.target.rare": "What runs when it is told to.", kind = host;
}

/// The label of a zone that stays open while others end.
pub const HELD: &str = "it stays open";

/// However loaded the machine is, it takes no longer.
pub const SOON: Duration = Duration::from_secs(60);

/// The name of the test that is the program.
pub const PROGRAM: &str = "support::target::program";

#[test]
#[ignore = "the program that the other tests ask"]
fn program() {
    // It also runs where somebody runs all ignored tests.
    if std::env::var_os("WARPLINE_TEST_TARGET").is_none() {
        return;
    }
    let listening = Session::from_env();
    let names_output = |setting: &str| {
        !["control", "filter=", "sample=", "budget=", "ring="].iter().any(|none| setting.starts_with(none))
    };
    let records = std::env::var("WARPLINE").is_ok_and(|settings| settings.split(',').any(names_output));
    assert_eq!(LOAD.host().is_active(), records, "alone it records nothing until somebody asks");
    let (say, said) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = say.send(line);
        }
    });
    println!("ready");
    let streams = [HostStream::new("compute"), HostStream::new("copy")];
    let (mut own, mut listening, mut step, mut held) = (None, Some(listening), 0_u64, None);
    // Descriptors, all that there are.
    let mut taken = Vec::new();
    loop {
        match said.try_recv().as_deref() {
            Ok("own") => {
                // A busy machine may not run the collector for seconds: all zones of a test have room, and time to be taken.
                let session = Session::builder().ring(1 << 17).finish_timeout(SOON);
                own = Some(session.start().expect("what is asked from outside gives way"));
            }
            Ok("finish") => {
                let report = own.take().map(Session::finish).expect("a session");
                assert_eq!(report.begun, report.recorded + report.dropped.total());
                println!("own: {} of {} in {} sinks", report.recorded, report.begun, report.sinks.len());
            }
            Ok("over") => {
                let report = listening.take().map(Session::finish).expect("it listens");
                println!("over: {}", report.recorded);
            }
            Ok("hold") => {
                held = Some(STEP.zone(&streams[1]).label(HELD));
                println!("held");
            }
            Ok("let go") => {
                drop(held.take());
                println!("let go");
            }
            Ok("full") => {
                let limit = rustix::process::Rlimit { current: Some(64), maximum: Some(4096) };
                rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("a lower limit");
                taken = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect::<Vec<_>>();
                println!("full");
            }
            Ok("free") => {
                taken = Vec::new();
                println!("free");
            }
            Ok("step") => println!("{step}"),
            Ok("rare") => println!("rare: {}", RARE.host().is_active()),
            Ok(other) => panic!("what is `{other}`?"),
            Err(mpsc::TryRecvError::Disconnected) => break,
            Err(mpsc::TryRecvError::Empty) => {}
        }
        std::io::stdout().flush().expect("somebody listens");
        step += 1;
        let whole = STEP.zone(&streams[0]);
        for stream in &streams {
            let _part = PART.zone(stream);
            stream.launch(|| {
                std::hint::black_box((0..2_000_u64).sum::<u64>());
            });
        }
        drop(LOAD.host());
        drop(SYNC.zone(&streams[1]));
        drop(whole);
        streams.iter().for_each(|stream| drop(stream.synchronize()));
        // A program that leaves the machine to others.
        std::thread::sleep(Duration::from_micros(500));
    }
    println!("done {step}");
    drop(taken);
}

/// The program while it runs.
pub struct Target {
    pub child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Target {
    /// Starts it with this runtime directory and these settings; recordings from outside have every zone.
    pub fn start(runtime_dir: &Path, settings: &str) -> Target {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.env("XDG_RUNTIME_DIR", runtime_dir).env("WARPLINE", every_zone(settings));
        Target::run(command)
    }

    /// The same from a command that leads to this test binary.
    pub fn run(mut command: Command) -> Target {
        command.args([PROGRAM, "--exact", "--ignored", "--nocapture"]).env("WARPLINE_TEST_TARGET", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let output = child.stdout.take().expect("a pipe");
        let (say, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = say.send(line);
            }
        });
        let target = Target { input: child.stdin.take(), child, lines };
        target.wait_for("ready");
        target
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().expect("it runs"), "{line}").expect("it listens");
    }

    /// Waits for a line that begins so, and gives it.
    pub fn wait_for(&self, begin: &str) -> String {
        let deadline = Instant::now() + SOON;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|error| panic!("no `{begin}`: {error}"));
            // The test harness writes in front of the first one.
            if let Some(at) = line.find(begin) {
                return line[at..].to_owned();
            }
        }
    }

    /// It still works: it makes steps.
    pub fn is_unharmed(&mut self) {
        for _ in 0..2 {
            self.tell("step");
            let digit = |line: &str| line.trim().parse::<u64>().is_ok();
            while !digit(&self.lines.recv_timeout(SOON).expect("it works")) {}
        }
    }

    /// Lets it come to its end, which is a good one.
    pub fn end(mut self) {
        drop(self.input.take());
        self.wait_for("done ");
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A runtime directory.
pub fn runtime_dir() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("wl").tempdir_in("/tmp").expect("a directory")
}

/// The command `warpline`, with this runtime directory.
pub fn warpline(runtime_dir: &Path, args: &[&str]) -> Command {
    warpline_by(Command::new(env!("CARGO_BIN_EXE_warpline")), runtime_dir, args)
}

/// The same from a command that leads to `warpline`.
pub fn warpline_by(mut command: Command, runtime_dir: &Path, args: &[&str]) -> Command {
    command.args(args).env("XDG_RUNTIME_DIR", runtime_dir).env_remove("WARPLINE").stdin(Stdio::null());
    command
}

/// What it says on standard output, and that it went well.
pub fn said(runtime_dir: &Path, args: &[&str]) -> String {
    let output = warpline(runtime_dir, args).output().expect("it runs");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// How many programs `warpline ps` lists of those whose sockets are in this runtime directory: others of this user may run.
pub fn listed(runtime_dir: &Path) -> usize {
    let list: serde_json::Value = serde_json::from_str(&said(runtime_dir, &["ps", "--format", "json"])).expect("JSON");
    let sockets = list.as_array().expect("a list").iter().map(|program| program["socket"].as_str().expect("a path"));
    sockets.filter(|socket| Path::new(socket).starts_with(runtime_dir)).count()
}

/// Its one line of complaint, and that it ended with status 2.
pub fn complaint(runtime_dir: &Path, args: &[&str]) -> String {
    let Output { status, stderr, .. } = warpline(runtime_dir, args).output().expect("it runs");
    let text = String::from_utf8(stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(2), "{args:?}: {text}");
    text.trim_end().to_owned()
}

/// Looks until it is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The sockets in a runtime directory.
pub fn sockets(runtime_dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(runtime_dir.join("warpline")).expect("a directory");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// What a program records now.
pub fn state(runtime_dir: &Path, pid: &str) -> String {
    said(runtime_dir, &["status", pid]).lines().nth(2).expect("a state").trim().to_owned()
}

/// The settings, without the budget that recordings from outside have by default, unless they have one.
fn every_zone(settings: &str) -> String {
    if settings.contains("budget=") { settings.to_owned() } else { format!("{settings},budget=100%") }
}
