//! Rule 3: off means off. The fixture is built without any feature of warpline, in release, and the assembly of each
//! marked function is compared with that of its unmarked twin. The catalog stays: it is data.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the fixture and gives its assembly and its library.
fn build() -> (String, Vec<u8>) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixture");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("off");
    let status = Command::new(env!("CARGO"))
        .args(["rustc", "--release", "--lib", "--quiet", "--target-dir"])
        .arg(&target)
        // Identical functions stay two, so that each can be read.
        .args(["--", "--emit", "asm,link", "-Z", "merge-functions=disabled"])
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("RUSTFLAGS")
        .current_dir(&fixture)
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the fixture does not build");
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

/// The instructions of each twin, by name, without what only names things.
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
            body.push(without_labels(text));
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
    let (assembly, library) = build();
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
        assert_eq!(marked, plain, "`{name}` and `{twin}` differ");
        compared += 1;
    }
    assert_eq!(compared, 13, "every pair is compared: {:?}", functions.keys());
    for range in [
        "off.add",
        "off.all",
        "off.several",
        "off.parse",
        "off.text",
        "off.declared",
        "off.load",
        "off.sum",
        "off.fallible",
        "off.later",
        "off.returned",
        "off.part",
    ] {
        let there = library.windows(range.len()).any(|bytes| bytes == range.as_bytes());
        assert!(there, "`{range}` is not in the library: the catalog stays when zones are off");
    }
}
