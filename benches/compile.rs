//! What warpline costs the compiler: `cargo check` of 1,000 marked functions beside the same without marks and with
//! `tracing`'s attribute, and a clean build of `warpline` without features beside `linkme` alone.
//!
//! `cargo bench -p warpline-benches --bench compile`. Figures are CPU seconds (user and system, all processes) and medians
//! of [`RUNS`] runs in turn; nothing is compiled incrementally. Crates come from the registry the first time.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FUNCTIONS: usize = 1_000;
const RUNS: usize = 3;

/// One way to write the same crate.
struct Variant {
    name: &'static str,
    head: &'static str,
    mark: fn(usize) -> String,
    dependencies: &'static str,
}

const VARIANTS: [Variant; 3] = [
    Variant { name: "unmarked", head: "", mark: |_| String::new(), dependencies: "" },
    Variant {
        name: "warpline",
        head: "warpline::namespace!(\"many\", \"very many functions\");",
        mark: |n| format!("#[warpline::gpu_zone(\"many.f{n}\", fields(n = n))]"),
        dependencies: "",
    },
    Variant {
        name: "tracing",
        head: "",
        mark: |n| format!("#[tracing::instrument(name = \"many.f{n}\", skip(stream))]"),
        dependencies: "tracing = \"0.1\"",
    },
];

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compile-cost");
    let crates: Vec<_> = VARIANTS.iter().map(|variant| (variant.name, marked_crate(&work, variant))).collect();
    println!("cargo check of {FUNCTIONS} functions, CPU s");
    for (name, seconds) in in_turn(&crates, |directory| {
        touch(directory);
        cargo(directory, "check")
    }) {
        println!("  {name:<10} {seconds:.2}");
    }
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/warpline");
    let alone = [
        ("linkme", empty_crate(&work, "only-linkme", "linkme = \"0.3\"")),
        ("warpline", empty_crate(&work, "only-warpline", &format!("warpline = {{ path = {runtime:?} }}"))),
    ];
    println!("clean build with no features, CPU s");
    for (name, seconds) in in_turn(&alone, |directory| {
        let _ = fs::remove_dir_all(directory.join("target"));
        cargo(directory, "build")
    }) {
        println!("  {name:<10} {seconds:.2}");
    }
    for (name, directory) in &alone {
        println!("  crates built for {name}: {}", built_crates(directory));
    }
}

fn marked_crate(work: &Path, variant: &Variant) -> PathBuf {
    let mut source = format!("//! {FUNCTIONS} functions.\n{}\n", variant.head);
    for n in 0..FUNCTIONS {
        let mark = (variant.mark)(n);
        let _ = write!(
            source,
            "/// Function {n}.\n{mark}\npub fn f{n}(stream: &warpline::HostStream, n: u64) -> u64 {{\n    \
             stream.launch(|| ());\n    n + {n}\n}}\n"
        );
    }
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/warpline");
    let dependencies = format!("warpline = {{ path = {runtime:?} }}\n{}", variant.dependencies);
    let directory = new_crate(work, variant.name, &dependencies, &source);
    // The dependencies are not what is measured.
    cargo(&directory, "check");
    directory
}

fn empty_crate(work: &Path, name: &str, dependencies: &str) -> PathBuf {
    let directory = new_crate(work, name, dependencies, "//! Nothing.\n");
    run(&directory, &["fetch"]);
    directory
}

fn new_crate(work: &Path, name: &str, dependencies: &str, source: &str) -> PathBuf {
    let directory = work.join(name);
    fs::create_dir_all(directory.join("src")).expect("the target folder is writable");
    let manifest = format!(
        "[package]\nname = \"{name}-cost\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n{dependencies}\n"
    );
    fs::write(directory.join("Cargo.toml"), manifest).expect("the target folder is writable");
    fs::write(directory.join("src/lib.rs"), source).expect("the target folder is writable");
    directory
}

/// Runs every crate in turn, so that a machine that drifts is unfair to none; gives medians.
fn in_turn<'a>(crates: &[(&'a str, PathBuf)], measure: impl Fn(&Path) -> f64) -> Vec<(&'a str, f64)> {
    let mut seconds = vec![Vec::new(); crates.len()];
    for _ in 0..RUNS {
        for (place, (_, directory)) in crates.iter().enumerate() {
            seconds[place].push(measure(directory));
        }
    }
    for runs in &mut seconds {
        runs.sort_by(f64::total_cmp);
    }
    crates.iter().zip(seconds).map(|((name, _), runs)| (*name, runs[runs.len() / 2])).collect()
}

fn touch(directory: &Path) {
    let file = directory.join("src/lib.rs");
    let source = fs::read(&file).expect("it was written above");
    fs::write(&file, source).expect("it was written above");
}

/// CPU seconds of one run of cargo and of everything that it started.
fn cargo(directory: &Path, command: &str) -> f64 {
    let before = children_cpu_seconds();
    run(directory, &[command, "--offline"]);
    children_cpu_seconds() - before
}

fn run(directory: &Path, arguments: &[&str]) {
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(directory)
        .env("CARGO_TARGET_DIR", directory.join("target"))
        .env("CARGO_INCREMENTAL", "0")
        .stderr(Stdio::null())
        .status()
        .expect("cargo runs");
    // Offline fails where the registry was never asked: then once more with it.
    if !status.success() {
        let online: Vec<_> = arguments.iter().filter(|argument| **argument != "--offline").collect();
        let status = Command::new(env!("CARGO"))
            .args(online)
            .current_dir(directory)
            .env("CARGO_TARGET_DIR", directory.join("target"))
            .env("CARGO_INCREMENTAL", "0")
            .status()
            .expect("cargo runs");
        assert!(status.success(), "cargo {arguments:?} failed in {}", directory.display());
    }
}

fn built_crates(directory: &Path) -> usize {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--prefix", "none", "--no-dedupe", "--edges", "normal,build", "--offline"])
        .current_dir(directory)
        .output()
        .expect("cargo runs");
    let tree = String::from_utf8_lossy(&output.stdout).into_owned();
    let crates: std::collections::BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    // The empty crate itself is not one of them.
    crates.len() - 1
}

fn children_cpu_seconds() -> f64 {
    // SAFETY: all-zero bytes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writes.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
