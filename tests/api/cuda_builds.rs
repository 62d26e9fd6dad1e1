//! A program picks cudarc's version, CUDA version, NCCL version and way of linking, and builds with any of warpline's features.
//!
//! Nothing is linked and nothing of CUDA is installed: the compiler says whether the features go together, and what a program
//! that cannot be built is told.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::catalog_crates::programs::share_versions;

const MARKS: &str = r#"//! A program with zones on CUDA streams.
use std::sync::Arc;

use cudarc::driver::{CudaGraph, CudaStream};
use warpline::graph::{GraphError, GraphZones};
use warpline::{RawStream, Session, gpu_zone};

warpline::namespace!("picks", "a program that picks its CUDA");

/// On a shared stream.
#[gpu_zone("picks.shared")]
pub fn shared(stream: &Arc<CudaStream>) {}

/// On one that it takes.
#[gpu_zone("picks.taken")]
pub fn taken(stream: Arc<CudaStream>) {
    drop(stream);
}

/// On one that is there only with a GPU.
#[gpu_zone("picks.optional")]
pub fn optional(stream: Option<&Arc<CudaStream>>) {}

/// On another binding's.
#[gpu_zone("picks.raw")]
pub fn raw(stream: RawStream) {}

pub fn zones(graph: &CudaGraph) -> Result<GraphZones, GraphError> {
    GraphZones::for_graph(graph)
}

pub fn session() -> Result<Session, warpline::Error> {
    Session::builder().ends(warpline::timing::EndMode::Lazy).event_budget(128).budget(0.005).start()
}
"#;

/// What docs/collectives.md says of cudarc's communicators.
const NCCL: &str = r#"
use cudarc::nccl::{Comm, NcclType};
use warpline::collective;
use warpline::collective::ProcessGroup;

pub fn group(comm: &Comm) -> ProcessGroup {
    ProcessGroup::new("tp0", 0..comm.world_size() as u32, comm.rank() as u32)
}

/// Sums over the ranks.
#[collective("picks.sum", kind = "all_reduce", stream = comm.stream(), count = n, dtype = T::as_nccl_type() as u32, group = group)]
pub fn sum<T: NcclType>(comm: &Comm, group: &ProcessGroup, n: usize) {}

/// Sums over the ranks, and says no more.
#[collective("picks.bare_sum", kind = "all_reduce", stream = comm.stream())]
pub fn bare_sum<T: NcclType>(comm: &Arc<Comm>, values: &mut cudarc::driver::CudaSlice<T>) {}
"#;

/// What docs/cuda.md says of cuBLAS handles and of candle's devices; candle itself needs `nvcc` to be compiled, so look-alikes
/// of its `Device` and `CudaDevice` stand for it.
const CUBLAS: &str = r#"
pub struct Device(Option<CudaDevice>);
pub struct CudaDevice(Arc<CudaStream>);

impl Device {
    pub fn as_cuda_device(&self) -> Result<&CudaDevice, String> {
        self.0.as_ref().ok_or_else(|| "expected a cuda device, got cpu".to_owned())
    }
}

impl CudaDevice {
    pub fn cuda_stream(&self) -> Arc<CudaStream> {
        self.0.clone()
    }
}

/// On the stream of a device, if it is a GPU.
#[gpu_zone("picks.forward", stream = device.as_cuda_device().ok().map(|device| device.cuda_stream()))]
pub fn forward(device: &Device) {}

/// On the stream of a cuBLAS handle.
#[gpu_zone("picks.multiply", stream = blas)]
pub fn multiply(blas: &Arc<cudarc::cublas::CudaBlas>) {}
"#;

/// A library that marks on cudarc's stream, and nothing else.
const LIBRARY: &str = r#"//! A library that marks.
use std::sync::Arc;

use cudarc::driver::CudaStream;

warpline::namespace!("marks", "a library that marks");

/// On cudarc's stream.
#[warpline::gpu_zone("marks.work")]
pub fn work(stream: &Arc<CudaStream>) {}
"#;

/// Marks and timelines on streams that nobody else owns: they could be destroyed while a zone is open.
const BARE: &str = r#"//! A library that marks.
warpline::namespace!("bare", "a library that marks");
warpline::range! { WORK = "bare.work": "Work on a stream."; }

