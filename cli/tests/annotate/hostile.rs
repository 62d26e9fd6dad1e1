//! Files that are damaged, or made to do harm: each is refused in one line that says where, and leaves nothing.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use warpline_annotate::{By, Options, annotate};

use super::room::*;
use super::{packed, zstd};

#[test]
fn a_trace_cut_short_anywhere_is_refused_and_leaves_nothing() {
    let room = Room::new(Ids::Mixed);
    // Small, so that every place can be tried.
    let events: Vec<_> = events(Ids::Mixed).into_iter().skip(7).take(4).collect();
    let whole = json!({"schemaVersion": 1, "traceEvents": events, "traceName": "a \"name\" \\"}).to_string();
    room.write("t.json", &whole);
    room.annotate("a.json", "t.json", "out.json", &[]);
    fs::remove_file(room.path().join("out.json")).unwrap();
    let (packed, zstd) = (packed(whole.as_bytes()), zstd(whole.as_bytes()));
    for (content, what) in [(whole.as_bytes(), "plain"), (&packed[..], "gzip"), (&zstd[..], "zstd")] {
        for end in 0..content.len() {
            room.write("t.json", &content[..end]);
            let (status, _, complaints) = room.run(&["--annotations", "a.json", "--trace", "t.json", "-o", "out.json"]);
            assert_eq!(status, Some(2), "{what}, {end} bytes");
            assert!(complaints.starts_with("error: t.json: ") && complaints.lines().count() == 1, "{complaints}");
            assert_eq!(room.files(), ["a.json", "t.json"], "{what}, {end} bytes");
        }
    }
}

