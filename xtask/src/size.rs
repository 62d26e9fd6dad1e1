//! The step that fails when a crate has grown: production lines, conditions (`#[cfg(…)]` and `cfg_attr`) and public
//! names of each crate, and how many crates a dependent of `warpline` compiles, against a checked-in table. `cargo
//! xtask size --bless` writes the table anew, and wants the reason if a figure is larger than before.
//!
//! A line counts if it has a token of Rust that is compiled without `cfg(test)`: blank lines, comments and
//! documentation do not.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use proc_macro2::{TokenStream, TokenTree};

use crate::cycles::CHECKED;
use crate::shell::{Stop, line, root};
use crate::tokens::{attribute, is_for_tests, is_punct, item_length};

/// The table.
const TABLE: &str = "xtask/size.txt";

/// What the columns hold.
const COLUMNS: [&str; 4] = ["lines", "cfg", "names", "crates"];

/// The crate whose names `cargo xtask api` lists, and the list.
const NAMED: (&str, &str) = ("runtime/warpline", "runtime/public-api.txt");

/// The features of dependents.
const FEATURES: [&str; 3] = ["", "enable", "enable,cuda,cupti"];

/// A row of the table.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    /// None where a column says nothing of this row.
    figures: [Option<usize>; COLUMNS.len()],
    /// Why it grew the last time.
    reason: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.figures.map(|figure| figure.map_or("-".to_owned(), |figure| figure.to_string()));
        write_row(f, &self.name, figures.each_ref().map(String::as_str), &self.reason)
    }
}

fn write_row(f: &mut impl fmt::Write, name: &str, cells: [&str; COLUMNS.len()], reason: &str) -> fmt::Result {
    let cells: String = cells.iter().map(|cell| format!("  {cell:>6}")).collect();
    let reason = if reason.is_empty() { String::new() } else { format!("  {reason}") };
    write!(f, "{name:<30}{cells}{reason}")
}

/// Compares the crates with the table.
///
/// # Errors
/// Each figure that is larger than in the table.
pub fn check() -> Result<u64, Stop> {
    compare(&measured()?)
}

fn compare(rows: &[Row]) -> Result<u64, Stop> {
    let table = read();
    let grown = differences(&table, rows, |was, is| is > was);
    if !grown.is_empty() {
        return Err(Stop::Failed(grown.join("\n")));
    }
    for smaller in differences(&table, rows, |was, is| is < was) {
        println!("{smaller}: `cargo xtask size --bless` takes it into the table");
    }
    Ok(0)
}

