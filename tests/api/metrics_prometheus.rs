//! What Prometheus itself makes of the metrics, and the queries of the dashboard in docs/.
//!
//! `cargo xtask test --only prometheus` gets Prometheus and runs the ignored tests.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::timeline::Semaphore;
use warpline::{HostStream, Session};
use warpline_tests::{alone, empty_folder, in_child, is_child, this_test};

use crate::scrape::{Scrape, free_port, get, request};

warpline::range! {
    STEP = "api.metrics_prometheus.step": "Work of a step.";
    SYNC = "api.metrics_prometheus.sync": "A collective.", kind = collective;
}

const DASHBOARD: &str = include_str!("../../docs/grafana-dashboard.json");

const GUIDE: &str = include_str!("../../docs/metrics.md");

/// The folder with the programs `prometheus` and `promtool`; without it, they are looked for where the shell does.
const FOLDER: &str = "WARPLINE_TEST_PROMETHEUS";

/// The queries of the dashboard's panels, each with the panel's title, in the order in which one sees them.
fn panels() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let mut panels = dashboard["panels"].as_array().expect("panels").clone();
    panels.sort_by_key(|panel| ["y", "x"].map(|at| panel["gridPos"][at].as_u64().expect("a place")));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let of = |panel: &Value| {
        let targets = panel["targets"].as_array().expect("targets");
        targets.iter().map(|target| (text(&panel["title"]), text(&target["expr"]))).collect::<Vec<_>>()
    };
    panels.iter().flat_map(of).collect()
}

/// A query as Grafana asks it: of these ranks.
fn asked(query: &str, ranks: &str) -> String {
    let times = query.replace("$__rate_interval", "10s").replace("$__range", "10s");
    times.replace("$host", ".*").replace("$rank", ranks)
}

/// The queries of the dashboard's variables.
fn variables() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let variables = dashboard["templating"]["list"].as_array().expect("variables").iter();
    variables.filter_map(|variable| Some(variable["query"]["query"].as_str()?.to_owned())).collect()
}

/// The names of metrics in a query: words that begin as ours do.
fn names(query: &str) -> BTreeSet<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("warpline_") || word.starts_with("nccl_")).map(str::to_owned).collect()
}

fn session(port: u16) -> Session {
    let settings = Session::builder().prometheus(&port.to_string()).filter("api.metrics_prometheus.*").quiet();
    settings.start().expect("no other session")
}

/// A program that runs steps, collectives and waits until it is stopped.
struct Work {
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Work {
    fn start() -> Work {
        let is_over = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let (stream, comm) = (HostStream::new("compute"), HostStream::new("comm"));
            let (group, semaphore) = (ProcessGroup::new("dp0", [0, 1], 0), Semaphore::new(0));
            for step in 0_u64.. {
                if its.load(Ordering::Relaxed) {
                    break;
                }
                warpline::step(step);
                let zone = STEP.zone(&stream);
                stream.launch(|| thread::sleep(Duration::from_millis(2)));
                drop(zone);
                semaphore.signal_on(&stream, step + 1).expect("it grows");
                semaphore.wait_on(&comm, step + 1).expect("it is there");
                let message = Message::new(CollectiveKind::AllReduce).count(1 << 20).dtype(DataType::F32).group(&group);
                let zone = SYNC.zone(&comm).message(message);
                comm.launch(|| thread::sleep(Duration::from_millis(1)));
                drop(zone);
                comm.synchronize().expect("no panic");
            }
        });
        Work { is_over, thread: Some(thread) }
    }
}

