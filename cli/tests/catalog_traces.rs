//! `warpline catalog TRACE`: the traces of a session list the catalog of its program, byte for byte as the program does.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;
use warpline::{HostStream, Session, gpu_zone, host_zone};

use crate::support::alone;

/// Runs, with a \| and a "quote".
#[gpu_zone("cli.traced.runs", color = 0x76B900, lane = "copies", fields(n = n))]
fn runs(stream: &HostStream, n: u64) {
    let _ = n;
    stream.launch(|| ());
}

/// Never runs.
#[host_zone("cli.traced.never", level = fine)]
fn never() {}

fn warpline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpline")).args(args).output().unwrap()
}

fn catalog(file: &Path, format: &str) -> (i32, String, String) {
    let output = warpline(&["catalog", file.to_str().unwrap(), "--format", format]);
    let text = |bytes: &[u8]| str::from_utf8(bytes).unwrap().to_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn pack(file: &Path) -> std::path::PathBuf {
    let packed = file.with_extension("gz");
    let mut out = GzEncoder::new(fs::File::create(&packed).unwrap(), Compression::default());
    out.write_all(&fs::read(file).unwrap()).unwrap();
    out.finish().unwrap();
    packed
}

#[test]
fn a_trace_lists_the_catalog_of_its_program() {
    let folder = tempfile::tempdir().unwrap();
    let [perfetto, chrome] = ["t.pftrace", "t.json"].map(|name| folder.path().join(name));
    let expected = warpline::catalog().records();
    let _turn = alone();
    let session = Session::builder().perfetto(&perfetto).chrome(&chrome).start().unwrap();
    let stream = HostStream::new("compute");
    runs(&stream, 7);
    stream.synchronize().unwrap();
    if warpline::catalog().len() == usize::MAX {
        never();
    }
    // The session still runs: as after a kill, only the Perfetto trace has the catalog.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while catalog(&perfetto, "json").0 != 0 {
        assert!(std::time::Instant::now() < deadline, "{:?}", catalog(&perfetto, "json"));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let (status, _, reason) = catalog(&chrome, "json");
    assert_eq!(status, 2);
    assert!(
        reason.contains("no catalog in the trace; only a finished session writes it into a Chrome trace"),
        "{reason}"
    );
    assert_eq!(session.finish().recorded, 1);

    assert!(expected.ranges.iter().any(|range| range.name == "cli.traced.never"), "{expected:?}");
    for file in [perfetto.clone(), chrome.clone()] {
        for file in [pack(&file), file] {
            let all = [
                ("json", expected.to_json()),
                ("csv", expected.to_csv()),
                ("markdown", expected.to_markdown()),
                ("html", expected.to_html()),
            ];
            for (format, text) in all {
                assert_eq!(catalog(&file, format), (0, text, String::new()), "{} as {format}", file.display());
            }
        }
    }
    let (status, table, _) = catalog(&perfetto, "table");
    assert_eq!(status, 0);
    assert!(
        table.contains("cli.traced.never")
            && table.ends_with(&format!("{} ranges in 1 namespace\n", expected.ranges.len())),
        "{table}"
    );
}

#[test]
fn what_is_neither_a_binary_nor_a_trace_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes");
    for (content, reason) in [
        (
            "\nnotes\n",
            "neither a binary nor a trace: no packet of a Perfetto trace; name a binary, or a trace that a session wrote",
        ),
        (
            "{notes",
            "neither a binary nor a trace; name an executable, a shared library, an object file or an `.rlib` (ELF, Mach-O or PE), or a trace that a \
             session wrote",
        ),
    ] {
        fs::write(&file, content).unwrap();
        let (status, text, error) = catalog(&file, "table");
        assert_eq!((status, &*text), (2, ""));
        assert_eq!(error, format!("error: {}: {reason}\n", file.display()));
    }
}
