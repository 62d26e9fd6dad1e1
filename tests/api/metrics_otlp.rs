//! Metrics for an OpenTelemetry collector: their figures are those of the report, and a collector that fails stops nothing.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::report::{Report, SinkReport};
use warpline::sink::MemorySink;
use warpline::timeline::Semaphore;
use warpline::{HostStream, Session, SessionBuilder};
use warpline_tests::{alone, in_child, resident_bytes, this_test};

use crate::receiver::{Answer, Export, Receiver, attributes, buckets, quantile, taken};

warpline::range! {
    PART = "api.metrics_otlp.part": "Work on a stream.";
    LOAD = "api.metrics_otlp.load": "Work of a thread.", kind = host;
    SYNC = "api.metrics_otlp.sync": "A collective.", kind = collective;
}

/// The account of the exporter.
#[track_caller]
fn account(report: &Report) -> &SinkReport {
    report.sinks.iter().find(|sink| sink.name.starts_with("otlp=")).expect("its account")
}

fn message(group: &ProcessGroup, count: u64) -> Message {
    Message::new(CollectiveKind::AllReduce).count(count).dtype(DataType::F32).group(group)
}

fn zones(stream: &HostStream, count: u32) {
    for _ in 0..count {
        drop(PART.zone(stream));
    }
    stream.synchronize().expect("no panic");
}

/// A session that sends what the marks of this file record.
fn sends(receiver: &Receiver) -> SessionBuilder {
    Session::builder().otlp(&receiver.url()).filter("api.metrics_otlp.*")
}

/// Sends that all went well, and returns the last message.
fn last(receiver: &Receiver) -> Export {
    receiver.got().last().expect("a request").decoded()
}

