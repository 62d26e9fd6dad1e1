//! No command lets a control character, or one that deceives about what is written, through to its output: every command,
//! in every format, on binaries, traces, programs and arguments whose names are full of them.
#![cfg(target_os = "linux")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::{Architecture, BinaryFormat, Endianness};
use serde_json::{Value, json};
use warpline::collective::{CollectiveKind, Message, ProcessGroup};
use warpline::{HostStream, Session};

use crate::annotate::room;
use crate::support::target::{Target, runtime_dir};
use crate::support::{alone, binaries, fake, target, terminal};

warpline::range! {
    SHARED = "cli.target.shared": "What two ranks do.", kind = collective;
}

/// Sets a terminal's title, changes colours, rings, hides and turns text, and begins a line of its own.
const HOSTILE: &str = "evil\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}31m\u{7f}\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}\u{200b}\
                       \u{feff}\u{ad}\u{e0041}\u{8}\r\nFORGED";

/// What must not be written as it is. Kept apart from the code under test, so that a hole there is not one here.
fn deceives(c: char) -> bool {
    matches!(c,
        '\0'..='\u{9}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A run of the command, and what it wrote.
struct Run<'a> {
    dir: &'a Path,
    seen: String,
}

impl Run<'_> {
    fn run(&mut self, args: &[&OsStr]) {
        self.run_as(env!("CARGO_BIN_EXE_warpline"), args);
    }

    fn run_as(&mut self, program: &str, args: &[&OsStr]) {
        let mut command = Command::new(program);
        command.args(args).env("XDG_RUNTIME_DIR", self.dir).env_remove("WARPLINE").current_dir(self.dir);
        let output = command.stdin(Stdio::null()).output().expect("it runs");
        self.look(&output.stdout, args);
        self.look(&output.stderr, args);
    }

    fn look(&mut self, bytes: &[u8], args: &[&OsStr]) {
        let text = String::from_utf8(bytes.to_owned()).unwrap_or_else(|_| panic!("not UTF-8: {args:?}"));
        // Lines of CSV end so.
        let text = text.replace("\r\n", "\n");
        let found = text.find(deceives).map(|at| text[at..].chars().take(30).collect::<String>());
        assert_eq!(found.map(|found| found.escape_unicode().to_string()), None, "{args:?}: {}", text.escape_debug());
        // In quotes a value of CSV may go on in the next line.
        let is_csv = args.iter().any(|arg| arg.as_bytes().ends_with(b"csv"));
        assert!(is_csv || !text.lines().any(|line| line.starts_with("FORGED")), "{args:?}: {text}");
        self.seen += &text;
    }

    /// What came from outside is there, spelled out: else nothing was tested.
    fn has_spelled(&self, name: &str) {
        let spelled = ["\\u{1b}", "\\u001b", "\\u{202e}", "\\u202e"].iter().any(|text| self.seen.contains(text));
        assert!(spelled && self.seen.contains("evil"), "{name} shows nothing foreign: {}", self.seen);
    }
}

/// A file name that is no UTF-8 either.
fn hostile_name() -> OsString {
    OsString::from_vec([HOSTILE.as_bytes(), b"\xff\xfe"].concat())
}

/// A text with every string in it made hostile, but for those that say what a reply is.
fn hostile(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::String(text) => *text += HOSTILE,
            Value::Array(values) => values.iter_mut().for_each(walk),
            Value::Object(members) => {
                let kept = ["is", "protocol", "dropped", "fields"];
                for (key, value) in members.iter_mut().filter(|(key, _)| !kept.contains(&key.as_str())) {
                    match (key.as_str(), &*value) {
                        ("code" | "state" | "session" | "why" | "kind", _) => {}
                        _ => walk(value),
                    }
                }
            }
            _ => {}
        }
    }
    walk(&mut value);
    value
}

fn range() -> Value {
    json!({"name": "range", "kind": "gpu", "count": 1, "scaled_count": 1.0, "scaled_ns": 1e6, "max_ns": 5, "all_scaled_ns": 1e6,
           "is_sampled": false, "failed": 1, "on_stream": true, "seen": 1, "total_ns": 5, "total_error_ns": 0,
           "recorded_ns": 5, "share": 0.5, "mean_ns": 5, "min_ns": 5, "p50_ns": 5, "p99_ns": 5, "mean_launch_ns": 5})
}

fn zones() -> Value {
    json!({"begun": 3, "recorded": 1, "captured": 1, "dropped": {HOSTILE: 1}, "on_their_way": 0})
}

