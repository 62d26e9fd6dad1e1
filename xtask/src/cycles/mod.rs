//! The step that fails on a cycle between modules of one crate, and prints it. `cargo xtask cycles CRATE` runs it on any crate.
//!
//! A module depends on the modules whose items it names, in `use` and in paths; a name that is re-exported counts for the module
//! that defines it. A folder is one room: a dependency counts between the two siblings that contain its ends, at the level where
//! the paths of the ends part, so a cycle is always one between siblings. A dependency between a module and one of its own
//! ancestors never counts: a parent that uses and re-exports its children, which use the parent's items, is the usual case.
//! What is compiled for tests alone (`#[cfg(test)]`) is left out. The check reads tokens, not types: a call of a method, a name
//! that comes through a glob, and a module that only a macro declares are not seen.

mod graph;
mod modules;
mod scan;

use std::path::Path;
use std::process::ExitCode;

use graph::Cycle;

use crate::shell::{Stop, root};

/// The folders of the crates that have no cycle.
pub const CHECKED: [&str; 14] = [
    "annotate",
    "attack",
    "cli",
    "judge",
    "macros",
    "ranks",
    "report",
    "runtime/core",
    "runtime/cuda",
    "runtime/hip",
    "runtime/timeline",
    "runtime/trace",
    "runtime/warpline",
    "xtask",
];

/// Checks the crates that have no cycle.
///
/// # Errors
/// One of them has a cycle.
pub fn check() -> Result<u64, Stop> {
    let mut faults = Vec::new();
    for folder in CHECKED {
        let cycles = cycles(folder).map_err(Stop::Failed)?;
        faults.extend(cycles.iter().map(|cycle| format!("{folder}: {cycle}")));
    }
    if faults.is_empty() { Ok(0) } else { Err(Stop::Failed(faults.join("\n"))) }
}

