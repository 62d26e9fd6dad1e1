//! What the report says where only some zones were recorded, of first calls, and in how many columns.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use warpline::report::{LeftOut, Report};
use warpline::timeline::Semaphore;
use warpline::{HostStream, Session, SessionBuilder};
use warpline_tests::alone;

warpline::range! {
    LONG = "api.figures.long": "Most of a stream's time.";
    SHORT = "api.figures.short": "Little of it.";
    FIRST = "api.figures.first": "Takes long where it runs for the first time.";
}

fn spin(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {}
}

/// The stream's own measurement of its time. A busy machine makes any part of it longer.
struct Truth {
    /// The end of the last work in `api.figures.long`, and the time in it.
    since: Instant,
    long: Duration,
    /// The time outside of it, up to the last work in it.
    rest: Duration,
}

impl Truth {
    /// Works in `api.figures.long` until the stream has been in it for 15 times as long as outside of it.
    fn work(&mut self) {
        let begin = Instant::now();
        self.rest += begin.duration_since(self.since);
        spin((self.rest * 15).saturating_sub(self.long).max(Duration::from_millis(2)));
        self.since = Instant::now();
        self.long += self.since.duration_since(begin);
    }

    /// Whether the stream has been there for more than 12 times as long as outside of it.
    fn is_long(&self) -> bool {
        self.long > 12 * (self.rest + self.since.elapsed())
    }
}

/// A stream that is always busy, nearly always with `api.figures.long`, and another one that waits for it.
fn work(settings: SessionBuilder, rounds: u64) -> Report {
    work_until(settings, |round, _| round == rounds)
}

fn work_until(settings: SessionBuilder, is_over: impl Fn(u64, &dyn Fn() -> bool) -> bool) -> Report {
    let session = settings.start().expect("no other session");
    let (stream, other) = (HostStream::new("compute"), HostStream::new("other"));
    let done = Semaphore::named("done", 0);
    let truth = Arc::new(Mutex::new(None::<Truth>));
    for round in 1.. {
        {
            let _zone = LONG.zone(&stream);
            let truth = Arc::clone(&truth);
            stream.launch(move || {
                let mut truth = truth.lock().expect("nothing panics");
                if let Some(truth) = &mut *truth {
                    return truth.work();
                }
                spin(Duration::from_millis(2));
                // The first work is before all zones of the other range, so it is not counted.
                *truth = Some(Truth { since: Instant::now(), long: Duration::ZERO, rest: Duration::ZERO });
            });
        }
        {
            let _zone = SHORT.zone(&stream);
            stream.launch(|| spin(Duration::from_micros(100)));
        }
        done.signal_on(&stream, round).expect("it is greater");
        done.wait_on(&other, round).expect("it is there");
        let is_long = || {
            stream.synchronize().expect("nothing panics");
            truth.lock().expect("nothing panics").as_ref().is_some_and(Truth::is_long)
        };
        if is_over(round, &is_long) {
            break;
        }
    }
    stream.synchronize().expect("nothing panics");
    other.synchronize().expect("nothing panics");
    session.finish()
}

fn row<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no row `{name}` in\n{text}"))
}

#[test]
fn time_of_ranges_that_a_filter_left_out_is_not_called_idle() {
    let _turn = alone();
    let since = Instant::now();
    let report = work_until(Session::builder().filter("api.figures.short"), |round, is_long| {
        assert!(since.elapsed() < Duration::from_secs(60), "the stream is in the other range too long");
        round >= 20 && is_long()
    });
    let text = report.to_string();
    // The name of this thread may be on the path, and has the word, too.
    assert!(!text.contains(" idle") && !text.contains("(no zone)"), "{text}");
    assert!(text.contains("not recorded") && text.starts_with("of recorded zones only: "), "{text}");
    assert!(text.contains("(no recorded zone)") && text.contains(" through recorded zones"), "{text}");
    let LeftOut { ranges, of_ranges, while_stopped, .. } = report.left_out;
    assert_eq!((of_ranges - ranges, while_stopped, report.is_complete()), (1, false, false), "{text}");
    let stream = report.streams.iter().find(|stream| stream.name == "compute").expect("a stream");
    assert!(stream.idle_ns.is_none() && stream.not_recorded_ns > 10 * stream.busy_ns, "{stream:?}");
    let whole = work(Session::builder(), 2);
    assert!(whole.is_complete() && whole.streams.iter().all(|stream| stream.idle_ns.is_some()), "{whole}");
    let whole = whole.to_string();
    assert!(whole.contains("idle") && !whole.contains("not recorded"), "{whole}");
    assert!(!whole.contains("of recorded zones"), "{whole}");
}