/// On a borrowed stream.
#[warpline::gpu_zone("bare.mark")]
pub fn mark(stream: &cudarc::driver::CudaStream) {}

pub fn guard(stream: std::sync::Arc<cudarc::driver::CudaStream>) -> warpline::AsyncZone {
    WORK.async_zone(&*stream)
}

pub fn signal(semaphore: &warpline::timeline::Semaphore, stream: &cudarc::driver::CudaStream) {
    let _ = semaphore.signal_on(stream, 1);
}

/// On the stream of a borrowed handle.
#[warpline::gpu_zone("bare.multiply", stream = blas)]
pub fn multiply(blas: &cudarc::cublas::CudaBlas) {}
"#;

/// Marks on the types of two versions of cudarc, in one program.
const TWO_VERSIONS: &str = r#"
/// On a stream of the older cudarc.
#[gpu_zone("picks.older")]
pub fn older(stream: &Arc<older::driver::CudaStream>) {}

/// On the stream of the older cudarc's cuBLAS handle.
#[gpu_zone("picks.older_multiply", stream = blas)]
pub fn older_multiply(blas: &Arc<older::cublas::CudaBlas>) {}
"#;

/// The features of warpline's that a program without a C++ compiler and without an older cudarc can turn on.
fn features() -> Vec<String> {
    let manifest = fs::read_to_string(runtime().join("Cargo.toml")).expect("warpline's manifest");
    let features = manifest.split("[features]\n").nth(1).and_then(|rest| rest.split("\n[").next()).expect("features");
    let names = features.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    names.map(|(name, _)| name.to_owned()).filter(|name| name != "tracy" && name != "cudarc-0_18").collect()
}

fn runtime() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/warpline")
}

/// Lets the compiler check a crate with this source, this version of cudarc with these features, and these of warpline's. With the
/// feature for cudarc 0.18, the crate depends on that version, too.
fn check(name: &str, source: &str, version: &str, cudarc: &[&str], warpline: &[&str]) -> Output {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-builds").join(name);
    fs::create_dir_all(directory.join("src")).expect("the target folder is writable");
    let older = match (version, warpline.contains(&"cudarc-0_18")) {
        (NEWEST, true) => format!(
            "older = {{ package = \"cudarc\", version = \"0.18\", default-features = false, features = {OLDER_FEATURES:?} }}\n"
        ),
        _ => String::new(),
    };
    let manifest = format!(
        "[package]\nname = \"picks-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         cudarc = {{ version = {version:?}, default-features = false, features = {cudarc:?} }}\n{older}\
         warpline = {{ path = {:?}, features = {warpline:?} }}\n",
        runtime()
    );
    fs::write(directory.join("Cargo.toml"), manifest).expect("the target folder is writable");
    fs::write(directory.join("src/lib.rs"), source).expect("the target folder is writable");
    // In the workspace's folder, where Clippy has checked most of what the crate needs, if it has run.
    share_versions(&directory);
    Command::new(env!("CARGO"))
        .args(["check", "--quiet"])
        .current_dir(&directory)
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join(".."))
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo runs")
}

