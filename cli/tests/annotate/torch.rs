//! Files in the documented form of PyTorch 2.12 and newer (`torch.cuda.graph_annotations`). They are GENERATED here, from the documentation
//! and the tutorial of PyTorch: no run of such a version with a driver for CUDA 13.1 was available. The annotations map `exec_id << 32 | n`
//! to a list with one object; the trace has `graph id` and `graph node id` on each kernel of a replay.

use std::fs;

use serde_json::{Value, json};

use super::room::{Ids, Room};

/// The executable graph.
const EXEC: u64 = 7;
const REPLAYS: u64 = 3;

/// Kernels with the scopes of the tutorial: their streams in the replay, and the arguments of `mark_kernels`.
fn nodes() -> Vec<(&'static str, u64, Value)> {
    vec![
        ("gemm_qkv", 7, json!({"name": "qkv_proj"})),
        ("gemm_qk", 7, json!({"name": "attention", "stream": 62})),
        ("softmax", 7, json!({"name": "attention", "stream": 62})),
        ("gemm_out", 7, json!({"name": "out_proj"})),
        ("gelu", 24, json!({"name": "mlp", "stream": 61})),
        ("gemm_mlp_backward", 24, json!({"name": "mlp", "stream": 61, "autograd_phase": "backward"})),
        ("elementwise", 7, Value::Null),
    ]
}

/// `json.dump(dict(get_kernel_annotations()), file)`.
fn annotations() -> Value {
    let nodes = nodes();
    let entries = nodes.iter().zip(0_u64..).filter(|((_, _, scope), _)| !scope.is_null());
    entries.map(|((_, _, scope), node)| ((EXEC << 32 | node).to_string(), json!([scope]))).collect()
}

/// How the profiler writes the id of a node.
#[derive(Clone, Copy)]
enum NodeId {
    Whole,
    /// The lower half, beside `graph id`.
    Half,
}

/// `prof.export_chrome_trace(…)` of some replays within `record_function("step")`, which the profiler repeats on each stream that it knows.
fn trace(ids: NodeId) -> Value {
    let mut events = vec![
        json!({"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {"labels": "GPU 0"}}),
        json!({"ph": "X", "cat": "user_annotation", "name": "step", "pid": 42, "tid": 43, "ts": 900, "dur": 500, "args": {"External id": 1}}),
    ];
    for stream in [7, 24, 62, 61] {
        let name = json!({"name": format!("stream {stream} ")});
        events.push(json!({"ph": "M", "name": "thread_name", "pid": 0, "tid": stream, "ts": 0, "args": name}));
        events.push(json!({"ph": "X", "cat": "gpu_user_annotation", "name": "step", "pid": 0, "tid": stream, "ts": 1000, "dur": 300,
                           "args": {"External id": 1}}));
    }
    // An annotation without a copy on a stream with work stays, wherever it is.
    events.push(json!({"ph": "X", "cat": "gpu_user_annotation", "name": "only here", "pid": 0, "tid": 61, "ts": 1000, "dur": 3}));
    for replay in 0..REPLAYS {
        let (correlation, begin) = (500 + replay, 1000 + 100 * replay);
        events.push(json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 42, "tid": 43, "ts": begin, "dur": 5,
                           "args": {"correlation": correlation}}));
        for ((name, stream, _), node) in nodes().into_iter().zip(0_u64..) {
            let id = match ids {
                NodeId::Whole => EXEC << 32 | node,
                NodeId::Half => node,
            };
            let args = json!({"device": 0, "stream": stream, "correlation": correlation, "graph id": EXEC, "graph node id": id});
            events.push(json!({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": begin + 10 + 10 * node, "dur": 8,
                               "args": args}));
        }
    }
    json!({"schemaVersion": 1, "traceEvents": events})
}

/// A folder as torchtitan and PyTorch's script lay it out: the trace of rank 0 in a folder of its step, the annotations above.
fn room(ids: NodeId) -> Room {
    let room = Room::new(Ids::None);
    fs::create_dir_all(room.path().join("traces/step_14")).unwrap();
    room.write("traces/step_14/000000.17.pt.trace.json", trace(ids).to_string());
    room.write("traces/kernel_annotations_rank0_fwd_bwd.json", annotations().to_string());
    room.write("traces/kernel_annotations_rank1_fwd_bwd.json", "{}");
    room
}

const TRACE: &str = "traces/step_14/000000.17.pt.trace.json";

#[test]
fn kernels_join_by_the_whole_node_id_and_by_its_lower_half() {
    for ids in [NodeId::Whole, NodeId::Half] {
        let room = room(ids);
        let said = room.annotate("traces/kernel_annotations_rank0_fwd_bwd.json", TRACE, "out.json", &[]);
        assert!(
            said.starts_with("out.json: 18 of 21 kernels, copies and fills of graphs are annotated, in 3 replays"),
            "{said}"
        );
        let output = room.json("out.json");
        let find = |name: &str| {
            let events = output["traceEvents"].as_array().unwrap();
            events.iter().find(|event| event["name"] == name).unwrap()["args"].clone()
        };
        assert_eq!((&find("softmax")["zone"], &find("softmax")["lane"]), (&json!("attention"), &json!("stream 62")));
        // A kernel keeps its stream; the stream of the annotation is beside it.
        assert_eq!((&find("softmax")["stream"], &find("softmax")["zone_stream"]), (&json!(7), &json!(62)));
        assert_eq!(find("gemm_mlp_backward")["autograd_phase"], "backward");
        assert_eq!((&find("gelu")["autograd_phase"], &find("elementwise")["zone"]), (&Value::Null, &Value::Null));
    }
}