#[test]
fn a_sample_is_scaled_to_all_with_its_error() {
    let _turn = alone();
    let report = work(Session::builder().sample(0.3), 200);
    let text = report.to_string();
    assert!(text.contains('≈') && text.contains('±') && !text.contains("idle"), "{text}");
    assert_eq!(report.ranges[0].name, "api.figures.long", "the largest total of all that came by: {text}");
    for (range, each_ns) in report.ranges.iter().zip([2_000_000_i64, 100_000]) {
        assert!(range.seen == 200 && (20..120).contains(&range.count), "{range:?}");
        // No zone is shorter than its work; a machine with other work to do makes some longer.
        let all_ns = 200 * each_ns;
        assert!(range.total_ns + range.total_error_ns.max(all_ns / 50) >= all_ns, "{range:?}");
        assert!(range.total_error_ns > 0 && range.recorded_ns * 3 < range.total_ns * 2, "{range:?}");
        let row = row(&text, &range.name);
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells[1..3], [range.count.to_string().as_str(), "200"], "what was recorded stays visible: {text}");
        assert!(cells[3].starts_with('≈'), "{text}");
    }
}

#[test]
fn what_settings_change_while_the_session_runs_is_known_at_its_end() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let left_out = |change: &dyn Fn(&Session)| {
        let session = Session::builder().start().expect("no other session");
        drop(SHORT.zone(&stream));
        change(&session);
        drop(LONG.zone(&stream));
        stream.synchronize().expect("nothing panics");
        let report = session.finish();
        (report.left_out.ranges > 0, report.left_out.while_stopped)
    };
    assert_eq!(left_out(&|_| ()), (false, false));
    let narrow = |session: &Session| {
        session.set_filter("api.figures.short").expect("a pattern");
        session.set_filter("").expect("no pattern");
    };
    assert_eq!(left_out(&narrow), (true, false));
    let stop = |session: &Session| {
        session.stop();
        session.start();
    };
    assert_eq!(left_out(&stop), (false, true));
    assert_eq!(left_out(&|_| ()), (false, false), "the next session starts anew");
}

#[test]
fn traces_say_what_their_counters_are_not_of() {
    let _turn = alone();
    let folder = std::env::temp_dir().join(format!("warpline-figures-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (perfetto, chrome) = (folder.join("t.pftrace"), folder.join("t.json"));
    let settings = || Session::builder().filter("api.figures.s*").sample(0.2);
    let report = work(settings().perfetto(&perfetto).chrome(&chrome), 50);
    let trace = std::fs::read(&perfetto).expect("a trace");
    let holds = |text: &str| trace.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    assert!(holds("not_sampled") && holds("ranges_left_out"), "{report}");
    let trace: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&chrome).expect("a trace")).expect("a whole document");
    let said = |name: &str| trace["otherData"][name].as_u64();
    assert_eq!(said("not_sampled"), Some(report.not_sampled));
    assert_eq!((said("ranges_left_out"), said("was_stopped")), (Some(report.left_out.ranges), None));
    std::fs::remove_dir_all(&folder).expect("nobody has it open");
}

#[test]
fn a_first_call_that_takes_long_stands_apart() {
    let _turn = alone();
    let session = Session::builder().start().expect("no other session");
    let stream = HostStream::new("compute");
    for call in 0..30 {
        let _zone = FIRST.zone(&stream);
        stream.launch(move || spin(Duration::from_millis(if call == 0 { 200 } else { 1 })));
    }
    stream.synchronize().expect("nothing panics");
    let report = session.finish();
    let range = &report.ranges[0];
    let first_ns = range.first_ns.expect("all were recorded");
    assert!(first_ns >= 200_000_000 && first_ns == range.max_ns, "{range:?}");
    assert_eq!(range.mean_ns, (range.total_ns - first_ns) / 29, "the mean of those that followed: {range:?}");
    let text = report.to_string();
    assert!(text.contains("\n  first call 2") && text.contains(" ms, counted in total and share only\n"), "{text}");
}

#[test]
fn the_report_fits_in_80_columns() {
    let _turn = alone();
    for settings in [Session::builder(), Session::builder().sample(0.5), Session::builder().filter("api.figures.s*")] {
        let text = work(settings, 40).to_string();
        let too_long: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(too_long.is_empty(), "{too_long:#?}");
        assert!(row(&text, "api.figures.short").contains(" %"), "its share is in it: {text}");
    }
}
