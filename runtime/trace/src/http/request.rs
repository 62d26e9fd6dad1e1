//! The head of a client's request, as far as anything looks at it.

/// The most bytes of a request's head.
pub(super) const MOST_BYTES: usize = 8 << 10;

/// The most headers of a request.
const MOST_HEADERS: usize = 64;

/// What a client asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpRequest {
    pub method: String,
    /// The path with its query, as it was sent.
    pub path: String,
    /// Whether the answer may come in chunks: HTTP 1.1.
    pub takes_chunks: bool,
    /// The values of `Accept`.
    pub accepts: Vec<String>,
    /// The value of `Host`; none where it is missing, or is there several times.
    pub(super) host: Option<String>,
}

/// What has come of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    Whole(HttpRequest),
    /// The status line of the error.
    Refused(&'static str),
    Partial,
}

/// Reads the head of a request, or as much of it as has come.
pub(super) fn read(bytes: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < MOST_BYTES => return Head::Partial,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Head::Refused("431 Request Header Fields Too Large");
        }
        Err(_) => return Head::Refused("400 Bad Request"),
    }
    let values = |name: &str| {
        let headers = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        headers.map(|header| String::from_utf8_lossy(header.value).trim().to_owned()).collect::<Vec<_>>()
    };
    let hosts = values("host");
    Head::Whole(HttpRequest {
        method: request.method.unwrap_or_default().to_owned(),
        path: request.path.unwrap_or_default().to_owned(),
        takes_chunks: request.version == Some(1),
        accepts: values("accept"),
        host: <[String; 1]>::try_from(hosts).ok().map(|[host]| host),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(head: &str) -> HttpRequest {
        match read(format!("{head}\r\n\r\n").as_bytes()) {
            Head::Whole(request) => request,
            other => panic!("{head}: {other:?}"),
        }
    }

    #[test]
    fn a_head_is_read_and_its_limits_hold() {
        let request = whole("GET /metrics?x=/../etc HTTP/1.1\r\nHOST: a\r\nAccept: b\r\naccept: c");
        assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/metrics?x=/../etc"));
        assert_eq!(
            (request.host.as_deref(), request.accepts.as_slice()),
            (Some("a"), ["b", "c"].map(String::from).as_slice())
        );
        assert!(request.takes_chunks && !whole("GET / HTTP/1.0").takes_chunks);
        assert_eq!(whole("GET / HTTP/1.1\r\nHost: a\r\nHost: b").host, None);
        assert_eq!(read(b"GET /metrics\r\n\r\n"), Head::Refused("400 Bad Request"));
        assert_eq!(read(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), Head::Refused("400 Bad Request"));
        assert_eq!(read(b"GET /metr"), Head::Partial);
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "a".repeat(MOST_BYTES));
        assert_eq!(read(long.as_bytes()), Head::Refused("431 Request Header Fields Too Large"));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(MOST_HEADERS + 1));
        assert_eq!(read(many.as_bytes()), Head::Refused("431 Request Header Fields Too Large"));
    }
}
