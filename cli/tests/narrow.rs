//! Tables on a narrow terminal: names stay whole, and what has no room is left out and named.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "other tests need more of it")]
#[path = "support/target.rs"]
mod target;
#[allow(dead_code, reason = "other tests need more of it")]
#[path = "support/terminal.rs"]
mod terminal;

use std::path::Path;

use target::{Target, runtime_dir, warpline};
use terminal::Terminal;

warpline::namespace!("target", "a program that is asked from outside");

warpline::range! {
    LONG = "target.a_part_with_a_name_as_long_as_names_are": "A description that takes more than one line where there is \
        no room for all of it.", fields(batch, sequence_length, heads), lane = "attention";
}

/// What a command leaves on a terminal of this width.
fn on_terminal(dir: &Path, args: &[&str], columns: u16, end: &str) -> Vec<String> {
    Terminal::start(warpline(dir, args), 50, columns)
        .until("all of it", |lines| lines.iter().any(|line| line.contains(end)))
}

#[test]
fn the_catalog_breaks_no_name_however_narrow_the_terminal_is() {
    assert!(!LONG.host().is_active());
    let dir = runtime_dir();
    let me = std::env::current_exe().expect("this test");
    let me = me.to_str().expect("UTF-8");
    for columns in [200, 120, 80, 60] {
        let lines = on_terminal(dir.path(), &["catalog", me], columns, " ranges in 1 namespace");
        let is_name = |line: &&String| line.trim_start().starts_with("target.");
        let names: Vec<_> =
            lines.iter().filter(is_name).filter_map(|line| line.split_ascii_whitespace().next()).collect();
        let all = [
            "target.a_part_with_a_name_as_long_as_names_are",
            "target.load",
            "target.part",
            "target.rare",
            "target.step",
            "target.sync",
        ];
        assert_eq!(names, all, "{columns}: {lines:?}");
        let head = &lines[0];
        assert!(head.contains("what it is") && head.trim_start().starts_with("range"), "{lines:?}");
        assert_eq!(head.contains("crate"), columns == 200, "{columns}: {lines:?}");
        // A terminal breaks the line anywhere, and drops blanks there.
        let said = lines.concat().replace(' ', "");
        let left_out = said.contains(";theterminalistoonarrowforthecolumn") && said.contains("`crate`");
        assert_eq!(left_out, columns < 200, "{columns}: {lines:?}");
        // Words go on below, and are whole, too.
        let words = lines.join(" ");
        for word in ["description", "takes", "more"] {
            assert!(words.split_ascii_whitespace().any(|it| it == word), "{columns}: {word}: {lines:?}");
        }
    }
}

#[test]
fn the_list_of_programs_breaks_no_name() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let pid = target.pid();
    for columns in [80, 40] {
        let lines = on_terminal(dir.path(), &["ps"], columns, "1 program");
        let words: Vec<_> = lines.iter().flat_map(|line| line.split_ascii_whitespace()).collect();
        for word in [&*pid, "records", "nothing", "pid", "state"] {
            assert!(words.contains(&word), "{columns}: {word}: {lines:?}");
        }
    }
    target.end();
}
