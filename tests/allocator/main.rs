//! A global allocator with marks: it is called wherever anything allocates, also in the middle of warpline. A zone that would begin
//! there is refused and counted; nothing hangs, and nothing begins without an end.
//!
//! Each test runs in a process of its own: what its other threads allocate is known.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::time::Duration;
use std::{fs, hint, thread};

use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::{HostStream, Session, gpu_zone, host_zone};
use warpline_tests::{empty_folder, in_a_process_of_its_own, in_time, this_test};

#[path = "../stub/harness/nvtx.rs"]
mod nvtx;

warpline::namespace!("allocator", "zones of a global allocator");

warpline::range! {
    STEP = "allocator.step": "A step, in which something is allocated.";
}

struct Marked;

#[global_allocator]
static ALLOCATOR: Marked = Marked;

/// Where its zones are, once it is there; before, they are host zones.
static STREAM: OnceLock<HostStream> = OnceLock::new();

// SAFETY: all of it is the system's allocator; marks change nothing of what a function does.
unsafe impl GlobalAlloc for Marked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocate(layout)
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        free(place, layout);
    }
}

/// Allocates.
#[gpu_zone("allocator.allocate", stream = STREAM.get(), fields(bytes = layout.size()))]
fn allocate(layout: Layout) -> *mut u8 {
    // SAFETY: the layout is the caller's.
    unsafe { System.alloc(layout) }
}

/// Gives back.
#[host_zone("allocator.free")]
fn free(place: *mut u8, layout: Layout) {
    // SAFETY: the place and the layout are the caller's.
    unsafe { System.dealloc(place, layout) }
}

/// So many threads.
const THREADS: usize = 4;
/// So often each allocates, on purpose.
const TIMES: usize = 500;

/// Threads allocate, and launch, and ask for zones.
fn work() {
    thread::scope(|scope| {
        for n in 0..THREADS {
            scope.spawn(move || {
                let stream = HostStream::new(&format!("stream {n}"));
                for times in 0..TIMES {
                    let zone = STEP.zone(&stream).field("text", "a text that is longer than what is kept in place");
                    let text = hint::black_box(format!("{n}: {times}"));
                    stream.launch(move || drop(text));
                    drop(zone);
                    if times % 100 == 0 {
                        drop(warpline::profile::range("allocator.allocate", 1).wait(Duration::ZERO));
                        drop(warpline::profile::next(&stream));
                    }
                }
                stream.synchronize().expect("nothing panics");
            });
        }
    });
}

/// Nothing is lost silently, and the program's own allocations are there.
#[track_caller]
fn check(report: &Report) {
    assert_eq!(report.begun, report.recorded + report.captured + report.dropped.total(), "{report}");
    assert!(report.begun > (2 * THREADS * TIMES) as u64, "{report}");
    let refused: Vec<_> = report.notes.iter().filter(|note| note.contains("began inside warpline")).collect();
    assert_eq!(refused.len(), 1, "{report}");
}

#[test]
fn a_marked_allocator_runs_without_a_session() {
    if in_a_process_of_its_own(this_test!()) {
        in_time(work);
        in_time(|| {
            let _ = STREAM.set(HostStream::new("allocator"));
            work();
        });
    }
}

#[test]
fn threads_with_a_marked_allocator_and_a_tool_end() {
    nvtx::with_tool(this_test!(), "", &[], |tool| {
        in_time(|| {
            for _ in 0..10 {
                let thread = thread::spawn(|| drop(STEP.host()));
                thread.join().expect("no panic");
            }
            let session = Session::builder().start().expect("no other session");
            work();
            let report = session.finish();
            assert_eq!(report.begun, report.recorded + report.captured + report.dropped.total(), "{report}");
        });
        assert!(tool.log().iter().any(|line| line.call == "push"), "the tool sees the zones");
    });
}

#[test]
fn a_marked_allocator_is_recorded_outside_of_warpline() {
    if in_a_process_of_its_own(this_test!()) {
        in_time(|| {
            let sink = MemorySink::new(1 << 22);
            let session = Session::builder().sink(sink.clone()).start().expect("no other session");
            work();
            let report = session.finish();
            check(&report);
            let has = |name: &str| sink.take().iter().any(|record| record.range.name() == name);
            assert!(has("allocator.allocate"), "{report}");
        });
    }
}

#[test]
fn a_marked_allocator_with_a_stream_of_its_own_is_recorded_by_every_sink() {
    if in_a_process_of_its_own(this_test!()) {
        in_time(|| {
            let folder = empty_folder("allocator");
            let _ = STREAM.set(HostStream::new("allocator"));
            for _ in 0..3 {
                let builder = Session::builder().perfetto(folder.join("t.pftrace")).chrome(folder.join("t.json"));
                let builder = builder.flight_at(1 << 20, folder.join("t.flight")).summary().control();
                let session = builder.start().expect("no other session");
                work();
                session.stop();
                session.set_filter("allocator.*").expect("patterns");
                session.start();
                work();
                check(&session.finish());
            }
            fs::remove_dir_all(&folder).expect("it is ours");
        });
    }
}
