//! The names by which clients may know a server.
//!
//! A browser sends the name in the address of its page. Somebody can let a name of theirs resolve to this machine, and their page then counts as one
//! of this server; its name tells it apart. Ports mean nothing here, because a port may be forwarded.

use std::net::IpAddr;

/// The names of a server: those of the loopback, the address at which a client reached it, and others that were named.
pub struct Hosts {
    names: Vec<String>,
    /// What a client that is refused should do.
    pub(super) remedy: &'static str,
}

impl Hosts {
    pub fn new(names: Vec<String>, remedy: &'static str) -> Hosts {
        Hosts { names, remedy }
    }

    /// Returns whether a `Host` is one of them. `local` is the server's address on the connection.
    pub(super) fn have(&self, host: Option<&str>, local: Option<IpAddr>) -> bool {
        let Some(name) = host.and_then(without_port) else { return false };
        let is_named = self.names.iter().any(|known| known.eq_ignore_ascii_case(name));
        is_named
            || match name.parse::<IpAddr>() {
                Ok(ip) => ip.is_loopback() || local.is_some_and(|local| local.to_canonical() == ip.to_canonical()),
                Err(_) => name.eq_ignore_ascii_case("localhost"),
            }
    }
}

/// Returns the name or the address in a `Host`, without the brackets of an IPv6 address.
fn without_port(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let is_port = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_of_the_server_are_allowed() {
        let hosts = Hosts::new(vec!["node7.cluster".to_owned(), "10.1.1.1".to_owned()], "");
        let local = "::ffff:192.0.2.7".parse().ok();
        for host in [
            "localhost",
            "LOCALHOST:9464",
            "127.0.0.1",
            "127.0.0.1:9464",
            "[::1]:9464",
            "[::1]",
            "192.0.2.7:80",
            "node7.cluster:9464",
            "Node7.Cluster",
            "10.1.1.1:9464",
        ] {
            assert!(hosts.have(Some(host), local), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9464",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "192.0.2.8",
            "node7",
            ":9464",
            "localhost:x",
            "localhost:1:1",
            "[::1",
            "[::1]x",
            "127.1",
            "0x7f000001",
            "evil.example#localhost",
            "a@localhost",
        ] {
            assert!(!hosts.have(Some(host), local), "{host}");
        }
        assert!(!hosts.have(None, local) && !hosts.have(Some("192.0.2.7"), None));
    }
}
