//! Where live metrics go: the URL of an OpenTelemetry collector, the address at which Prometheus scrapes, and the names
//! by which it may do so.
//!
//! The table and the builder parse them in every build. No name is resolved and no socket is opened here. Each error
//! says what to write instead.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::values::{SHORTEST_TIME, within};
use warpline_core::process::launched_rank;

/// The path at which an OTLP receiver takes metrics over HTTP.
const METRICS_PATH: &str = "/v1/metrics";

/// Returns the URL to which metrics are posted: `url`, with `/v1/metrics` at its end.
pub(super) fn parse_otlp(url: &str) -> Result<String, String> {
    const EXAMPLE: &str = "as in `otlp=http://localhost:4318`";
    if url.starts_with("https://") {
        let remedy =
            "name a collector that takes http, such as one on this host, and let it forward the metrics over https";
        return Err(format!("is https, and warpline has no TLS: {remedy}, {EXAMPLE}"));
    }
    let Some(rest) = url.strip_prefix("http://") else {
        return Err(format!("the URL of a collector begins with `http://`, {EXAMPLE}"));
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if authority.contains('@') {
        return Err(format!(
            "has a name and a password, which reports would show; put them into the variable `OTEL_EXPORTER_OTLP_HEADERS`, {EXAMPLE}"
        ));
    }
    let is_plain = |c: char| c.is_ascii_graphic() && !"?#,\\\"<>^`{|}".contains(c);
    if !rest.chars().all(is_plain) {
        return Err(format!(
            "has a query, a fragment, a comma or a character that no URL has; leave it out, {EXAMPLE}"
        ));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_host = !host.is_empty() && (!host.contains([':', '[', ']']) || is_bracketed(host));
    if !is_host || port.is_some_and(|port| !matches!(port.parse::<u16>(), Ok(1..))) {
        return Err(format!("names no host, or a port that is not from 1 to 65535, {EXAMPLE}"));
    }
    let path = path.trim_end_matches('/');
    let end = if path.ends_with(METRICS_PATH) { "" } else { METRICS_PATH };
    Ok(format!("http://{authority}{path}{end}"))
}

/// Returns whether the text is an IPv6 address in brackets.
fn is_bracketed(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
}

pub(super) fn check_interval(time: Duration) -> Result<Duration, String> {
    within(time, SHORTEST_TIME.., "exports are at least 100 ms apart, as in `otlp_interval=15s`")
}

/// The addresses at which metrics are served: the first one that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServeAt {
    pub(crate) ip: IpAddr,
    pub(crate) first_port: u16,
    pub(crate) last_port: u16,
}

impl fmt::Display for ServeAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", SocketAddr::new(self.ip, self.first_port))?;
        if self.last_port > self.first_port { write!(f, "-{}", self.last_port) } else { Ok(()) }
    }
}

/// Parses `PORT`, `IP:PORT` or `localhost:PORT`, where `PORT` may be a range, and `{rank}` stands for the rank of this
/// process. Without an address, it is that of the loopback.
pub(super) fn parse_serve_at(text: &str) -> Result<ServeAt, String> {
    serve_at(text, launched_rank().unwrap_or(0))
}

fn serve_at(text: &str, rank: u32) -> Result<ServeAt, String> {
    const EXAMPLE: &str =
        "as in `prometheus=9464`, `prometheus=127.0.0.1:9464-9471` or, for every interface, `prometheus=0.0.0.0:9464`";
    let expanded = text.replace("{rank}", &rank.to_string());
    let (host, ports) = expanded.rsplit_once(':').unwrap_or(("localhost", &expanded));
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let ip = match host {
        // An empty address means every interface to some programs and the loopback to others.
        "localhost" | "" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        host => host.parse().ok(),
    };
    let Some(ip) = ip else {
        return Err(format!(
            "`{host}` is not an IP address: write the address of an interface of this host, {EXAMPLE}"
        ));
    };
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let ports = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
    match ports {
        Some((first_port, last_port)) if first_port <= last_port => Ok(ServeAt { ip, first_port, last_port }),
        _ if expanded != text => Err(format!(
            "is `{expanded}` on rank {rank}, which names no port, or no range of ports: a port is at most 65535; write a range, {EXAMPLE}"
        )),
        _ => Err(format!("names no port, or no range of ports, {EXAMPLE}")),
    }
}

