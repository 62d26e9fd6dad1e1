//! Asks a server for Prometheus over plain sockets, and reads the text format strictly.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

type Labels = BTreeMap<String, String>;

/// A port of the loopback that was free.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// Sends bytes, and returns the head and the body of the answer. A connection that ends early has what came until then.
pub fn request(port: u16, bytes: &[u8]) -> (String, String) {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    connection.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    let _ = connection.write_all(bytes);
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = connection.read(&mut part) {
        answer.extend_from_slice(&part[..count]);
    }
    let answer = String::from_utf8(answer).expect("UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (format!("{head}\r\n"), body.to_owned())
}

/// Asks for a page.
#[track_caller]
pub fn get(port: u16, path: &str, accept: &str) -> (String, String) {
    let (head, body) =
        request(port, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n").as_bytes());
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
    assert_eq!(length, Some(body.len()), "{head}");
    (head, body)
}

/// The samples of a page.
#[derive(Debug)]
pub struct Scrape {
    pub samples: BTreeMap<(String, Labels), f64>,
}

impl Scrape {
    /// Reads a page. Each series must be there once, and each belongs to the family above it.
    #[track_caller]
    pub fn of(page: &str) -> Scrape {
        let (mut samples, mut family) = (BTreeMap::new(), String::new());
        for line in page.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                if let Some(typed) = comment.strip_prefix("TYPE ") {
                    family = typed.split(' ').next().expect("a name").to_owned();
                }
                continue;
            }
            let (name, labels, value) = sample(line).unwrap_or_else(|| panic!("`{line}` is no sample"));
            assert!(name.starts_with(&family), "`{line}` is in the family {family}");
            let value = value.parse().unwrap_or_else(|_| panic!("`{line}` has no number"));
            assert!(samples.insert((name, labels), value).is_none(), "`{line}` is there twice");
        }
        Scrape { samples }
    }

    /// The value of the one series with this name and these labels.
    pub fn value(&self, name: &str, wanted: &[(&str, &str)]) -> Option<f64> {
        let is_it = |(known, labels): &(String, Labels)| {
            known == name && wanted.iter().all(|(key, value)| labels.get(*key).is_some_and(|is| is == value))
        };
        let mut found = self.samples.iter().filter(|(key, _)| is_it(key));
        let (_, value) = found.next()?;
        assert!(found.next().is_none(), "{name} with {wanted:?} is there twice");
        Some(*value)
    }
}

/// Reads `name{label="value",…} number`.
fn sample(line: &str) -> Option<(String, Labels, &str)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
            && !name.as_bytes()[0].is_ascii_digit()
    };
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next()? {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next()?.1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        _ => return None,
                    }),
                    (_, c) => value.push(c),
                }
            };
            if !is_name(label) || labels.insert(label.to_owned(), value).is_some() {
                return None;
            }
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    is_name(name).then(|| Some((name.to_owned(), labels, rest.strip_prefix(' ')?)))?
}
