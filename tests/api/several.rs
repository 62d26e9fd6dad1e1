//! Fields that are lists and maps, and lanes that are named at run time: in records, in traces of both formats, in the report, and in what a
//! flight recorder leaves of a killed program.

use std::fs;
use std::time::Duration;

use serde_json::{Value as Json, json};
use warpline::fields::{IntoValue, Item, MAX_LIST_ITEMS, MORE_LANES, MOST_LANES};
use warpline::recovery::recover;
use warpline::report::Report;
use warpline::sink::MemorySink;
use warpline::{HostStream, Session, Value, block, gpu_zone, host_zone};
use warpline_tests::{alone, empty_folder, in_a_process_of_its_own, this_test};

use crate::child::{self, Child, scratch, when_killed};
use crate::trace::{Slice, slices};

warpline::range! {
    FREE = "api.several.free": "A zone that gets fields as it goes.";
    FIXED = "api.several.fixed": "A range with a lane of its own.", lane = "fixed";
}

struct Loader {
    stream: HostStream,
    number: u32,
    sizes: Vec<usize>,
}

impl Loader {
    fn lane_name(&self) -> String {
        format!("loader {}", self.number)
    }

    /// Loads.
    #[gpu_zone(
        "api.several.load",
        stream = self.stream,
        lane = self.lane_name(),
        fields(shape = [4, 128, 64], sizes = &self.sizes, scales = scales, options = [("tile", 64_u32), ("rank", self.number)], none = [0_u8; 0])
    )]
    fn load(&self, scales: &[f32]) {
        self.stream.launch(|| ());
    }
}

/// Has a map with values of several types, of which one is too long.
#[host_zone("api.several.plan", fields(plan = [("mode", Value::from(mode)), ("exact", true.into()), ("share", 0.5.into())]))]
fn plan(mode: &str) {}

/// Says which part it is.
fn part(stream: &HostStream, name: &str) {
    block::gpu_zone!("api.several.part", stream, description = "A part.", lane = format_args!("part {name}"), {
        stream.launch(|| ());
    });
    block::gpu_zone!(FIXED, stream, lane = name, { stream.launch(|| ()) });
}

fn slice<'a>(slices: &'a [Slice], name: &str) -> &'a Slice {
    slices.iter().find(|slice| slice.name == name).unwrap_or_else(|| panic!("no `{name}` in {slices:#?}"))
}

/// The zones of this name that have arguments of their own, and not those of launches.
fn chrome<'a>(trace: &'a Json, category: &str, name: &str) -> &'a Json {
    let events = trace["traceEvents"].as_array().expect("events");
    let is_it = |event: &&Json| event["name"] == name && event["cat"] == category;
    events.iter().find(is_it).unwrap_or_else(|| panic!("no `{name}` in {trace}"))
}

#[test]
fn lists_and_maps_are_in_records_and_in_both_traces() {
    let _turn = alone();
    let folder = empty_folder("several");
    let (packets, json) = (folder.join("a.pftrace"), folder.join("a.json"));
    let zones = MemorySink::new(100);
    let session = Session::builder().perfetto(&packets).chrome(&json).sink(zones.clone()).start();
    let session = session.expect("no other session");
    let loader = Loader { stream: HostStream::new("copy"), number: 3, sizes: (0..100).collect() };
    loader.load(&[-0.5, f32::INFINITY]);
    plan(&"x".repeat(200));
    let report = session.finish();

    let zones = zones.take();
    let load = zones.iter().find(|zone| zone.range.name() == "api.several.load").expect("it is recorded");
    assert_eq!(load.fields.get("shape"), Some(&[4, 128, 64].into_value()));
    assert_eq!(
        load.fields.get("options"),
        Some(&vec![("tile".to_owned(), 64_u32), ("rank".to_owned(), 3)].into_value())
    );
    let Some(Value::List(sizes)) = load.fields.get("sizes") else { panic!("{load:?}") };
    assert_eq!((sizes.len(), sizes.iter().len(), sizes.is_cut()), (100, MAX_LIST_ITEMS, true));
    assert_eq!(sizes.iter().last(), Some(Item::U64(63)));
    assert_eq!((load.lane(), load.fields.lane()), (Some("loader 3"), Some("loader 3")));
    let Some(Value::Map(plan)) = zones.iter().find_map(|zone| zone.fields.get("plan")) else { panic!("{zones:?}") };
    assert_eq!((plan.get("exact"), plan.get("share")), (Some(Item::Bool(true)), Some(Item::F64(0.5))));
    assert_eq!((report.fields.cut, report.fields.left_out), (2, 0), "{report}");
    assert!(report.to_string().contains("\n2 fields were cut to the size of a field"), "{report}");

    let slices = slices(&fs::read(&packets).expect("it is there"));
    let on_stream = slices.iter().find(|slice| slice.name == "api.several.load" && slice.argument("shape").is_some());
    let on_stream = on_stream.unwrap_or_else(|| panic!("{slices:#?}"));
    let first: Vec<_> = (0..MAX_LIST_ITEMS).map(|n| n.to_string()).collect();
    let expected = [
        ("shape", "4 128 64"),
        ("sizes", &first.join(" ")),
        ("sizes.len", "100"),
        ("scales", "-0.5 inf"),
        ("options", "tile=64 rank=3"),
        ("none", "[]"),
    ];
    for (name, value) in expected {
        assert_eq!(on_stream.argument(name), Some(value), "{name}");
    }
    assert_eq!((on_stream.track.as_str(), on_stream.argument("options.len")), ("loader 3", None));
    let text = format!("mode={}… exact=true share=0.5", "x".repeat(123));
    assert_eq!(slice(&slices, "api.several.plan").argument("plan"), Some(&*text));
    assert_eq!(slice(&slices, "session ends").argument("fields.cut"), Some("2"));

    let trace: Json = serde_json::from_slice(&fs::read(&json).expect("it is there")).expect("JSON");
    let load = chrome(&trace, "gpu_user_annotation", "api.several.load");
    let args = &load["args"];
    assert_eq!(args["shape"], json!([4, 128, 64]));
    assert_eq!((args["sizes"].as_array().map(Vec::len), &args["sizes.len"]), (Some(MAX_LIST_ITEMS), &json!(100)));
    assert_eq!(args["scales"], json!([-0.5, "inf"]));
    assert_eq!((&args["options"], &args["none"]), (&json!({"tile": 64, "rank": 3}), &json!([])));
    assert_eq!(chrome(&trace, "user_annotation", "api.several.plan")["args"]["plan"]["share"], json!(0.5));
    assert_eq!(trace["otherData"]["fields"], json!({"cut": 2}));
    assert!(trace.to_string().contains("copy: loader 3"), "the row of the lane");
}

