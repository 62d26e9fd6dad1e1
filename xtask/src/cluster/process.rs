//! Programs that run while engines are compared: servers and clients on ports of the loopback interface. They end with their values.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::shell::Stop;

/// How long a program may take to begin, and a query to end, on a machine with other work.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A program whose output goes to a file, and which is killed with this value.
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    pub fn start(log: PathBuf, command: &str) -> Result<Self, Stop> {
        println!("$ {command} &");
        let failed = |error| Stop::Failed(format!("`{command}` did not start: {error}"));
        let out = File::create(&log).map_err(failed)?;
        let mut words = command.split_whitespace();
        let mut program = Command::new(words.next().unwrap_or_default());
        let program = program.args(words).current_dir(crate::shell::root()).stdin(Stdio::null());
        let child = program.stdout(out.try_clone().map_err(failed)?).stderr(out).spawn().map_err(failed)?;
        Ok(Self { child, log })
    }

    /// Waits until its port answers.
    pub fn wait_for(&mut self, port: u16) -> Result<(), Stop> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if self.has_ended() || Instant::now() > deadline {
                return Err(Stop::Failed(format!("nothing answers on port {port}: {}", self.said())));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub fn end_within(&mut self, time: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        None
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it at once, as a machine that loses its power.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port of the loopback interface that nobody has.
pub fn free_port() -> Result<u16, Stop> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    listener
        .map(|address| address.port())
        .map_err(|error| Stop::Failed(format!("no port of 127.0.0.1 is free: {error}")))
}
