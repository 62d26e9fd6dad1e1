//! A hostile program behind each command that asks: whatever it answers, and however slowly, the command comes to its end, also when it is told
//! to end, writes no more than it was sent, and lets nothing through that a terminal would act on.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Value, json};
use warpline_trace::control::protocol::{Kind, frame};
use warpline_trace::control::socket::SocketOwner;

use super::child::command;
use super::harness::{Run, skewed};
use super::mutate::mutate;
use super::worker::AS_COMMAND;

/// The most that a program sends; the command writes it to a file.
const MOST_SENT: usize = 8 << 20;

/// The most that a command says, whatever it is sent.
const MOST_SAID: usize = 16 << 20;

/// How many commands run at a time: most of their time they wait.
const AT_A_TIME: usize = 4;

/// How many kinds of replies [`reply`] makes.
const KINDS: usize = 8;

/// The replies that a command waits for, by what it asks.
const ASKED: [(&str, &[usize]); 5] = [
    (r#""ask":"status""#, &[0]),
    (r#""ask":"record""#, &[1, 2]),
    (r#""ask":"arm""#, &[3, 4, 4, 2]),
    (r#""ask":"stop""#, &[6]),
    (r#""ask":"dump""#, &[7]),
];

/// Who is told to end does so within this time.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn attack(run: &mut Run) {
    attack_commands(run, "right");
}

pub(crate) fn planted_escape(run: &mut Run) {
    attack_commands(run, "echo");
}

pub(crate) fn planted_hang(run: &mut Run) {
    attack_commands(run, "hang");
}

/// The process as the command, or as one that is broken.
pub(crate) fn command_of(variant: &str) -> ExitCode {
    match variant {
        "echo" => {
            let _ = std::io::stdout().write_all(b"process \x1b[2J\n");
            ExitCode::SUCCESS
        }
        "hang" => loop {
            std::thread::park();
        },
        _ => warpline_cli::warpline(),
    }
}

fn attack_commands(run: &mut Run, variant: &str) {
    loop {
        let seeds: Vec<_> = (0..AT_A_TIME).map_while(|_| run.next()).collect();
        if seeds.is_empty() {
            break;
        }
        let (program, patience) = (&run.program, run.patience);
        let failed = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for seed in &seeds {
                scope.spawn(|| {
                    if let Err(what) = ask_one(program, variant, *seed, patience) {
                        failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((*seed, what));
                    }
                });
            }
        });
        for (seed, what) in failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            run.failed(seed, what, None);
        }
    }
}

fn ask_one(program: &Path, variant: &str, seed: u64, patience: Duration) -> Result<(), String> {
    let mut random = Rng::with_seed(seed);
    let folder = tempfile::Builder::new().prefix("wl").tempdir_in("/tmp").map_err(|error| error.to_string())?;
    let sockets = folder.path().join("warpline");
    std::fs::create_dir(&sockets)
        .and_then(|()| std::fs::set_permissions(&sockets, std::fs::Permissions::from_mode(0o700)))
        .map_err(|error| error.to_string())?;
    // This process is the program: it is the one with this number.
    let owner = SocketOwner::read("self").map_err(|error| error.to_string())?;
    let listener = UnixListener::bind(sockets.join(owner.socket_name())).map_err(|error| error.to_string())?;
    let arguments = arguments(&mut random);
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let mut asking = command(program, folder.path(), &words);
    asking.env(AS_COMMAND, variant).env("XDG_RUNTIME_DIR", folder.path());
    let (stdout, stderr) = (folder.path().join("said"), folder.path().join("complained"));
    let is_told_to_end = random.u8(0..4) == 0;
    let told_after = Duration::from_millis(random.u64(0..1_500));
    let sent = AtomicUsize::new(0);
    let status = std::thread::scope(|scope| {
        listener.set_nonblocking(true).map_err(|error| error.to_string())?;
        let mut child = spawn(asking, &stdout, &stderr)?;
        let (begin, mut told) = (Instant::now(), None);
        loop {
            if let Ok((stream, _)) = listener.accept() {
                let mut random = random.fork();
                let sent = &sent;
                scope.spawn(move || answer(stream, &mut random, sent));
            }
            match child.try_wait().map_err(|error| error.to_string())? {
                Some(status) => return Ok((status, told.is_some())),
                None if told.is_none() && is_told_to_end && begin.elapsed() > told_after => {
                    told = Some(Instant::now());
                    // SAFETY: the call takes numbers; the process is not waited for yet.
                    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
                }
                None => {}
            }
            let late =
                told.is_some_and(|told| told.elapsed() > ENDS_WITHIN.min(patience)) || begin.elapsed() > patience;
            if late {
                let _ = child.kill().and_then(|()| child.wait().map(drop));
                let after =
                    if told.is_some() { format!("{ENDS_WITHIN:?} after SIGTERM") } else { format!("{patience:?}") };
                // The hostile program stops sending.
                sent.store(MOST_SENT, Relaxed);
                return Err(format!("`warpline {}` does not end within {after}", words.join(" ")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let judged = status.and_then(|(status, told)| {
        let is_well = match (status.code(), status.signal()) {
            (Some(0 | 2), _) => true,
            (code, signal) => told && (signal == Some(libc::SIGTERM) || matches!(code, Some(130 | 143))),
        };
        if is_well { Ok(()) } else { Err(format!("it ended with {status}")) }
    });
    let said = [stdout, stderr].map(|path| std::fs::read(path).unwrap_or_default());
    judged
        .and_then(|()| said.iter().try_for_each(|said| printable(said)))
        .map_err(|what| format!("`warpline {}`: {what}; it said: {:?}", words.join(" "), tail(&said[1])))
}

fn spawn(mut command: Command, stdout: &Path, stderr: &Path) -> Result<std::process::Child, String> {
    let file = |path| std::fs::File::create(path).map_err(|error| error.to_string());
    command.stdin(Stdio::null()).stdout(file(stdout)?).stderr(file(stderr)?);
    command.spawn().map_err(|error| error.to_string())
}

fn tail(said: &[u8]) -> String {
    String::from_utf8_lossy(&said[said.len().saturating_sub(300)..]).into_owned()
}

fn arguments(random: &mut Rng) -> Vec<String> {
    let process = std::process::id().to_string();
    let json = |random: &mut Rng| random.choice([&[][..], &["--format", "json"]]).unwrap_or(&[]);
    let words: Vec<&str> = match random.u8(0..6) {
        0 => [&["status", &process][..], json(random)].concat(),
        1 => [&["ps"][..], json(random)].concat(),
        2 => vec!["record", &process, "--for", "200ms", "-o", "t.pftrace"],
        3 => [&["arm", &process, "attack.step", "-n", "2", "--within", "1s"][..], json(random)].concat(),
        4 => vec!["stop", &process],
        _ => vec!["dump", &process, "-o", "t.pftrace"],
    };
    words.into_iter().map(str::to_owned).collect()
}

/// What a terminal acts on, or what changes the order in which a line is read.
fn printable(said: &[u8]) -> Result<(), String> {
    if said.len() > MOST_SAID {
        return Err(format!("it says {} bytes", said.len()));
    }
    let text = std::str::from_utf8(said).map_err(|error| format!("it says what is no UTF-8: {error}"))?;
    let is_bidi =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    match text.chars().find(|c| (c.is_control() && !matches!(c, '\n' | '\t')) || is_bidi(*c)) {
        None => Ok(()),
        Some(c) => Err(format!("it prints {c:?}")),
    }
}

/// Answers as no program should.
fn answer(mut stream: UnixStream, random: &mut Rng, sent: &AtomicUsize) {
    let time = Some(Duration::from_secs(5));
    let _ = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_write_timeout(time))
        .and_then(|()| stream.set_read_timeout(time));
    let mut asked = [0; 4096];
    let count = stream.read(&mut asked).unwrap_or(0);
    let asked = String::from_utf8_lossy(&asked[..count]).into_owned();
    let mut replies = Vec::new();
    // Mostly what the command waits for, with wild contents: further in there is more to break.
    let expected = ASKED.iter().find(|(ask, _)| asked.contains(ask)).map_or(&[][..], |(_, replies)| replies);
    let is_expected = random.u8(0..4) > 0;
    for which in expected.iter().filter(|_| is_expected) {
        frame(Kind::Json, reply(random, *which).to_string().as_bytes(), &mut replies);
        for _ in 0..random.u8(0..3) {
            frame(Kind::Trace, &[0x0A, 0x02, 0x50, 0x01], &mut replies);
        }
    }
    for _ in 0..if is_expected && random.bool() { 0 } else { skewed(random, 1, 8) } {
        if random.u8(0..4) == 0 {
            let trace: Vec<_> = (0..skewed(random, 0, 1 << 16)).map(|_| random.u8(..)).collect();
            frame(Kind::Trace, &trace, &mut replies);
        } else {
            let which = random.usize(..KINDS);
            frame(Kind::Json, reply(random, which).to_string().as_bytes(), &mut replies);
        }
    }
    match random.u8(0..8) {
        0 | 1 => mutate(random, &mut replies, b"{\"is\":\"ended\"}", 1 << 20),
        2 => replies = (0..skewed(random, 0, 1 << 16)).map(|_| random.u8(..)).collect(),
        _ => {}
    }
    match random.u8(0..12) {
        // A byte now and then.
        0 => {
            for byte in replies {
                if stream.write_all(&[byte]).is_err() || sent.fetch_add(1, Relaxed) >= MOST_SENT {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        // The same again and again.
        1 => while sent.fetch_add(replies.len().max(1), Relaxed) < MOST_SENT && stream.write_all(&replies).is_ok() {},
        // Nothing.
        2 => {}
        _ => drop(stream.write_all(&replies)),
    }
    // Some close, and some wait until the command does.
    if random.u8(0..4) == 0 {
        let _ = stream.read(&mut [0; 64]);
    }
}

/// A reply of this kind, with contents that no program has.
fn reply(random: &mut Rng, which: usize) -> Value {
    let text = |random: &mut Rng| {
        let texts = [
            "demo.add",
            "\u{1b}[2J\u{7}",
            "\u{9b}31m",
            "\u{202e}gpj.exe",
            "a\nb\tc\r",
            "\0",
            "\u{7f}",
            "",
            "{pid}",
            "own",
            "idle",
            "complete",
            "done",
            "time",
            "ring_full",
        ];
        random.choice(texts).unwrap_or("").repeat(skewed(random, 1, 50) as usize)
    };
    let number = |random: &mut Rng| {
        let odd = [json!(-1), json!(1e300), json!("7"), json!(null), json!(u64::MAX), json!([]), json!(0), json!(3)];
        random.choice(odd).unwrap_or_default()
    };
    let texts = |random: &mut Rng| (0..skewed(random, 0, 40)).map(|_| text(random)).collect::<Vec<_>>();
    let count = |random: &mut Rng| skewed(random, 0, u64::MAX);
    let flight = |random: &mut Rng| {
        let of_file = if random.bool() { text(random) } else { "/proc/self/maps".to_owned() };
        json!({"file": of_file, "problems": texts(random), "fd": random.choice([0, 1, -1, 1 << 30]), "is_fresh": random.bool()})
    };
    let mut reply = match which {
        0 => json!({
            "is": "status", "version": text(random), "process": count(random), "program": text(random), "ranges": count(random),
            "namespaces": texts(random), "state": text(random), "recordings": count(random), "watchers": count(random),
            "zones": {"begun": count(random), "recorded": count(random), "captured": count(random), "dropped": {text(random): count(random)},
                "on_their_way": count(random)},
            "flight": flight(random),
        }),
        1 => json!({"is": "started", "session": text(random), "notes": texts(random)}),
        2 => json!({
            "is": "ended", "why": text(random), "begun": count(random), "recorded": count(random), "captured": count(random),
            "dropped": {text(random): count(random), "ring_full": 3}, "spans": 0, "kernels": count(random), "kernels_lost": count(random),
            "lost": count(random), "seconds": random.f64() * 1e300, "notes": texts(random), "to_come": number(random),
            "code": text(random), "text": text(random),
            "figures": {"ranges": [{"name": text(random), "count": number(random), "total_ns": number(random)}], "more_ranges": number(random)},
        }),
        3 => json!({"is": "armed"}),
        4 => json!({
            "is": "zone", "range": text(random), "status": text(random), "stream": text(random), "device": text(random),
            "thread": count(random), "thread_name": text(random), "host_begin_ns": number(random), "host_ns": number(random),
            "gpu_begin_ns": number(random), "gpu_ns": number(random), "gpu_ns_corrected": number(random), "label": text(random),
            "fields": {text(random): text(random)}, "error": text(random),
        }),
        5 => json!({"is": "error", "code": text(random), "text": text(random)}),
        6 => json!({"is": "stopped", "ended": number(random)}),
        _ => {
            let mut flight = flight(random);
            flight["is"] = json!("flight");
            flight
        }
    };
    if random.u8(0..4) > 0 {
        reply["protocol"] = json!(1);
    }
    if let (Some(object), 0) = (reply.as_object_mut(), random.u8(0..3)) {
        let key = random.choice(object.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
        object.insert(key, number(random));
    }
    reply
}