#[test]
fn annotations_are_found_beside_the_trace_and_never_guessed() {
    let room = room(NodeId::Whole);
    let run = |trace: &str| {
        let (status, said, complaints) = room.run(&["--trace", trace, "-o", "out.json"]);
        (status, said + &complaints)
    };
    // Those of the trace's rank, in the folder above.
    let (status, said) = run(TRACE);
    assert_eq!(status, Some(0), "{said}");
    let first = said.lines().next().unwrap();
    assert!(
        first.starts_with("annotations: ") && first.ends_with("/traces/kernel_annotations_rank0_fwd_bwd.json"),
        "{said}"
    );
    // A trace without a rank in its name is of rank 0, and its own folder comes first.
    room.write("traces/step_14/trace_raw.json", trace(NodeId::Whole).to_string());
    room.write("traces/step_14/kernel_annotations_rank0.json", annotations().to_string());
    let (status, said) = run("traces/step_14/trace_raw.json");
    assert!(
        status == Some(0) && said.starts_with("annotations: traces/step_14/kernel_annotations_rank0.json\n"),
        "{said}"
    );
    // Two of one kind.
    room.write("traces/step_14/kernel_annotations_rank0_fwd.pkl", "");
    let (status, said) = run("traces/step_14/trace_raw.json");
    assert!(status == Some(2) && said.contains("several files of annotations are beside"), "{said}");
    assert!(
        said.contains("kernel_annotations_rank0.json") && said.contains("name one with `--annotations FILE`"),
        "{said}"
    );
    // Beside those of another rank, a trace without a rank may be of either.
    fs::remove_file(room.path().join("traces/step_14/kernel_annotations_rank0_fwd.pkl")).unwrap();
    room.write("traces/step_14/kernel_annotations_rank3.json", annotations().to_string());
    let (status, said) = run("traces/step_14/trace_raw.json");
    assert!(status == Some(2) && said.contains("kernel_annotations_rank3.json"), "{said}");
    let mut of_rank = trace(NodeId::Whole);
    // As PyTorch writes it, before the events.
    of_rank["distributedInfo"] = json!({"backend": "nccl", "rank": 3, "world_size": 4});
    room.write("traces/step_14/7host_12.pt.trace.json", of_rank.to_string());
    let (status, said) = run("traces/step_14/7host_12.pt.trace.json");
    assert!(
        status == Some(0) && said.starts_with("annotations: traces/step_14/kernel_annotations_rank3.json\n"),
        "{said}"
    );
    // One with the trace's own name wins.
    room.write("traces/step_14/trace_raw.annotations.json", annotations().to_string());
    let (status, said) = run("traces/step_14/trace_raw.json");
    assert!(status == Some(0) && said.contains("trace_raw.annotations.json\n"), "{said}");
    // Our own files are known by what is in them.
    let ours = Room::new(Ids::Mixed);
    let (status, said, _) = ours.run(&["--trace", "t.json", "-o", "out.json"]);
    assert!(status == Some(0) && said.starts_with("annotations: ./a.json\nout.json: 30 of 30"), "{said}");
    let none = Room::new(Ids::Mixed);
    fs::remove_file(none.path().join("a.json")).unwrap();
    none.refused(
        &["--trace", "t.json", "-o", "out.json"],
        "no file of annotations is beside t.json; with `--annotations FILE`, name the one",
    );
}

#[test]
fn copies_of_annotations_on_streams_without_work_are_left_out_and_counted() {
    let room = room(NodeId::Whole);
    let annotated = |output: &str| room.annotate("traces/kernel_annotations_rank0_fwd_bwd.json", TRACE, output, &[]);
    let said = annotated("out.json");
    assert!(
        said.contains("2 copies of annotations (`gpu_user_annotation`) on streams without work are left out"),
        "{said}"
    );
    let output = room.json("out.json");
    let left: Vec<_> = output["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["cat"] == "gpu_user_annotation")
        .map(|event| (event["name"].as_str().unwrap().to_owned(), event["tid"].as_u64().unwrap()))
        .collect();
    assert_eq!(left, [("step".to_owned(), 7), ("step".to_owned(), 24), ("only here".to_owned(), 61)]);
    assert!(annotated("out.pftrace").contains("2 copies"));
    // The one of the program itself stays.
    assert!(output["traceEvents"].as_array().unwrap().iter().any(|event| event["cat"] == "user_annotation"));
}

#[test]
fn before_and_after_count_the_kernels_of_each_stream_and_lane() {
    let room = room(NodeId::Half);
    let said = room.annotate("traces/kernel_annotations_rank0_fwd_bwd.json", TRACE, "out.json", &["--before-after"]);
    let (_, table) = said.split_once("kernels, copies and fills:\n").expect("a table");
    let rows: Vec<String> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|row| !row.is_empty())
        .collect();
    assert_eq!(
        rows,
        [
            "device stream or lane before after",
            "GPU 0 stream 7 15 3",
            "GPU 0 stream 24 6 -",
            "GPU 0 out_proj - 3",
            "GPU 0 qkv_proj - 3",
            "GPU 0 stream 61 - 6",
            "GPU 0 stream 62 - 6",
        ]
    );
    let silent = room.annotate("traces/kernel_annotations_rank0_fwd_bwd.json", TRACE, "out.json", &[]);
    assert!(!silent.contains("before"), "{silent}");
}