/// Parses the name or the address of a host, without a port. An IPv6 address may have its brackets.
pub(super) fn parse_host(text: &str) -> Result<String, String> {
    let name = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if !name.is_empty() && (name.chars().all(is_name) || name.parse::<IpAddr>().is_ok()) {
        return Ok(name.to_owned());
    }
    Err("is not the name of a host: write the one in the address that clients use, without a port, as in \
         `prometheus_hosts=node7.cluster`"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gets_the_path_of_metrics() {
        for (url, endpoint) in [
            ("http://localhost:4318", "http://localhost:4318/v1/metrics"),
            ("http://localhost:4318/", "http://localhost:4318/v1/metrics"),
            ("http://[::1]:4318/api/v1/otlp", "http://[::1]:4318/api/v1/otlp/v1/metrics"),
            ("http://10.0.0.7/v1/metrics/", "http://10.0.0.7/v1/metrics"),
            ("http://[::1]", "http://[::1]/v1/metrics"),
        ] {
            assert_eq!(parse_otlp(url).as_deref(), Ok(endpoint));
        }
        for (url, says) in [
            ("localhost:4318", "begins with `http://`"),
            ("grpc://localhost:4317", "begins with `http://`"),
            ("https://collector:4318", "has no TLS"),
            ("http://me:secret@collector", "OTEL_EXPORTER_OTLP_HEADERS"),
            ("http://", "names no host"),
            ("http://:4318", "names no host"),
            ("http://a:b:4318", "names no host"),
            ("http://host:0", "port"),
            ("http://host:99999", "port"),
            ("http://host:4318/?key=1", "a query"),
            ("http://ho st", "no URL has"),
            ("http://host\r\nx: y", "no URL has"),
        ] {
            let problem = parse_otlp(url).expect_err(url);
            assert!(problem.contains(says) && problem.contains("`otlp=http://localhost:4318`"), "{url}: {problem}");
        }
    }

    #[test]
    fn the_rank_can_be_a_part_of_the_port() {
        for (text, rank, address) in
            [("946{rank}", 3, "127.0.0.1:9463"), ("[::1]:946{rank}-947{rank}", 0, "[::1]:9460-9470")]
        {
            assert_eq!(serve_at(text, rank).map(|at| at.to_string()).as_deref(), Ok(address));
        }
        let problem = serve_at("946{rank}", 128).expect_err("no port");
        assert!(problem.starts_with("is `946128` on rank 128, which names no port"), "{problem}");
        // Another placeholder is none here.
        assert!(serve_at("946{pid}", 3).expect_err("no port").starts_with("names no port"));
    }

    #[test]
    fn a_host_has_no_port_and_no_scheme() {
        for (text, host) in
            [("node7.cluster", "node7.cluster"), ("10.0.0.7", "10.0.0.7"), ("[::1]", "::1"), ("fe80::1", "fe80::1")]
        {
            assert_eq!(parse_host(text).as_deref(), Ok(host));
        }
        for text in ["", "node7:9464", "http://node7", "a b", "*", "[node7", "n\u{f6}de"] {
            assert!(parse_host(text).expect_err(text).contains("`prometheus_hosts=node7.cluster`"), "{text}");
        }
    }

    #[test]
    fn an_address_is_the_loopback_unless_it_says_another_one() {
        for (text, address) in [
            ("9464", "127.0.0.1:9464"),
            (":9464", "127.0.0.1:9464"),
            ("localhost:9464", "127.0.0.1:9464"),
            ("127.0.0.1:9464-9471", "127.0.0.1:9464-9471"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:0", "[::1]:0"),
            ("[::]:9464", "[::]:9464"),
        ] {
            assert_eq!(parse_serve_at(text).map(|at| at.to_string()).as_deref(), Ok(address));
        }
        for (text, says) in [
            ("node7:9464", "`node7` is not an IP address"),
            ("127.0.0.1", "names no port"),
            ("", "names no port"),
            ("127.0.0.1:", "names no port"),
            ("9471-9464", "no range of ports"),
            ("70000", "names no port"),
            ("http://localhost:9464", "is not an IP address"),
        ] {
            let problem = parse_serve_at(text).expect_err(text);
            assert!(problem.contains(says) && problem.contains("as in `prometheus=9464`"), "{text}: {problem}");
        }
    }
}
