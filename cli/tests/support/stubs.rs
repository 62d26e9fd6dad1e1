//! The stub libraries of `tests/`, built once, where a command finds them as the driver, as CUPTI and as a tool.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs};

/// A folder with the stub driver of these features as `libcuda.so.1`.
pub fn driver(features: &[&str]) -> PathBuf {
    let library = build("warpline-stub-driver", features);
    let folder = library.parent().expect("a folder").join("as-libcuda");
    fs::create_dir_all(&folder).expect("a folder");
    // Another process may have the file mapped: it is replaced, not written to.
    let fresh = tempfile::Builder::new().tempdir_in(&folder).expect("a folder");
    let copy = fresh.path().join("libcuda.so.1");
    fs::copy(&library, &copy).expect("the stub is there");
    fs::rename(&copy, folder.join("libcuda.so.1")).expect("it can be moved");
    folder
}

/// A folder with the stub of the HIP runtime of these features as `libamdhip64.so`.
#[cfg(feature = "hip")]
pub fn hip(features: &[&str]) -> PathBuf {
    let library = build("warpline-stub-hip", features);
    let folder = library.parent().expect("a folder").join("as-rocm");
    fs::create_dir_all(&folder).expect("a folder");
    // Another process may have the file mapped: it is replaced, not written to.
    let fresh = tempfile::Builder::new().tempdir_in(&folder).expect("a folder");
    let copy = fresh.path().join("libamdhip64.so");
    fs::copy(&library, &copy).expect("the stub is there");
    fs::rename(&copy, folder.join("libamdhip64.so")).expect("it can be moved");
    folder
}

pub fn cupti() -> PathBuf {
    build("warpline-stub-cupti", &[])
}

pub fn nvtx() -> PathBuf {
    build("warpline-stub-nvtx", &[])
}

/// One build at a time: they share folders.
static BUILDS: Mutex<()> = Mutex::new(());

fn build(package: &str, features: &[&str]) -> PathBuf {
    let _one = BUILDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = [&["stubs"][..], features].concat().join("-");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "build",
            "--quiet",
            "--offline",
            "--package",
            package,
            "--features",
            &features.join(","),
            "--manifest-path",
        ])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        // The stub is loaded into whatever the command is; it needs none of its instrumentation.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("debug").join(format!("lib{}.so", package.replace('-', "_")))
}
