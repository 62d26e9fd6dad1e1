//! The commands that read a trace, for tests that give each of them the same input.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Each command on this input, with its name. What it writes goes into the folder.
pub fn commands(input: &Path, folder: &Path) -> Vec<(&'static str, Vec<String>)> {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let input = input.to_str().unwrap();
    let [page, trace, json] = ["page.html", "out.pftrace", "out.json"].map(path);
    let annotations = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/graph.example.json");
    [
        ("report", vec!["report", input]),
        ("report --html", vec!["report", input, "--html", &page]),
        ("compare", vec!["compare", input, input]),
        ("stragglers", vec!["stragglers", input]),
        ("catalog", vec!["catalog", input]),
        ("check", vec!["check", input]),
        ("annotate", vec!["annotate", "--annotations", annotations, "--trace", input, "-o", &json]),
        ("recover", vec!["recover", input, "-o", &trace]),
        ("recover to JSON", vec!["recover", input, "-o", &json]),
    ]
    .into_iter()
    .map(|(name, args)| (name, args.into_iter().map(str::to_owned).collect()))
    .collect()
}

/// `warpline open`, with the address of what it serves; none if it refuses the traces.
pub struct Opened {
    pub child: Child,
    pub address: Option<(String, String)>,
}

/// Starts it.
pub fn open(traces: &[&Path]) -> Opened {
    let mut child = Command::new(env!("CARGO_BIN_EXE_warpline"))
        .args(["open", "--no-browser", "--port", "0"])
        .args(traces)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.split_once("url=http://").map(|(_, url)| url.split_once('&').unwrap().0);
    let address = url.map(|url| url.split_once('/').unwrap()).map(|(host, path)| (host.to_owned(), format!("/{path}")));
    Opened { child, address }
}

/// Asks for what is served, and gives it on piece by piece.
pub fn read_served((host, path): &(String, String), mut each: impl FnMut(&[u8])) {
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = BufReader::new(stream);
    let (mut line, mut is_chunked) = (String::new(), false);
    while line != "\r\n" {
        line.clear();
        answer.read_line(&mut line).unwrap();
        is_chunked |= line.eq_ignore_ascii_case("transfer-encoding: chunked\r\n");
    }
    let mut piece = vec![0; 1 << 16];
    if !is_chunked {
        loop {
            match answer.read(&mut piece).unwrap() {
                0 => return,
                count => each(&piece[..count]),
            }
        }
    }
    // A trace that cannot be read to its end ends the answer within a chunk.
    loop {
        line.clear();
        answer.read_line(&mut line).unwrap();
        let Some(mut left) = usize::from_str_radix(line.trim_end(), 16).ok().filter(|left| *left > 0) else { return };
        while left > 0 {
            let most = left.min(piece.len());
            match answer.read(&mut piece[..most]).unwrap() {
                0 => return,
                count => {
                    each(&piece[..count]);
                    left -= count;
                }
            }
        }
        answer.read_line(&mut line).unwrap();
    }
}