#[test]
fn the_figures_of_the_last_export_are_those_of_the_report() {
    let _turn = alone();
    let receiver = Receiver::start(|_| taken());
    let memory = MemorySink::new(100_000);
    let session = sends(&receiver)
        .otlp_interval(Duration::from_millis(100))
        .sink(memory.clone())
        .start()
        .expect("no other session");
    let (stream, comm) = (HostStream::new("compute"), HostStream::new("comm"));
    let group = ProcessGroup::new("dp\"0\n", [0, 1], 0);
    let semaphore = Semaphore::new(0);
    for step in 0..200_u64 {
        warpline::step(step);
        drop(LOAD.host());
        for part in 0..5 {
            let zone = PART.zone(&stream);
            stream.launch(move || thread::sleep(Duration::from_micros(10 * part)));
            drop(zone);
        }
        let zone = SYNC.zone(&comm).message(message(&group, 1 << 20));
        comm.launch(|| thread::sleep(Duration::from_micros(50)));
        drop(zone);
        semaphore.signal_on(&stream, step + 1).expect("it grows");
        semaphore.wait_on(&comm, step + 1).expect("it is there");
        semaphore.wait(step + 1, Duration::from_secs(20)).expect("it is signalled");
    }
    receiver.wait_for(3);
    for stream in [stream, comm] {
        stream.synchronize().expect("no panic");
    }
    let report = session.finish();
    let export = last(&receiver);
    // 3 of zones, 2 of what is bounded or left out, 3 of ranges, 2 of steps, 2 of waits and 3 of a collective.
    assert_eq!(export.series(), 15);

    // Every zone is in one bucket of one series.
    let of_range = |name| export.histogram("warpline.range.duration", &[("warpline.range", name)]);
    let ranges = ["api.metrics_otlp.part", "api.metrics_otlp.load", "api.metrics_otlp.sync"];
    let mut lengths: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let zones = memory.take();
    for zone in &zones {
        lengths.entry(zone.range.name()).or_default().push(zone.duration_ns());
    }
    for name in ranges {
        let (point, stats) = (of_range(name), report.ranges.iter().find(|stats| stats.name == name).expect(name));
        assert_eq!((point.count, point.scale), (stats.count, 5), "{name}");
        assert_eq!(buckets(point).iter().map(|(_, count)| count).sum::<u64>(), stats.count, "{name}");
        assert!((point.sum.expect("a sum") * 1e9 - stats.recorded_ns as f64).abs() < 1e3, "{name}");
        assert_eq!((point.min, point.max), (Some(stats.min_ns as f64 / 1e9), Some(stats.max_ns as f64 / 1e9)));
        let mut lengths = lengths.remove(name).expect(name);
        lengths.sort_unstable();
        for share in [0.5, 0.9, 0.99] {
            let exact = lengths[(share * lengths.len() as f64).ceil() as usize - 1] as f64 / 1e9;
            let (told, off) = (quantile(point, share), (quantile(point, share) / exact - 1.0).abs());
            assert!(off <= 0.011, "{name}: the {share} quantile is {exact}, and the histogram says {told}");
        }
        // The report's own percentiles are within 1 %.
        let off = quantile(point, 0.5) * 1e9 / stats.p50_ns as f64 - 1.0;
        assert!(off.abs() <= 0.022 || stats.first_ns.is_some(), "{name}: {off}");
    }
    let total: u64 = export.histograms("warpline.range.duration").iter().map(|point| point.count).sum();
    assert_eq!(total, report.recorded);
    let of_zones = |outcome| export.number("warpline.zones", &[("warpline.outcome", outcome)]) as u64;
    assert_eq!(
        (of_zones("recorded"), of_zones("captured"), of_zones("dropped")),
        (report.recorded, report.captured, report.dropped.total())
    );
    for name in ["warpline.step.duration", "warpline.step.own_time"] {
        assert_eq!(export.histogram(name, &[]).count, report.steps.count);
    }
    let waits = export.histograms("warpline.wait.duration");
    assert_eq!(waits.iter().map(|point| point.count).sum::<u64>(), report.waits.recorded);
    assert_eq!(export.histogram("warpline.wait.duration", &[("warpline.place", "stream")]).count, 200);

    let [collective] = &report.collectives[..] else { panic!("{:?}", report.collectives) };
    let wanted = [("warpline.collective", "all_reduce"), ("warpline.message_size", "4-5MB")];
    let bus = export.histogram("warpline.collective.bus_bandwidth", &wanted);
    assert_eq!(bus.count, collective.count);
    let off = quantile(bus, 0.5) / collective.bus_p50.expect("it is known") - 1.0;
    assert!(off.abs() <= 0.022, "{off}");
    // Inspector's names, with the means of the last seconds: all of this session.
    let wanted = [("collective", "AllReduce"), ("message_size", "4-5MB"), ("nranks", "2"), ("gpu", "GPU0")];
    let mean_us = export.number("nccl_collective_exec_time_microseconds", &wanted);
    // Without what the begin and the end add, as bandwidths are.
    let exact_ns: i64 =
        zones.iter().filter(|zone| zone.message.is_some()).filter_map(|zone| zone.gpu_ns_corrected()).sum();
    assert!((mean_us * 1e3 * collective.count as f64 / exact_ns as f64 - 1.0).abs() <= 1e-6, "{mean_us}");
    let gbs = export.number("nccl_bus_bandwidth_gbs", &wanted) * 1e9;
    assert!(gbs >= bus.min.expect("it") && gbs <= bus.max.expect("it"), "{gbs}");
    let group = &attributes(&export.numbers("nccl_bus_bandwidth_gbs")[0].attributes);
    let name = &group.iter().find(|(key, _)| key == "comm_name").expect("it").1;
    assert!(name.starts_with("dp\"0\\n#") && !name.contains('\n'), "{name}");
    assert_eq!(export.metric("warpline.range.duration").expect("it").unit, "s");
    assert_eq!(export.metric("warpline.collective.bus_bandwidth").expect("it").unit, "By/s");
    assert!(export.metric("nccl_p2p_bus_bandwidth_gbs").is_none());

    let resource: BTreeMap<_, _> = export.resource().into_iter().collect();
    assert_eq!(resource["process.pid"], std::process::id().to_string());
    assert_eq!(resource["warpline.rank"], "0");
    assert!(resource["service.name"].starts_with("api-") && !resource["host.name"].is_empty(), "{resource:?}");
    let got = &receiver.got()[0];
    assert_eq!(got.line, "POST /v1/metrics HTTP/1.1");
    assert_eq!(got.header("content-type"), Some("application/x-protobuf"));
    assert!(got.header("user-agent").is_some_and(|agent| agent.starts_with("warpline/")));
    let sink = account(&report);
    assert!(sink.lost == 0 && sink.errors == 0 && sink.first_error.is_none(), "{sink:?}");

    // Cumulative: nothing ever decreases, and every series has one begin.
    let mut before = BTreeMap::new();
    for got in receiver.got() {
        let export = got.decoded();
        for name in ["warpline.range.duration", "warpline.step.own_time", "warpline.wait.duration"] {
            for point in export.histograms(name) {
                let key = (name.to_owned(), attributes(&point.attributes));
                let (count, begin) = before.insert(key, (point.count, point.start_time_unix_nano)).unwrap_or((0, 0));
                assert!(point.count >= count && (begin == 0 || begin == point.start_time_unix_nano), "{name}");
                assert!(point.start_time_unix_nano <= point.time_unix_nano);
            }
        }
    }
}

