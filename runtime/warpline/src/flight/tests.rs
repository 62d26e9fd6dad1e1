//! What a thread that panics waits for.

use std::sync::mpsc;

use warpline_report::fixture;

use super::*;

#[test]
fn a_thread_that_panics_waits_no_longer_than_the_limit_for_a_collector_that_hangs() {
    let folder = std::env::temp_dir().join(format!("warpline-flight-panic-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("hangs.flight");
    let settings = FlightSettings { bytes: 1 << 20, path: Some(path) };
    let config = Config { flight: Some(settings), ..Config::default() };
    let flight = Flight::open(&config, &fixture::session()).expect("a file").expect("settings");
    // As a collector does that writes to a disk that hangs.
    let hangs = lock(&flight.open);
    let (done, is_done) = mpsc::channel();
    let its = Arc::clone(&flight);
    std::thread::spawn(move || {
        its.panicked("`main` panicked".to_owned(), Vec::new());
        let _ = done.send(());
    });
    let waited = is_done.recv_timeout(Duration::from_secs(20));
    drop(hangs);
    assert_eq!(waited, Ok(()), "it waits for the collector");
    assert!(flight.failures.texts().iter().any(|text| text.contains("not marked in the trace")));
    fs::remove_dir_all(&folder).expect("it is ours");
}
