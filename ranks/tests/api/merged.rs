//! Two ranks of a real job write tables and traces with warpline itself; `warpline-ranks perfetto` merges them for a step.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;

use warpline::collective::ProcessGroup;
use warpline::{HostStream, Session, collective};

const STEPS: u64 = 20;

/// Sums the gradients of all ranks. A rank leaves after all ranks have come.
#[collective("test.merged.sync", kind = "all_reduce", count = 1 << 18, dtype = f32, group = group)]
fn sync(stream: &HostStream, group: &ProcessGroup, others: &Arc<Mutex<TcpStream>>) {
    let others = Arc::clone(others);
    stream.launch(move || {
        let mut others = others.lock().unwrap();
        let _ = others.write_all(&[1]).and_then(|()| others.read_exact(&mut [0]));
    });
}

#[test]
#[ignore = "a rank, which the other test starts"]
fn rank() {
    let of = |name: &str| std::env::var(name).unwrap();
    let rank = of("RANK").parse::<u32>().unwrap();
    let others = Arc::new(Mutex::new(TcpStream::connect(of("OTHERS")).unwrap()));
    let root = of("ROOT");
    let session =
        Session::builder().quiet().ranks(format!("{root}/tables")).perfetto(format!("{root}/run.{rank}.pftrace"));
    let session = session.start().unwrap();
    let (stream, group) = (HostStream::new("comm"), ProcessGroup::new("dp0", 0..2, rank));
    for step in 0..STEPS {
        warpline::step(step);
        sync(&stream, &group, &others);
        stream.synchronize().unwrap();
    }
    session.finish();
}

fn record(root: &Path) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let others = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut ranks: Vec<TcpStream> = (0..2).map(|_| listener.accept().unwrap().0).collect();
        while ranks.iter_mut().all(|rank| rank.read_exact(&mut [0]).is_ok()) {
            ranks.iter_mut().for_each(|rank| drop(rank.write_all(&[1])));
        }
    });
    let start = |rank: u32| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "merged::rank", "--ignored"]).env("RANK", rank.to_string()).env("OTHERS", &others);
        command.env("ROOT", root).env("WARPLINE_RUN", "merged").env_remove("WARPLINE");
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut ranks = [0, 1].map(start);
    assert!(ranks.iter_mut().all(|rank| Child::wait(rank).unwrap().success()));
}

#[test]
fn the_traces_of_a_real_job_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let root = std::env::var_os("WARPLINE_GATE_DIR").map_or(folder.path().to_owned(), Into::into);
    record(&root);
    let archive = root.join("real.tar");
    let command = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_warpline-ranks")).args(args).current_dir(&root).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    // The traces lie beside the tables.
    let (status, text, complaints) = command(&["perfetto", "tables", "--step", "7-8", "-o", "real.tar"]);
    assert_eq!((status, &*complaints), (Some(0), ""), "{text}");
    assert!(text.starts_with("real.tar: 2 ranks from traces and 0 ranks from tables, "), "{text}");
    let mut members = BTreeMap::new();
    for entry in tar::Archive::new(std::fs::File::open(&archive).unwrap()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        members.insert(entry.path().unwrap().display().to_string(), content);
    }
    for (rank, own) in [(0, "run.0.pftrace"), (1, "run.1.pftrace")] {
        let (cut, whole) = (&members[&format!("rank-{rank:05}.pftrace")], std::fs::read(root.join(own)).unwrap());
        let has = |text: &str| cut.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(has("test.merged.sync") && has(&format!("rank {rank} · ")), "{text}");
        assert!(cut.len() < whole.len(), "{} of {} bytes", cut.len(), whole.len());
    }
    let (status, _, complaints) = command(&["perfetto", "tables", "--step", "700"]);
    assert_eq!(status, Some(1));
    assert!(complaints.contains("the tables have no step in 700 to 700; they have steps from 0 to "), "{complaints}");
    // An object for each row, for programs.
    let (status, rows, complaints) = command(&["query", "tables", "SELECT rank, NULL AS none FROM windows", "--json"]);
    assert_eq!((status, &*complaints), (Some(0), ""));
    let rows: Vec<serde_json::Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!((0..2).all(|rank| rows.contains(&serde_json::json!({"rank": rank, "none": null}))), "{rows:?}");
    // Completions and pages are made from the same definition.
    let (status, script, _) = command(&["completions", "bash"]);
    assert!(status == Some(0) && script.contains("warpline-ranks") && script.contains("--traces"));
    let (status, _, complaints) = command(&["man", "man1"]);
    assert_eq!((status, &*complaints), (Some(0), ""));
    let page = std::fs::read_to_string(root.join("man1/warpline-ranks-perfetto.1")).unwrap();
    assert!(page.contains(".SH NAME") && page.contains("\\-\\-step"), "{page}");
}
