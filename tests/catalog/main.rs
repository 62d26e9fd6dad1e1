//! The catalog of one crate: six ranges of a CUDA backend, declared, checked while this file compiles, found while it
//! runs, and read again from the binary of this very test.

use warpline::catalog::{Kind, Level};
use warpline::{HostStream, catalog, gpu_zone, host_zone, range};

warpline::namespace!("vyre.cuda", "the CUDA backend of a compiler");

range! {
    /// PTX lowering.
    pub CODEGEN = "vyre.cuda.codegen": "Lowers a module to PTX.";
}

/// Compiles a pipeline from its PTX.
#[host_zone("vyre.cuda.pipeline.compile")]
fn compile() {}

/// Launches one pipeline.
#[gpu_zone("vyre.cuda.pipeline.dispatch", fields(grid = grid, block = block))]
fn dispatch(stream: &HostStream, grid: u32, block: u32) {
    let _ = (stream, grid, block);
}

/// Launches a batch of pipelines.
#[gpu_zone("vyre.cuda.pipeline.batch_dispatch", level = fine, lane = "batches", color = 0x76B900)]
fn batch_dispatch(stream: &HostStream) {
    let _ = stream;
}

/// Copies the arguments, launches, copies the results.
#[gpu_zone("vyre.cuda.host_dispatch")]
fn host_dispatch(stream: &HostStream) {
    let _ = stream;
}

/// Launches on buffers that already lie on the device.
#[gpu_zone("vyre.cuda.resident_dispatch")]
fn resident_dispatch(stream: &HostStream) {
    let _ = stream;
}

const NAMES: [&str; 6] = [
    "vyre.cuda.codegen",
    "vyre.cuda.host_dispatch",
    "vyre.cuda.pipeline.batch_dispatch",
    "vyre.cuda.pipeline.compile",
    "vyre.cuda.pipeline.dispatch",
    "vyre.cuda.resident_dispatch",
];

#[test]
fn the_six_ranges_are_in_the_catalog() {
    let mut names: Vec<&str> = catalog().iter().map(|range| range.name()).collect();
    names.sort_unstable();
    assert_eq!(names, NAMES);
    assert_eq!(catalog().len(), 6);
    assert!(!catalog().is_empty());
    assert!(catalog().records().faults().is_empty());
}

#[test]
fn a_range_is_found_by_name_and_by_id() {
    for name in NAMES {
        let range = catalog().find(name).unwrap();
        let id = range.id().unwrap();
        assert!(std::ptr::eq(catalog().get(id).unwrap(), range), "{name}");
        assert_eq!(range.label().to_str(), Ok(name));
        assert_eq!((range.namespace(), range.krate(), range.module()), ("vyre.cuda", "catalog", "catalog"));
        assert_eq!(range.version(), env!("CARGO_PKG_VERSION"));
        assert!(range.file().ends_with("catalog/main.rs") && range.line() > 1, "{name}");
    }
    assert!(catalog().find("vyre.cuda").is_none());
    assert!(std::ptr::eq(catalog().find("vyre.cuda.codegen").unwrap(), &CODEGEN));
}

#[test]
fn a_range_has_the_facts_of_its_mark() {
    let batch = catalog().find("vyre.cuda.pipeline.batch_dispatch").unwrap();
    assert_eq!((batch.kind(), batch.level(), batch.lane()), (Kind::Gpu, Level::Fine, Some("batches")));
    assert_eq!((batch.color(), batch.description()), (Some(0x76_b9_00), "Launches a batch of pipelines."));
    let dispatch = catalog().find("vyre.cuda.pipeline.dispatch").unwrap();
    assert_eq!((dispatch.level(), dispatch.lane(), dispatch.fields()), (Level::Coarse, None, &["grid", "block"][..]));
    assert_eq!(catalog().find("vyre.cuda.pipeline.compile").unwrap().kind(), Kind::Host);
    let space = catalog().namespaces().next().unwrap();
    assert_eq!((space.name(), space.about()), ("vyre.cuda", "the CUDA backend of a compiler"));
}

#[test]
fn the_binary_says_the_same_as_the_program() {
    let read = warpline_cli::binary::open(&std::env::current_exe().unwrap()).unwrap();
    assert_eq!(read.to_json(), catalog().records().to_json());
}

#[test]
fn marked_functions_run_as_if_they_were_not() {
    let stream = HostStream::new("compute");
    compile();
    dispatch(&stream, 1, 32);
    batch_dispatch(&stream);
    host_dispatch(&stream);
    resident_dispatch(&stream);
    let _zone = CODEGEN.zone(&stream);
}
