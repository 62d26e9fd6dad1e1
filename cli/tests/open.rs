//! `warpline open` serves one trace to one page, and refuses all other requests.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use crate::support::opened::{command, opened};

#[test]
fn the_ui_reads_the_trace_once_and_the_command_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("step 1.pftrace");
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&trace, &content).expect("a trace");
    let mut opened = opened(&trace, &[]);
    assert!(opened.line.starts_with("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:"), "{}", opened.line);
    assert!(opened.path.ends_with("/step_1.pftrace"), "{}", opened.path);
    // A look before, as browsers do, ends nothing.
    let (head, _) = opened.ask("OPTIONS", &opened.path, &opened.host());
    assert!(head.starts_with("HTTP/1.1 204") && head.contains("Access-Control-Allow-Private-Network: true"), "{head}");
    let (head, body) = opened.ask("GET", &opened.path, &opened.host());
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("Access-Control-Allow-Origin: https://ui.perfetto.dev\r\n"), "{head}");
    assert!(head.contains("Cache-Control: no-store") && head.contains("Content-Length: 1200000"), "{head}");
    assert!(body == content, "{} of {} bytes", body.len(), content.len());
    assert_eq!(opened.ends(), Some(0));
}

#[test]
fn other_pages_and_other_paths_get_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("secret.pftrace");
    fs::write(&trace, "secret").expect("a trace");
    let opened = opened(&trace, &["--keep", "--ui", "https://perfetto.example:8443/v52/"]);
    let (path, host) = (opened.path.clone(), opened.host());
    let guessed = format!("/{}/secret.pftrace", "0".repeat(32));
    for path in ["/", "/secret.pftrace", &guessed, "/../secret.pftrace", &format!("{path}?x")] {
        assert_eq!(opened.status("GET", path, &host), "404", "{path}");
    }
    assert_eq!(opened.status("POST", &path, &host), "405");
    // A name that somebody lets resolve to this machine.
    let (head, body) = opened.ask("GET", &path, "evil.example");
    assert!(head.starts_with("HTTP/1.1 403") && !body.windows(6).any(|part| part == b"secret"), "{head}");
    for _ in 0..2 {
        let (head, body) = opened.ask("GET", &path, &host);
        assert!(head.contains("Access-Control-Allow-Origin: https://perfetto.example:8443\r\n"), "{head}");
        assert_eq!(body, b"secret");
    }
}

#[test]
fn what_cannot_be_opened_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("t.pftrace");
    fs::write(&trace, "trace").expect("a trace");
    let refused = |args: &[&str], trace: &Path, because: &str| {
        let output = command(args).arg(trace).output().expect("the command runs");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.code() == Some(2) && said.lines().count() == 1 && said.contains(because), "{said}");
    };
    refused(
        &[],
        &folder.path().join("none.pftrace"),
        "none.pftrace: No such file or directory (os error 2); name a trace",
    );
    refused(&[], Path::new("/dev/null"), "/dev/null: not a file; name a trace");
    refused(
        &["--ui", "ui.perfetto.dev"],
        &trace,
        "`ui.perfetto.dev` is not the address of a UI; write `--ui https://HOST`",
    );
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    refused(
        &["--port", &port],
        &trace,
        "is in use, and Perfetto's UI reads traces from no other; end the program that uses it",
    );
}
