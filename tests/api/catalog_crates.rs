//! The catalog across crates, read from real binaries: what is linked, what is refused, and that a binary and the
//! program that runs say the same, byte for byte, also after fat LTO and strip, and in shared libraries.

#[path = "../support/programs.rs"]
pub mod programs;

use std::path::Path;

use programs::{dev, run, shipped};
use warpline::catalog::Records;

fn read(binary: &Path) -> Records {
    warpline_cli::binary::open(binary).unwrap_or_else(|error| panic!("{binary:?}: {error}"))
}

fn names(records: &Records) -> Vec<String> {
    records.ranges.iter().map(|range| format!("{} {} {}", range.name, range.krate(), range.version)).collect()
}

/// Reads the binary, runs it, compares; returns what it said on standard error, and its catalog.
fn same_as_running(binary: &Path) -> (String, Records) {
    let (output, records) = (run(binary), read(binary));
    assert_eq!(String::from_utf8_lossy(&output.stdout), records.to_json(), "{binary:?}");
    (String::from_utf8_lossy(&output.stderr).into_owned(), records)
}

#[test]
fn a_program_with_every_kind_of_mark_says_the_same_read_and_run() {
    for binary in [dev("full"), shipped("full")] {
        let (_, records) = same_as_running(&binary);
        assert_eq!(
            names(&records)[..4],
            [
                "full.app.block full 0.3.0",
                "full.app.copy full 0.3.0",
                "full.app.prepare full 0.3.0",
                "full.app.shared full 0.3.0"
            ]
        );
        assert!(records.faults().is_empty());
    }
}

#[test]
fn the_shipped_program_is_really_stripped() {
    let symbols = |path: &Path| std::fs::read(path).unwrap().windows(7).any(|window| window == b".symtab");
    assert!(symbols(&dev("full")) && !symbols(&shipped("full")));
}

/// What `sstrip` and `strip --strip-section-headers` do: only the program headers are left to find the notes by.
#[test]
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn a_program_without_section_headers_says_the_same() {
    for binary in [dev("full"), shipped("full")] {
        let mut bytes = std::fs::read(&binary).unwrap();
        bytes[0x28..0x30].fill(0); // e_shoff
        bytes[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
        let records = warpline_cli::binary::read(std::io::Cursor::new(bytes)).unwrap();
        assert_eq!(records.to_json(), read(&binary).to_json(), "{binary:?}");
    }
}

#[test]
fn builds_with_and_without_recording_have_one_hash() {
    assert_eq!(read(&dev("full")).catalog_hash(), read(&shipped("full")).catalog_hash());
}

#[test]
fn two_versions_of_one_crate_link_run_and_are_listed() {
    for binary in [dev("two_versions"), shipped("two_versions")] {
        let (_, records) = same_as_running(&binary);
        assert_eq!(
            names(&records),
            [
                "kernels.reduce.sum kernels 1.0.0",
                "kernels.reduce.sum kernels 2.0.0",
                "kernels.run kernels 1.0.0",
                "kernels.run kernels 2.0.0"
            ]
        );
        assert!(records.faults().is_empty());
    }
    assert_eq!(same_as_running(&dev("two_versions")).0, "recorded 2\n");
}

#[test]
fn two_crates_with_one_namespace_are_refused() {
    let (said, records) = same_as_running(&dev("two_crates"));
    let faults: Vec<String> = records.faults().iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "namespace `kernels` belongs to two crates: kernels (crates/kernels-1/src/lib.rs:5) and rival \
             (crates/rival/src/lib.rs:5); give each its own, as in `warpline::namespace!(\"rival\", …)`",
            "range `kernels.run` is declared twice: crates/kernels-1/src/lib.rs:8 (kernels) and \
             crates/rival/src/lib.rs:8 (rival); rename one of them, as in `kernels.rival.run`",
        ]
    );
    assert!(said.starts_with("refused: "), "{said}");
    for fault in faults {
        assert!(said.contains(&fault), "{said}");
    }
}

#[test]
fn a_library_and_a_binary_of_one_package_share_a_namespace() {
    let (said, records) = same_as_running(&dev("both"));
    assert_eq!(said, "started\n");
    assert_eq!(names(&records), ["both.main.run both 0.3.0", "both.run both 0.3.0"]);
    let packages: Vec<_> =
        records.namespaces.iter().map(|space| (space.package.as_str(), space.file.as_str())).collect();
    assert_eq!(packages, [("both", "both/src/lib.rs"), ("both", "both/src/main.rs")]);
    assert!(records.faults().is_empty());
}

#[test]
fn a_dependency_that_is_named_and_never_called_is_in_the_catalog() {
    for binary in [dev("named"), shipped("named")] {
        let (_, records) = same_as_running(&binary);
        assert_eq!(names(&records), ["kernels.reduce.sum kernels 1.0.0", "kernels.run kernels 1.0.0"], "{binary:?}");
        assert_eq!(records.namespaces.len(), 1);
    }
}

/// The trap that the documentation names: Cargo.toml alone links nothing.
#[test]
fn a_dependency_that_is_never_named_is_not_in_the_catalog() {
    let binary = dev("unnamed");
    assert_eq!(String::from_utf8_lossy(&run(&binary).stdout), Records::default().to_json());
    let error = warpline_cli::binary::open(&binary).unwrap_err();
    assert!(matches!(error, warpline_cli::binary::BinaryError::NoCatalog), "{error}");
}

#[test]
fn a_shared_library_has_a_catalog_of_its_own() {
    let file = format!("{}plugin{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    for library in [dev(&file), shipped(&file)] {
        let names = names(&read(&library));
        assert!(names.contains(&"plugin.step plugin 0.3.0".to_owned()), "{library:?}: {names:?}");
        assert!(names.contains(&"kernels.run kernels 1.0.0".to_owned()), "{library:?}: {names:?}");
    }
}

#[test]
fn a_library_shows_its_own_ranges_and_no_others() {
    dev("full");
    let libraries = std::fs::read_dir(programs::target().join("debug/deps")).unwrap();
    let rival = libraries
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("librival-") && name.ends_with(".rlib")
        })
        .unwrap();
    assert_eq!(names(&read(&rival)), ["kernels.rival rival 1.0.0", "kernels.run rival 1.0.0"]);
}
