//! Rule 3: off means off. The fixture is built without any feature of warpline, in release, and the assembly of each
//! marked function is compared with that of its unmarked twin. The catalog stays: it is data.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the fixture in this edition and gives its assembly and its library.
fn build(edition: &str) -> (String, Vec<u8>) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixture");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("off");
    let package = target.join(edition);
    fs::create_dir_all(&package).expect("the target directory can be written");
    let manifest = fs::read_to_string(fixture.join("Cargo.toml")).expect("the fixture has a manifest");
    let here = |path: &str| format!("{:?}", fixture.join(path));
    let manifest = manifest
        .replace("edition = \"2024\"", &format!("edition = \"{edition}\""))
        .replace("[lib]\n", &format!("[lib]\npath = {}\n", here("src/lib.rs")))
        .replace("\"../../../runtime/warpline\"", &here("../../../runtime/warpline"));
    fs::write(package.join("Cargo.toml"), manifest).expect("the target directory can be written");
    let versions = fixture.join("../../../Cargo.lock");
    fs::copy(versions, package.join("Cargo.lock")).expect("the workspace has a lock file");
    // Cargo does not build again what it has built, and the editions write to the same files.
    for entry in fs::read_dir(target.join("release/.fingerprint")).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("off-fixture-") {
            fs::remove_dir_all(entry.path()).expect("the target directory can be written");
        }
    }
    let features = if edition == "2015" { "" } else { "later" };
    let status = Command::new(env!("CARGO"))
        .args(["rustc", "--release", "--lib", "--quiet", "--features", features, "--target-dir"])
        .arg(&target)
        // Identical functions stay two, so that each can be read.
        .args(["--", "--emit", "asm,link", "-Z", "merge-functions=disabled"])
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("RUSTFLAGS")
        .current_dir(&package)
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the fixture does not build in edition {edition}");
    let release = target.join("release");
    let mut assembly: Vec<PathBuf> = fs::read_dir(release.join("deps"))
        .expect("cargo has built")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "s"))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("off_fixture")))
        .collect();
    assembly.sort_by_key(|path| fs::metadata(path).and_then(|meta| meta.modified()).ok());
    let text = fs::read_to_string(assembly.last().expect("assembly was emitted")).expect("assembly is text");
    let library =
        fs::read(release.join(format!("{}off_fixture{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX)));
    (text, library.expect("the library was linked"))
}

/// The instructions of each twin, by name, without what only names things: labels, and the module of a twin's future.
fn functions(assembly: &str) -> BTreeMap<String, Vec<String>> {
    let mut functions = BTreeMap::new();
    let mut current: Option<(String, Vec<String>)> = None;
    for line in assembly.lines() {
        let text = line.split('#').next().unwrap_or("").trim();
        if let Some(name) = text.strip_suffix(':').filter(|name| is_twin(name)) {
            current = Some((name.to_owned(), Vec::new()));
            continue;
        }
        if text.starts_with(".Lfunc_end") {
            functions.extend(current.take());
        }
        if let Some((_, body)) = &mut current
            && !text.is_empty()
            && !text.starts_with('.')
        {
            body.push(without_labels(text).replace("5plain", "6marked"));
        }
    }
    functions
}

fn is_twin(name: &str) -> bool {
    name.starts_with("marked_") || name.starts_with("plain_")
}

/// Local labels are numbered through the file; their numbers say nothing.
fn without_labels(instruction: &str) -> String {
    let mut out = String::new();
    let mut rest = instruction;
    while let Some(at) = rest.find(".L") {
        out.push_str(&rest[..at]);
        out.push_str(".L");
        rest = rest[at + 2..].trim_start_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    }
    out + rest
}

#[test]
fn a_marked_function_is_the_machine_code_of_an_unmarked_one() {
    for (edition, pairs) in [("2015", 13), ("2018", 16), ("2021", 16), ("2024", 16)] {
        let (assembly, library) = build(edition);
        let functions = functions(&assembly);
        let mut compared = 0;
        for (name, marked) in functions.iter().filter(|(name, _)| name.starts_with("marked_")) {
            let twin = name.replace("marked_", "plain_");
            let plain = functions.get(&twin).unwrap_or_else(|| panic!("`{twin}` is not in the assembly"));
            if name == "marked_control" {
                assert_ne!(marked, plain, "functions that differ must be seen to differ");
                continue;
            }
            assert!(!marked.is_empty(), "`{name}` has no instructions");
            assert_eq!(marked, plain, "`{name}` and `{twin}` differ in edition {edition}");
            compared += 1;
        }
        assert_eq!(compared, pairs, "every pair of edition {edition} is compared: {:?}", functions.keys());
        for range in RANGES {
            let there = library.windows(range.len()).any(|bytes| bytes == range.as_bytes());
            let is_later = matches!(range, "off.later" | "off.returned" | "off.later.fallible");
            assert_eq!(there, !is_later || edition != "2015", "`{range}`: the catalog stays when zones are off");
        }
    }
}

const RANGES: [&str; 15] = [
    "off.add",
    "off.all",
    "off.several",
    "off.parse",
    "off.text",
    "off.declared",
    "off.load",
    "off.sum",
    "off.fallible",
    "off.owned",
    "off.hidden",
    "off.later",
    "off.returned",
    "off.later.fallible",
    "off.part",
];
