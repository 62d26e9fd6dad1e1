//! Zones of all sorts, and what a tool must have been told of them.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::thread;

use warpline::catalog::Kind;
use warpline::{HostStream, catalog, gpu_zone, host_zone};

use crate::harness::nvtx::Line;

warpline::range! {
    pub PLAIN = "stub.nvtx_tests.plain": "A zone with nothing to it.";
    pub COLORED = "stub.nvtx_tests.colored": "A zone with a color.", color = 0x12_34_56;
    pub ASYNC = "stub.nvtx_tests.async": "A zone that another thread ends.", kind = host;
}

/// A zone with a field of each type.
#[gpu_zone("stub.nvtx_tests.typed", fields(n = n, by = -3_i32, part = 0.25, full = true, kind = "plain"), label = display_of(n))]
pub fn typed(stream: &HostStream, n: u64) {
    let _ = stream;
}

/// A zone with a text that was made for it.
#[host_zone("stub.nvtx_tests.text", fields(text = text))]
pub fn owned(text: String) {}

/// A zone that nests.
#[host_zone("stub.nvtx_tests.nested", fields(depth = depth))]
pub fn nested(depth: u32) {
    if depth > 0 {
        let _colored = COLORED.host();
        nested(depth - 1);
    }
}

/// A zone of a future.
#[host_zone("stub.nvtx_tests.future", fields(n = n))]
pub async fn future(n: u64) -> u64 {
    std::future::ready(n).await
}

fn display_of(n: u64) -> impl std::fmt::Display {
    format!("item {n}")
}

pub fn run<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => unreachable!("nothing in these futures waits"),
    }
}

/// Zones of all sorts, so many that every tenth push is passed.
pub fn all_sorts() {
    let stream = HostStream::new("work");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..25 {
                    let _plain = PLAIN.zone(&stream);
                    nested(2);
                    typed(&stream, n);
                    owned("ß".repeat(50));
                    assert_eq!(run(future(n)), n);
                }
            });
        }
    });
}

pub extern "C" fn begin_zones() {
    all_sorts_of_one_thread();
}

pub fn all_sorts_of_one_thread() {
    let _plain = PLAIN.host();
    nested(1);
    assert_eq!(run(future(1)), 1);
}

/// What a tool was told of one range.
fn told(name: &str) -> (String, String, String) {
    let range = catalog().find(name).unwrap_or_else(|| panic!("{name} is not in the catalog"));
    let color = range.color().map_or("-".to_owned(), |rgb| format!("ff{rgb:06x}"));
    let category = match range.kind() {
        Kind::Gpu => "1",
        Kind::Host => "2",
        Kind::Collective => "3",
        other => panic!("a new kind: {other:?}"),
    };
    (range.namespace().to_owned(), category.to_owned(), color)
}

/// Checks that every begin is told as the catalog has it.
pub fn assert_as_the_catalog_says(log: &[Line]) {
    for line in log.iter().filter(|line| ["push", "start-range"].contains(&line.call.as_str())) {
        let (domain, category, color) = told(&line.arguments[2]);
        let said = (&line.arguments[0], &line.arguments[3], &line.arguments[4]);
        assert_eq!(said, (&domain, &category, &color), "{line:?}");
        assert_eq!(line.arguments[1], "registered", "{line:?}");
    }
}

/// The names that are open on a thread at each push, outermost first; every pop has its push.
pub fn nesting(log: &[Line], thread: i32) -> Vec<String> {
    let (mut open, mut seen) = (Vec::new(), Vec::new());
    for line in log.iter().filter(|line| line.thread == thread) {
        match line.call.as_str() {
            "push" => {
                open.push(line.arguments[2].trim_start_matches("stub.nvtx_tests.").to_owned());
                seen.push(open.join("/"));
            }
            "pop" => assert!(open.pop().is_some(), "a pop of nothing"),
            _ => {}
        }
    }
    assert!(open.is_empty(), "still open: {open:?}");
    seen
}

pub fn count(log: &[Line], call: &str) -> usize {
    log.iter().filter(|line| line.call == call).count()
}