/// Also where a test fails: the next one has the process for itself.
impl Drop for Work {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

#[test]
fn every_query_of_the_dashboard_asks_for_metrics_that_there_are() {
    let _turn = alone();
    let port = free_port();
    let session = session(port);
    let work = Work::start();
    let since = Instant::now();
    let queries = panels().into_iter().map(|(_, query)| query).chain(variables());
    let all: BTreeSet<String> = queries.flat_map(|query| names(&query)).collect();
    assert!(all.len() >= 10, "{all:?}");
    loop {
        let scrape = Scrape::of(&get(port, "/metrics", "*/*").1);
        let there: BTreeSet<String> = scrape.samples.keys().map(|(name, _)| name.clone()).collect();
        if all.is_subset(&there) {
            // Whoever adds a metric shows it. Transfers between two ranks are not in this program.
            assert_eq!(there.difference(&all).collect::<Vec<_>>(), Vec::<&String>::new());
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "{:?} are not there", all.difference(&there));
        thread::sleep(Duration::from_millis(50));
    }
    drop(work);
    session.finish();
}

fn program(name: &str) -> PathBuf {
    std::env::var_os(FOLDER).map_or_else(|| name.into(), |folder| Path::new(&folder).join(name))
}

/// A running Prometheus, which is ended with the value.
struct Prometheus {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl Prometheus {
    fn start(targets: &[u16]) -> Prometheus {
        let (folder, port) = (empty_folder("prometheus"), free_port());
        let targets: Vec<_> = targets.iter().map(|target| format!("'127.0.0.1:{target}'")).collect();
        let targets = targets.join(", ");
        // The guide's rules, with the times of a test.
        let (_, rules) = GUIDE.split_once("```yaml\ngroups:").expect("rules");
        let (rules, _) = rules.split_once("```").expect("their end");
        let rules = format!("groups:{}", rules.replace("[5m]", "[10s]").replace("for: 5m", "for: 0s"));
        std::fs::write(folder.join("rules.yml"), rules).expect("a file");
        let config = format!(
            "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: [rules.yml]\nscrape_configs:\n  - job_name: warpline\n    static_configs:\n      - targets: [{targets}]\n"
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config).expect("a file");
        let log = std::fs::File::create(folder.join("log")).expect("a file");
        let process = Command::new(program("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let process = process.unwrap_or_else(|error| {
            panic!("Prometheus does not start: {error}; `cargo xtask test --only prometheus` gets it, or install it: `apt-get install prometheus`")
        });
        Prometheus { process, port, folder }
    }

    /// The answer to a query at this moment; none while Prometheus is not ready.
    fn query(&self, query: &str) -> Option<Vec<Value>> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        std::net::TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        // The older version of HTTP has no chunks.
        let (head, body) = request(self.port, format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\n\r\n").as_bytes());
        let answer: Value = serde_json::from_str(&body).ok()?;
        assert_eq!(answer["status"], "success", "{query}: {head}\n{body}");
        answer["data"]["result"].as_array().cloned()
    }

