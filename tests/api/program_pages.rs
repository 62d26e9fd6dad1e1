//! The pages on programs with other libraries (burn, candle, cudarc, mistral.rs, PyO3): some of their examples are built in no step, because
//! they take long, so each block of Rust or Python in a page has to be in the sources of its example, or in the patch of mistral.rs. The
//! programs with cudarc have three lines each.

use std::fs;
use std::path::{Path, PathBuf};

const EXAMPLES: [&str; 4] = ["burn", "candle", "cudarc", "pyo3"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The sources of an example, with their paths.
fn sources(example: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("examples").join(example)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is there") {
            let path = entry.expect("it can be listed").path();
            match path.extension().and_then(|ending| ending.to_str()) {
                Some("rs" | "py") => found.push((path.clone(), fs::read_to_string(&path).expect("a text"))),
                // What was built or installed is no source.
                None if path.is_dir() && path.file_name().is_some_and(|name| name != "target") => folders.push(path),
                _ => {}
            }
        }
    }
    assert!(!found.is_empty(), "examples/{example} has no source");
    found
}

/// The blocks of Rust and Python in a page.
fn blocks(page: &str) -> Vec<String> {
    let parts: Vec<&str> = page.split("\n```").collect();
    let blocks = parts.iter().filter_map(|part| part.strip_prefix("rust,ignore\n").or(part.strip_prefix("python\n")));
    blocks.map(|block| format!("{block}\n")).collect()
}

#[test]
fn what_the_pages_show_is_in_the_examples() {
    for example in EXAMPLES {
        let page = fs::read_to_string(root().join(format!("examples/{example}/README.md"))).expect("the page is there");
        let (blocks, sources) = (blocks(&page), sources(example));
        assert!(!blocks.is_empty(), "examples/{example}/README.md shows nothing");
        for block in blocks {
            let is_there = sources.iter().any(|(_, source)| source.contains(&block));
            assert!(is_there, "examples/{example}/README.md shows what is not in examples/{example}:\n{block}");
        }
    }
}

#[test]
fn the_page_on_mistral_rs_shows_its_patch() {
    let page = fs::read_to_string(root().join("examples/mistralrs/README.md")).expect("the page is there");
    let patch = fs::read_to_string(root().join("examples/mistralrs/warpline.patch")).expect("the patch is there");
    let parts: Vec<&str> = page.split("\n```").collect();
    let blocks: Vec<&str> = parts.iter().filter_map(|part| part.strip_prefix("diff\n")).collect();
    assert!(!blocks.is_empty(), "examples/mistralrs/README.md shows nothing of the patch");
    for block in blocks {
        assert!(
            patch.contains(&format!("{block}\n")),
            "examples/mistralrs/README.md shows what is not in the patch:\n{block}"
        );
    }
    let changed = patch
        .lines()
        .filter(|line| line.starts_with(['+', '-']) && !line.starts_with("+++ ") && !line.starts_with("--- "));
    let text = format!("A patch of {} changed lines", changed.count());
    assert!(page.contains(&text), "examples/mistralrs/README.md does not say `{text}`");
}

#[test]
fn each_program_with_cudarc_has_three_lines_of_warpline() {
    let programs =
        sources("cudarc").into_iter().filter(|(path, _)| path.parent().is_some_and(|bin| bin.ends_with("bin")));
    let mut count = 0;
    for (path, source) in programs {
        let lines = source.lines().filter(|line| line.contains("warpline::") && !line.starts_with("//"));
        assert_eq!(lines.count(), 3, "{}", path.display());
        count += 1;
    }
    assert_eq!(count, 3);
}
