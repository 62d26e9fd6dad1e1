//! `cargo xtask dist`: the command `warpline` as a program for download, with its SHA-256 and the licenses, in `target/dist`. It uploads nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

use crate::features;
use crate::shell::{Stop, line, root, target};

/// What the program may weigh.
const MOST_BYTES: u64 = 15_000_000;

/// The program that is built.
const COMMAND: &str = "warpline";

/// The package that has it.
const PACKAGE: &str = "warpline-cli";

/// What goes beside it.
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// The licenses of the crates that are compiled into it, which ask to be passed on with it.
const OF_OTHERS: &str = "LICENSES-OF-DEPENDENCIES";

/// What the files of a crate with its license begin with.
const LICENSE_FILES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "UNLICENSE"];

/// What stands in place of the text for a crate without such a file.
const NO_FILE: &str = "The package has no file with its license. Its manifest names the license, which stands behind the crate's name above.";

/// The target whose programs need nothing of the system that they run on, and the one whose programs need its C library.
const STATIC: &str = "x86_64-unknown-linux-musl";
const OF_SYSTEM: &str = "x86_64-unknown-linux-gnu";

/// Builds it.
///
/// # Errors
/// Options: it has none.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    if !options.is_empty() {
        return Err(format!("`dist` has no options, and `{}` is given", options.join(" ")));
    }
    Ok(match dist() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Failed(why) | Stop::Lacks(why) | Stop::Skipped(why)) => {
            eprintln!("failed: {why}");
            ExitCode::FAILURE
        }
    })
}

fn dist() -> Result<(), Stop> {
    let (program, triple) = build()?;
    // What it says shows that it starts.
    let version = line(&format!("{} --version", program.display()))
        .output()
        .ok_or_else(|| Stop::Failed(format!("`{} --version` fails; run it to see why", program.display())))?;
    let folder = target().join("dist");
    let packed = pack(&program, &folder, &format!("{COMMAND}-{triple}"))?;
    let of_others = folder.join(OF_OTHERS);
    fs::write(&of_others, licenses_of_others(triple)?).map_err(|error| failed(&of_others, &error))?;
    let bytes = fs::metadata(&packed).map_err(|error| failed(&packed, &error))?.len();
    println!("{}: {}, {triple}, {:.1} MB", packed.display(), version.trim(), bytes as f64 / 1e6);
    match bytes {
        0..=MOST_BYTES => Ok(()),
        _ => Err(Stop::Failed(format!(
            "the program has {bytes} bytes, and {MOST_BYTES} are the limit; `[profile.dist]` in Cargo.toml says how it is built"
        ))),
    }
}

/// Builds the program for the first of the targets for which it links, and says for which one.
fn build() -> Result<(PathBuf, &'static str), Stop> {
    let build = |triple: &str| {
        line(&format!("cargo build --locked --profile dist --package {PACKAGE} --bin {COMMAND} --target {triple}"))
            .run()
    };
    let installed = line("rustup target list --installed").output().unwrap_or_default();
    let triple = match is_listed(STATIC, &installed) {
        true if build(STATIC).is_ok() => STATIC,
        true => {
            println!("it does not link for {STATIC}: the program needs the C library of this system, or a newer one");
            build(OF_SYSTEM).map(|()| OF_SYSTEM)?
        }
        false => {
            println!(
                "the target {STATIC} is not installed: the program needs the C library of this system, or a newer one"
            );
            build(OF_SYSTEM).map(|()| OF_SYSTEM)?
        }
    };
    Ok((target().join(triple).join("dist").join(COMMAND), triple))
}

fn is_listed(triple: &str, installed: &str) -> bool {
    installed.lines().any(|line| line.trim() == triple)
}

/// Puts the program under this name, its sum and the licenses into the folder, and nothing else. Returns where the program is.
fn pack(program: &Path, folder: &Path, name: &str) -> Result<PathBuf, Stop> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| failed(folder, &error))?;
    }
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let copy = |from: &Path, name: &str| {
        let to = folder.join(name);
        fs::copy(from, &to).map(|_| to).map_err(|error| failed(from, &error))
    };
    let packed = copy(program, name)?;
    for license in LICENSES {
        copy(&root().join(license), license)?;
    }
    let command = format!("sha256sum {}", packed.display());
    let said = line(&command).output().ok_or_else(|| Stop::Failed(format!("`{command}` fails; run it to see why")))?;
    let sum = said.split_whitespace().next().unwrap_or_default();
    // As `sha256sum --check` reads it, beside the program.
    let sums = folder.join(format!("{name}.sha256"));
    fs::write(&sums, format!("{sum}  {name}\n")).map_err(|error| failed(&sums, &error))?;
    Ok(packed)
}

