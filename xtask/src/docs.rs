//! The steps that build the documentation. `docs` builds that of `warpline` with every feature, as docs.rs does, and looks at the pages:
//! each link between them leads to a file, the guide is there, and items say which feature they need; and the tests that SECURITY.md
//! names exist. `docs-all` builds it plainly, and that of every other crate.

use std::path::{Path, PathBuf};

use crate::promises;
use crate::shell::{Stop, line, target};
use crate::{compiler, features};

/// Pages that must be there, and what each must say.
const PAGES: [(&str, &str); 3] = [
    ("index.html", "guide/sessions/index.html"),
    ("guide/report/index.html", "../sessions/index.html#the-report"),
    ("struct.RawStream.html", "Available on <strong>crate feature <code>cuda</code></strong> only."),
];

/// Builds the documentation of `warpline` as docs.rs does, and checks its pages.
pub fn run() -> Result<u64, Stop> {
    promises::check()?;
    // The pages of other crates, and older ones, could hide that a link leads nowhere.
    let folder = target().join("doc");
    remove_pages(&folder).map_err(|error| Stop::Failed(format!("`{}`: {error}", folder.display())))?;
    // docs.rs has a nightly compiler; this makes a stable one take what `doc_cfg` needs.
    let features = features::all(&["warpline"])?;
    let line = line(&format!("cargo doc -p warpline --no-deps --features {features}"))
        .with("RUSTDOCFLAGS", "--cfg docsrs -D warnings");
    compiler::with_unstable_rustdoc(line).run()?;
    let faults = faults(&folder.join("warpline"))?;
    if faults.is_empty() { Ok(0) } else { Err(Stop::Failed(faults.join("\n"))) }
}

/// Builds the documentation of `warpline` without a feature, and that of every crate with all features.
pub fn run_all() -> Result<u64, Stop> {
    for what in ["-p warpline".to_owned(), format!("--workspace --features {}", features::all(&[])?)] {
        line(&format!("cargo doc {what} --no-deps")).with("RUSTDOCFLAGS", "-D warnings").run()?;
    }
    Ok(0)
}

/// Removes the folders of pages. The files beside them are left: the step `api` may run at the same time, and writes its lists there.
fn remove_pages(folder: &Path) -> std::io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn faults(folder: &Path) -> Result<Vec<String>, Stop> {
    let mut faults = Vec::new();
    for (page, text) in PAGES {
        if !read(&folder.join(page))?.contains(text) {
            faults.push(format!("the page `{page}` of the documentation does not say `{text}`"));
        }
    }
    let mut pages = vec![folder.join("index.html")];
    pages.extend(guide(&folder.join("guide"))?);
    for page in pages {
        let (text, folder) = (read(&page)?, page.parent().unwrap_or(folder));
        for link in links(&text).filter(|link| !folder.join(link).exists()) {
            faults.push(format!("{}: the link `{link}` leads nowhere", page.display()));
        }
    }
    Ok(faults)
}

/// The pages of the guide.
fn guide(folder: &Path) -> Result<Vec<PathBuf>, Stop> {
    let failed = |error| Stop::Failed(format!("`{}`: {error}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path().join("index.html"))).collect();
    Ok(paths.map_err(failed)?.into_iter().filter(|page| page.exists()).collect())
}

/// What a page links in the same documentation, without the places within pages.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    // A script of the page makes names of a `$`.
    let files =
        targets.filter(|target| !target.contains([':', '$'])).filter_map(|target| target.split(['#', '?']).next());
    files.filter(|file| !file.is_empty())
}

fn read(page: &Path) -> Result<String, Stop> {
    std::fs::read_to_string(page).map_err(|error| Stop::Failed(format!("`{}`: {error}", page.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_files_of_the_documentation() {
        let page = r##"<a href="../marks/index.html#labels">a</a> <a href="#here">b</a> <a href="https://ui.perfetto.dev">c</a>
            <a href="traces.md">d</a> <script>`href="${f}"`</script>"##;
        assert!(links(page).eq(["../marks/index.html", "traces.md"]));
    }
}
