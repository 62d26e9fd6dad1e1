//! Zones as roctx ranges, on a stub of the marker library: when it is used, and what it is told. Not run with a tool of ROCm.

use std::thread;

use warpline::{HostStream, Session, gpu_zone, host_zone};

use crate::harness::hip::{Markers, Runtime, library_path, on_stub, with};
use crate::harness::nvtx::{Tool, as_old_library, with_tool};
use warpline_tests::in_child;

warpline::range! {
    HANDED_ON = "stub.roctx.handed_on": "A zone that ends on another thread.";
}

/// A step with work in it.
#[host_zone("stub.roctx.step")]
fn step(stream: &HostStream) {
    work(stream);
}

/// Work on a stream.
#[gpu_zone("stub.roctx.work")]
fn work(stream: &HostStream) {
    stream.launch(|| ());
}

/// What one step calls.
const STEP: [&str; 4] = ["push stub.roctx.step", "push stub.roctx.work", "pop", "pop"];

#[test]
fn a_library_that_the_program_has_loaded_gets_each_zone_with_and_without_a_session() {
    on_stub("hip_roctx::a_library_that_the_program_has_loaded_gets_each_zone_with_and_without_a_session", |_| {
        // As `rocprofv3 --marker-trace` does before the program starts.
        let markers = Markers::load();
        let stream = HostStream::new("work");
        step(&stream);
        assert_eq!(markers.log(), STEP);
        let session = Session::builder().quiet().summary().start().expect("no other session");
        step(&stream);
        let zone = HANDED_ON.async_zone(&stream);
        thread::scope(|scope| drop(scope.spawn(|| drop(zone))));
        let report = session.finish();
        assert_eq!((report.recorded, report.dropped.total()), (3, 0), "{report}");
        let ranges = [&STEP[..], &STEP[..], &["start stub.roctx.handed_on", "stop 9"]].concat();
        assert_eq!(markers.log(), ranges);
    });
}

#[test]
fn a_library_that_is_not_loaded_is_opened_only_if_the_setting_asks_for_it() {
    on_stub("hip_roctx::a_library_that_is_not_loaded_is_opened_only_if_the_setting_asks_for_it", |_| {
        let stream = HostStream::new("work");
        let record = |wish: Option<bool>| {
            let settings = Session::builder().quiet().summary();
            let settings = wish.into_iter().fold(settings, |settings, wish| settings.roctx(wish));
            let session = settings.start().expect("no other session");
            step(&stream);
            session.finish()
        };
        record(None);
        let maps = || std::fs::read_to_string("/proc/self/maps").expect("Linux");
        assert!(!maps().contains("libroctx64"), "nothing opens it unasked");
        assert!(record(Some(true)).notes.is_empty());
        let markers = Markers::load();
        assert_eq!(markers.log(), STEP);
        record(Some(false));
        assert_eq!(markers.log(), STEP, "`roctx=off` calls nothing");
    });
}

#[test]
fn a_library_that_the_program_has_loaded_comes_before_another() {
    with("hip_roctx::a_library_that_the_program_has_loaded_comes_before_another", Runtime::Two, |_| {
        let markers = Markers::load();
        let session = Session::builder().quiet().summary().roctx(true).start().expect("no other session");
        step(&HostStream::new("work"));
        assert!(session.finish().notes.is_empty());
        assert_eq!(markers.log(), STEP);
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
        assert!(!maps.contains("librocprofiler-sdk-roctx"), "the other one is opened");
    });
}

#[test]
fn a_missing_library_is_a_note_with_the_remedy_if_the_setting_asks_for_it() {
    with("hip_roctx::a_missing_library_is_a_note_with_the_remedy_if_the_setting_asks_for_it", Runtime::Old, |_| {
        let session = Session::builder().quiet().summary().roctx(true).start().expect("no other session");
        step(&HostStream::new("work"));
        let report = session.finish();
        assert_eq!(report.recorded, 2);
        let said = report.notes.iter().filter(|note| note.contains("no zone reaches roctx")).collect::<Vec<_>>();
        assert!(said.len() == 1 && said[0].contains("rocprofv3 --marker-trace"), "{report}");
        assert!(
            said[0].contains("(librocprofiler-sdk-roctx.so.1: cannot open shared object file: No such file or"),
            "{report}"
        );
    });
}

#[test]
fn an_nvtx_tool_and_roctx_get_the_same_zones() {
    let path = library_path(Runtime::Current).into_string().expect("a path in UTF-8");
    let more = [("LD_LIBRARY_PATH", path.as_str())];
    with_tool("hip_roctx::an_nvtx_tool_and_roctx_get_the_same_zones", "record", &more, |tool| {
        let markers = Markers::load();
        let stream = HostStream::new("work");
        step(&stream);
        drop(HANDED_ON.async_zone(&stream));
        assert_eq!(markers.log(), [&STEP[..], &["start stub.roctx.handed_on", "stop 5"]].concat());
        let calls: Vec<String> = tool.log().into_iter().map(|line| line.call).collect();
        let count = |call: &str| calls.iter().filter(|known| *known == call).count();
        assert_eq!((count("push"), count("pop")), (2, 2), "{calls:?}");
        assert_eq!((count("start-range"), count("end-range")), (1, 1), "{calls:?}");
    });
}

/// An old library that a session asks for while a range of roctx is open. Its end is that of roctx, and that of a later
/// range is in both.
#[test]
fn a_tool_that_attaches_meanwhile_ends_no_range_of_another() {
    let mut path = library_path(Runtime::Current);
    path.push(":");
    path.push(as_old_library("libnvToolsExt.so.1", None));
    let test = "hip_roctx::a_tool_that_attaches_meanwhile_ends_no_range_of_another";
    in_child(test, &[("LD_LIBRARY_PATH", path)], || {
        let markers = Markers::load();
        let stream = HostStream::new("work");
        let open = HANDED_ON.async_zone(&stream);
        let session = Session::builder().quiet().nvtx(true).start().expect("no other session");
        drop(open);
        assert_eq!(markers.log(), ["start stub.roctx.handed_on", "stop 1"]);
        let calls = || Tool::open("libnvToolsExt.so.1".as_ref()).log().into_iter().map(|line| line.call);
        let count = |call: &str| calls().filter(|known| known == call).count();
        assert_eq!((count("start-range"), count("end-range")), (0, 0));
        drop(HANDED_ON.async_zone(&stream));
        assert_eq!((count("start-range"), count("end-range"), markers.log().len()), (1, 1, 4));
        drop(session);
    });
}

#[test]
fn more_open_zones_than_a_thread_has_room_for_are_said() {
    let test = "hip_roctx::more_open_zones_than_a_thread_has_room_for_are_said";
    let said = in_child(test, &[("LD_LIBRARY_PATH", library_path(Runtime::Current))], || {
        let markers = Markers::load();
        let stream = HostStream::new("work");
        drop((0..20_000).map(|_| HANDED_ON.async_zone(&stream)).collect::<Vec<_>>());
        assert_eq!(markers.log().len(), 2 * 16_384);
    });
    let lost =
        "more than 16384 zones of one thread are open at once; roctx does not get further ones: end zones earlier";
    assert!(said.is_none_or(|said| said.stderr.contains(lost)));
}
