//! What Prometheus itself makes of the metrics, and the queries of the dashboard in docs/.
//!
//! `cargo xtask test --only prometheus` gets Prometheus and runs the ignored test.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::timeline::Semaphore;
use warpline::{HostStream, Session};
use warpline_tests::{alone, empty_folder};

use crate::scrape::{Scrape, free_port, get, request};

warpline::range! {
    STEP = "api.metrics_prometheus.step": "Work of a step.";
    SYNC = "api.metrics_prometheus.sync": "A collective.", kind = collective;
}

const DASHBOARD: &str = include_str!("../../docs/grafana-dashboard.json");

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
        let config = format!(
            "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: warpline\n    static_configs:\n      - targets: [{targets}]\n"
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
            assert!(since.elapsed() < Duration::from_secs(80), "{query}: {answer:?}\n{}", log());
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
