//! The server for Prometheus: what clients ask, what hostile ones do, and its address.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::{HostStream, Session};
use warpline_tests::{alone, in_child, this_test, threads};

use crate::scrape::{Scrape, free_port, get, request};

warpline::range! {
    PART = "api.metrics_server.part": "Work on a stream.";
    SYNC = "api.metrics_server.sync": "A collective.", kind = collective;
}

fn session(port: u16) -> Session {
    Session::builder()
        .prometheus(&port.to_string())
        .filter("api.metrics_server.*")
        .quiet()
        .start()
        .expect("no other session")
}

fn zones(count: u32) {
    let stream = HostStream::new("compute");
    for _ in 0..count {
        drop(PART.zone(&stream));
    }
    stream.synchronize().expect("no panic");
}

/// Scrapes until the zones are there.
#[track_caller]
fn scraped(port: u16, zones: f64) -> Scrape {
    let since = Instant::now();
    loop {
        let scrape = Scrape::of(&get(port, "/metrics", "*/*").1);
        if scrape.value("warpline_zones_total", &[("outcome", "recorded")]) == Some(zones) {
            return scrape;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "{scrape:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn both_formats_have_the_same_figures() {
    let _turn = alone();
    let port = free_port();
    let session = session(port);
    zones(30);
    scraped(port, 30.0);
    let (head, text) = get(port, "/metrics", "*/*");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let (head, open) = get(port, "/metrics", accept);
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"), "{head}");
    assert!(open.ends_with("\n# EOF\n") && !text.contains("# EOF"));
    assert!(text.contains("# TYPE warpline_zones_total counter\n") && open.contains("# TYPE warpline_zones counter\n"));
    assert!(open.contains("# UNIT warpline_range_duration_seconds seconds\n"), "{open}");
    let (text, open) = (Scrape::of(&text), Scrape::of(&open));
    assert_eq!(text.samples, open.samples);
    // 3 of zones, 2 of what is bounded or left out, and 2 of the range.
    assert_eq!(text.samples.len(), 7);
    let name = [("range", "api.metrics_server.part"), ("place", "stream"), ("rank", "0")];
    assert_eq!(text.value("warpline_range_duration_seconds_count", &name), Some(30.0));
    let (head, body) = request(port, b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body.is_empty(), "{head}{body}");
    session.finish();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "the server is gone with its session");
}

/// Zones are recorded while pages are written.
#[test]
fn the_ranges_of_a_page_never_have_more_zones_than_the_page() {
    let _turn = alone();
    let port = free_port();
    let session = session(port);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                zones(50);
            }
        });
        for _ in 0..200 {
            let scrape = Scrape::of(&get(port, "/metrics", "*/*").1);
            let recorded = scrape.value("warpline_zones_total", &[("outcome", "recorded")]).expect("it");
            let in_ranges = scrape.value("warpline_range_duration_seconds_count", &[]).unwrap_or(0.0);
            let is_fine = in_ranges <= recorded;
            is_over.fetch_or(!is_fine, Ordering::Relaxed);
            assert!(is_fine, "{in_ranges} of {recorded}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    session.finish();
}

#[test]
fn names_are_escaped_as_labels() {
    let _turn = alone();
    let port = free_port();
    let session = session(port);
    let stream = HostStream::new("comm");
    let evil = "dp\"0\\\n\u{1b}[31m\u{202e}\0{} # HELP x\u{e9}";
    let group = ProcessGroup::new(evil.repeat(3), [0, 1], 0);
    for kind in [CollectiveKind::AllReduce, CollectiveKind::Send] {
        let message = Message::new(kind).count(1 << 20).dtype(DataType::F32).group(&group);
        let zone = SYNC.zone(&stream).message(message);
        stream.launch(|| thread::sleep(Duration::from_millis(1)));
        drop(zone);
    }
    stream.synchronize().expect("no panic");
    scraped(port, 2.0);
    let text = get(port, "/metrics", "*/*").1;
    assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{text}");
    let scrape = Scrape::of(&text);
    let alias = scrape.samples.keys().find(|(name, _)| name == "nccl_bus_bandwidth_gbs").expect("it");
    let name = &alias.1["comm_name"];
    assert!(name.starts_with("dp\"0\\\\n\\u{1b}[31m\\u{202e}") && name.contains("é"), "{name}");
    assert!(name.chars().count() <= 121, "{name}");
    assert_eq!(alias.1["collective"], "AllReduce");
    assert!(
        scrape
            .samples
            .keys()
            .any(|(name, labels)| name == "nccl_p2p_exec_time_microseconds" && labels["p2p_operation"] == "Send")
    );
    // 3 of zones, 2 of what is bounded or left out, 2 of the range, and 3 of each collective.
    assert_eq!(scrape.samples.len(), 13);
    session.finish();
}

#[test]
fn hostile_clients_get_errors_and_cost_a_bounded_number_of_threads() {
    let _turn = alone();
    let port = free_port();
    let session = session(port);
    zones(5);
    let first_line = |bytes: &[u8]| request(port, bytes).0.lines().next().unwrap_or_default().to_owned();
    assert_eq!(first_line(b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(
        first_line(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"),
        "HTTP/1.1 405 Method Not Allowed"
    );
    assert_eq!(first_line(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    let huge = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &vec![b'a'; 1 << 20]].concat();
    // The server stops to read after 8 KiB; the answer may be lost with the connection.
    let line = first_line(&huge);
    assert!(line.is_empty() || line == "HTTP/1.1 431 Request Header Fields Too Large", "{line}");
    // Clients that send nothing more, more of them than the server has connections.
    let slow: Vec<_> = (0..100)
        .map(|_| {
            let mut client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
            client.write_all(b"GET /metrics HTTP/1.1\r\nX: ").expect("it is connected");
            client
        })
        .collect();
    for _ in 0..5 {
        assert_eq!(scraped(port, 5.0).value("warpline_zones_total", &[("outcome", "dropped")]), Some(0.0));
        assert!(threads("warpline-answer") <= 16, "{} threads", threads("warpline-answer"));
    }
    // Each connection ends by its deadline, also one that sends a byte now and then.
    let mut drip = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let since = Instant::now();
    while drip.write_all(b"G").is_ok() && drip.write_all(b"G").is_ok() {
        assert!(since.elapsed() < Duration::from_secs(60), "the connection does not end");
        thread::sleep(Duration::from_millis(100));
    }
    drop(slow);
    // The end waits for no client.
    let waiting = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let report = session.finish();
    assert!(report.sinks.iter().all(|sink| sink.first_error.is_none()), "{report}");
    drop(waiting);
}

#[test]
fn a_client_that_does_not_read_costs_nobody_else() {
    let _turn = alone();
    let port = free_port();
    let session = session(port);
    zones(5);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let mut client = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
            client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is connected");
            client.shutdown(Shutdown::Write).expect("it is connected");
            client
        })
        .collect();
    scraped(port, 5.0);
    for mut client in clients {
        let mut text = String::new();
        client.read_to_string(&mut text).expect("the answer");
        assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    }
    session.finish();
}

#[test]
fn a_port_that_is_taken_is_named_and_the_session_goes_on() {
    let said = in_child(this_test!(), &[], || {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = taken.local_addr().expect("its address").port();
        let session = session(port);
        zones(5);
        let report = session.finish();
        assert_eq!(report.recorded, 5);
        let sink = report.sinks.iter().find(|sink| sink.name.starts_with("prometheus=")).expect("its account");
        let why = sink.first_error.as_deref().expect("a reason");
        let says = format!("`127.0.0.1:{port}` is taken by other sockets; name another port, a range of ports");
        assert!(why.starts_with(&says), "{why}");
        assert_eq!(sink.lost, 5);
    });
    if let Some(said) = said {
        assert!(said.stderr.contains("for any free port; the session goes on without it\n"), "{}", said.stderr);
    }
}

#[test]
fn of_a_range_of_ports_the_first_free_one_is_taken_and_said() {
    let said = in_child(this_test!(), &[], || {
        let (first, _taken) = loop {
            let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let port = taken.local_addr().expect("its address").port();
            if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
                break (port, taken);
            }
        };
        let address = format!("127.0.0.1:{first}-{}", first + 1);
        let session = Session::builder().prometheus(&address).start().expect("no other session");
        zones(5);
        scraped(first + 1, 5.0);
        session.finish();
        println!("first {first}");
    });
    let Some(said) = said else { return };
    let first: u16 = said.stdout.lines().find_map(|line| line.strip_prefix("first ")?.parse().ok()).expect("a port");
    let says = format!("warpline: metrics are at http://127.0.0.1:{}/metrics\n", first + 1);
    assert!(said.stderr.contains(&says), "{}", said.stderr);
}

#[test]
fn another_address_than_the_loopback_says_who_can_read() {
    let said = in_child(this_test!(), &[], || {
        let session = Session::builder().prometheus("0.0.0.0:0").start().expect("no other session");
        let report = session.finish();
        assert!(report.notes.iter().any(|note| note.contains("nobody asked for the metrics")), "{:?}", report.notes);
    });
    if let Some(said) = said {
        assert!(said.stderr.contains("/metrics, for everyone who can reach this address"), "{}", said.stderr);
    }
    let _turn = alone();
    let session = Session::builder().prometheus("192.0.2.1:9464").quiet().start().expect("no other session");
    let report = session.finish();
    let why = report.sinks[0].first_error.as_deref().expect("a reason");
    assert_eq!(why, "`192.0.2.1` is not an address of this host; name one of its own");
}

/// A page in a browser, whose name somebody lets resolve to this machine, sends that name.
#[test]
fn only_a_request_to_a_name_of_the_server_gets_the_metrics() {
    let _turn = alone();
    let status = |port: u16, host: &str| {
        let (head, body) = request(port, format!("GET /metrics HTTP/1.1\r\n{host}\r\n").as_bytes());
        let status = head.split(' ').nth(1).expect("a status").to_owned();
        assert_eq!(status == "200", body.contains("warpline_"), "{head}{body}");
        status
    };
    let port = free_port();
    let loopback = Session::builder().prometheus(&port.to_string()).prometheus_hosts("Node7.cluster").quiet();
    let loopback = loopback.start().expect("no other session");
    for host in
        ["localhost", "127.0.0.1", "[::1]", "LOCALHOST:9464", "node7.cluster:9464", &format!("127.0.0.1:{port}")]
    {
        assert_eq!(status(port, &format!("Host: {host}\r\n")), "200", "{host}");
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux").trim().to_owned();
    for host in
        ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:9464", "192.0.2.1", "node7", "", &name]
    {
        assert_eq!(status(port, &format!("Host: {host}\r\n")), "403", "{host}");
    }
    assert_eq!(status(port, ""), "403");
    assert_eq!(status(port, "Host: localhost\r\nHost: evil.example\r\n"), "403");
    let (_, body) = request(port, b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(body.contains("`prometheus_hosts=NAME`") && !body.contains("evil"), "{body}");
    loopback.finish();
    // At every interface, this machine has a name, and the address to which the client came.
    let every = Session::builder().prometheus(&format!("0.0.0.0:{port}")).quiet().start().expect("no other session");
    for (host, expected) in
        [("127.0.0.1", "200"), ("localhost", "200"), (&*name, "200"), ("evil.example", "403"), ("0.0.0.0", "403")]
    {
        assert_eq!(status(port, &format!("Host: {host}\r\n")), expected, "{host}");
    }
    every.finish();
}

/// A child that was forked holds the socket too, and must not keep the port from the parent's next session.
#[test]
fn the_port_is_free_after_the_session_although_a_forked_child_lives() {
    let _turn = alone();
    let port = free_port();
    let first = session(port);
    zones(5);
    // SAFETY: the child makes calls that are safe after a fork, and ends by the signal.
    let child = match unsafe { libc::fork() } {
        0 => loop {
            // SAFETY: the call takes nothing.
            unsafe { libc::pause() };
        },
        child => child,
    };
    scraped(port, 5.0);
    first.finish();
    let address: SocketAddr = ([127, 0, 0, 1], port).into();
    assert!(TcpStream::connect_timeout(&address, Duration::from_secs(5)).is_err(), "nobody listens");
    let second = session(port);
    zones(7);
    scraped(port, 7.0);
    let report = second.finish();
    // SAFETY: the process is this one's child.
    unsafe { libc::kill(child, libc::SIGKILL) };
    let mut status = 0;
    // SAFETY: the place is valid for the call.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(report.sinks.iter().all(|sink| sink.first_error.is_none()), "{report}");
}
