//! The texts in `tests/golden/`, which have a folder for each command. With `WARPLINE_BLESS=1`, tests write them; read the difference before it is
//! committed.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the texts are, and in `traces/` the traces that were recorded for them.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The text must be that of this file, such as `report/graph.txt`.
#[track_caller]
pub fn assert_golden(name: &str, text: &str) {
    let path = folder().join(name);
    if std::env::var_os("WARPLINE_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{name}: {error}; `WARPLINE_BLESS=1` writes it:\n{text}"));
    assert_eq!(text, golden, "{name}:\n{text}");
}
