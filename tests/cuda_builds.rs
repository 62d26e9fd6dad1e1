//! A program that picks cudarc's CUDA version and how it is linked builds with warpline's feature `cuda`, whatever it picks.
//!
//! Nothing is linked and nothing of CUDA is installed: the compiler says whether the features go together.

use std::fs;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = r#"//! A program with zones on CUDA streams.
use std::sync::Arc;

use cudarc::driver::CudaStream;
use warpline::{RawStream, Session, gpu_zone};

warpline::namespace!("picks", "a program that picks its CUDA");

/// On a shared stream.
#[gpu_zone("picks.shared")]
pub fn shared(stream: &Arc<CudaStream>) {}

/// On a borrowed one.
#[gpu_zone("picks.borrowed")]
pub fn borrowed(stream: &CudaStream) {}

/// On another binding's.
#[gpu_zone("picks.raw")]
pub fn raw(stream: RawStream) {}

pub fn session() -> Result<Session, warpline::Error> {
    Session::builder().ends(warpline::Ends::Lazy).event_budget(128).budget(0.005).start()
}
"#;

fn builds_with(name: &str, cudarc: &str, warpline: &str) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-builds").join(name);
    fs::create_dir_all(directory.join("src")).expect("the target folder is writable");
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime");
    let manifest = format!(
        "[package]\nname = \"picks-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         cudarc = {{ version = \"0.19.10\", default-features = false, features = [\"std\", \"driver\", {cudarc}] }}\n\
         warpline = {{ path = {runtime:?}, features = [{warpline}] }}\n"
    );
    fs::write(directory.join("Cargo.toml"), manifest).expect("the target folder is writable");
    fs::write(directory.join("src/lib.rs"), PROGRAM).expect("the target folder is writable");
    let output = Command::new(env!("CARGO"))
        .args(["check", "--quiet"])
        .current_dir(&directory)
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-builds-target"))
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn beside_any_choice_of_cuda() {
    let both = "\"enable\", \"cuda\"";
    builds_with("cuda-12080", "\"cuda-12080\", \"dynamic-loading\"", both);
    builds_with("cuda-13000", "\"cuda-13000\", \"fallback-dynamic-loading\"", both);
    builds_with("dynamic-linking", "\"cuda-13000\", \"dynamic-linking\"", both);
    builds_with("no-choice", "\"nvrtc\"", both);
    builds_with("without-zones", "\"cuda-12080\", \"dynamic-loading\"", "\"cuda\"");
}