/// What a hostile program says, to whatever it is asked.
fn answers(ask: &str) -> Vec<Value> {
    let zone = json!({"is": "zone", "range": "r", "status": "failed", "stream": "s", "device": "d", "thread": 1,
                      "thread_name": "t", "host_ns": 5, "gpu_ns": 5, "label": "l", "fields": {HOSTILE: HOSTILE}, "error": "e"});
    let ended = json!({"is": "ended", "why": HOSTILE, "recorded": 1, "captured": 0, "dropped": {HOSTILE: 1}, "kernels": 0,
                       "kernels_lost": 0, "lost": 0, "seconds": 1.0, "notes": ["a note"],
                       "figures": {"ranges": [range()]}});
    let replies = match ask {
        "status" => vec![json!({"is": "status", "version": "1", "program": "p", "ranges": 1, "namespaces": ["n"],
            "state": "idle", "recordings": 0, "watchers": 0, "zones": zones(),
            "flight": {"file": "f", "problems": ["p"]}})],
        "record" => vec![json!({"is": "started", "session": "own", "notes": ["n"]}), ended],
        "watch" => vec![
            json!({"is": "started"}),
            json!({"is": "figures", "seconds": 1.0, "session": "own", "is_recording": true, "zones": zones(),
                   "devices": [{"name": "d", "kind": "k", "ordinal": 0, "busy": 0.5, "collectives": 0.5}],
                   "ranges": [range()], "ranges_in_catalog": 1, "ranges_left_out": 0, "was_stopped": false,
                   "not_sampled": 0}),
        ],
        "arm" => vec![
            json!({"is": "armed"}),
            zone,
            json!({"is": "no_zone", "text": "t"}),
            json!({"is": "ended", "why": "time", "to_come": 1, "code": HOSTILE, "text": "t"}),
        ],
        "stop" => vec![json!({"is": HOSTILE})],
        _ => vec![json!({"is": "flight", "fd": 0, "file": "f", "is_fresh": false, "problems": ["p"]})],
    };
    replies.into_iter().map(hostile).collect()
}

fn send(ask: &str, stream: &UnixStream) {
    let mut replies = answers(ask);
    if ask == "watch" {
        // The first figures only say where the next ones begin.
        let mut next = replies[1].clone();
        next["zones"]["dropped"][HOSTILE] = 5.into();
        replies.push(next);
    }
    let _ = (&mut &*stream).write_all(&fake::replies(&replies));
    if ask == "watch" {
        // Until the other end is gone.
        let _ = std::io::Read::read(&mut &*stream, &mut [0]);
    }
}

/// The notes of a namespace and a range that are hostile in every text.
fn hostile_notes() -> Vec<u8> {
    let with = |begin: &str| format!("{begin}{HOSTILE}");
    let (name, about, krate, file, version) = (with("demo"), with("about "), with("demo"), with("src/"), with("0.1"));
    let space = binaries::facts(0, &[&name, &about, &krate, &file, "5", &version]);
    let (name, description, lane, field) = (with("demo.add"), with("=1+1 <img src=x> `<b>`"), with("copy"), with("n`"));
    let range = binaries::facts(
        4,
        &[&name, "gpu", "fine", &description, &lane, "76b900", &krate, &file, "9", &version, &field],
    );
    [binaries::note(Endianness::Little, 2, space), binaries::note(Endianness::Little, 1, range)].concat()
}

/// An object file whose catalog is hostile in every text.
fn binary(path: &Path) {
    let file = binaries::object(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little, &hostile_notes());
    fs::write(path, file).expect("a file");
}

/// The traces of two ranks in groups with a hostile name.
fn traces(dir: &Path) -> Vec<PathBuf> {
    let _turn = alone();
    let trace = |rank: u32| {
        let path = dir.join(format!("rank{rank}.pftrace"));
        let session = Session::builder().perfetto(&path).start().expect("no other session");
        let (stream, group) = (HostStream::new("comm"), ProcessGroup::new(HOSTILE, [0, 1], rank).with_comm_id(99));
        for kind in
            [CollectiveKind::AllReduce, if rank == 0 { CollectiveKind::AllReduce } else { CollectiveKind::Broadcast }]
        {
            let message = || Message::new(kind).count(8_u32).group(&group);
            let mut batch = SHARED.batch(&stream);
            batch.add(&SHARED, message);
            drop(batch);
        }
        stream.synchronize().expect("a stream");
        let report = session.finish();
        assert!(report.recorded > 0, "{report}");
        path
    };
    (0..2).map(trace).collect()
}

/// The values of the option `--format`, if there is one.
fn formats(command: &clap::Command) -> Vec<Option<String>> {
    let format = command.get_arguments().find(|argument| argument.get_long() == Some("format"));
    let values = format.map(|format| format.get_possible_values());
    let values = values.into_iter().flatten().map(|value| Some(value.get_name().to_owned()));
    [None].into_iter().chain(values).collect()
}

