//! What the first pages say: every Cargo feature is in the tables of the crate's front page and of `docs/features.md`, every page of
//! `docs/` is in the guide and in its index, the README is short and its links exist, and its first program is that of the front page.

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
    let lines = read("runtime/warpline/src/lib.rs");
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
    let declared = features(&read("runtime/warpline/Cargo.toml"));
    assert!(declared.contains("enable") && declared.contains("cuda"), "{declared:?}");
    assert_eq!(listed(&front_page()), declared);
    assert_eq!(listed(&read("docs/features.md")), declared);
}

#[test]
fn the_guide_has_every_page_and_the_front_page_links_each() {
    let (guide, front, index) = (read("runtime/warpline/src/guide.rs"), front_page(), read("docs/README.md"));
    for entry in fs::read_dir(root().join("docs")).expect("the folder is there") {
        let name = entry.expect("it can be listed").file_name().into_string().expect("a plain name");
        let Some(page) = name.strip_suffix(".md") else { continue };
        // The index is the guide's own page.
        if name == "README.md" {
            continue;
        }
        let module = page.replace('-', "_");
        let entry = format!("    {module}: \"docs/{name}\";");
        assert!(guide.contains(&entry), "runtime/warpline/src/guide.rs lacks docs/{name}");
        assert!(front.contains(&format!("(guide::{module})")), "the front page does not link docs/{name}");
        assert!(index.contains(&format!("({name})")), "docs/README.md does not link docs/{name}");
    }
}

#[test]
fn the_first_program_of_the_readme_is_that_of_the_front_page() {
    assert_eq!(first_program(&read("README.md")), first_program(&front_page()));
}

/// The files that a page links, without the places within them.
fn linked(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter(|target| !target.contains("://")).filter_map(|target| target.split('#').next());
    files.filter(|file| !file.is_empty())
}

#[test]
fn the_readme_is_short_and_links_only_files_that_exist() {
    let readme = read("README.md");
    assert!(readme.lines().count() <= 90, "move something to a page of docs/");
    for file in linked(&readme) {
        assert!(root().join(file).exists(), "README.md links `{file}`");
    }
}