#[track_caller]
fn builds(name: &str, source: &str, version: &str, cudarc: &[&str], warpline: &[&str]) {
    let output = check(name, source, version, cudarc, warpline);
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What the compiler says of a crate that it refuses.
#[track_caller]
fn refusal(name: &str, source: &str, version: &str, cudarc: &[&str], warpline: &[&str]) -> String {
    let output = check(name, source, version, cudarc, warpline);
    assert!(!output.status.success(), "{name} builds");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const NEWEST: &str = "0.19";

/// One set of features for cudarc 0.18, with those that warpline turns on, so that it is compiled once.
const OLDER_FEATURES: [&str; 6] =
    ["std", "cublas", "driver", "cuda-version-from-build-system", "fallback-latest", "dynamic-loading"];

#[test]
fn beside_any_choice_of_cuda_and_nccl() {
    let all = features();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let zones = ["enable", "cuda"];
    let with_nccl = [MARKS, NCCL].concat();
    let as_candle = [MARKS, NCCL, CUBLAS].concat();

    let own = ["std", "driver", "cuda-12080", "dynamic-loading", "nccl-02028"];
    builds("nccl-02028", &with_nccl, NEWEST, &own, &all);
    let own = ["std", "driver", "cuda-13000", "fallback-dynamic-loading", "nccl"];
    builds("nccl-newest", &with_nccl, NEWEST, &own, &zones);
    // As candle: linked, for the CUDA that the machine has.
    let own = [
        "std",
        "cublas",
        "cublaslt",
        "curand",
        "driver",
        "nvrtc",
        "cuda-version-from-build-system",
        "dynamic-linking",
        "fallback-latest",
        "nccl-version-from-build-system",
    ];
    builds("as-candle", &as_candle, NEWEST, &own, &["enable", "cuda", "cublas"]);
    builds("no-choice", MARKS, NEWEST, &["std", "driver", "nvrtc"], &zones);
    builds("without-zones", MARKS, NEWEST, &["std", "driver", "cuda-12080", "dynamic-loading"], &["cuda"]);
}

/// The oldest version that has the features by which a library leaves the choice to the application.
#[test]
fn beside_the_oldest_cudarc() {
    let own = ["std", "cublas", "driver", "cuda-12080", "dynamic-loading", "nccl"];
    builds("oldest", &[MARKS, NCCL, CUBLAS].concat(), "=0.19.0", &own, &["enable", "cuda", "cublas"]);
}

/// The older of the two versions whose types marks take: alone, and beside the newest one.
#[test]
fn on_the_streams_of_an_older_cudarc_too() {
    builds("older-library", LIBRARY, "0.18", &OLDER_FEATURES, &["cudarc-0_18"]);
    let own = ["std", "cublas", "driver", "cuda-12080", "dynamic-loading"];
    let both = [MARKS, CUBLAS, TWO_VERSIONS].concat();
    builds("two-versions", &both, NEWEST, &own, &["enable", "cublas", "cudarc-0_18", "cudarc-0_19"]);
}

#[test]
fn a_mark_on_a_cuda_stream_that_cannot_be_built_says_what_to_write() {
    let own = &["std", "driver", "cuda-12080", "dynamic-loading"][..];
    builds("library", LIBRARY, NEWEST, own, &["cuda"]);
    for (name, version, own, features) in
        [("no-feature", NEWEST, own, &[][..]), ("other-version", "0.18", &OLDER_FEATURES, &["cuda"])]
    {
        let said = refusal(name, LIBRARY, version, own, features);
        for part in [
            "`CudaStream` is not a stream that a zone can be timed on",
            "for the `CudaStream` of cudarc 0.19, turn on warpline's feature `cuda` in this crate, also where it only marks; of \
             cudarc 0.18, feature `cudarc-0_18`",
            "for the `CudaStream` of another cudarc version, or another binding's stream, turn on `cuda` and give the raw \
             handle: `RawStream::from_ptr(stream.cu_stream().cast())`",
        ] {
            assert!(said.contains(part), "{name}: no “{part}” in\n{said}");
        }
    }
}

#[test]
fn a_stream_without_its_arc_is_refused_with_what_to_write() {
    let own = ["std", "cublas", "driver", "cuda-12080", "dynamic-loading"];
    for features in [&["cuda", "cublas", "timeline"][..], &["enable", "cuda", "cublas", "timeline"]] {
        let said = refusal("bare", BARE, NEWEST, &own, features);
        let errors: Vec<_> = said.split("error[").skip(1).collect();
        let refused = [
            ("CudaStream", "pub fn mark(stream: &cudarc::driver::CudaStream)"),
            ("CudaStream", "WORK.async_zone(&*stream)"),
            ("CudaStream", "semaphore.signal_on(stream, 1)"),
            ("CudaBlas", "stream = blas"),
        ];
        assert_eq!(errors.len(), refused.len(), "{features:?}: {said}");
        for (error, (kind, line)) in errors.iter().zip(refused) {
            for part in [
                line.to_owned(),
                format!("`{kind}` is not a stream that a zone can be timed on"),
                "for a `CudaStream` or `CudaBlas` of cudarc, give the `Arc`, as in `stream: &Arc<CudaStream>`: a zone keeps its \
                 stream alive until it ends"
                    .to_owned(),
            ] {
                assert!(error.contains(&part), "{features:?}: no “{part}” in\n{error}");
            }
        }
    }
}