#[test]
fn a_lane_of_run_time_comes_before_that_of_the_range() {
    let _turn = alone();
    let zones = MemorySink::new(100);
    let session = Session::builder().sink(zones.clone()).start().expect("no other session");
    let stream = HostStream::new("parts");
    part(&stream, "a");
    part(&stream, "");
    drop(FIXED.zone(&stream).lane("late"));
    session.finish();
    let mut zones = zones.take();
    zones.sort_by_key(|zone| zone.sequence);
    let lanes: Vec<_> = zones.iter().map(|zone| zone.lane()).collect();
    assert_eq!(lanes, [Some("part a"), Some("a"), Some("part "), Some("fixed"), Some("late")]);
}

#[test]
fn lanes_without_end_share_one_and_are_counted() {
    if !in_a_process_of_its_own(this_test!()) {
        return;
    }
    let zones = MemorySink::new(2 * MOST_LANES);
    let session = Session::builder().ring(4_096).sink(zones.clone()).start().expect("no other session");
    for n in 0..MOST_LANES + 3 {
        drop(FREE.host().lane(n));
    }
    let report = session.finish();
    assert_eq!(report.dropped.total(), 0, "{report}");
    assert_eq!(report.fields.lanes_left_out, 3, "{report}");
    let line = "3 zones are on the lane `(more)`: the program named more than 1024 lanes; name fewer";
    assert!(report.to_string().contains(line), "{report}");
    let zones = zones.take();
    assert_eq!(zones.iter().filter(|zone| zone.lane() == Some(MORE_LANES)).count(), 3);
}

#[test]
fn a_ninth_field_is_counted() {
    let _turn = alone();
    let count = |add: usize| -> Report {
        let session = Session::builder().start().expect("no other session");
        let zone = (0..add).fold(FREE.host(), |zone, n| zone.field("n", n));
        drop(zone);
        session.finish()
    };
    let report = count(10);
    assert_eq!((report.fields.left_out, report.fields.cut), (2, 0));
    let line = "2 fields were left out: a zone has at most 8, of which each can be a list or a map";
    assert!(report.to_string().contains(line), "{report}");
    assert!(!count(8).to_string().contains("left out"));
}

#[test]
fn a_killed_program_leaves_lists_and_maps_of_zones_that_had_ended_and_of_open_ones() {
    const LONG: Duration = Duration::from_secs(60);
    let test = this_test!();
    if let Some(file) = when_killed(test) {
        // All zones count, and not only those of a window.
        let session = Session::builder().budget(1.0).flight_at(1 << 20, &file).start().expect("no other session");
        let loader = Loader { stream: HostStream::new("copy"), number: 7, sizes: vec![8; 3] };
        loader.load(&[1.5]);
        loader.stream.synchronize().expect("nothing panics");
        let many: Vec<_> = (0..30).collect();
        let _open =
            FREE.host().field("shape", [4, 128, 64]).field("many", many).field("tile", [("rows", 4), ("columns", 8)]);
        let begin = std::time::Instant::now();
        loop {
            let found = session.dump(format!("{file}.dump")).expect("it is written");
            if found.problems.is_empty() && found.zones > 0 && found.open_zones == 1 {
                break;
            }
            assert!(begin.elapsed() < LONG, "{found:?}");
        }
        child::kill_me();
    }
    let file = scratch(test);
    Child::start(test, &file).wait_until_killed();
    let mut trace = Vec::new();
    recover(&mut fs::File::open(&*file).expect("the file is there"), &mut trace).expect("it has zones");
    let slices = slices(&trace);
    let load = slices.iter().find(|slice| slice.name == "api.several.load" && slice.argument("shape").is_some());
    let load = load.unwrap_or_else(|| panic!("{slices:#?}"));
    assert_eq!((load.argument("sizes"), load.argument("options")), (Some("8 8 8"), Some("tile=64 rank=7")));
    assert_eq!(load.track, "loader 7");
    let open = slice(&slices, "api.several.free");
    assert_eq!((open.argument("status"), open.argument("shape")), (Some("open"), Some("4 128 64")));
    // The copy of an open zone is small.
    assert_eq!((open.argument("many"), open.argument("many.len")), (Some("0 1 2 3 4 5 6 7 8 9"), Some("30")));
    assert_eq!(open.argument("tile"), Some("rows=4 columns=8"));
}
