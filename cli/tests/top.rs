//! `warpline top` on a terminal: what is on the screen, keys, sizes, and that the terminal is then as it was.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::target::{Target, runtime_dir, said, state, until, warpline};
use crate::support::terminal::Terminal;

fn top(dir: &Path, pid: &str, rows: u16, columns: u16) -> Terminal {
    Terminal::start(warpline(dir, &["top", pid, "--every", "200ms"]), rows, columns)
}

fn shows_ranges(lines: &[String]) -> bool {
    ["cli.target.step", "cli.target.part", "cli.target.load"]
        .iter()
        .all(|name| lines.iter().any(|line| line.contains(name)))
}

/// The ranges, top down.
fn ranges(lines: &[String]) -> Vec<String> {
    let names = lines
        .iter()
        .filter_map(|line| line.split_ascii_whitespace().next().filter(|word| word.starts_with("cli.target.")));
    names.map(str::to_owned).collect()
}

fn head(lines: &[String]) -> String {
    lines.iter().find(|line| line.contains("range") && line.contains("time")).cloned().unwrap_or_default()
}

fn ends(mut terminal: Terminal, code: Option<i32>) -> Terminal {
    until("it ends", || terminal.child.try_wait().expect("a child").is_some());
    assert_eq!(terminal.child.wait().expect("it ended").code(), code);
    until("the terminal is as it was", || !terminal.is_taken());
    terminal
}

#[test]
fn it_looks_right_at_80_by_24_sorts_and_leaves_everything_as_it_was() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let mut terminal = top(dir.path(), &target.pid(), 24, 80);
    let lines = terminal.until("ranges and a device", |lines| {
        shows_ranges(lines) && lines.iter().any(|line| line.contains("busy █")) && head(lines).contains("▼time")
    });
    assert!(lines[0].starts_with(&format!(" warpline top  {} cli-", target.pid())), "{lines:?}");
    assert!(lines[0].ends_with(" records for watchers"), "{lines:?}");
    assert!(lines[1].contains("host") && lines[1].contains("comm ") && lines[1].ends_with('%'), "{lines:?}");
    assert!(lines[2].contains(" zones/s, 0 dropped, "), "{lines:?}");
    let words: Vec<_> = lines[3].split_ascii_whitespace().collect();
    assert_eq!(words, ["range", "runs/s", "▼time", "mean", "max", "total"]);
    // The program is this one, started again.
    let known = warpline::catalog().records().ranges.len();
    assert!(
        lines[23].starts_with(" ←→ sort  r reverse") && lines[23].contains(&format!(" of {known} ranges ran")),
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| line.chars().count() <= 80));
    let row = lines.iter().find(|line| line.contains("cli.target.part")).expect("a row");
    assert_eq!(row.split_ascii_whitespace().filter(|word| ["ns", "µs", "ms", "s"].contains(word)).count(), 3, "{row}");
    assert_eq!(state(dir.path(), &target.pid()), "1 watcher");
    // By name: two columns to the left.
    terminal.press("\u{1b}[D");
    terminal.press("\u{1b}[D");
    let lines =
        terminal.until("it is sorted by name", |lines| head(lines).contains("▲range") && ranges(lines).len() == 4);
    assert_eq!(ranges(&lines), ["cli.target.load", "cli.target.part", "cli.target.step", "cli.target.sync"]);
    terminal.press("r");
    let lines =
        terminal.until("the order is turned", |lines| head(lines).contains("▼range") && ranges(lines).len() == 4);
    assert_eq!(ranges(&lines), ["cli.target.sync", "cli.target.step", "cli.target.part", "cli.target.load"]);
    terminal.press("q");
    let terminal = ends(terminal, Some(0));
    assert!(terminal.lines().iter().all(String::is_empty), "nothing is left on the screen: {:?}", terminal.lines());
    until("it is as it was", || state(dir.path(), &target.pid()) == "records nothing");
    target.is_unharmed();
    target.end();
}

#[test]
fn it_follows_the_size_of_the_terminal() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let mut terminal = top(dir.path(), &target.pid(), 24, 80);
    terminal.until("ranges", shows_ranges);
    terminal.resize(12, 40);
    let lines = terminal.until("a narrow table", |lines| {
        head(lines).split_ascii_whitespace().eq(["range", "▼time", "mean"])
            && shows_ranges(lines)
            && lines[11].contains("q quit")
    });
    assert!(lines.len() == 12 && lines.iter().all(|line| line.chars().count() <= 40), "{lines:?}");
    for (rows, columns) in [(1, 1), (2, 10), (5, 200), (60, 20)] {
        terminal.resize(rows, columns);
        // It lives, whatever it can show.
        until("it watches on", || state(dir.path(), &target.pid()) == "1 watcher");
    }
    terminal.resize(40, 120);
    let lines = terminal.until("a wide table", |lines| shows_ranges(lines) && lines[39].contains("q quit"));
    assert!(head(&lines).ends_with("total") && head(&lines).chars().count() > 110, "{lines:?}");
    // Ctrl-C comes as a key here.
    terminal.press("\u{3}");
    ends(terminal, Some(0));
    until("it is as it was", || state(dir.path(), &target.pid()) == "records nothing");
    target.end();
}

