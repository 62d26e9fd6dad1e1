//! A hostile client of a program that listens: whatever it sends, in whatever pieces, and however it leaves, the program works on, takes
//! no memory for it, and answers the next one who asks.

use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;
use warpline::{HostStream, Session};
use warpline_trace::control::protocol::{ControlRequest, Decoder, Kind, MAX_REPLY_BYTES, frame};
use warpline_trace::control::socket::SocketOwner;

use super::child::{Child, command};
use super::harness::{Run, skewed};
use super::mutate::mutate;

warpline::range! {
    STEP = "attack.asked_step": "A step of a program that is asked from outside.";
}

/// What a program may grow by, whatever is sent to it. What it keeps for those who connect is 16 frames of 16 KiB and 4 pipes of 2 MiB.
const GROWTH_KB: u64 = 48 << 10;

/// How often the program is asked how it does.
const ASKED_EVERY: u64 = 40;

pub(crate) fn attack(run: &mut Run) {
    attack_program(run, None);
}

/// The program is stopped after some connections.
pub(crate) fn planted(run: &mut Run) {
    attack_program(run, Some(20));
}

fn attack_program(run: &mut Run, stopped_after: Option<u64>) {
    let mut program: Option<Program> = None;
    let (mut tries, mut last) = (0, 0);
    while let Some(seed) = run.next() {
        last = seed;
        let is_last = run.left().is_zero();
        tries += 1;
        let result = match &mut program {
            Some(running) => running.attacked(seed, run.patience, tries % ASKED_EVERY == 0 || is_last),
            none => Program::start(run).map(|started| *none = Some(started)),
        };
        if let Err(what) = result {
            // A program that failed once is not attacked again.
            program = None;
            run.failed(seed, what, None);
        }
        if let (Some(running), true) = (&program, stopped_after.is_some_and(|after| tries == after)) {
            running.child.signal(libc::SIGSTOP);
        }
    }
    if let Some(mut program) = program {
        let patience = run.patience;
        if let Err(what) = program.is_well(patience).and_then(|()| program.end(patience)) {
            run.failed(last, what, None);
        }
    }
}

/// A program that listens.
struct Program {
    child: Child,
    socket: PathBuf,
    resident_kb: u64,
    step: u64,
    _folder: tempfile::TempDir,
}

impl Program {
    fn start(run: &Run) -> Result<Program, String> {
        // The path of a socket is short.
        let folder = tempfile::Builder::new().prefix("wl").tempdir_in("/tmp").map_err(|error| error.to_string())?;
        let mut command = command(&run.program, folder.path(), &["worker", "listen"]);
        command.env("XDG_RUNTIME_DIR", folder.path()).env("WARPLINE", "control");
        let child = Child::start(command)?;
        child.wait_for("ready", run.patience)?;
        let owner = SocketOwner::read(&child.id().to_string()).map_err(|error| error.to_string())?;
        let socket = folder.path().join("warpline").join(owner.socket_name());
        let mut program = Program { child, socket, resident_kb: 0, step: 0, _folder: folder };
        // After the first recording, whose session is made then.
        program
            .asked(&ControlRequest::Record { for_ms: Some(50), filter: String::new(), kernels: false }, run.patience)?;
        program.is_well(run.patience)?;
        program.resident_kb = program.resident_kb()?;
        Ok(program)
    }

    /// One hostile connection, or a few at a time.
    fn attacked(&mut self, seed: u64, patience: Duration, is_asked: bool) -> Result<(), String> {
        let mut random = Rng::with_seed(seed);
        let connections: Vec<_> = (0..skewed(&mut random, 1, 24)).filter_map(|_| connect(&self.socket)).collect();
        for stream in &connections {
            hostile(stream, &mut random);
        }
        drop(connections);
        if is_asked { self.is_well(patience) } else { Ok(()) }
    }

    /// It answers, makes steps, and has not grown.
    fn is_well(&mut self, patience: Duration) -> Result<(), String> {
        self.asked(&ControlRequest::Status, patience)?;
        self.step = self.next_step(patience)?;
        let now = self.resident_kb()?;
        if self.resident_kb > 0 && now > self.resident_kb + GROWTH_KB {
            return Err(format!("the program grew from {} kB to {now} kB", self.resident_kb));
        }
        Ok(())
    }

