//! The promises of SECURITY.md: each names tests, and these exist. The step of the documentation asks.

use std::path::Path;

use crate::shell::{Stop, root};

const PAGE: &str = "SECURITY.md";
const SECTION: &str = "## What is promised";

/// Checks the page.
///
/// # Errors
/// A promise without a test, or one whose test does not exist.
pub fn check() -> Result<(), Stop> {
    let read = |path: &str| std::fs::read_to_string(root().join(Path::new(path))).ok();
    let page = read(PAGE).ok_or_else(|| Stop::Failed(format!("`{PAGE}` cannot be read")))?;
    let faults = faults(&page, read);
    if faults.is_empty() { Ok(()) } else { Err(Stop::Failed(faults.join("\n"))) }
}

/// What is wrong with the page; `read` gives a file of the repository.
fn faults(page: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let promises = promises(page);
    if promises.is_empty() {
        return vec![format!("`{PAGE}` has no promise in the section `{SECTION}`")];
    }
    let mut faults = Vec::new();
    for promise in promises {
        let tests: Vec<_> = tests(&promise).collect();
        if tests.is_empty() {
            let begin: String = promise.chars().take(80).collect();
            faults.push(format!("{PAGE}: no test is named for the promise `{begin}…`; name one as `FILE.rs::TEST`"));
        }
        for (file, test) in tests {
            if !read(file).is_some_and(|code| has_test(&code, test)) {
                faults.push(format!("{PAGE}: there is no test `{test}` in `{file}`"));
            }
        }
    }
    faults
}

/// The items of the section's lists.
fn promises(page: &str) -> Vec<String> {
    let section = page.split_once(SECTION).map_or("", |(_, section)| section);
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let mut promises: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in section.lines() {
        match line.strip_prefix("* ") {
            Some(begin) => {
                promises.push(begin.to_owned());
                is_open = true;
            }
            None if is_open && line.starts_with("  ") => {
                if let Some(promise) = promises.last_mut() {
                    promise.push('\n');
                    promise.push_str(line.trim());
                }
            }
            None => is_open = false,
        }
    }
    promises
}

/// What stands as `FILE.rs::TEST` in a promise.
fn tests(promise: &str) -> impl Iterator<Item = (&str, &str)> {
    let quoted = promise.split('`').skip(1).step_by(2);
    quoted.filter_map(|text| text.split_once(".rs::").map(|(file, test)| (&text[..file.len() + 3], test)))
}

/// Whether the file has the test: as a function, or as the name in the table of a macro that makes functions.
fn has_test(code: &str, test: &str) -> bool {
    code.lines().map(str::trim_start).any(|line| {
        let rest = line.strip_prefix("fn ").unwrap_or(line).strip_prefix(test);
        rest.is_some_and(|rest| if line.starts_with("fn ") { rest.starts_with('(') } else { rest.starts_with(": \"") })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_promise_names_tests_that_exist() {
        if let Err(Stop::Failed(faults) | Stop::Lacks(faults) | Stop::Skipped(faults)) = check() {
            panic!("{faults}");
        }
    }

    #[test]
    fn a_promise_without_a_test_and_a_test_that_is_gone_are_faults() {
        let read =
            |path: &str| (path == "tests/a.rs").then(|| "    #[test]\n    fn one() {\n    two: \"b\";".to_owned());
        let page =
            |promise: &str| format!("# S\n\n## What is promised\n\nText.\n\n{promise}\n\n## Else\n\n* No test.\n");
        assert_eq!(faults(&page("* Here. Tests: `tests/a.rs::one`,\n  `tests/a.rs::two`."), read), [""; 0]);
        for (promise, fault) in [
            ("* Nothing `here`.", "no test is named for the promise `Nothing `here`.…`"),
            ("* Gone: `tests/a.rs::three`.", "there is no test `three` in `tests/a.rs`"),
            ("* Begins so: `tests/a.rs::on`.", "there is no test `on` in `tests/a.rs`"),
            ("* Gone:\n  `tests/b.rs::one`.", "there is no test `one` in `tests/b.rs`"),
            ("None.", "has no promise"),
        ] {
            let found = faults(&page(promise), read);
            assert!(matches!(&found[..], [one] if one.contains(fault)), "{promise}: {found:?}");
        }
    }
}