/// The texts of the licenses of all crates of others in the program, each text once, with the crates that it is of.
fn licenses_of_others(triple: &str) -> Result<String, Stop> {
    let metadata = features::metadata(&format!("--locked --filter-platform {triple}"))?;
    let packages = packages_in(&metadata, PACKAGE);
    let mut crates_by_text = BTreeMap::<String, Vec<String>>::new();
    for package in packages.iter().filter(|package| package["source"].is_string()) {
        let text = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} {} ({})", text("name"), text("version"), text("license"));
        let folder = Path::new(text("manifest_path")).parent().unwrap_or(Path::new("")).to_owned();
        let mut licenses = license_texts(&folder).map_err(|error| failed(&folder, &error))?;
        if licenses.is_empty() {
            licenses.push(NO_FILE.to_owned());
        }
        for license in licenses {
            crates_by_text.entry(license).or_default().push(name.clone());
        }
    }
    let sections = crates_by_text.iter().map(|(license, crates)| {
        let rule = "-".repeat(80);
        format!("{rule}\n{}\n{rule}\n\n{}\n\n", crates.join("\n"), license.trim_end())
    });
    Ok(sections.collect())
}

/// What is compiled into a package: itself, and what it needs other than for tests and for its build.
fn packages_in<'a>(metadata: &'a Value, package: &str) -> Vec<&'a Value> {
    let all = |at: &'a Value| at.as_array().into_iter().flatten();
    let packages = || all(&metadata["packages"]);
    let mut left: Vec<_> = packages().filter(|it| it["name"] == package).filter_map(|it| it["id"].as_str()).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = left.pop() {
        if !found.insert(id) {
            continue;
        }
        let node = all(&metadata["resolve"]["nodes"]).find(|node| node["id"] == id);
        let needed = node.into_iter().flat_map(|node| all(&node["deps"]));
        let needed = needed.filter(|needed| all(&needed["dep_kinds"]).any(|kind| kind["kind"].is_null()));
        left.extend(needed.filter_map(|needed| needed["pkg"].as_str()));
    }
    packages().filter(|it| it["id"].as_str().is_some_and(|id| found.contains(id))).collect()
}

/// The files of a crate that hold its license.
fn license_texts(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.path().is_file() && LICENSE_FILES.iter().any(|begin| name.starts_with(begin)) {
            texts.push(String::from_utf8_lossy(&fs::read(entry.path())?).replace("\r\n", "\n"));
        }
    }
    Ok(texts)
}

fn failed(path: &Path, error: &std::io::Error) -> Stop {
    Stop::Failed(format!("`{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_target_is_listed_by_its_whole_name() {
        assert!(is_listed(STATIC, "aarch64-apple-darwin\nx86_64-unknown-linux-musl\n"));
        assert!(!is_listed(STATIC, "aarch64-unknown-linux-musl\nx86_64-unknown-linux-muslabi64\n"));
        assert!(!is_listed(STATIC, ""));
    }

    #[test]
    fn a_package_has_the_program_its_sum_and_the_licenses_and_nothing_older() {
        let folder = std::env::temp_dir().join(format!("warpline-dist-{}", std::process::id()));
        let (program, packed) = (folder.join("program"), folder.join("dist"));
        fs::create_dir_all(&packed).expect("a folder");
        fs::write(packed.join("older"), "").expect("a file");
        fs::write(&program, "abc").expect("a file");
        assert!(pack(&program, &packed, "warpline-x").is_ok_and(|path| path == packed.join("warpline-x")));

        let entries = fs::read_dir(&packed).expect("the folder").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        assert_eq!(names, ["LICENSE-APACHE", "LICENSE-MIT", "warpline-x", "warpline-x.sha256"]);
        // The example of the standard, FIPS 180.
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let said = fs::read_to_string(packed.join("warpline-x.sha256")).expect("the sum");
        assert_eq!(said, format!("{sum}  warpline-x\n"));
        fs::remove_dir_all(&folder).expect("the folder");
    }

    #[test]
    fn the_licenses_are_those_of_what_is_compiled_into_the_program() {
        let node = |id: &str, needs: &[(&str, Value)]| {
            let deps = needs.iter().map(|(id, kind)| json!({"pkg": id, "dep_kinds": [{"kind": kind}]}));
            json!({"id": id, "deps": deps.collect::<Vec<_>>()})
        };
        let packages = ["program", "used", "deep", "tests", "builds"].map(|name| json!({"id": name, "name": name}));
        let metadata = json!({
            "packages": packages,
            "resolve": {"nodes": [
                node("program", &[("used", Value::Null), ("tests", json!("dev")), ("builds", json!("build"))]),
                node("used", &[("deep", Value::Null), ("program", Value::Null)]),
            ]},
        });
        let names: Vec<_> = packages_in(&metadata, "program").iter().map(|package| &package["name"]).collect();
        assert_eq!(names, ["program", "used", "deep"]);
    }

    #[test]
    fn it_has_no_options() {
        assert!(run(&["--musl"]).is_err_and(|error| error.contains("`dist` has no options")));
    }
}