#[test]
fn what_cannot_be_used_ends_with_2_and_says_what_and_where() {
    let room = Room::new(Ids::Mixed);
    let args = ["--annotations", "a.json", "--trace", "x", "-o", "out.pftrace"];
    let bad = |content: &[u8], because: &str| {
        room.write("x", content);
        room.refused(&args, because);
    };
    bad(b"", "x: not a Chrome trace: neither an object nor an array");
    bad(b"{}", "x: not a Chrome trace: it has no `traceEvents`; export one with");
    // A Perfetto trace without events.
    bad(b"\x0a\x02\x50\x01", "x: none of its 0 events has a `graph node id` to join a.json by");
    bad(b"{\"traceEvents\": {}}", "x: damaged at byte 16 (line 1): `traceEvents` is not an array");
    bad(b"{\"traceEvents\": [\n{\"ph\": \"X\"} {}]}", "x: damaged at byte 30 (line 2): no `,` or `]` after an event");
    bad(b"{\"traceEvents\": [1]}", "x: damaged at byte 17 (line 1): an event that is not an object");
    bad(b"{\"traceEvents\": []} x", "data after the end of the trace");
    bad(b"{\"a\": nul, \"traceEvents\": []}", "x: damaged at byte 8 (line 1): EOF while parsing a value");
    bad(b"{\"traceEvents\": []}", "x: none of its 0 events has a `graph node id` to join a.json by");
    bad(b"\x1f\x8b\x08\0\0\0\0\0\0\x03garbage that is not packed", "x: the compressed file is damaged");
    bad(b"\x28\xb5\x2f\xfd\0\0\0\0\0\x03garbage", "x: the compressed file is damaged");
    // A window of 2 GiB.
    bad(
        b"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00\x0a",
        "x: it takes more than 128 MiB of memory to decompress; compress it with a smaller window",
    );
    let other = json!({"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "args": {"graph node id": 99_u64 << 32, "correlation": 1}}]});
    bad(
        other.to_string().as_bytes(),
        "x: it has 1 kernel of a graph, and none is in a.json; save the annotations in the run",
    );
    room.refused(&["--annotations", "a.json", "--trace", "missing", "-o", "o.json"], "missing: No such file");
    room.refused(
        &["--annotations", "a.json", "--trace", ".", "-o", "o.json"],
        ".: the output for a folder of traces must be a folder, and `o.json`",
    );
    room.refused(&["--annotations", "a.json", "--trace", "t.json", "-o", "o.txt"], "o.txt: the name must end with");
    room.refused(
        &["--annotations", "a.json", "--trace", "t.json", "-o", "./t.json"],
        "./t.json: the output must not be one of the inputs",
    );
    room.refused(&["--annotations", "a.json", "--trace", "t.json", "-o", "none/o.json"], "cannot write none/o.json");
    for (content, because) in [
        ("{", "x: not a file of graph annotations: EOF while parsing"),
        ("[]", "x: not a file of graph annotations: neither warpline's"),
        ("{}", "x: not a file of graph annotations: none of its nodes"),
        ("{\"format\": \"warpline-graph/2\"}", "update warpline-cli"),
        ("{\"format\": \"warpline-graph/1\"}", "missing field `graphs`"),
        ("{\"x\": []}", "`x` is not a node id"),
    ] {
        room.write("x", content);
        room.refused(&["--annotations", "x", "--trace", "t.json", "-o", "o.json"], because);
    }
}

#[test]
fn a_bomb_is_refused_and_a_limit_can_be_raised() {
    let room = Room::new(Ids::Mixed);
    let args = |limit| ["--annotations", "a.json", "--trace", "x.gz", "-o", "out.json", "--limit", limit];
    let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
    bomb.write_all(b"{\"traceEvents\": [").unwrap();
    let blank = vec![b' '; 1 << 20];
    for _ in 0..24 {
        bomb.write_all(&blank).unwrap();
    }
    bomb.write_all(&Value::from(events(Ids::Mixed)).to_string().as_bytes()[1..]).unwrap();
    bomb.write_all(b"}").unwrap();
    room.write("x.gz", bomb.finish().unwrap());
    room.refused(
        &args("16M"),
        "x.gz: it has more than 16 MiB when it is decompressed; if the trace is correct, raise the limit with `--limit`",
    );
    assert_eq!(room.run(&args("1G")).0, Some(0));
    fs::remove_file(room.path().join("out.json")).unwrap();
    // An event as large as no event is, and more events than the limit has room for.
    let mut large = GzEncoder::new(Vec::new(), Compression::fast());
    large.write_all(b"{\"traceEvents\": [{\"name\": \"").unwrap();
    for _ in 0..24 {
        large.write_all(&blank).unwrap();
    }
    room.write("x.gz", large.finish().unwrap());
    room.refused(&args("1G"), "x.gz: the value at byte 17 (line 1) has more than 16 MiB");
    let many = format!("[{}{{}}]", "{},".repeat(5000));
    room.write("x.gz", packed(many.as_bytes()));
    room.refused(&args("1M"), "x.gz: more than 4096 events");
    let bomb = packed(&vec![b'['; 260 << 20]);
    room.write("x.gz", bomb);
    room.refused(
        &["--annotations", "x.gz", "--trace", "t.json", "-o", "out.json"],
        "x.gz: it has more than 64 MiB when it is decompressed; ",
    );
    // The same limit for zstd, whatever the name is.
    room.write("x.gz", zstd(&[b"[", &blank[..], &blank[..], b"]"].concat()));
    room.refused(&args("1M"), "x.gz: it has more than 1 MiB when it is decompressed; if the trace is correct");
    // And for a file that is not compressed.
    room.write("x.gz", [b"[", &blank[..], &blank[..], b"]"].concat());
    room.refused(&args("1M"), "x.gz: it has more than 1 MiB when it is decompressed; if the trace is correct");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A panic would end the test; an error leaves no file.
    #[test]
    fn no_damage_makes_it_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_usize..40), 1..6),
        of_annotations in any::<bool>(),
        by_order in any::<bool>(),
    ) {
        let room = Room::new(if by_order { Ids::None } else { Ids::Mixed });
        let name = if of_annotations { "a.json" } else { "t.json" };
        let mut content = fs::read(room.path().join(name)).unwrap();
        for (at, byte, cut) in damage {
            let at = at.index(content.len());
            // Most bytes of JSON are ASCII, and most of its structure is in these.
            content[at] = [byte, b'0' + byte % 10, b"{}[]\",:-.eE"[usize::from(byte % 11)]][usize::from(byte % 3)];
            if cut > 30 {
                content.drain(at..(at + cut).min(content.len()));
            }
            content.push(b' ');
        }
        room.write(name, content);
        for output in ["out.pftrace", "out.json"] {
            let path = |name: &str| room.path().join(name);
            let options = Options {
                annotations: path("a.json"),
                trace: path("t.json"),
                output: path(output),
                by: if by_order { By::Order } else { By::Id },
                limit: 1 << 20,
            };
            let result = annotate(&options, &());
            prop_assert_eq!(result.is_ok(), options.output.exists());
            if let (Ok(_), "out.json") = (&result, output) {
                // By its grammar: numbers are handed on as they stand, also those that no `f64` holds.
                let document = fs::read(&options.output).unwrap();
                prop_assert!(serde_json::from_slice::<&RawValue>(&document).is_ok());
            }
        }
    }
}

