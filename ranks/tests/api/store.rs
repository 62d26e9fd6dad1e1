//! The command over a URL, without a server: the scheme `file` takes the same way as a bucket.

use std::path::Path;
use std::process::{Command, Output};

use warpline_ranks::generate::{Plan, generate};

fn run(temporary: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpline-ranks"));
    command.args(args).env("TMPDIR", temporary).output().unwrap()
}

fn error(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn made(folder: &Path, run: &str) {
    let plan = Plan { run: run.to_owned(), ranks: 4, hosts: 2, steps: 30, ..Plan::default() };
    generate(folder, &plan).unwrap();
}

#[test]
fn a_url_gives_the_report_of_the_folder_and_leaves_no_copy() {
    let (folder, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    made(folder.path(), "one");
    let path = folder.path().to_str().unwrap();
    let url = format!("file://{path}");
    let sql = "SELECT rank, host, base_ns FROM placed ORDER BY rank";
    for args in [&["report"][..], &["query", sql], &["clocks"]] {
        let of = |place: &str| run(temporary.path(), &[&args[..1], &[place], &args[1..]].concat());
        let (here, there) = (of(path), of(&url));
        assert!(here.status.success() && there.status.success(), "{here:?} {there:?}");
        assert_eq!(String::from_utf8_lossy(&here.stdout), String::from_utf8_lossy(&there.stdout), "{args:?}");
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "{args:?}");
    }
}

#[test]
fn a_url_with_several_runs_or_none_is_an_error_that_names_the_url() {
    let (folder, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", folder.path().display());
    let said = error(&run(temporary.path(), &["report", &url]));
    assert!(said.contains(&format!("`{url}` has no tables")), "{said}");
    made(folder.path(), "one");
    made(folder.path(), "two");
    let said = error(&run(temporary.path(), &["report", &url]));
    assert!(said.contains(&format!("`{url}` has 2 runs: one, two; pick one with `--run ID`")), "{said}");
    let said = error(&run(temporary.path(), &["report", &url, "--run", "three"]));
    assert!(said.contains("has no run `three`; its runs: one, two"), "{said}");
    assert!(run(temporary.path(), &["report", &url, "--run", "two"]).status.success());
}

#[test]
fn what_cannot_be_read_says_what_to_do() {
    let temporary = tempfile::tempdir().unwrap();
    let said = error(&run(temporary.path(), &["report", "nfs://server/folder"]));
    assert!(said.contains("cannot read `nfs://server/folder`") && said.contains("`s3://BUCKET/FOLDER`"), "{said}");
    let said = error(&run(temporary.path(), &["report", "s3://bucket", "--engine", "ballista://127.0.0.1"]));
    assert!(said.contains("`--engine` needs a folder, and `s3://bucket` is a URL"), "{said}");
    for command in ["hang", "compact"] {
        let said = error(&run(temporary.path(), &[command, "gs://bucket"]));
        assert!(said.contains(&format!("`{command}` needs a folder, and `gs://bucket` is a URL")), "{said}");
    }
}