    /// Asks until the answer is as expected.
    #[track_caller]
    fn wait_for(&self, query: &str, is_expected: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let since = Instant::now();
        loop {
            let answer = self.query(query).unwrap_or_default();
            if is_expected(&answer) {
                return answer;
            }
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            // A machine that builds beside the test gives its processes little time.
            assert!(since.elapsed() < Duration::from_secs(300), "{query}: {answer:?}\n{}", log());
            thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn number(answer: &[Value]) -> Option<f64> {
    answer.first()?["value"][1].as_str()?.parse().ok()
}

/// What `promtool check metrics` says of a page.
fn lint(page: &str) -> String {
    let mut promtool = Command::new(program("promtool"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is beside Prometheus");
    promtool.stdin.take().expect("a pipe").write_all(page.as_bytes()).expect("it reads");
    let output = promtool.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
#[ignore = "needs Prometheus: cargo xtask test --only prometheus"]
fn prometheus_scrapes_what_the_session_records_and_answers_the_dashboard() {
    let _turn = alone();
    let target = free_port();
    let session = session(target);
    let work = Work::start();
    let prometheus = Prometheus::start(&[target]);
    prometheus.wait_for("up == 1", |answer| answer.len() == 1);

    // 3 of zones, 2 of what is bounded or left out, 4 of ranges, 4 of steps, 1 of waits and 3 of a collective.
    prometheus.wait_for("scrape_samples_scraped", |answer| number(answer) == Some(17.0));
    for (_, query) in panels() {
        let is_number = |value: &Value| number(std::slice::from_ref(value)).is_some_and(f64::is_finite);
        // What did nothing in the last seconds has no mean.
        prometheus.wait_for(&asked(&query, ".*"), |answer| answer.iter().any(is_number));
    }
    for query in variables() {
        let (selector, label) = query
            .strip_prefix("label_values(")
            .and_then(|query| query.strip_suffix(')'))
            .and_then(|query| query.rsplit_once(", "))
            .expect("label_values(selector, label)");
        let selector = selector.replace("$host", ".*");
        let answer = prometheus.wait_for(&selector, |answer| !answer.is_empty());
        assert!(answer.iter().all(|series| series["metric"][label].is_string()), "{answer:?}");
    }
    // A step takes 3 ms at least, and the bandwidth is of 4 MiB in 1 ms at most.
    let step =
        prometheus.query("warpline_step_duration_seconds_sum / warpline_step_duration_seconds_count").expect("it");
    assert!(number(&step) >= Some(0.003), "{step:?}");
    let bus = prometheus.query("warpline_collective_bus_bandwidth_bytes_per_second / 1e9 <= 4.2").expect("it");
    assert_eq!(bus.len(), 1, "{bus:?}");

    // The last scrape has what the report has.
    drop(work);
    let page = loop {
        let page = get(target, "/metrics", "*/*").1;
        thread::sleep(Duration::from_millis(300));
        if get(target, "/metrics", "*/*").1 == page {
            break page;
        }
    };
    let scraped = |outcome| format!("sum(warpline_zones_total{{outcome=\"{outcome}\"}})");
    let recorded = Scrape::of(&page).value("warpline_zones_total", &[("outcome", "recorded")]);
    prometheus.wait_for(&scraped("recorded"), |answer| number(answer) == recorded);
    let counted = prometheus.query("sum(warpline_range_duration_seconds_count)").and_then(|answer| number(&answer));
    let report = session.finish();
    assert_eq!((recorded, counted), (Some(report.recorded as f64), Some(report.recorded as f64)));

    // The names of NCCL's Inspector have other units than Prometheus asks for; ours are as it does.
    let problems = lint(&page);
    let ours: Vec<_> = problems.lines().filter(|line| !line.starts_with("nccl_")).collect();
    assert!(ours.is_empty(), "{problems}");
    assert!(
        lint("# TYPE a counter\na 1\n").contains("counter metrics should have \"_total\" suffix"),
        "promtool judges"
    );
}

/// The ranks of a job, which are two groups of two.
const RANKS: u64 = 4;

/// What a rank computes in a step, and how long a collective takes once its ranks have met.
const WORK: Duration = Duration::from_millis(40);
const LINK: Duration = Duration::from_millis(4);

/// Jobs of which each has a fault: a late rank, none, a slow link. Ranks are numbered through all of them.
const LATE: u64 = 2;
const CLEAN: std::ops::Range<u64> = RANKS..2 * RANKS;
const LINKED: std::ops::Range<u64> = 2 * RANKS..3 * RANKS;
const SLOW_LINK: [u64; 2] = [LINKED.start, LINKED.start + 1];

/// Where ranks in other processes meet: a rank that has come says a byte, and gets one when all have.
struct Hub {
    port: u16,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Hub {
    fn start() -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let sockets = Arc::new(Mutex::new(Vec::new()));
        let its = Arc::clone(&sockets);
        thread::spawn(move || {
            let mut waiting: BTreeMap<[u8; 2], Vec<TcpStream>> = BTreeMap::new();
            for socket in listener.incoming() {
                let mut socket = socket.expect("a rank");
                let mut group = [0; 2];
                socket.read_exact(&mut group).expect("a group and its ranks");
                its.lock().expect("no panic").push(socket.try_clone().expect("a socket"));
                let came = waiting.entry(group).or_default();
                came.push(socket);
                if came.len() == usize::from(group[1]) {
                    let mut group = std::mem::take(came);
                    thread::spawn(move || while meet(&mut group).is_ok() {});
                }
            }
        });
        Hub { port, sockets }
    }
}

/// Without the hub, ranks end.
impl Drop for Hub {
    fn drop(&mut self) {
        for socket in self.sockets.lock().expect("no panic").iter() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn meet(group: &mut [TcpStream]) -> io::Result<()> {
    group.iter_mut().try_for_each(|rank| rank.read_exact(&mut [0]))?;
    group.iter_mut().try_for_each(|rank| rank.write_all(&[1]))
}

/// A communicator of a rank.
struct Comm {
    group: ProcessGroup,
    socket: Arc<Mutex<TcpStream>>,
    is_over: Arc<AtomicBool>,
    link: Duration,
}

impl Comm {
    fn new(
        hub: u16,
        name: &str,
        me: u64,
        members: std::ops::Range<u64>,
        link: Duration,
        is_over: &Arc<AtomicBool>,
    ) -> Comm {
        let mut socket = TcpStream::connect(("127.0.0.1", hub)).expect("the hub");
        socket.set_nodelay(true).expect("a socket");
        let ranks = members.end - members.start;
        // No two groups of one size begin with one rank.
        socket.write_all(&[members.start as u8, ranks as u8]).expect("the hub");
        let group = ProcessGroup::new(name, members.clone().map(|rank| rank as u32), (me - members.start) as u32);
        Comm { group, socket: Arc::new(socket.into()), is_over: Arc::clone(is_over), link }
    }

    fn all_reduce(&self, stream: &HostStream, count: u64) {
        let message = Message::new(CollectiveKind::AllReduce).count(count).dtype(DataType::F32).group(&self.group);
        let _zone = SYNC.zone(stream).message(message);
        let (socket, is_over, link) = (Arc::clone(&self.socket), Arc::clone(&self.is_over), self.link);
        stream.launch(move || {
            let mut socket = socket.lock().expect("no panic");
            let met = socket.write_all(&[1]).and_then(|()| socket.read_exact(&mut [0]));
            is_over.fetch_or(met.is_err(), Ordering::Relaxed);
            thread::sleep(link);
        });
    }
}

/// Runs steps of one rank until the hub is gone.
fn rank() {
    let of = |name: &str| std::env::var(name).expect(name).parse::<u64>().expect(name);
    let (me, hub) = (of("RANK"), of("HUB") as u16);
    let session = session(of("PORT") as u16);
    let is_over = Arc::default();
    let (job, pair) = (me / RANKS * RANKS, me / 2 * 2);
    let link = if SLOW_LINK.contains(&me) { 10 * LINK } else { LINK };
    let data = Comm::new(hub, "dp", me, pair..pair + 2, link, &is_over);
    let norm = Comm::new(hub, "world", me, job..job + RANKS, Duration::from_micros(100), &is_over);
    let work = if me == LATE { WORK.mul_f64(1.3) } else { WORK };
    let (stream, comm) = (HostStream::new("compute"), HostStream::new("comm"));
    for step in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        warpline::step(step);
        let zone = STEP.zone(&stream);
        stream.launch(move || thread::sleep(work));
        drop(zone);
        stream.synchronize().expect("no panic");
        data.all_reduce(&comm, 1 << 20);
        norm.all_reduce(&comm, 1);
        comm.synchronize().expect("no panic");
    }
    session.finish();
}

/// The answers by the value of a label, the greatest first.
fn by(label: &str, answer: &[Value]) -> Vec<(String, f64)> {
    let of = |value: &Value| {
        let label = value["metric"][label].as_str().expect(label).to_owned();
        (label, number(std::slice::from_ref(value)).expect("a number"))
    };
    let mut all: Vec<_> = answer.iter().map(of).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

#[test]
#[ignore = "needs Prometheus: cargo xtask test --only prometheus"]
fn the_dashboards_first_panel_shows_the_late_rank_and_no_other() {
    if is_child() {
        in_child(this_test!(), &[], rank);
        return;
    }
    let _turn = alone();
    let hub = Hub::start();
    let ports: Vec<u16> = (0..3 * RANKS).map(|_| free_port()).collect();
    let prometheus = Prometheus::start(&ports);
    let test = this_test!();
    thread::scope(|scope| {
        for (rank, port) in ports.iter().enumerate() {
            let environment = [("RANK", rank.to_string()), ("PORT", port.to_string()), ("HUB", hub.port.to_string())];
            let environment = environment.map(|(name, value)| (name, value.into()));
            scope.spawn(move || in_child(test, &environment, || unreachable!("a child begins elsewhere")));
        }
        let answers = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // Enough for means, also of a machine that is busy.
            prometheus.wait_for("warpline_step_own_time_seconds_count > 100", |answer| answer.len() == ports.len());
            let panels = panels();
            let links = &panels.iter().find(|(title, _)| title == "Groups with slow links").expect("a panel").1;
            let ask = |query: &str, ranks: std::ops::Range<u64>| {
                let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
                prometheus.query(&asked(query, &ranks.join("|"))).expect("it is ready")
            };
            let firing = "ALERTS{alertname=\"LateRank\", alertstate=\"firing\"}";
            let alerts = prometheus.wait_for(firing, |alerts| !alerts.is_empty());
            ([0..RANKS, CLEAN, LINKED].map(|job| (ask(&panels[0].1, job.clone()), ask(links, job))), alerts)
        }));
        // The ranks end, whatever came of it.
        drop(hub);
        let ([(late, of_late), (clean, of_clean), (linked, of_linked)], alerts) =
            answers.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert_eq!(by("rank", &alerts), [("2".to_owned(), 1.0)], "all jobs do the same");

        // A step takes about 52 ms of work, and 4 ms in collectives; the late rank takes 12 ms more itself.
        let late = by("rank", &late);
        assert_eq!((late.len(), &*late[0].0), (RANKS as usize, "2"), "{late:?}");
        assert!((0.15..0.28).contains(&late[0].1) && late[1].1 < 0.05, "{late:?}");
        for fine in [&clean, &linked] {
            let fine = by("rank", fine);
            assert!(fine.len() == RANKS as usize && fine.iter().all(|(_, more)| *more < 0.05), "{fine:?}");
        }
        // A late rank makes no link slow.
        for fine in [&of_late, &of_clean] {
            let fine = by("group", fine);
            assert!(fine.len() == 3 && fine.iter().all(|(_, share)| *share > 0.7), "{fine:?}");
        }
        // Two groups have the mean of both as their median: 1 beside 10 is 0.18.
        let of_linked = by("group", &of_linked);
        let (slow, share) = of_linked.last().expect("a group");
        let members = ProcessGroup::new("dp", SLOW_LINK.map(|rank| rank as u32), 0);
        assert!(*slow == members.comm() && (0.1..0.4).contains(share), "{of_linked:?}");
        assert!(of_linked[..2].iter().all(|(_, share)| *share > 0.7), "{of_linked:?}");
    });
}
