//! What a mark takes as its stream: a stream behind references and smart pointers, and one that may not be there.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline::profile::ProfileError;
use warpline::record::ZoneRecord;
use warpline::sink::MemorySink;
use warpline::stream::StreamRef;
use warpline::{AsStream, HostStream, Session, collective, gpu_zone, name_stream};
use warpline_tests::{PanicsInDrop, alone, in_time};

warpline::range! {
    WORK = "api.streams.work": "Work on a stream, where there is one.";
}

/// Work of a program that has a device or has none.
enum Device {
    Cpu,
    Gpu(HostStream),
}

impl AsStream for Device {
    fn as_stream(&self) -> StreamRef<'_> {
        match self {
            Device::Cpu => StreamRef::none(),
            Device::Gpu(stream) => stream.as_stream(),
        }
    }
}

/// Doubles something.
#[gpu_zone("api.streams.double", fields(n = 2_u32))]
fn double(stream: Option<&HostStream>) {
    if let Some(stream) = stream {
        stream.launch(|| ());
    }
}

/// Sums over the ranks.
#[collective("api.streams.sum", kind = "all_reduce", count = 4_usize, dtype = f32, group = group)]
fn sum(stream: &Option<Arc<HostStream>>, group: &ProcessGroup) {}

fn recorded(work: impl FnOnce()) -> Vec<ZoneRecord> {
    let zones = MemorySink::new(1_000);
    let session = Session::builder().sink(zones.clone()).start().expect("no other session");
    work();
    let report = session.finish();
    assert_eq!((report.recorded, report.dropped.total()), (report.begun, 0), "{report}");
    zones.take()
}

#[track_caller]
fn is_host_zone(zone: &ZoneRecord) {
    assert!(zone.stream.is_none() && zone.gpu.is_none(), "{zone:?}");
    assert!(zone.host.end_ns >= zone.host.begin_ns && zone.host.begin_ns > 0, "{zone:?}");
}

#[test]
fn a_zone_without_a_stream_has_the_threads_time_alone() {
    let _turn = alone();
    let stream = HostStream::new("compute");
    let zones = recorded(|| {
        double(Some(&stream));
        double(None);
    });
    let [without, on] = &zones[..] else { panic!("two zones: {zones:?}") };
    let (on, without) = if on.stream.is_some() { (on, without) } else { (without, on) };
    assert_eq!(on.stream.as_ref().expect("a stream").name, "compute");
    assert!(on.gpu.is_some());
    is_host_zone(without);
    assert_eq!((without.range.name(), without.fields.get("n")), ("api.streams.double", on.fields.get("n")));
}

#[test]
fn a_type_of_the_applications_own_may_have_no_stream() {
    let _turn = alone();
    let (cpu, gpu) = (Device::Cpu, Device::Gpu(HostStream::new("own")));
    let zones = recorded(|| {
        drop(WORK.zone(&cpu));
        drop(WORK.zone(&gpu));
    });
    assert_eq!(zones.iter().filter(|zone| zone.stream.is_some()).count(), 1);
    zones.iter().filter(|zone| zone.stream.is_none()).for_each(is_host_zone);
}

#[test]
fn a_name_of_the_application_is_in_the_records_of_the_sessions_that_follow() {
    let _turn = alone();
    let streams = [HostStream::new("worker"), HostStream::new("worker"), HostStream::new("worker")];
    assert!(name_stream(&streams[0], "copy") && name_stream(&Some(&streams[1]), "compute"));
    let names = |zones: Vec<ZoneRecord>| {
        let mut names: Vec<_> = zones.iter().map(|zone| zone.stream.as_ref().expect("a stream").name.clone()).collect();
        names.sort();
        names
    };
    let all = || streams.iter().for_each(|stream| drop(WORK.zone(stream)));
    let first = recorded(|| {
        all();
        assert!(name_stream(&streams[2], "late"));
        all();
    });
    assert_eq!(names(first), ["compute", "compute", "copy", "copy", "worker", "worker"]);
    assert_eq!(names(recorded(all)), ["compute", "copy", "late"]);
    assert!(!name_stream(&None::<HostStream>, "none"));
}

