//! The step that opens the HTML pages that the commands write in a headless browser: a page may make no request and no error, and then
//! does what its test in `tests/pages/` wants. `cargo xtask picture` also takes its pictures here.

mod browser;
mod ui;

use std::path::{Path, PathBuf};

use crate::needs;
use crate::shell::{Line, Stop, line, target};
use browser::Browser;

/// A kind of page.
struct Page {
    /// Its test is `tests/pages/NAME.test.mjs`.
    name: &'static str,
    /// Writes the pages that the test opens into the folder, which is empty.
    write: fn(&Path) -> Result<(), Stop>,
}

/// All of them. The harness is tested with pages that its test writes itself.
const PAGES: &[Page] = &[
    Page { name: "harness", write: |_| Ok(()) },
    Page { name: "report", write: report },
    Page { name: "ranks", write: ranks },
];

/// What `warpline report --html` writes.
fn report(folder: &Path) -> Result<(), Stop> {
    let tests = needs::everything("test", "--test cli -- report_page:: report_bounds::");
    tests.with("WARPLINE_PAGES", folder.display().to_string()).run_tests().map(drop)
}

/// What `warpline-ranks report -o` writes, of jobs whose truth is known: the tests of the page in Rust leave theirs.
fn ranks(folder: &Path) -> Result<(), Stop> {
    ["page::", "bounds::"].into_iter().try_for_each(|tests| {
        needs::ranks_crate(&format!("test --test api {tests}"))
            .with("WARPLINE_PAGES", folder.display().to_string())
            .run_tests()
            .map(drop)
    })
}

/// Writes the pages and runs their tests, all in `target/pages`.
///
/// # Errors
/// A page or its test fails, or there is no browser.
pub fn run() -> Result<u64, Stop> {
    let browser = Browser::ready()?;
    let folder = folder();
    let failed = |error| Stop::Failed(format!("cannot make the folder `{}`: {error}", folder.display()));
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(failed)?;
    }
    std::fs::create_dir_all(&folder).map_err(failed)?;
    PAGES.iter().try_for_each(|page| (page.write)(&folder))?;
    let tests: Vec<String> = PAGES.iter().map(|page| format!("tests/pages/{}.test.mjs", page.name)).collect();
    browser.line(&format!("node --test --test-reporter=spec {}", tests.join(" "))).run_tests()
}

/// A picture of a page, as PNG.
///
/// # Errors
/// There is no browser, or the page does what none may do.
pub fn picture(page: &str, out: &Path, size: &str, theme: &str) -> Result<(), Stop> {
    let browser = Browser::ready()?;
    let absolute =
        |path: &str| std::path::absolute(path).map_or_else(|_| path.into(), |path| path.display().to_string());
    let (page, out) = (absolute(page), absolute(&out.display().to_string()));
    browser.line(&format!("node tests/pages/picture.mjs {page} {out} {size} {theme}")).run()
}

/// A picture of a trace in Perfetto's UI, as PNG. The window is in ms since the begin of the trace; without one, it is the whole trace.
///
/// # Errors
/// There is no browser or no UI, or the UI does not show the trace.
pub fn picture_in_ui(trace: &Path, out: &Path, size: &str, window: Option<(f64, f64)>) -> Result<(), Stop> {
    let (browser, ui) = (Browser::ready()?, ui::folder()?);
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    let (trace, out, ui) = (absolute(trace), absolute(out), ui.display());
    let (from, length) =
        window.map_or(("0".to_owned(), "all".to_owned()), |(from, length)| (from.to_string(), length.to_string()));
    browser.line(&format!("node tests/pages/ui.mjs {ui} {trace} {out} {size} {from} {length} {}", ui::OPEN_ROWS)).run()
}

/// Where the pages are.
fn folder() -> PathBuf {
    target().join("pages")
}

impl Browser {
    /// A command line that uses the harness.
    fn line(&self, words: &str) -> Line {
        line(words)
            .with("CHROMIUM", self.program.display().to_string())
            .with("WARPLINE_PAGES", folder().display().to_string())
    }
}