/// Programs write names as they are, and floats that are no numbers.
#[test]
fn an_event_that_is_not_json_is_mended_or_left_out_alone() {
    let room = Room::new(Ids::Mixed);
    let whole = fs::read_to_string(room.path().join("t.json")).unwrap();
    // The kernels of one name, the arguments of another one, a member, and one event that says nothing.
    let careless = whole
        .replace("softmax(float*, int)", "soft\tmax\u{1} C:\\work")
        .replacen("\"grid\":[1,2,3]", "\"grid\":[1,NaN,-Infinity]", 1)
        .replace("\"id\":0,\"name\":\"a GPU\"", "\"id\":NaN,\"name\":\"a\tGPU\"")
        .replace("\"traceEvents\":[", "\"traceEvents\":[{\"ph\" \"X\"},");
    assert!(serde_json::from_str::<Value>(&careless).is_err() && careless.len() > whole.len());
    let mut bytes = careless.into_bytes();
    let at = bytes.windows(5).position(|at| at == b"eager").unwrap();
    bytes[at] = 0xFF;
    room.write("careless.json", [&b"\xEF\xBB\xBF"[..], &bytes].concat());
    let before = room.annotate("a.json", "t.json", "out.json", &[]);
    let (output, events) = (room.json("out.json"), |output: &Value| output["traceEvents"].as_array().unwrap().clone());
    let said = room.annotate("a.json", "careless.json", "out.json", &[]);
    assert_eq!(said.lines().next().unwrap().replace("93 events", "92 events"), before.trim_end());
    assert!(said.contains("events that are not JSON, left out: 1\n"), "{said}");
    assert!(said.contains("escaped or null in the output: 7\n"), "{said}");
    let mended = room.json("out.json");
    assert_eq!(mended["deviceProperties"], json!([{"id": null, "name": "a\tGPU"}]));
    let differ: Vec<_> = events(&output).iter().zip(events(&mended)).filter(|(a, b)| *a != b).map(|(_, b)| b).collect();
    assert_eq!(differ.len(), 7, "{differ:?}");
    assert_eq!(differ.iter().filter(|event| event["name"] == "soft\tmax\u{1} C:\\work").count(), 5);
    assert!(differ.iter().any(|event| event["args"]["grid"] == json!([1, null, null])), "{differ:?}");
    assert!(differ.iter().any(|event| event["name"] == "\u{FFFD}ager"), "{differ:?}");
    // The report reads the same events.
    let report = |trace: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_warpline"))
            .args(["report", "--format", "json", trace])
            .current_dir(room.path())
            .output()
            .unwrap();
        (serde_json::from_slice::<Value>(&output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let ((whole, _), (careless, complaints)) = (report("t.json"), report("careless.json"));
    assert_eq!(whole["streams"][0]["busy_ns"], careless["streams"][0]["busy_ns"]);
    assert!(complaints.contains("7 events are not valid JSON, and read with"), "{complaints}");
    assert!(complaints.contains("1 packet or event is malformed or too large, and left out"), "{complaints}");
}