/// What a program names at run time has the series that the catalog leaves.
#[test]
fn more_ranges_than_series_share_one_and_no_zone_is_missing() {
    let _turn = alone();
    let receiver = Receiver::start(|_| taken());
    let interval = Duration::from_millis(100);
    let session = sends(&receiver).filter("many.*").quiet().otlp_interval(interval).start().expect("no other session");
    let stream = HostStream::new("compute");
    for round in 0..3 {
        for at in 0..110 {
            drop(warpline::dynamic::host(&format!("many.r{at}"), file!(), line!(), ""));
        }
        zones(&stream, 1);
        receiver.wait_for(2 * (round + 1));
    }
    let report = session.finish();
    let export = last(&receiver);
    let points = export.histograms("warpline.range.duration");
    let own: u64 = points.iter().map(|point| point.count).sum();
    // The catalog has three ranges here, of which one ran: 97 of the others have series, and what is left shares one.
    assert_eq!((points.len(), own, report.recorded), (99, 333, 333));
    let other = [("warpline.range", "(other)"), ("warpline.place", "thread")];
    assert_eq!(export.histogram("warpline.range.duration", &other).count, 3 * 13);
    assert_eq!(export.number("warpline.series.left_out", &[]), 13.0);
    for (name, place) in [("many.r0", "thread"), ("many.r96", "thread"), ("api.metrics_otlp.part", "stream")] {
        let own = [("warpline.range", name), ("warpline.place", place)];
        assert_eq!(export.histogram("warpline.range.duration", &own).count, 3, "{name}");
    }
}

#[cfg(feature = "ranks")]
#[test]
fn own_time_is_that_of_the_tables_of_ranks() {
    let _turn = alone();
    let (receiver, root) = (Receiver::start(|_| taken()), warpline_tests::empty_folder("metrics_own_time"));
    let session = sends(&receiver).ranks(&root).start().expect("no other session");
    let (stream, comm) = (HostStream::new("compute"), HostStream::new("comm"));
    let group = ProcessGroup::new("dp", [0, 1], 0);
    for step in 0..20_u64 {
        warpline::step(step);
        let zone = PART.zone(&stream);
        stream.launch(|| thread::sleep(Duration::from_millis(2)));
        drop(zone);
        let zone = SYNC.zone(&comm).message(message(&group, 1 << 20));
        comm.launch(move || thread::sleep(Duration::from_millis(1 + step % 5)));
        drop(zone);
        for stream in [&stream, &comm] {
            stream.synchronize().expect("no panic");
        }
    }
    session.finish();
    let rows = crate::tables::rows(&root, "steps");
    let own_ns: i64 = rows.iter().map(|row| row.int("compute_ns") + row.int("idle_ns")).sum();
    let export = last(&receiver);
    let [own, whole] = ["warpline.step.own_time", "warpline.step.duration"].map(|name| export.histogram(name, &[]));
    assert_eq!((own.count, whole.count), (rows.len() as u64, rows.len() as u64));
    assert!((own.sum.expect("a sum") * 1e9 - own_ns as f64).abs() < 1e3, "{own:?} for {own_ns} ns");
    // Collectives are open after the 2 ms of the other stream, for up to 3 ms.
    let open = whole.sum.expect("a sum") - own.sum.expect("a sum");
    assert!(rows.len() >= 19 && open >= 0.015, "{open} s");
}