    /// Asks until the program is past the step that it reported last; on a busy host, it may have made none since.
    fn next_step(&mut self, patience: Duration) -> Result<u64, String> {
        let deadline = Instant::now() + patience;
        loop {
            self.child.tell("step");
            let said = self.child.wait_for("step ", patience)?;
            let step = said.trim_start_matches("step ").parse().map_err(|error| format!("{said}: {error}"))?;
            if step > self.step {
                return Ok(step);
            }
            if Instant::now() > deadline {
                return Err(format!("the program makes no steps: it was at {}, and is at {step}", self.step));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asks until it is answered: those before may have taken the connections that there are, for two seconds.
    fn asked(&self, request: &ControlRequest, patience: Duration) -> Result<(), String> {
        let deadline = Instant::now() + patience;
        loop {
            let answer = ask(&self.socket, request);
            match answer {
                Some(is) if is != "error" => return Ok(()),
                _ if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
                _ => return Err(format!("nobody is answered within {patience:?}; the last answer: {answer:?}")),
            }
        }
    }

    fn resident_kb(&self) -> Result<u64, String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.map_err(|error| format!("the program is no more: {error}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).ok_or_else(|| "it is over".to_owned())
    }

    fn end(mut self, patience: Duration) -> Result<(), String> {
        self.child.end_input();
        let (status, said) = self.child.end(patience)?;
        if status.success() { Ok(()) } else { Err(format!("the program ended with {status}: {said}")) }
    }
}

fn connect(socket: &Path) -> Option<UnixStream> {
    let stream = UnixStream::connect(socket).ok()?;
    let time = Some(Duration::from_millis(200));
    stream.set_read_timeout(time).and_then(|()| stream.set_write_timeout(time)).ok()?;
    Some(stream)
}

/// What the first reply is.
fn ask(socket: &Path, request: &ControlRequest) -> Option<String> {
    let mut stream = connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(&framed(Kind::Json, request.to_json().as_bytes())).ok()?;
    let mut decoder = Decoder::new(MAX_REPLY_BYTES);
    loop {
        if let Some((kind, body)) = decoder.take().ok()? {
            let reply: serde_json::Value = serde_json::from_slice(&body).ok().filter(|_| kind == Kind::Json)?;
            return reply["is"].as_str().map(str::to_owned);
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => return None,
            Ok(count) => decoder.feed(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Sends a wild request or other bytes, and may read the answers.
fn hostile(mut stream: &UnixStream, random: &mut Rng) {
    let mut bytes = framed(Kind::Json, wild_request(random).as_bytes());
    match random.u8(0..8) {
        0 | 1 => {}
        2 => bytes = (0..skewed(random, 1, 1 << 16)).map(|_| random.u8(..)).collect(),
        3 => bytes.extend(bytes.repeat(skewed(random, 1, 100) as usize)),
        4 => bytes = framed(Kind::Trace, &bytes),
        5 => bytes[..4].copy_from_slice(&random.u32(..).to_le_bytes()),
        _ => mutate(random, &mut bytes, b"{\"protocol\":1,\"ask\":\"watch\",\"every_ms\":1}", 1 << 17),
    }
    let piece = skewed(random, 1, 1 << 16) as usize;
    for piece in bytes.chunks(piece.max(bytes.len() / 64)) {
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    match random.u8(0..6) {
        0 => drop(stream.shutdown(Shutdown::Write)),
        1 => drop(stream.shutdown(Shutdown::Read)),
        2 => drop(stream.shutdown(Shutdown::Both)),
        3 => drop(stream.read(&mut [0; 256])),
        4 => {
            let mut sent = 0;
            while let Ok(count) = stream.write(&[b'x'; 4096]) {
                sent += count;
                if sent > 1 << 20 {
                    break;
                }
            }
        }
        _ => {}
    }
}

fn wild_request(random: &mut Rng) -> String {
    let number = |random: &mut Rng| random.choice([0, 1, 50, 1_000, u64::MAX]).unwrap_or(0);
    let text = |random: &mut Rng| {
        let texts = ["", "*", "attack.*", "attack.asked_step", "\u{1b}[2J", "!*,!*", "nobody.knows", "a\0b"];
        random.choice(texts).unwrap_or("").repeat(skewed(random, 1, 200) as usize)
    };
    let request = match random.u8(0..7) {
        0 => ControlRequest::Status,
        1 => ControlRequest::Record { for_ms: None, filter: text(random), kernels: random.bool() },
        2 => ControlRequest::Record { for_ms: Some(number(random)), filter: String::new(), kernels: false },
        3 => ControlRequest::Stop,
        4 => ControlRequest::Arm { range: text(random), zones: random.u32(..), for_ms: number(random) },
        5 => ControlRequest::Watch { every_ms: number(random) },
        _ => ControlRequest::Dump,
    };
    request.to_json()
}

fn framed(kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame(kind, body, &mut bytes);
    bytes
}

/// A program that listens and makes steps until its standard input ends; at each line it says how many.
pub(crate) fn worker() {
    let session = Session::from_env();
    let (say, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = say.send(line);
        }
    });
    println!("ready");
    let _ = std::io::stdout().flush();
    let (stream, mut steps) = (HostStream::new("compute"), 0_u64);
    loop {
        match said.try_recv() {
            Ok(_) => {
                println!("step {steps}");
                let _ = std::io::stdout().flush();
            }
            Err(std::sync::mpsc::TryRecvError::Disconnected) => break,
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
        let zone = STEP.zone(&stream).field("n", steps);
        stream.launch(|| ());
        drop(zone);
        steps += 1;
        std::thread::sleep(Duration::from_micros(200));
    }
    let _ = stream.synchronize();
    drop(session.finish());
}