#[test]
fn it_follows_the_programs_sessions_and_says_when_it_ends() {
    let dir = runtime_dir();
    let mut target = Target::start(dir.path(), "control");
    let terminal = top(dir.path(), &target.pid(), 24, 100);
    terminal.until("ranges", shows_ranges);
    target.tell("own");
    terminal
        .until("the program's own session", |lines| lines[0].ends_with(" records for itself") && shows_ranges(lines));
    target.tell("finish");
    target.wait_for("own: ");
    terminal
        .until("a session for it again", |lines| lines[0].ends_with(" records for watchers") && shows_ranges(lines));
    assert!(said(dir.path(), &["stop", &target.pid()]).contains(": 1 request ended"));
    let terminal = ends(terminal, Some(2));
    terminal.until("why", |lines| lines.join("").contains("somebody ended this with `warpline stop`"));
    let again = top(dir.path(), &target.pid(), 24, 100);
    again.until("ranges", shows_ranges);
    let pid = target.pid();
    target.end();
    // That is how a run ends, and no error: the last figures stay.
    let again = ends(again, Some(0));
    let lines = again.until("the end", |lines| lines.iter().any(|line| *line == format!("process {pid} ended")));
    assert!(shows_ranges(&lines) && head(&lines).contains("▼time"), "{lines:?}");
    assert!(lines[0].starts_with(&format!(" warpline top  {pid}")) && lines[0].ends_with(" ended"), "{lines:?}");
    assert!(!lines.join("").contains("error") && !lines.join("").contains("q quit"), "{lines:?}");
}

#[test]
fn no_figures_are_shown_of_a_look_that_began_before_it_watched() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let command = warpline(dir.path(), &["top", &target.pid(), "--every", "1s"]);
    let terminal = Terminal::start(command, 24, 80);
    let lines = terminal.until("ranges", shows_ranges);
    assert!(lines[2].contains(" zones/s") && !lines[2].contains(", 0 recorded"), "{lines:?}");
    target.end();
}

#[test]
fn what_a_filter_leaves_out_may_have_kept_the_device_busy() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control,filter=cli.target.part");
    let terminal = top(dir.path(), &target.pid(), 24, 80);
    let lines = terminal.until("ranges", |lines| lines.join("").contains("cli.target.part"));
    assert!(lines[1].contains("busy ") && lines[1].matches(" ≥").count() == 2, "{lines:?}");
    assert!(lines[23].contains(" ranges left out"), "{lines:?}");
    target.end();
}

#[test]
fn what_a_sample_says_is_scaled() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control,sample=20%");
    let terminal = top(dir.path(), &target.pid(), 24, 80);
    let lines = terminal.until("ranges", |lines| lines[23].contains("a sample, scaled to all") && shows_ranges(lines));
    assert!(lines[2].contains('≈') && lines.join("").contains("≈"), "{lines:?}");
    target.end();
}

#[test]
fn a_budget_says_which_share_of_the_time_is_recorded() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control,budget=1%");
    let terminal = top(dir.path(), &target.pid(), 24, 80);
    let is_scaled = |lines: &[String]| lines[23].contains(" % of the time, scaled") && shows_ranges(lines);
    terminal.until("windows", is_scaled);
    target.end();
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let terminal = top(dir.path(), &target.pid(), 24, 80);
    terminal.until("ranges", shows_ranges);
    assert!(terminal.is_taken());
    let pid = rustix::process::Pid::from_raw(terminal.child.id().cast_signed()).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
    ends(terminal, Some(130));
    until("it is as it was", || state(dir.path(), &target.pid()) == "records nothing");
    target.end();
}

/// `cargo build --release --example quickstart && cargo test -p warpline-cli --test top -- --ignored the_picture`
#[test]
#[ignore = "it draws docs/top.svg anew"]
fn the_picture_of_the_docs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let dir = runtime_dir();
    let mut program = Command::new(folder.join("release/examples/quickstart"));
    program
        .args(["--host", "--seconds", "60"])
        .env("XDG_RUNTIME_DIR", dir.path())
        .env("WARPLINE", "control,budget=100%");
    let mut program = program.stdout(Stdio::null()).spawn().expect("it is built");
    let pid = program.id().to_string();
    until("it listens", || dir.path().join("warpline").is_dir() && said(dir.path(), &["ps"]).contains(&pid));
    let mut command = warpline(dir.path(), &["top", &pid]);
    command.env("PATH", "");
    let terminal = Terminal::start(command, 24, 80);
    let ready = |lines: &[String]| {
        lines.iter().filter(|line| line.starts_with(" tensor.") || line.starts_with(" quickstart.")).count() > 10
    };
    terminal.until("all ranges", ready);
    // A few looks later the picture is that of a program under way.
    let look =
        |lines: &[String]| lines[2].split(' ').find_map(|word| word.parse::<u64>().ok().filter(|zones| *zones > 5_000));
    terminal.until("some thousand zones", |lines| look(lines).is_some());
    let picture = terminal.svg("warpline top in a terminal: how busy the device is, and what each range takes");
    std::fs::write(root.join("docs/top.svg"), picture).expect("docs");
    program.kill().and_then(|()| program.wait()).expect("it ends");
}