#[test]
fn a_sample_is_marked_as_one() {
    let _turn = alone();
    let receiver = Receiver::start(|_| taken());
    let session = sends(&receiver).sample(0.5).start().expect("no other session");
    zones(&HostStream::new("compute"), 200);
    let report = session.finish();
    let export = last(&receiver);
    let name = [("warpline.range", "api.metrics_otlp.part"), ("warpline.sampled", "true")];
    assert_eq!(export.histogram("warpline.range.duration", &name).count, report.recorded);
    assert!(report.not_sampled > 0);
}

#[test]
fn nobody_there_stops_nothing_and_the_loss_is_counted_and_said_once() {
    let url = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        format!("http://{}", listener.local_addr().expect("its address"))
    };
    let said = in_child(this_test!(), &[], || {
        let session =
            Session::builder().otlp(&url).otlp_interval(Duration::from_millis(100)).start().expect("no other session");
        let stream = HostStream::new("compute");
        // Two failures at least: the second is a second after the first.
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(2500) {
            zones(&stream, 10);
            thread::sleep(Duration::from_millis(10));
        }
        let report = session.finish();
        assert_eq!(report.begun, report.recorded);
        let sink = account(&report);
        assert_eq!((sink.lost, sink.errors), (report.recorded, 1), "{sink:?}");
        let why = sink.first_error.as_deref().expect("a reason");
        assert!(why.contains("exports failed, the last one too: the collector cannot be reached"), "{why}");
    });
    let Some(said) = said else { return };
    let later = said.stderr.matches("the program goes on, and later exports will have these figures").count();
    assert_eq!(later, 1, "{}", said.stderr);
    assert_eq!(said.stderr.matches("zones are not in it").count(), 1, "{}", said.stderr);
}

#[test]
fn a_busy_collector_is_asked_again_when_it_says_and_gets_everything() {
    let _turn = alone();
    let busy = |text: &str| Answer::Response(format!("HTTP/1.1 {text}\r\nContent-Length: 0\r\n\r\n").into_bytes());
    let receiver = Receiver::start(move |number| match number {
        0 => busy("429 Too Many Requests\r\nRetry-After: 2"),
        1 => Answer::Close,
        2 => busy("503 Service Unavailable"),
        _ => taken(),
    });
    let session = Session::builder()
        .otlp(&receiver.url())
        .otlp_interval(Duration::from_millis(100))
        .start()
        .expect("no other session");
    let stream = HostStream::new("compute");
    zones(&stream, 10);
    let got = receiver.wait_for(3);
    assert!(got[1].at - got[0].at >= Duration::from_secs(2), "after {:?}", got[1].at - got[0].at);
    // The pause after a failure has doubled, and is at least half of it.
    assert!(got[2].at - got[1].at >= Duration::from_secs(1), "after {:?}", got[2].at - got[1].at);
    zones(&stream, 10);
    let report = session.finish();
    let range = [("warpline.range", "api.metrics_otlp.part")];
    assert_eq!(last(&receiver).histogram("warpline.range.duration", &range).count, 20);
    let sink = account(&report);
    assert!(sink.lost == 0 && sink.first_error.is_none(), "{sink:?}");
    let note = report.notes.iter().find(|note| note.contains("the last one has all figures")).expect("a note");
    assert!(note.contains("3 of 4 exports failed") && note.contains("429 Too Many Requests"), "{note}");
}

