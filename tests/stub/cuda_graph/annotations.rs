//! What the files of annotations say of graphs: what the schema wants, with the collectives in them.

use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
use warpline_tests::this_test;

use super::{MLP, REDUCE, kernel};
use crate::harness::driver::*;
use crate::harness::graphs::{begin, end, instantiate, register};
use crate::harness::zones::*;

fn validator() -> jsonschema::Validator {
    let schema = serde_json::from_str(include_str!("../../../docs/graph.schema.json")).unwrap();
    jsonschema::options().build(&schema).unwrap()
}

/// Annotations, as the schema wants them.
fn annotations(text: &str) -> serde_json::Value {
    let json = serde_json::from_str(text).unwrap();
    let faults: Vec<String> = validator().iter_errors(&json).map(|error| error.to_string()).collect();
    assert!(faults.is_empty(), "{faults:?}");
    json
}

#[test]
fn annotations_are_what_the_schema_says() {
    let mut broken = annotations(include_str!("../../../docs/graph.example.json"));
    broken["graphs"][0]["nodes"][0]["zones"] = "layer".into();
    assert!(!validator().is_valid(&broken), "the schema lets anything through");
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let (stream, group) = (driver.stream(), ProcessGroup::new("tp0", [0, 1], 1));
        begin(driver, stream);
        {
            let message = Message::new(CollectiveKind::AllReduce).count(1024).dtype(DataType::F32).group(&group);
            let _reduce = REDUCE.zone(&raw(stream)).message(message).field("big", u64::MAX).field("nan", f64::NAN);
            let _empty = MLP.zone(&raw(stream));
        }
        {
            let _reduce = REDUCE
                .zone(&raw(stream))
                .message(Message::new(CollectiveKind::AllReduce).group(&group))
                .field("big", u64::MAX)
                .field("nan", f64::NAN)
                .field("shape", [4, 128])
                .field("sizes", vec![u64::MAX; 100])
                .field("tile", [("rows", 8)])
                .lane(format_args!("loader {}", 3));
            kernel(driver, stream);
        }
        let graph = end(driver, stream);
        let zones = register(graph, instantiate(driver, graph)).named("a \"name\"");
        let file = scratch("graph_annotations");
        zones.save(&file).expect("a file");
        let json = annotations(&std::fs::read_to_string(&file).unwrap());
        let graph = &json["graphs"][0];
        assert_eq!((graph["name"].as_str(), graph["ids"].as_str()), (Some("a \"name\""), Some("none")));
        assert_eq!(graph["zones"].as_array().unwrap().len(), 1, "zones without nodes are left out: {graph}");
        let zone = &graph["zones"][0];
        assert_eq!(zone["lane"], "loader 3");
        let lanes: Vec<_> = zones.lanes().iter().map(|count| count.name.as_deref().map(str::to_owned)).collect();
        assert_eq!(lanes, [Some("loader 3".to_owned())], "the zone's own lane comes before that of its range");
        let fields = &zone["fields"];
        assert_eq!(
            (&fields["shape"], &fields["tile"]),
            (&serde_json::json!([4, 128]), &serde_json::json!({"rows": 8}))
        );
        assert_eq!(
            (fields["sizes"][63].as_str(), fields["sizes.len"].as_u64()),
            (Some("18446744073709551615"), Some(100))
        );
        assert_eq!(
            (zone["fields"]["big"].as_str(), zone["fields"]["nan"].as_str()),
            (Some("18446744073709551615"), Some("NaN"))
        );
        let collective = &zone["collective"];
        assert_eq!(collective["Collective name"], "allreduce");
        assert_eq!((collective["Process Group Name"].as_str(), collective["Seq"].as_u64()), (Some("tp0"), Some(1)));
        assert_eq!(graph["nodes"][0]["zones"], serde_json::json!([0]));
        assert_eq!(graph["nodes"][0]["replay_ids"], serde_json::json!([null]));
        assert_exact(&session.finish());
        assert_clean(driver);
    });
}

/// The notes of the report about ids.
fn about_ids(report: &warpline::report::Report) -> Vec<&String> {
    report.notes.iter().filter(|note| note.contains("no ids of their nodes")).collect()
}

#[test]
fn a_report_says_once_that_nobody_tells_the_ids_of_nodes() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let stream = driver.stream();
        let capture = || {
            begin(driver, stream);
            let zone = MLP.zone(&raw(stream));
            kernel(driver, stream);
            drop(zone);
            register(end(driver, stream), 0)
        };
        let kept = [capture(), capture()];
        let report = session.finish();
        let [note] = about_ids(&report)[..] else { panic!("{report}") };
        assert!(note.starts_with("2 registered graphs have no ids"), "{note}");
        for part in ["CUDA 13.0 does not report them", "CUDA 13.1", "`kernels`", "--by order", "`warpline doctor`"] {
            assert!(note.contains(part), "{part}: {note}");
        }
        drop(kept);
        // It was said, and no graph was registered since.
        let (session, _records) = start(|builder| builder);
        assert_eq!(about_ids(&session.finish()).len(), 0);
        // A session that times replays by stamps needs no ids.
        let (session, _records) = start(|builder| builder.graph_timing(warpline::timing::GraphTiming::Stamps));
        let _timed = capture();
        assert_eq!(about_ids(&session.finish()).len(), 0);
        driver.stub_tells_ids(true);
        let (session, _records) = start(|builder| builder);
        let _told = capture();
        assert_eq!(about_ids(&session.finish()).len(), 0, "the driver tells them");
    });
}

#[test]
fn a_collective_keeps_its_number_and_a_batch_counts_its_entries() {
    on_stub(this_test!(), |driver| {
        driver.start();
        let (session, _records) = start(|builder| builder);
        let (stream, group) = (driver.stream(), ProcessGroup::new("tp0", [0, 1], 0));
        let message = || Message::new(CollectiveKind::AllReduce).count(8).dtype(DataType::F32).group(&group);
        begin(driver, stream);
        {
            let _reduce = REDUCE.zone(&raw(stream)).message(message());
            kernel(driver, stream);
        }
        {
            let mut batch = REDUCE.batch(&raw(stream));
            (0..3).for_each(|_| batch.add(&REDUCE, message));
            kernel(driver, stream);
        }
        let zones = register(end(driver, stream), 0);
        let nodes: Vec<_> = zones.nodes().collect();
        assert_eq!(nodes[0].zones[0].message.as_ref().and_then(|message| message.seq), Some(0));
        let seqs: Vec<_> = nodes[1].zones[0].entries.iter().map(|(_, message)| message.seq).collect();
        assert_eq!(seqs, [Some(1), Some(2), Some(3)]);
        let file = scratch("graph_batch");
        zones.save(&file).expect("a file");
        let json = annotations(&std::fs::read_to_string(&file).unwrap());
        assert_eq!(json["graphs"][0]["zones"][1]["entries"][2]["collective"]["Seq"], 3, "{json}");
        let report = session.finish();
        assert_exact(&report);
        assert_eq!((report.begun, report.captured), (5, 5), "{report}");
        assert_clean(driver);
    });
}
