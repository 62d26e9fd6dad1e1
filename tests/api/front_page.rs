//! What the first pages say: every Cargo feature is in their tables, every page of `docs/` in the guide, and the first program of the
//! README is that of the crate's front page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("the file is in the repository")
}

/// The features that a manifest declares, without `default`.
fn features(manifest: &str) -> BTreeSet<String> {
    let (_, rest) = manifest.split_once("[features]\n").expect("it has features");
    let table = rest.split("\n[").next().unwrap_or_default();
    let names =
        table.lines().filter(|line| !line.starts_with([' ', '#', ']'])).filter_map(|line| line.split_once(" = "));
    names.map(|(name, _)| name.to_owned()).filter(|name| name != "default").collect()
}

/// The features in the first column of the table under `Cargo features`.
fn listed(page: &str) -> BTreeSet<String> {
    let (_, rest) = page.split_once("# Cargo features\n").expect("it has a section on features");
    let section = rest.split("\n# ").next().and_then(|section| section.split("\n## ").next()).unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| [`")).filter_map(|row| row.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

/// The crate's documentation as Markdown.
fn front_page() -> String {
    let lines = read("runtime/src/lib.rs");
    let lines = lines.lines().filter_map(|line| line.strip_prefix("//!"));
    lines.map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n").collect()
}

/// The first code block, without what rustdoc hides.
fn first_program(page: &str) -> &str {
    let begin = page.find("\nuse std::hint").expect("it has a program") + 1;
    page[begin..].split("```").next().unwrap_or_default()
}

#[test]
fn the_tables_of_features_have_every_feature_and_no_other() {
    let declared = features(&read("runtime/Cargo.toml"));
    assert!(declared.contains("enable") && declared.contains("cuda"), "{declared:?}");
    assert_eq!(listed(&front_page()), declared);
    assert_eq!(listed(&read("README.md")), declared);
}

#[test]
fn the_guide_has_every_page_and_the_front_page_links_each() {
    let (guide, front) = (read("runtime/src/guide.rs"), front_page());
    for entry in fs::read_dir(root().join("docs")).expect("the folder is there") {
        let name = entry.expect("it can be listed").file_name().into_string().expect("a plain name");
        let Some(page) = name.strip_suffix(".md") else { continue };
        assert!(guide.contains(&format!("pub mod {page} {{")), "runtime/src/guide.rs lacks docs/{name}");
        assert!(front.contains(&format!("(guide::{page})")), "the front page does not link docs/{name}");
    }
}

#[test]
fn the_first_program_of_the_readme_is_that_of_the_front_page() {
    assert_eq!(first_program(&read("README.md")), first_program(&front_page()));
}
