//! A folder of traces: each of its traces has its output, also beside one that cannot be annotated.

use std::fs;
use std::io::Read;

use flate2::read::GzDecoder;

use super::room::*;
use super::{packed, zstd};

#[test]
fn each_trace_of_a_folder_has_its_output() {
    let room = Room::new(Ids::Mixed);
    let file = |name: &str| room.path().join(name);
    fs::create_dir_all(file("traces/host1")).unwrap();
    let trace = fs::read(file("t.json")).unwrap();
    room.annotate("a.json", "t.json", "expected.json", &[]);
    fs::write(file("traces/rank0.json"), &trace).unwrap();
    fs::write(file("traces/host1/rank1.json.gz"), packed(&trace)).unwrap();
    fs::write(file("traces/rank2.json"), "{}").unwrap();
    // Annotations are no trace.
    fs::copy(file("a.json"), file("traces/kernel_annotations_rank0_fwd.json")).unwrap();
    let args = ["--annotations", "a.json", "--trace", "traces", "-o", "out"];
    let (status, said, complaints) = room.run(&args);
    assert_eq!((status, said.lines().count(), complaints.lines().count()), (Some(2), 2, 1), "{said}{complaints}");
    assert!(complaints.contains("traces/rank2.json: "), "{complaints}");
    let expected = fs::read(file("expected.json")).unwrap();
    let mut unpacked = Vec::new();
    let packed = fs::File::open(file("out/host1/rank1.json.gz")).unwrap();
    GzDecoder::new(packed).read_to_end(&mut unpacked).unwrap();
    assert!(fs::read(file("out/rank0.json")).unwrap() == expected && unpacked == expected);
    assert!(!file("out/rank2.json").exists());
    // The outputs of an earlier run are no inputs, wherever they are.
    fs::remove_file(file("traces/rank2.json")).unwrap();
    fs::rename(file("out"), file("traces/out")).unwrap();
    let (status, said, complaints) = room.run(&["--annotations", "a.json", "--trace", "traces", "-o", "traces/out"]);
    assert_eq!((status, said.lines().count(), complaints.as_str()), (Some(0), 2, ""), "{said}");
}

#[test]
fn an_output_of_a_trace_in_zstd_is_one_in_gzip_and_no_output_is_of_two_traces() {
    let room = Room::new(Ids::Mixed);
    let file = |name: &str| room.path().join(name);
    fs::create_dir_all(file("traces")).unwrap();
    let trace = fs::read(file("t.json")).unwrap();
    room.annotate("a.json", "t.json", "expected.json", &[]);
    fs::write(file("traces/rank0.json.zst"), zstd(&trace)).unwrap();
    fs::copy(file("a.json"), file("traces/rank0.annotations.json")).unwrap();
    // The annotations beside the trace are found.
    let (status, said, complaints) = room.run(&["--trace", "traces", "-o", "out"]);
    assert_eq!((status, complaints.as_str()), (Some(0), ""), "{said}");
    assert!(said.starts_with("annotations: traces/rank0.annotations.json\nout/rank0.json.gz: 30 of 30 "), "{said}");
    let mut unpacked = Vec::new();
    GzDecoder::new(fs::File::open(file("out/rank0.json.gz")).unwrap()).read_to_end(&mut unpacked).unwrap();
    assert!(unpacked == fs::read(file("expected.json")).unwrap());
    fs::write(file("traces/rank0.json.gz"), packed(&trace)).unwrap();
    room.refused(
        &["--trace", "traces", "-o", "other"],
        "traces/rank0.json.gz and traces/rank0.json.zst have the same output, other/rank0.json.gz; annotate one of them alone",
    );
}