#[test]
fn a_collector_that_refuses_is_named_with_the_remedy() {
    let _turn = alone();
    for (answer, says) in [
        (
            "404 Not Found\r\nContent-Length: 10\r\n\r\nno\x1b[31mway",
            "404 Not Found: no[31mway; check the path of the URL",
        ),
        ("401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "307"),
        ("200 OK\r\nContent-Length: 99999999\r\n\r\nx", ""),
    ] {
        let receiver = Receiver::start(move |_| Answer::Response(format!("HTTP/1.1 {answer}").into_bytes()));
        let session = Session::builder().otlp(&receiver.url()).start().expect("no other session");
        zones(&HostStream::new("compute"), 5);
        let report = session.finish();
        let sink = account(&report);
        if says.is_empty() {
            assert!(sink.lost == 0 && sink.first_error.is_none(), "{sink:?}");
            continue;
        }
        let why = sink.first_error.as_deref().expect("a reason");
        assert!(why.contains(says) && sink.lost == 5, "{why}: {sink:?}");
        assert_eq!(receiver.got().len(), 1, "what is refused is not sent again");
    }
}

#[test]
fn a_partial_success_is_in_the_report() {
    let _turn = alone();
    // `partial_success { rejected_data_points: 3 }`
    let body = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x0a\x02\x08\x03".to_vec();
    let receiver = Receiver::start(move |_| Answer::Response(body.clone()));
    let session = Session::builder().otlp(&receiver.url()).start().expect("no other session");
    zones(&HostStream::new("compute"), 5);
    let report = session.finish();
    assert!(
        report.notes.iter().any(|note| note.contains("the collector rejected 3 data points")),
        "{:?}",
        report.notes
    );
}

#[test]
fn a_collector_that_stalls_delays_no_zone_and_the_end_by_its_limit_at_most() {
    let _turn = alone();
    let receiver = Receiver::start(|_| Answer::Stall(Duration::from_secs(3600)));
    let session = Session::builder()
        .otlp(&receiver.url())
        .otlp_interval(Duration::from_millis(100))
        // A busy machine needs this time to pass on all zones; the sink itself waits for two seconds at most.
        .finish_timeout(Duration::from_secs(30))
        .start()
        .expect("no other session");
    let stream = HostStream::new("compute");
    zones(&stream, 1000);
    thread::sleep(Duration::from_millis(300));
    let before = resident_bytes();
    for _ in 0..50 {
        zones(&stream, 1000);
    }
    let more = resident_bytes().saturating_sub(before);
    assert!(more < 16 << 20, "51,000 zones that nobody takes hold {more} bytes");
    let (sender, ends) = std::sync::mpsc::channel();
    thread::spawn(move || drop(sender.send(session.finish())));
    let report = ends.recv_timeout(Duration::from_secs(60)).expect("it ends");
    // A busy machine may fill the ring, which is another loss.
    assert_eq!((report.begun, report.recorded + report.dropped.total()), (51_000, 51_000));
    let sink = account(&report);
    assert!(sink.lost == report.recorded && sink.errors == 1, "{sink:?}");
}

#[test]
fn the_environment_gives_headers_and_names() {
    let receiver = Receiver::start(|_| taken());
    let environment = [
        ("WARPLINE", format!("otlp={}/", receiver.url()).into()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc, x-team=a".into()),
        ("OTEL_SERVICE_NAME", "llm".into()),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod".into()),
        ("RANK", "7".into()),
    ];
    let said = in_child(this_test!(), &environment, || {
        let session = Session::from_env_or("");
        zones(&HostStream::new("compute"), 5);
        assert_eq!(account(&session.finish()).lost, 0);
    });
    if said.is_none() {
        return;
    }
    let got = &receiver.wait_for(1)[0];
    assert_eq!((got.header("authorization"), got.header("x-team")), (Some("Bearer abc"), Some("a")));
    let resource: BTreeMap<_, _> = got.decoded().resource().into_iter().collect();
    assert_eq!((resource["service.name"].as_str(), resource["warpline.rank"].as_str()), ("llm", "7"));
    assert_eq!(resource["deployment.environment.name"], "prod");
}

/// The parent's exporter goes on after a fork, and the child neither sends nor waits.
#[cfg(unix)]
#[test]
fn a_forked_child_sends_nothing_and_the_parent_everything() {
    let _turn = alone();
    let receiver = Receiver::start(|_| taken());
    let session = sends(&receiver).start().expect("no other session");
    let stream = HostStream::new("compute");
    zones(&stream, 5);
    // SAFETY: the child makes one call that is safe after a fork, and ends.
    let child = match unsafe { libc::fork() } {
        0 => {
            drop(session);
            // SAFETY: the call takes a number.
            unsafe { libc::_exit(0) }
        }
        child => child,
    };
    let mut status = 0;
    // SAFETY: the place is valid for the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!((status, receiver.got().len()), (0, 0));
    zones(&stream, 5);
    assert_eq!(account(&session.finish()).lost, 0);
    let range = [("warpline.range", "api.metrics_otlp.part")];
    assert_eq!(last(&receiver).histogram("warpline.range.duration", &range).count, 10);
    assert_eq!(receiver.got().len(), 1);
}