/// Runs `cargo xtask size` with these options.
///
/// # Errors
/// Options that it does not have, a source that cannot be read, or a table that cannot be written.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    let result = match options {
        [] => measured().and_then(|rows| {
            print!("{}", table_of(&rows));
            compare(&rows).map(drop)
        }),
        ["--bless", reason @ ..] => bless(&reason.join(" ")),
        _ => return Err(format!("`size` does not know `{}`", options.join(" "))),
    };
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Stop::Failed(why) | Stop::Lacks(why) | Stop::Skipped(why)) => {
            println!("{why}");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn bless(reason: &str) -> Result<(), Stop> {
    let rows = blessed(&read(), measured()?, reason).map_err(Stop::Failed)?;
    std::fs::write(root().join(TABLE), table_of(&rows)).map_err(|error| Stop::Failed(format!("`{TABLE}`: {error}")))
}

/// The rows with the reason of each: a new one for those that grew.
///
/// # Errors
/// The rows that grew, if there is no reason.
fn blessed(table: &[Row], mut rows: Vec<Row>, reason: &str) -> Result<Vec<Row>, String> {
    let grown = differences(table, &rows, |was, is| is > was);
    if reason.is_empty() && !grown.is_empty() {
        return Err(format!("{}\nsay why: `cargo xtask size --bless \"REASON\"`", grown.join("\n")));
    }
    for row in &mut rows {
        let is_grown = !differences(table, std::slice::from_ref(row), |was, is| is > was).is_empty();
        let before = table.iter().find(|before| before.name == row.name);
        row.reason = if is_grown { reason } else { before.map_or("", |before| &before.reason) }.to_owned();
    }
    Ok(rows)
}

/// Each figure that differs so from the table; of a new row, those are all.
fn differences(table: &[Row], rows: &[Row], differs: fn(usize, usize) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for row in rows {
        let before = table.iter().find(|before| before.name == row.name);
        for (column, is) in row.figures.iter().enumerate() {
            let was = before.and_then(|before| before.figures[column]).unwrap_or(0);
            if let Some(is) = is.filter(|is| differs(was, *is)) {
                found.push(format!("{}: {} {is}, in the table {was}", row.name, COLUMNS[column]));
            }
        }
    }
    found
}

fn table_of(rows: &[Row]) -> String {
    let mut text = String::new();
    // Text takes what is written to it.
    let _ = write_row(&mut text, "crate", COLUMNS, "why it grew the last time");
    rows.iter().fold(text + "\n", |text, row| format!("{text}{row}\n"))
}

/// The table; a row that is not understood is none, and so grows.
fn read() -> Vec<Row> {
    let text = std::fs::read_to_string(root().join(TABLE)).unwrap_or_default();
    text.lines().skip(1).filter_map(parsed).collect()
}

fn parsed(line: &str) -> Option<Row> {
    let mut cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    let name = cells.next()?.to_owned();
    let mut figures = [None; COLUMNS.len()];
    for figure in &mut figures {
        *figure = cells.next()?.parse().ok();
    }
    Some(Row { name, figures, reason: cells.collect::<Vec<_>>().join(" ") })
}

/// The rows as they are now.
fn measured() -> Result<Vec<Row>, Stop> {
    let row = |name: &str, figures| Row { name: name.to_owned(), figures, reason: String::new() };
    let mut rows = Vec::new();
    for folder in CHECKED {
        let Counts { lines, conditions } = counts(&root().join(folder).join("src")).map_err(Stop::Failed)?;
        let names = if folder == NAMED.0 { Some(names()?) } else { None };
        rows.push(row(folder, [Some(lines), Some(conditions), names, None]));
    }
    for features in FEATURES {
        let name = format!("a dependent, {}", if features.is_empty() { "no feature" } else { features });
        rows.push(row(&name, [None, None, None, Some(crates(features)?)]));
    }
    Ok(rows)
}

/// How many names the list of the public API has.
fn names() -> Result<usize, Stop> {
    let list = std::fs::read_to_string(root().join(NAMED.1));
    let list = list.map_err(|error| Stop::Failed(format!("`{}`: {error}", NAMED.1)))?;
    Ok(list.lines().filter(|line| !line.starts_with("impl")).count())
}

/// How many crates are compiled for `warpline` with these features, itself among them.
fn crates(features: &str) -> Result<usize, Stop> {
    let command = format!("cargo tree -p warpline --locked -e normal,build --prefix none --features={features}");
    let tree = line(&command).output().ok_or_else(|| Stop::Failed(format!("`{command}` fails; run it to see why")))?;
    // Behind name and version: where it is, that it is a macro, that it was shown before.
    let names =
        tree.lines().filter_map(|line| line.match_indices(' ').nth(1).map_or(Some(line), |(at, _)| line.get(..at)));
    Ok(names.collect::<BTreeSet<_>>().len())
}

#[derive(Debug, Default, PartialEq)]
struct Counts {
    lines: usize,
    conditions: usize,
}

/// Counts the files of a folder and those below it.
fn counts(src: &Path) -> Result<Counts, String> {
    let (mut files, mut tests) = (Vec::new(), Vec::new());
    for path in rust_files(src)? {
        let text = std::fs::read_to_string(&path).map_err(|error| format!("`{}`: {error}", path.display()))?;
        let file = File::read(&text).map_err(|error| format!("`{}`: {error}", path.display()))?;
        let is_room = ["lib", "main", "mod"].iter().any(|room| path.file_stem().is_some_and(|name| name == *room));
        let below = if is_room { path.with_file_name("") } else { path.with_extension("") };
        tests.extend(file.tests.iter().map(|name| below.join(name)));
        files.push((path.with_extension(""), file));
    }
    let is_shipped = |path: &Path| !tests.iter().any(|tests| path.starts_with(tests));
    let shipped = files.iter().filter(|(path, _)| is_shipped(path));
    Ok(shipped.fold(Counts::default(), |counts, (_, file)| Counts {
        lines: counts.lines + file.lines.len(),
        conditions: counts.conditions + file.conditions,
    }))
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("`{}`: {error}", folder.display()))?;
    let mut files = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

/// What a file has beside its tests.
#[derive(Default)]
struct File {
    /// The numbers of the lines with code.
    lines: BTreeSet<usize>,
    conditions: usize,
    /// The modules of tests that are files of their own.
    tests: Vec<String>,
}

impl File {
    fn read(text: &str) -> Result<File, String> {
        let mut file = File::default();
        file.stream(text.parse().map_err(|error| format!("{error}"))?);
        // In a text of several lines.
        let texts: Vec<_> = text.lines().collect();
        let is_blank = |number: usize| texts.get(number - 1).is_none_or(|line| line.trim().is_empty());
        file.lines.retain(|number| !is_blank(*number));
        Ok(file)
    }

    fn stream(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let (attribute, length) = match is_punct(Some(token), '#') {
                true => attribute(&tokens[at..]),
                false => (None, 1),
            };
            at += length;
            match (attribute, token) {
                // `#![cfg(test)]`: all of it.
                (Some(attribute), _) if is_for_tests(attribute) && length == 3 => return,
                (Some(attribute), _) if is_for_tests(attribute) => {
                    let item = &tokens[at..at + item_length(&tokens[at..])];
                    if let [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(_)] = item
                        && word == "mod"
                    {
                        self.tests.push(name.to_string());
                    }
                    at += item.len();
                }
                // Documentation has become an attribute whose tokens stand where the comment does.
                (Some(_), sign) if sign.span().source_text().is_some_and(|text| text.starts_with('/')) => {}
                (Some(attribute), sign) => {
                    let mut words = attribute.stream().into_iter();
                    let is_condition =
                        matches!(words.next(), Some(TokenTree::Ident(word)) if word == "cfg" || word == "cfg_attr");
                    self.conditions += usize::from(is_condition);
                    self.token(sign);
                    self.token(&TokenTree::Group(attribute.clone()));
                }
                (None, token) => self.token(token),
            }
        }
    }

    fn token(&mut self, token: &TokenTree) {
        match token {
            TokenTree::Group(group) => {
                self.lines.extend([group.span_open().start().line, group.span_close().end().line]);
                self.stream(group.stream());
            }
            token => self.lines.extend(token.span().start().line..=token.span().end().line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str) -> (usize, usize) {
        let file = File::read(text).unwrap_or_else(|error| panic!("{error}"));
        (file.lines.len(), file.conditions)
    }

    #[test]
    fn code_is_counted_and_what_is_around_it_is_not() {
        for (text, lines) in [
            ("//! A file.\n\n/// One.\n/** Two\n   lines. */\n// None.\nfn f() {}\n", 1),
            ("fn f(\n    a: u8, // Why.\n\n    /* b */\n) {\n    // None.\n}", 4),
            ("const A: &str = \"one\n\n// three\";", 2),
            ("macro_rules! m {\n    () => {\n        /// Text.\n        fn f() {}\n    };\n}", 5),
            ("#[doc = \"text\"]\nfn f() {}\n\n#![allow(unused)]", 3),
            ("", 0),
        ] {
            assert_eq!(counted(text), (lines, 0), "{text}");
        }
    }

    #[test]
    fn tests_are_left_out() {
        for text in [
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}",
            "#[cfg(test)]\nuse a::{b, c};\nfn f() {}\n#[cfg(all(test, unix))]\n#[allow(unused)]\nfn g<A, B>() {\n}",
            "fn f() {}\n#[cfg(test)]\nmod tests;",
        ] {
            assert_eq!(counted(text), (1, 0), "{text}");
        }
        assert_eq!(counted("#![cfg(test)]\nfn f() {}\nfn g() {}"), (0, 0));
        assert_eq!(counted("#[cfg(not(test))]\nfn f() {}"), (2, 1));
        assert_eq!(counted("#[cfg_attr(unix, path = \"a.rs\")]\nmod a;\nfn f() -> bool { cfg!(unix) }"), (3, 1));
    }

    #[test]
    fn files_of_tests_are_left_out_by_their_declaration() {
        let folder = std::env::temp_dir().join(format!("warpline-size-{}", std::process::id()));
        for (path, text) in [
            ("lib.rs", "mod a;\n#[cfg(test)]\nmod checks;\nmod test;"),
            ("checks.rs", "fn f() {}"),
            ("checks/deep.rs", "fn f() {}"),
            ("a.rs", "#[cfg(test)]\nmod tests;"),
            ("a/tests.rs", "fn f() {}"),
            ("test.rs", "\nfn f() {}\n"),
        ] {
            std::fs::create_dir_all(folder.join(path).with_file_name("")).expect("a folder");
            std::fs::write(folder.join(path), text).expect("a file");
        }
        let counts = counts(&folder);
        std::fs::remove_dir_all(&folder).expect("it is ours");
        assert_eq!(counts, Ok(Counts { lines: 3, conditions: 0 }));
    }

    #[test]
    fn growth_needs_a_reason_and_shrinking_none() {
        let row = |name: &str, lines, reason: &str| Row {
            name: name.to_owned(),
            figures: [Some(lines), Some(1), None, None],
            reason: reason.to_owned(),
        };
        let table = [row("a", 10, "the parser"), row("b", 10, "")];
        let is_more = |was, is| is > was;
        assert_eq!(
            differences(&table, &[row("a", 11, ""), row("b", 9, "")], is_more),
            ["a: lines 11, in the table 10"]
        );
        assert_eq!(differences(&table, &[row("new", 5, "")], is_more).len(), 2);
        assert!(blessed(&table, vec![row("a", 11, "")], "").is_err_and(|why| why.contains("REASON")));
        let rows = blessed(&table, vec![row("a", 9, ""), row("b", 12, "")], "a feature").expect("a reason");
        assert_eq!(rows, [row("a", 9, "the parser"), row("b", 12, "a feature")]);
        assert_eq!(blessed(&table, vec![row("b", 9, "")], "").expect("it shrinks"), [row("b", 9, "")]);
    }

    #[test]
    fn a_row_is_read_as_it_is_written() {
        let rows = [("a dependent, no feature", "a crate more"), ("cli", "")].map(|(name, reason)| Row {
            name: name.to_owned(),
            figures: [Some(10_000), None, Some(0), None],
            reason: reason.to_owned(),
        });
        let read: Vec<_> = table_of(&rows).lines().skip(1).filter_map(parsed).collect();
        assert_eq!(read, rows);
    }
}
