//! The step that compiles the published crates with the oldest Rust that they name, where that toolchain is installed. It installs nothing.

use serde_json::Value;

use crate::features;
use crate::package::PUBLISHED;
use crate::shell::{Stop, line};

/// Compiles them with their default features, and with all of them.
pub fn run() -> Result<u64, Stop> {
    let oldest = oldest()?;
    let installed = line("rustup toolchain list").output().unwrap_or_default();
    let Some(toolchain) = toolchain_of(&oldest, &installed) else {
        return Err(Stop::Skipped(format!(
            "nothing was compiled: no toolchain of Rust {oldest} is installed; `rustup toolchain install {oldest} --profile minimal`"
        )));
    };
    let packages = PUBLISHED.map(|name| format!("-p {name}")).join(" ");
    let all = features::all(&PUBLISHED)?;
    for features in [String::new(), format!("--features {all}")] {
        // In a folder of its own: two compilers share nothing.
        let check = format!("cargo check --locked --target-dir target/msrv {packages} --lib --bins {features}");
        line(&format!("rustup run {toolchain} {check}")).run()?;
    }
    Ok(0)
}

/// The `rust-version` of the workspace.
fn oldest() -> Result<String, Stop> {
    oldest_of(&features::metadata("--no-deps")?)
}

/// The one version that all published crates have.
fn oldest_of(metadata: &Value) -> Result<String, Stop> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let published = packages.filter(|package| package["name"].as_str().is_some_and(|name| PUBLISHED.contains(&name)));
    let mut versions: Vec<_> = published.map(|package| package["rust_version"].as_str().unwrap_or("none")).collect();
    versions.sort_unstable();
    versions.dedup();
    match versions[..] {
        [version] if version != "none" => Ok(version.to_owned()),
        _ => Err(Stop::Failed(format!(
            "the published crates must have one `rust-version`, that of the workspace, and they have {}",
            versions.join(", ")
        ))),
    }
}

/// The installed toolchain of this version, with any last number: `1.88` and `1.88.0` are both 1.88.
fn toolchain_of<'a>(version: &str, installed: &'a str) -> Option<&'a str> {
    let names = installed.lines().filter_map(|line| line.split_whitespace().next());
    let mut fitting = names.filter(|name| {
        let rest = name.strip_prefix(version);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-') || rest.starts_with('.'))
    });
    fitting.next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_toolchain_has_the_version_and_not_one_that_begins_so() {
        let installed =
            "stable-x86_64-unknown-linux-gnu (active, default)\n1.880-x86_64\n1.88.0-x86_64-unknown-linux-gnu\n";
        assert_eq!(toolchain_of("1.88", installed), Some("1.88.0-x86_64-unknown-linux-gnu"));
        assert_eq!(toolchain_of("1.88", "1.88-x86_64-unknown-linux-gnu\n"), Some("1.88-x86_64-unknown-linux-gnu"));
        assert_eq!(toolchain_of("1.88", "stable (default)\n1.89\n1.880\n"), None);
        assert_eq!(toolchain_of("1.88", ""), None);
    }

    #[test]
    fn all_published_crates_have_one_oldest_rust() {
        let of = |versions: [Value; 2]| {
            let [one, two] = versions;
            let (one, two) = (
                json!({"name": "warpline", "rust_version": one}),
                json!({"name": "warpline-core", "rust_version": two}),
            );
            oldest_of(&json!({"packages": [one, two, {"name": "other", "rust_version": "1.94"}]})).ok()
        };
        assert_eq!(of([json!("1.88"), json!("1.88")]).as_deref(), Some("1.88"));
        assert_eq!(of([json!("1.88"), json!("1.90")]), None);
        assert_eq!(of([json!(null), json!(null)]), None);
    }
}