/// Runs `cargo xtask cycles` with these options.
///
/// # Errors
/// Options that it does not have, or a crate that is not there.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    let folders = if options.is_empty() { &CHECKED[..] } else { options };
    let mut all_clean = true;
    for folder in folders {
        let cycles = cycles(folder)?;
        if cycles.is_empty() {
            println!("{folder}: no cycle between modules");
        }
        for cycle in &cycles {
            println!("{folder}: {cycle}");
        }
        all_clean &= cycles.is_empty();
    }
    Ok(if all_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The cycles of the crate in this folder of the repository.
fn cycles(folder: &str) -> Result<Vec<Cycle>, String> {
    let src = Path::new(folder).join("src");
    let read = |path: &Path| std::fs::read_to_string(root().join(path)).ok();
    let modules = scan::read(&src.join("lib.rs"), &read).or_else(|error| match read(&src.join("lib.rs")) {
        Some(_) => Err(error),
        None => scan::read(&src.join("main.rs"), &read),
    })?;
    Ok(graph::cycles(&modules))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::PathBuf;

    use super::*;

    /// The cycles of a crate that is made of these files.
    fn cycles_of(files: &[(&str, &str)]) -> Vec<String> {
        let files: HashMap<_, _> = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
        let modules = scan::read(Path::new("lib.rs"), &|path: &Path| files.get(path).cloned());
        let modules = modules.unwrap_or_else(|error| panic!("{error}"));
        graph::cycles(&modules).iter().map(Cycle::to_string).collect()
    }

    #[test]
    fn a_cycle_is_printed_with_its_places() {
        let cycles = cycles_of(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;"),
            ("a.rs", "use crate::b::B;\npub struct A;"),
            ("b.rs", "\npub struct B;\nfn f() { crate::c::go() }"),
            ("c.rs", "use super::a;\npub fn go(_: a::A) {}"),
        ]);
        let wanted = "a cycle of 3 modules, the shortest of a knot of 3:\n  a -> b (a.rs:1 `crate::b::B`)\n    -> c (b.rs:3 \
                      `crate::c::go`)\n    -> a (c.rs:1 `super::a`)";
        assert_eq!(cycles, [wanted]);
    }

    #[test]
    fn the_shortest_cycle_of_a_knot_is_shown_with_the_size_of_the_knot() {
        let cycles = cycles_of(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::{c, d};"),
            ("c.rs", "use crate::{a, b};"),
            ("d.rs", ""),
        ]);
        assert_eq!(cycles.len(), 1);
        assert!(cycles[0].starts_with("a cycle of 2 modules, the shortest of a knot of 3:\n  b -> c"), "{}", cycles[0]);
    }

    #[test]
    fn a_parent_and_its_child_may_use_each_other() {
        let cycles = cycles_of(&[
            ("lib.rs", "mod a; pub use a::A; pub struct Error;"),
            ("a/mod.rs", "mod deep; pub use deep::A; pub struct Shared;"),
            ("a/deep.rs", "use super::Shared; use crate::Error; pub struct A(Shared, Error);"),
        ]);
        assert_eq!(cycles, [""; 0]);
    }

    #[test]
    fn a_re_export_counts_for_the_module_that_defines_the_item() {
        let files = |a: &'static str| {
            [
                ("lib.rs", "mod a; mod b; pub use b::B; pub(crate) mod all { pub use crate::b::*; }"),
                ("a.rs", a),
                ("b.rs", "mod inner; pub use inner::B as C; pub struct B; use crate::a;"),
                ("b/inner.rs", "pub struct B;"),
            ]
        };
        for through in ["use crate::B;", "use super::B as D;", "use crate::b::C;", "fn f(_: crate::b::C) {}"] {
            let cycles = cycles_of(&files(through));
            assert!(matches!(&cycles[..], [one] if one.contains("of 2 modules")), "{through}: {cycles:?}");
        }
        // Through the glob: `a` depends on `b`, and not on the module that hands it on.
        let cycles = cycles_of(&files("use crate::all::B;"));
        assert!(matches!(&cycles[..], [one] if one.contains("-> b (a.rs:1 `crate::all::B`)")), "{cycles:?}");
        let cycles = cycles_of(&files("use crate::all;"));
        assert!(matches!(&cycles[..], [one] if one.contains("-> all (a.rs:1 `crate::all`)")), "{cycles:?}");
    }

    #[test]
    fn a_module_that_was_imported_leads_to_what_is_in_it() {
        let cycles = cycles_of(&[
            ("lib.rs", "mod a; mod b { pub use crate::c as d; } mod c;"),
            ("a.rs", "use crate::b;\n\nfn f() { b::d::go() }"),
            ("c.rs", "pub fn go() { crate::a::f() }"),
        ]);
        assert!(matches!(&cycles[..], [one] if one.contains("a -> c (a.rs:3 `b::d::go`)")), "{cycles:?}");
    }

    #[test]
    fn siblings_in_a_folder_are_seen_and_the_folder_is_one_room_outside() {
        let cycles = cycles_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod x; mod y;"),
            ("a/x.rs", "use crate::b::B; use super::y::Y; pub struct X;"),
            ("a/y.rs", "pub struct Y; use crate::a::x;"),
            ("b.rs", "use crate::a::y::Y; pub struct B;"),
        ]);
        assert!(
            matches!(&cycles[..], [a, b] if a.contains("\n  a -> b") && b.contains("\n  a::x -> a::y")),
            "{cycles:?}"
        );
    }

    #[test]
    fn tests_are_left_out() {
        let cycles = cycles_of(&[
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod tests;"),
            (
                "a.rs",
                "#[cfg(test)] use crate::b::{B, C}; #[cfg(test)] mod tests { use crate::b; }
                 #[cfg(all(test, unix))] pub fn f<A, B>() { crate::b::g() } struct S { #[cfg(test)] b: crate::b::B, n: u8 }",
            ),
            ("b.rs", "use crate::a::f;"),
        ]);
        assert_eq!(cycles, [""; 0]);
        let cycles = cycles_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "#[cfg(test)] use crate::c; #[cfg(not(test))] use crate::b;"),
            ("b.rs", "use crate::a::f;"),
        ]);
        assert_eq!(cycles.len(), 1);
    }

    #[test]
    fn paths_in_macros_and_attributes_are_seen_and_visibilities_are_not() {
        for text in [
            "macro_rules! m { () => { $crate::b::f() } }",
            "fn f() { println!(\"{}\", crate::b::f()) }",
            "#[error(\"{}\", crate::b::f())] struct E;",
            "fn f() { use crate::b::f; f() }",
        ] {
            assert_eq!(cycles_of(&[("lib.rs", "mod a; mod b { use crate::a; }"), ("a.rs", text)]).len(), 1, "{text}");
        }
        let files = [("lib.rs", "mod a; mod b { use crate::a; }"), ("a.rs", "pub(in crate::b) fn f() {}")];
        assert_eq!(cycles_of(&files), [""; 0]);
    }

    #[test]
    fn files_are_found_where_rust_looks_for_them() {
        let cycles = cycles_of(&[
            (
                "lib.rs",
                "#[path = \"other/place.rs\"] mod a; mod b { mod c; } #[cfg(x)] mod d; #[cfg(not(x))] #[path = \"e.rs\"] mod d;",
            ),
            ("other/place.rs", "mod below; use crate::b;"),
            ("other/below.rs", "use crate::d;"),
            ("b/c.rs", "use crate::a;"),
            ("d.rs", ""),
            ("e.rs", "use crate::a;"),
        ]);
        assert!(matches!(&cycles[..], [one] if one.contains("of a knot of 3")), "{cycles:?}");
    }

    #[test]
    fn both_files_of_a_module_with_a_path_under_a_condition_are_read() {
        let lib = "#[cfg_attr(not(unix), path = \"other.rs\")] mod a; mod b { use crate::a; }";
        for (unix, other) in [("use crate::b;", ""), ("", "use crate::b;")] {
            let cycles = cycles_of(&[("lib.rs", lib), ("a.rs", unix), ("other.rs", other)]);
            assert_eq!(cycles.len(), 1, "`{unix}` and `{other}`");
        }
    }

    #[test]
    fn the_checked_crates_have_no_cycle() {
        if let Err(Stop::Failed(faults) | Stop::Lacks(faults) | Stop::Skipped(faults)) = check() {
            panic!("{faults}");
        }
    }
}
