//! Processes that are attacked, or that attack: started, listened to, waited for with patience, and never left behind.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child as Process, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most that is kept of what a process says.
const MOST_SAID: u64 = 1 << 20;

/// A process. It is killed when it is dropped without being waited for.
pub(crate) struct Child {
    process: Process,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
    input: Option<ChildStdin>,
}

/// A command that runs `program` with nothing of this process's settings, in this folder.
pub(crate) fn command(program: &Path, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env_remove("WARPLINE").env_remove("RANK").env("RUST_BACKTRACE", "0");
    let die_with_parent = || {
        // SAFETY: the call takes numbers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        Ok(())
    };
    // SAFETY: between fork and exec it makes one system call.
    unsafe { command.pre_exec(die_with_parent) };
    command
}

impl Child {
    /// Starts it.
    pub(crate) fn start(mut command: Command) -> Result<Child, String> {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = pipes.spawn().map_err(|error| format!("`{command:?}` does not start: {error}"))?;
        let (say, lines) = mpsc::channel();
        if let Some(stdout) = process.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let _ = say.send(line);
                }
            });
        }
        let stderr = process.stderr.take().map(|stderr| {
            std::thread::spawn(move || {
                let (mut said, mut stderr) = (Vec::new(), stderr);
                let _ = (&mut stderr).take(MOST_SAID).read_to_end(&mut said);
                let _ = std::io::copy(&mut stderr, &mut std::io::sink());
                String::from_utf8_lossy(&said).into_owned()
            })
        });
        let input = process.stdin.take();
        Ok(Child { process, lines, stderr, input })
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The next line that it prints, within this time; none when it prints no more.
    pub(crate) fn line(&self, time: Duration) -> Result<Option<String>, RecvTimeoutError> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(timeout) => Err(timeout),
        }
    }

    /// Waits for a line that begins so.
    pub(crate) fn wait_for(&self, begin: &str, time: Duration) -> Result<String, String> {
        let deadline = Instant::now() + time;
        loop {
            match self.line(deadline.saturating_duration_since(Instant::now())) {
                Ok(Some(line)) if line.starts_with(begin) => return Ok(line),
                Ok(Some(_)) => {}
                Ok(None) => return Err(format!("the process ended before it said `{begin}`")),
                Err(_) => return Err(format!("the process does not say `{begin}` within {time:?}")),
            }
        }
    }

    /// Tells it a line.
    pub(crate) fn tell(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}");
        }
    }

    /// Its standard input ends.
    pub(crate) fn end_input(&mut self) {
        self.input = None;
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: the call takes numbers; the process is not waited for yet, so that its number is its own.
        unsafe { libc::kill(self.process.id().cast_signed(), signal) };
    }

    /// Waits for its end within this time; what it said on standard error. One that takes longer is killed.
    pub(crate) fn end(mut self, time: Duration) -> Result<(ExitStatus, String), String> {
        let deadline = Instant::now() + time;
        let status = loop {
            match self.process.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                Ok(None) => break Err(format!("the process does not end within {time:?}")),
                Err(error) => break Err(error.to_string()),
            }
        };
        let _ = self.process.kill();
        let _ = self.process.wait();
        let said = self.stderr.take().and_then(|stderr| stderr.join().ok()).unwrap_or_default();
        match status {
            Ok(status) => Ok((status, said)),
            Err(error) => Err(format!("{error}; it said: {said}")),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
