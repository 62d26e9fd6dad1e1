//! What a user writes as SQL ends in bounded time and memory, with an error that says how, and never ends the process otherwise.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use warpline_ranks::generate::{Plan, generate};

use crate::command::{command, text, within};

/// A folder of ranks, and a trace.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &Plan { ranks: 4, hosts: 2, steps: 30, ..Plan::default() }).unwrap();
    std::fs::write(folder.path().join("trace.json"), r#"[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]"#)
        .unwrap();
    folder
}

/// A query over trillions of rows.
fn endless() -> String {
    let values: Vec<String> = (0..100).map(|number| format!("({number})")).collect();
    let values = values.join(", ");
    // The condition keeps the planner from counting them without a look.
    format!(
        "WITH t(n) AS (VALUES {values}) SELECT COUNT(*) FROM t a, t b, t c, t d, t e, t f, t g, t h WHERE a.n + h.n < b.n - g.n"
    )
}

/// The places that a query is over.
fn places(folder: &Path) -> [String; 2] {
    [folder.to_owned(), folder.join("trace.json")].map(|place| place.to_str().unwrap().to_owned())
}

fn refused(place: &str, sql: &str, more: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("query.sql");
    std::fs::write(&file, sql).unwrap();
    let output = within(12_000_000, &[&["query", place, "--file", file.to_str().unwrap()], more].concat());
    let said = text(&output.stderr);
    let begin: String = sql.chars().take(60).collect();
    assert_eq!(output.status.code(), Some(1), "{begin}: {said}");
    assert!(said.starts_with("warpline-ranks: "), "{begin}: {said}");
    said
}

#[test]
fn a_long_query_overflows_no_stack() {
    let folder = folder();
    for place in places(folder.path()) {
        let many = |count: usize, before: &str, part: &str| format!("{before}{}", part.repeat(count));
        for sql in [
            many(20_000, "SELECT 1", "+1"),
            many(2_000_000, "SELECT 1", "+1"),
            many(20_000, "SELECT 1", " UNION ALL SELECT 1"),
            many(20_000, "SELECT 1 FROM (SELECT 1) a", ",(SELECT 1) a"),
            many(20_000, "SELECT '1'", "||'x'"),
            many(20_000, "SELECT 1 WHERE 1=1", " AND 1=1"),
            many(20_000, "SELECT 1", "::INT"),
            many(20_000, "SELECT 1 WHERE true", " IS TRUE"),
        ] {
            let said = refused(&place, &sql, &[]);
            assert!(said.contains("at most 4096"), "{said}");
        }
        // What is allowed overflows nothing, either. A stack for the first one takes about 100 MB without optimization.
        for sql in [
            many(2_040, "SELECT 1", "::INT"),
            many(500, "SELECT '1'", "||'x'"),
            many(500, "SELECT 1 WHERE 1=1", " AND 1=1"),
            // A list of values is as deep as one value.
            many(50_000, "SELECT 1 WHERE 1 IN (1", ",1") + ")",
        ] {
            let file = folder.path().join("query.sql");
            std::fs::write(&file, &sql).unwrap();
            let output = command(&["query", &place, "--file", file.to_str().unwrap()]).output().unwrap();
            let begin: String = sql.chars().take(40).collect();
            assert!(output.status.success(), "{begin}: {output:?}");
        }
        // The parser has a limit of its own.
        refused(&place, &format!("SELECT {}1{}", "(".repeat(1_000), ")".repeat(1_000)), &[]);
    }
}

#[test]
fn a_query_that_takes_too_much_memory_ends_before_the_machine_does() {
    let folder = folder();
    for place in places(folder.path()) {
        let said = refused(
            &place,
            "SELECT repeat('x', 2000000000) AS a, repeat('y', 2000000000) AS b, repeat('z', 2000000000) AS c",
            &[],
        );
        assert!(said.contains("takes more than 3 GiB of memory"), "{said}");
    }
}

#[test]
fn a_query_that_does_not_end_is_ended_and_the_error_says_how_to_wait_longer() {
    let folder = folder();
    for place in places(folder.path()) {
        for sql in ["WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n FROM t) SELECT COUNT(*) FROM t", &endless()] {
            let begin = Instant::now();
            let said = refused(&place, sql, &["--timeout", "1"]);
            assert!(said.contains("has no answer after 1 s") && said.contains("`--timeout SECONDS`"), "{said}");
            // The command would take 60 s by itself.
            assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
        }
    }
    let help = text(&command(&["query", "--help"]).output().unwrap().stdout);
    assert!(help.contains("60 s by default"), "{help}");
}

#[test]
fn a_user_ends_a_query_at_once() {
    let folder = folder();
    let asked = command(&["query", folder.path().to_str().unwrap(), &endless()]);
    // A job in the background of a shell ignores the signal, and what it starts inherits that.
    let mut query = std::process::Command::new("env");
    query.arg("--default-signal=INT").arg(asked.get_program()).args(asked.get_args());
    query.envs(asked.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut query = query.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // It is in the query once it has used some time of a processor.
    let is_busy = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let ticks = stat.rsplit(')').next().unwrap().split_whitespace().nth(11).unwrap().parse::<u64>().unwrap();
        ticks > 100
    };
    while !is_busy(query.id()) {
        assert!(query.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(50));
    }
    let begin = Instant::now();
    assert!(std::process::Command::new("kill").args(["-INT", &query.id().to_string()]).status().unwrap().success());
    let status = query.wait().unwrap();
    assert!(!status.success() && begin.elapsed() < Duration::from_secs(10), "{status} after {:?}", begin.elapsed());
}