#[test]
fn a_stream_is_found_behind_whatever_holds_it() {
    let _turn = alone();
    let mut stream = HostStream::new("held");
    let zones = recorded(|| {
        drop(WORK.zone(&&stream));
        drop(WORK.zone(&&mut stream));
        let boxed = Box::new(stream);
        drop(WORK.zone(&boxed));
        let counted = Rc::new(*boxed);
        drop(WORK.zone(&Some(&counted)));
        let shared = Arc::new(Rc::into_inner(counted).expect("no other"));
        drop(WORK.zone(&Some(Some(Arc::clone(&shared)))));
        let erased: Box<dyn AsStream> = Box::new(shared);
        drop(WORK.zone(&*erased));
        drop(WORK.zone(&Some(erased)));
    });
    assert_eq!(zones.len(), 7);
    assert!(zones.iter().all(|zone| zone.stream.as_ref().is_some_and(|stream| stream.name == "held")), "{zones:?}");
}

#[test]
fn a_collective_without_a_stream_keeps_what_it_moves_and_has_no_bandwidth() {
    let _turn = alone();
    let group = ProcessGroup::new("tp0", [0, 1], 0);
    let zones = recorded(|| {
        sum(&None, &group);
        let mut batch = WORK.batch(&None::<HostStream>);
        batch.add(&WORK, || Message::new(CollectiveKind::AllReduce).count(2_usize).dtype(DataType::F32).group(&group));
    });
    assert_eq!(zones.len(), 3, "{zones:?}");
    zones.iter().for_each(is_host_zone);
    let messages: Vec<_> = zones.iter().filter_map(|zone| zone.message.as_ref()?.bytes()).collect();
    assert_eq!(messages, [16, 8]);
    assert!(zones.iter().all(|zone| zone.bandwidth().is_none()));
}

#[test]
fn a_zone_without_a_stream_is_profiled_by_its_range_and_not_by_its_stream() {
    let _turn = alone();
    let none = None::<HostStream>;
    let asked = warpline::profile::next(&none).wait(Duration::from_secs(5));
    assert_eq!(asked.expect_err("no stream"), ProfileError::NoStream);

    let pending = warpline::profile::range(&WORK, 1);
    drop(WORK.zone(&none));
    is_host_zone(&pending.next(Duration::from_secs(5)).expect("one").expect("the zone"));

    let ((), pending) = warpline::time!(&none, ());
    is_host_zone(&pending.wait(Duration::from_secs(5)).expect("the zone"));
}

#[cfg(feature = "timeline")]
#[test]
fn a_semaphore_says_that_there_is_no_stream() {
    use warpline::timeline::Semaphore;

    let _turn = alone();
    let (none, stream) = (None::<HostStream>, HostStream::new("other"));
    let semaphore = Semaphore::named("done", 0);
    let refused = semaphore.signal_on(&none, 1).expect_err("there is no stream");
    assert_eq!(refused.to_string(), "a signal on a stream: there is no stream: signal on the host");
    semaphore.signal_on(&stream, 2).expect("a stream");
    semaphore.wait(2, Duration::from_secs(5)).expect("it comes");
    // What was reached before needs no stream to wait.
    semaphore.wait_on(&none, 2).expect("it is reached");
}

#[test]
fn a_name_with_a_nul_is_kept_and_shown_in_the_threads_name() {
    let _turn = alone();
    let stream = HostStream::new("a\0b");
    let (say, said) = std::sync::mpsc::channel();
    let zones = recorded(|| {
        drop(WORK.zone(&stream));
        stream.launch(move || say.send(std::thread::current().name().map(str::to_owned)).expect("somebody listens"));
        stream.synchronize().expect("nothing panics");
    });
    assert_eq!(stream.name(), "a\0b");
    assert_eq!(zones[0].stream.as_ref().map(|stream| stream.name.as_str()), Some("a\0b"));
    assert_eq!(said.recv().expect("it ran").as_deref(), Some("a\u{2400}b"));
}

#[test]
fn a_stream_goes_on_whatever_panics_in_closures_and_in_what_they_hold() {
    in_time(|| {
        let stream = HostStream::new("compute");
        let ran = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let its = Arc::clone(&ran);
        stream.launch(|| std::panic::panic_any(PanicsInDrop));
        stream.launch(|| panic!("the second"));
        stream.launch(move || its.store(true, std::sync::atomic::Ordering::Release));
        let error = stream.synchronize().expect_err("two have panicked").to_string();
        assert!(error.contains("payload panicked when it was dropped"), "{error}");
        assert!(ran.load(std::sync::atomic::Ordering::Acquire));
        // What is not called is dropped.
        stream.faults().fail_stream("gone");
        let held = PanicsInDrop;
        stream.launch(move || drop(held));
        assert!(stream.synchronize().is_err());
        stream.launch(|| ());
        assert_eq!(stream.synchronize(), Ok(()), "the worker is there");
    });
}
