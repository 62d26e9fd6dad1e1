//! Sessions of a rank that follow one another, in one process or in several, and processes that write as one rank at the same time.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use warpline::{Session, host_zone};
use warpline_ranks::clocks::Options;
use warpline_ranks::{Engine, Report};

/// A part of a step.
#[host_zone("test.sessions.part")]
fn part() {}

#[test]
#[ignore = "a rank, which the other tests start"]
fn rank() {
    let of = |name: &str| std::env::var(name).unwrap();
    for session in 0..of("SESSIONS").parse::<u64>().unwrap() {
        let builder = Session::builder().quiet().ranks(of("TABLES")).ranks_window(Duration::from_secs(86_400));
        let running = builder.start().unwrap();
        for step in session * 20..(session + 1) * 20 {
            warpline::step(step);
            part();
        }
        println!("\nrecords");
        // Until the other test closes the pipe.
        std::io::stdin().lines().for_each(drop);
        running.finish();
    }
}

fn start(tables: &Path, sessions: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "sessions::rank", "--ignored", "--nocapture"]).env("SESSIONS", sessions.to_string());
    command.env("TABLES", tables).env("WARPLINE_RUN", "sessions").env("RANK", "0").env_remove("WARPLINE");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn records(child: &mut Child) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "records"));
}

/// The windows of the folder, and whether two processes are said to have written at once.
fn judged(tables: &Path) -> (i64, bool) {
    let windows = Engine::open(tables, None).unwrap().view("account").unwrap().ints("windows").unwrap()[0];
    let said = Report::new(tables, None, Options::default()).unwrap().not_judged.join("\n");
    (windows, said.contains("1 rank was written by two processes at once"))
}

#[test]
fn sessions_and_processes_that_follow_one_another_are_not_two_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for (sessions, windows) in [(3, 3), (1, 4)] {
        let mut child = start(folder.path(), sessions);
        drop(child.stdin.take());
        assert!(child.wait_with_output().unwrap().status.success());
        assert_eq!(judged(folder.path()), (windows, false));
    }
}

#[test]
fn two_processes_at_once_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut children = [0, 1].map(|_| start(folder.path(), 1));
    children.iter_mut().for_each(records);
    for mut child in children {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(judged(folder.path()), (2, true));
}
