//! The command over a URL: the scheme `file` takes the same way as a bucket, and every server is one of this machine.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;
use std::sync::mpsc;

use warpline_ranks::generate::{Plan, generate};

use crate::command::{command, text};

fn run(temporary: &Path, args: &[&str]) -> Output {
    command(args).env("TMPDIR", temporary).output().unwrap()
}

/// A server that refuses everything. Returns its URL, and the first lines of the requests that it gets.
pub fn server() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (send, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let lines: Vec<String> =
                BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            if send.send(lines.into_iter().next().unwrap_or_default()).is_err() {
                return;
            }
            let _ = (&stream).write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (url, requests)
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

#[test]
fn a_client_without_keys_asks_no_metadata_service_unless_it_is_told_to() {
    for (place, metadata) in [
        ("s3://bucket/folder", "AWS_METADATA_ENDPOINT"),
        ("gs://bucket/folder", "GCE_METADATA_HOST"),
        ("az://container/folder", "IDENTITY_ENDPOINT"),
    ] {
        let (store, of_store) = server();
        let (cloud, of_cloud) = server();
        let address = if metadata.starts_with("GCE") { cloud.trim_start_matches("http://").to_owned() } else { cloud };
        let ask = |more: &[(&str, &str)]| {
            let folder = tempfile::tempdir().unwrap();
            let mut command = command(&["report", place]);
            command.env("HOME", folder.path()).env("AZURE_STORAGE_ACCOUNT_NAME", "account").env(metadata, &address);
            for name in ["AWS_ENDPOINT_URL", "GOOGLE_BASE_URL", "AZURE_ENDPOINT"] {
                command.env(name, &store);
            }
            let output = command.env("GCE_METADATA_IP", &address).envs(more.iter().copied()).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            text(&output.stderr)
        };
        let said = ask(&[]);
        assert!(said.contains("the environment has no keys") && said.contains("WARPLINE_CLOUD_METADATA=1"), "{said}");
        assert_eq!(of_cloud.try_iter().chain(of_store.try_iter()).collect::<Vec<_>>(), [""; 0], "{place}");
        // The same with the variable: so the address above is the one that would have been asked.
        let said = ask(&[("WARPLINE_CLOUD_METADATA", "1")]);
        assert!(of_cloud.try_iter().count() > 0, "{place}: {said}");
        assert_eq!(of_store.try_iter().count(), 0, "{place}");
    }
    // With keys, the store is asked, and nothing else.
    let ((store, of_store), (cloud, of_cloud)) = (server(), server());
    let mut command = command(&["report", "s3://bucket/folder"]);
    command.env("AWS_ENDPOINT_URL", store).env("AWS_METADATA_ENDPOINT", cloud);
    let output = command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret").output().unwrap();
    assert!(text(&output.stderr).contains("403"), "{output:?}");
    let asked = of_store.try_iter().next().unwrap();
    assert!(asked.starts_with("GET /bucket?") && of_cloud.try_iter().count() == 0, "{asked}");
}

#[test]
fn an_address_that_is_none_is_an_error_that_names_its_variable() {
    let temporary = tempfile::tempdir().unwrap();
    for (place, name) in
        [("s3://b/x", "AWS_ENDPOINT_URL"), ("s3://b/x", "AWS_ENDPOINT"), ("gs://b/x", "GOOGLE_BASE_URL")]
    {
        for wrong in ["notaurl", "", "localhost:9000", "ftp://127.0.0.1:9", "http://", "127.0.0.1:9000"] {
            let mut command = command(&["report", place]);
            let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret"), (name, wrong)];
            let said = error(&command.env("TMPDIR", temporary.path()).envs(keys).output().unwrap());
            let why = format!("the variable {name} is not the URL of a server; write {name}=http://HOST:PORT");
            assert!(said.contains(&why), "{wrong}: {said}");
        }
    }
}