/// What each command is given that makes it show something foreign. A new command needs a line here.
fn scenes(name: &str, dir: &Path, pid: &str) -> Vec<Vec<OsString>> {
    let file = |name: &OsStr| dir.join(name).into_os_string();
    let own = |name: &str| file(OsStr::new(name));
    let scene = |words: &[&OsStr]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (missing, binary) = (file(&hostile_name()), own("binary"));
    let word = OsStr::new;
    match name {
        "catalog" => vec![scene(&[&binary]), scene(&[&missing])],
        "check" => vec![scene(&[&binary, word("--strict")]), scene(&[&missing])],
        "stragglers" => {
            vec![scene(&[&own("rank0.pftrace"), &own("rank1.pftrace")]), scene(&[&missing]), scene(&[&binary])]
        }
        "report" => vec![scene(&[&own("rank0.pftrace")]), scene(&[&missing]), scene(&[&binary])],
        "compare" => vec![
            scene(&[&own("rank0.pftrace"), &own("rank1.pftrace")]),
            scene(&[&missing, &own("rank1.pftrace")]),
            scene(&[&own("rank0.pftrace"), &binary]),
        ],
        "annotate" => {
            let of = |annotations: &str, trace: &str, output: &OsStr| {
                let (annotations, trace) = (own(annotations), own(trace));
                scene(&[word("--annotations"), &annotations, word("--trace"), &trace, word("-o"), output])
            };
            let out = |ending: &str| file(&OsString::from_vec([HOSTILE.as_bytes(), ending.as_bytes()].concat()));
            vec![
                of("a.json", "t.json", &out(".json")),
                of("a.json", "t.json", &out(".pftrace")),
                of("a.json", "t.json", &missing),
                of("keys.json", "t.json", &out(".json")),
                of("a.json", "keys.json", &out(".json")),
            ]
        }
        // Without a file to serve: it would serve it.
        "open" => vec![
            scene(&[word("--no-browser"), &missing]),
            scene(&[word("--no-browser"), word("--ui"), &OsString::from(HOSTILE), &binary]),
        ],
        "recover" => vec![
            scene(&[&own("run.flight"), word("-o"), &own("r.pftrace")]),
            scene(&[&missing, word("-o"), &own("r.pftrace")]),
            scene(&[&own("run.flight"), word("-o"), &missing]),
            scene(&[&binary, word("-o"), &own("r.pftrace")]),
        ],
        "ps" => vec![scene(&[])],
        "status" | "stop" | "top" => vec![scene(&[word(pid)])],
        "record" => vec![
            scene(&[word(pid), word("-o"), &own("t.pftrace")]),
            scene(&[word(pid), word("-o"), &missing]),
            scene(&[word(pid), word("--filter"), &OsString::from(HOSTILE), word("-o"), &own("t.pftrace")]),
        ],
        "arm" => vec![
            scene(&[word(pid), &OsString::from(HOSTILE)]),
            scene(&[word(pid), &OsString::from(format!("*{HOSTILE}"))]),
        ],
        "dump" => vec![scene(&[word(pid), word("-o"), &own("d.pftrace")]), scene(&[word(pid), word("-o"), &missing])],
        "doctor" => vec![scene(&[word("--settings"), &OsString::from(HOSTILE)])],
        "completions" => vec![scene(&[&hostile_name()])],
        // A folder in a file, which cannot be made.
        "man" => vec![scene(&[Path::new(&binary).join(hostile_name()).as_os_str()])],
        "help" => vec![scene(&[&hostile_name()])],
        // Where the program is missing: what it prints is its own.
        "ranks" | "query" => vec![scene(&[&hostile_name()])],
        other => panic!("`{other}` is a new command: say here what makes it show names of others"),
    }
}

