//! The output for Perfetto, read as its protos.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use prost::Message;
use serde_json::Value;

use super::room::*;

/// Of Perfetto's protos what the test looks at.
mod proto {
    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub struct Trace {
        #[prost(message, repeated, tag = "1")]
        pub packets: Vec<Packet>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Packet {
        #[prost(uint64, tag = "8")]
        pub timestamp: u64,
        #[prost(message, optional, tag = "11")]
        pub event: Option<Event>,
        #[prost(message, optional, tag = "12")]
        pub interned: Option<Interned>,
        #[prost(message, optional, tag = "60")]
        pub track: Option<Track>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Event {
        #[prost(int32, tag = "9")]
        pub kind: i32,
        #[prost(uint64, tag = "10")]
        pub name: u64,
        #[prost(uint64, tag = "11")]
        pub track: u64,
        #[prost(fixed64, repeated, packed = "false", tag = "47")]
        pub flows: Vec<u64>,
        #[prost(fixed64, repeated, packed = "false", tag = "48")]
        pub ending_flows: Vec<u64>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Interned {
        #[prost(message, repeated, tag = "2")]
        pub names: Vec<Name>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Name {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(string, tag = "2")]
        pub text: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Track {
        #[prost(uint64, tag = "1")]
        pub uuid: u64,
        #[prost(string, tag = "2")]
        pub name: String,
        /// 3 is `SIBLING_MERGE_BEHAVIOR_BY_SIBLING_MERGE_KEY`.
        #[prost(uint64, tag = "15")]
        pub merge_behavior: u64,
        #[prost(uint64, tag = "17")]
        pub merge_key: u64,
    }
}

/// Slices, instants and arrows of a Perfetto trace: name, row, begin and end; and what two slices each arrow connects.
struct Seen {
    slices: Vec<(String, String, u64, u64)>,
    instants: Vec<String>,
    arrows: Vec<(String, String)>,
}

fn perfetto(path: &Path) -> Seen {
    let trace = proto::Trace::decode(&*fs::read(path).unwrap()).unwrap();
    let (mut names, mut tracks) = (HashMap::new(), HashMap::new());
    let mut seen = Seen { slices: Vec::new(), instants: Vec::new(), arrows: Vec::new() };
    let (mut open, mut ends) = (None, (HashMap::new(), HashMap::new()));
    for packet in trace.packets {
        names.extend(packet.interned.into_iter().flat_map(|interned| interned.names).map(|name| (name.id, name.text)));
        tracks.extend(packet.track.map(|track| (track.uuid, track.name)));
        let Some(event) = packet.event else { continue };
        let name = names.get(&event.name).cloned().unwrap_or_default();
        ends.0.extend(event.flows.into_iter().map(|flow| (flow, name.clone())));
        ends.1.extend(event.ending_flows.into_iter().map(|flow| (flow, name.clone())));
        match event.kind {
            1 => open = Some((name, tracks[&event.track].clone(), packet.timestamp, event.track)),
            2 => {
                // A slice's end stands behind its begin.
                let (name, row, begin, track) = open.take().unwrap();
                assert_eq!(track, event.track);
                seen.slices.push((name, row, begin, packet.timestamp));
            }
            3 => seen.instants.push(name),
            _ => {}
        }
    }
    assert!(open.is_none());
    let mut flows: Vec<_> = ends.0.into_iter().map(|(flow, from)| (from, ends.1.remove(&flow).unwrap())).collect();
    assert!(ends.1.is_empty());
    flows.sort();
    seen.arrows = flows;
    seen
}

#[test]
fn the_perfetto_output_has_every_slice_at_its_time_and_says_what_it_has_not() {
    let room = Room::new(Ids::Mixed);
    let said = room.annotate("a.json", "t.json", "out.pftrace", &[]);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines[1..],
        [
            "events without a time, left out: 1",
            "ends of slices without a begin, left out: 1",
            "slices without an end, drawn to the end of the trace: 1",
            "arrows with only one end in the input, which no reader shows: 1",
            "values of counters that are not numbers, or of too many counters, left out: 1",
        ]
    );
    let seen = perfetto(&room.path().join("out.pftrace"));
    let ns = |us: &Value| (us.as_f64().unwrap() * 1e3).round() as u64;
    let mut expected: Vec<_> = events(Ids::Mixed)
        .iter()
        .filter(|event| event["ph"] == "X" && !event["ts"].is_null())
        .map(|event| {
            let name = event["name"].as_str().filter(|name| !name.is_empty()).unwrap_or("(no name)");
            (name.to_owned(), ns(&event["ts"]), ns(&event["ts"]) + ns(&event["dur"]))
        })
        .collect();
    // With begins and ends that are events of their own.
    let last = 1_000_000 + 800_000 + 12_000 + 30_000 + 5_501;
    expected.extend(
        [("outer", 5_000, 9_000), ("inner", 6_000, 8_000), ("open", 10_000, last), ("read", 5_000, 15_000)]
            .map(|(name, begin, end)| (name.to_owned(), begin, end)),
    );
    expected.sort();
    let added = |row: &str| ["graph replays", "attention", "zones", "comm: tp0 [0,1]"].contains(&row);
    let mut slices: Vec<_> =
        seen.slices.iter().filter(|slice| !added(&slice.1)).map(|slice| (slice.0.clone(), slice.2, slice.3)).collect();
    slices.sort();
    assert_eq!(slices, expected);
    assert_eq!(seen.slices.iter().filter(|slice| added(&slice.1)).count(), 5 * 4);
    assert_eq!(seen.instants, ["num_cpus", "Iteration Start", "snapshot"]);
    // Each launch leads to its kernels and to its replay.
    assert_eq!(seen.arrows.len(), 5 * 7);
    assert!(seen.arrows.iter().all(|(from, _)| from == "cudaGraphLaunch"));
    assert_eq!(seen.arrows.iter().filter(|(_, to)| to == "graph 1 (block)").count(), 5);
}

#[test]
fn slices_that_overlap_share_a_row_and_no_track() {
    let room = Room::new(Ids::Mixed);
    room.annotate("a.json", "t.json", "out.pftrace", &[]);
    let trace = proto::Trace::decode(&*fs::read(room.path().join("out.pftrace")).unwrap()).unwrap();
    let tracks: Vec<_> = trace.packets.iter().filter_map(|packet| packet.track.as_ref()).collect();
    let streams: Vec<_> = tracks.iter().filter(|track| track.name == "stream 7").collect();
    assert_eq!(streams.len(), 2);
    assert_ne!(streams[0].uuid, streams[1].uuid);
    assert_eq!(streams[0].merge_key, streams[1].merge_key);
    // Without a key, a reader sees 0 in both; another row with this key would be a part of this one.
    assert!(streams.iter().all(|track| track.merge_behavior == 3 && track.merge_key != 0), "{streams:?}");
    let shares_it = |track: &&&proto::Track| track.merge_key == streams[0].merge_key;
    assert_eq!(tracks.iter().filter(shares_it).count(), 2, "{tracks:?}");
}

#[test]
fn equal_inputs_become_equal_files() {
    let room = Room::new(Ids::Mixed);
    for output in ["one.pftrace", "two.pftrace"] {
        room.annotate("a.json", "t.json", output, &[]);
    }
    let [one, two] = ["one.pftrace", "two.pftrace"].map(|name| fs::read(room.path().join(name)).unwrap());
    assert!(one == two);
}
