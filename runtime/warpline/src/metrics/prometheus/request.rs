//! The request of a client: which page it wants, and in which format.
//!
//! Everything a client sends is bounded and untrusted. Only the method, the path and the header `Accept` are looked at.

/// The most bytes of a request's head.
pub(super) const MOST_BYTES: usize = 8 << 10;

/// The most headers of a request.
const MOST_HEADERS: usize = 64;

/// The format of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus's text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What to answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// The metrics; without a body for `HEAD`.
    Metrics { format: Format, with_body: bool },
    /// The page `/`, which leads to the metrics.
    Index,
    /// An error, by its status line.
    Refused(&'static str),
    /// The head is not complete yet.
    Partial,
}

/// Reads the head of a request, or as much of it as has come.
pub(super) fn read(bytes: &[u8]) -> Request {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < MOST_BYTES => return Request::Partial,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Request::Refused("431 Request Header Fields Too Large");
        }
        Err(_) => return Request::Refused("400 Bad Request"),
    }
    let with_body = match request.method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return Request::Refused("405 Method Not Allowed"),
    };
    let path = request.path.unwrap_or_default();
    match path.split(['?', '#']).next() {
        Some("/metrics") => {}
        Some("/") => return Request::Index,
        _ => return Request::Refused("404 Not Found"),
    }
    let accepts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let accepts = accepts.filter_map(|header| std::str::from_utf8(header.value).ok());
    Request::Metrics { format: format(accepts), with_body }
}

/// Returns the format that the client prefers; the plain text where it has no preference.
fn format<'a>(accepts: impl Iterator<Item = &'a str>) -> Format {
    let (mut text, mut open_metrics) = (0.0_f32, 0.0_f32);
    for range in accepts.flat_map(|accept| accept.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut quality, mut version) = (1.0_f32, None);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => quality = value.trim().parse().unwrap_or(0.0),
                "version" => version = Some(value.trim().trim_matches('"')),
                _ => {}
            }
        }
        match (kind.as_str(), version) {
            ("application/openmetrics-text", None | Some("1.0.0")) => open_metrics = quality.max(open_metrics),
            ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => text = quality.max(text),
            _ => {}
        }
    }
    if open_metrics > text { Format::OpenMetrics } else { Format::Text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(head: &str) -> Request {
        read(format!("{head}\r\n\r\n").as_bytes())
    }

    #[test]
    fn only_the_page_of_metrics_is_served() {
        let metrics = |with_body| Request::Metrics { format: Format::Text, with_body };
        assert_eq!(get("GET /metrics HTTP/1.1\r\nHost: a"), metrics(true));
        assert_eq!(get("GET /metrics?x=/../etc HTTP/1.0"), metrics(true));
        assert_eq!(get("HEAD /metrics HTTP/1.1"), metrics(false));
        assert_eq!(get("GET / HTTP/1.1"), Request::Index);
        for path in ["/../etc/passwd", "/metrics/../../etc/passwd", "/metrics/", "//metrics", "/%2e%2e/etc/passwd", "*"]
        {
            assert_eq!(get(&format!("GET {path} HTTP/1.1")), Request::Refused("404 Not Found"), "{path}");
        }
        assert_eq!(get("POST /metrics HTTP/1.1"), Request::Refused("405 Method Not Allowed"));
        assert_eq!(get("GET /metrics"), Request::Refused("400 Bad Request"));
        assert_eq!(read(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), Request::Refused("400 Bad Request"));
        assert_eq!(read(b"GET /metr"), Request::Partial);
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "a".repeat(MOST_BYTES));
        assert_eq!(read(long.as_bytes()), Request::Refused("431 Request Header Fields Too Large"));
        let many = "A: b\r\n".repeat(MOST_HEADERS + 1);
        assert_eq!(
            get(&format!("GET /metrics HTTP/1.1\r\n{many}")),
            Request::Refused("431 Request Header Fields Too Large")
        );
    }

    #[test]
    fn the_client_chooses_the_format() {
        let of = |accept: &str| format(std::iter::once(accept));
        // What Prometheus 2.42 and 3 send, curl, and a browser.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(of(prometheus), Format::OpenMetrics);
        let newer = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(of(newer), Format::OpenMetrics);
        assert_eq!(of("*/*"), Format::Text);
        assert_eq!(of("text/html,application/xhtml+xml,*/*;q=0.8"), Format::Text);
        assert_eq!(of("application/openmetrics-text;version=0.0.1"), Format::Text);
        assert_eq!(of("application/openmetrics-text; q=0"), Format::Text);
        assert_eq!(of("APPLICATION/OPENMETRICS-TEXT; Version=\"1.0.0\""), Format::OpenMetrics);
        assert_eq!(of(";;;=,,q=;"), Format::Text);
        assert_eq!(format(std::iter::empty()), Format::Text);
    }
}