#[test]
fn no_command_writes_what_deceives_a_terminal_or_its_reader() {
    let dir = runtime_dir();
    let files = dir.path();
    binary(&files.join("binary"));
    traces(files);
    fs::write(
        files.join("keys.json"),
        json!({HOSTILE: HOSTILE, "format": HOSTILE, "traceEvents": [HOSTILE]}).to_string(),
    )
    .expect("a file");
    fs::write(files.join("a.json"), hostile_zones(room::annotations()).to_string()).expect("a file");
    fs::write(files.join("t.json"), json!({"traceEvents": room::events(room::Ids::Mixed)}).to_string())
        .expect("a file");
    // A real program whose file, command line and flight recorder have such names, beside one that says such things.
    let program = files.join(OsString::from_vec(HOSTILE.replace('/', "").into_bytes()));
    // Not by this process: a child that another test starts would have the copy open for writing, and it could not run.
    let copied = Command::new("cp").arg(std::env::current_exe().expect("this test")).arg(&program).status();
    assert!(copied.expect("cp").success());
    let mut command = Command::new(&program);
    command
        .env("XDG_RUNTIME_DIR", files)
        .env("WARPLINE", format!("control,budget=100%,flight=1MiB:{}", files.join("run.flight").display()));
    let real = Target::run(command);
    let pid = fake::listen(files, |request, stream| send(request["ask"].as_str().expect("a word"), stream));
    let mut definition = warpline_cli::definition();
    definition.build();
    for command in definition.get_subcommands() {
        let name = command.get_name();
        let mut run = Run { dir: files, seen: String::new() };
        let mut scenes = scenes(name, files, &pid);
        if ["status", "dump"].contains(&name) {
            scenes.push(vec![real.pid().into()]);
        }
        for scene in &scenes {
            for format in formats(command) {
                let format = format.map(|format| OsString::from(format!("--format={format}")));
                let args = [OsStr::new(name)]
                    .into_iter()
                    .chain(scene.iter().map(OsString::as_os_str))
                    .chain(format.as_deref());
                run.run(&args.collect::<Vec<_>>());
            }
        }
        // What the arguments themselves say, wherever it is refused.
        let hostile = hostile_name();
        let option = OsString::from(format!("--{HOSTILE}"));
        run.run(&[OsStr::new(name), &option]);
        run.run(&[OsStr::new(name), &hostile, &hostile, &hostile]);
        for argument in command.get_arguments().filter_map(clap::Arg::get_long) {
            for value in [HOSTILE.as_bytes(), hostile.as_bytes()] {
                let option = OsString::from_vec([b"--", argument.as_bytes(), b"=", value].concat());
                run.run(&[OsStr::new(name), &option]);
            }
        }
        // These hand all of it to another program, and say nothing of it.
        if !["ranks", "query"].contains(&name) {
            run.has_spelled(name);
        }
    }
    let mut run = Run { dir: files, seen: String::new() };
    run.run(&[OsStr::new(HOSTILE)]);
    run.has_spelled("an unknown command");
    run.run_as(env!("CARGO_BIN_EXE_cargo-warpline"), &[OsStr::new("warpline"), OsStr::new(HOSTILE)]);
    real.end();
}

fn hostile_zones(mut annotations: Value) -> Value {
    for zone in annotations["graphs"][0]["zones"].as_array_mut().expect("zones") {
        zone["name"] = HOSTILE.into();
        zone["label"] = HOSTILE.into();
    }
    annotations
}

#[test]
fn catalogs_are_exact_in_json_and_harmless_in_markdown_and_csv() {
    let dir = runtime_dir();
    let path = dir.path().join("binary");
    binary(&path);
    let shown = |format: &str| {
        let file = dir.path().join("shown");
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpline"));
        command.arg("catalog").arg(&path).args(["--format", format, "-o"]).arg(&file);
        assert!(command.status().expect("it runs").success(), "{format}");
        fs::read_to_string(file).expect("UTF-8")
    };
    let json: Value = serde_json::from_str(&shown("json")).expect("JSON");
    let text = json["ranges"][0]["description"].as_str().expect("a text");
    assert_eq!(text, format!("=1+1 <img src=x> `<b>`{HOSTILE}"), "what a program reads is what was written");
    let csv = shown("csv");
    assert!(csv.contains("'=1+1 <img"), "no formula: {csv}");
    let markdown = shown("markdown");
    assert!(!markdown.contains("<img") && markdown.contains("`<b>`"), "{markdown}");
    for text in [csv.replace("\r\n", "\n"), markdown] {
        assert_eq!(text.find(deceives), None, "{}", text.escape_debug());
    }
}

#[test]
fn top_shows_no_name_as_it_is() {
    let dir = runtime_dir();
    let pid = fake::listen(dir.path(), |request, stream| send(request["ask"].as_str().expect("a word"), stream));
    let mut terminal = terminal::Terminal::start(target::warpline(dir.path(), &["top", &pid]), 24, 200);
    let lines = terminal.until("the range", |lines| lines.join("").contains("rangeevil\\u{1b}"));
    assert!(!lines.concat().contains(deceives), "{lines:?}");
    assert!(lines[2].contains("dropped (evil\\u{1b}"), "{lines:?}");
    // Zones that were dropped may have been of any range.
    assert!(lines[1].matches("≥").count() == 2 && lines[2].starts_with(" ≥1.0 zones/s"), "{lines:?}");
    assert!(["≥1.0 ", "≥0.1 %", "≥1.00 ms"].iter().all(|figure| lines[4].contains(figure)), "{lines:?}");
    terminal.press("q");
    assert!(terminal.child.wait().expect("it ends").success());
}
