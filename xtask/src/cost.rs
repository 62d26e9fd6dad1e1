//! `cargo xtask cost`: what a dependent pays. It builds small programs, each in a package of its own and from nothing,
//! and prints how many crates they compile, how long that takes, and how large they are, with programs of peers in the
//! same run.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use crate::shell::{Stop, line, root, target};

/// A program: its row in the table, its dependencies (`{root}` is this checkout), and what it adds to a program that
/// does nothing.
struct Program {
    row: &'static str,
    dependencies: &'static str,
    /// Items of the root.
    items: &'static str,
    /// Attributes of the function.
    mark: &'static str,
    /// The first statements of `main`, and the last ones.
    main: [&'static str; 2],
}

const NAMESPACE: &str = "warpline::namespace!(\"demo\", \"A program.\");\n";
const MARK: &str = "/// Works.\n#[warpline::host_zone(\"demo.work\")]\n";
const SESSION: [&str; 2] = ["let session = warpline::Session::from_env_or(\"summary\");", "session.finish();"];

const PROGRAMS: [Program; 6] = [
    Program { row: "no mark", dependencies: "", items: "", mark: "", main: ["", ""] },
    Program {
        row: "a mark of a library, no feature",
        dependencies: "warpline = { path = \"{root}/runtime/warpline\" }",
        items: NAMESPACE,
        mark: MARK,
        main: ["", ""],
    },
    Program {
        row: "`enable`",
        dependencies: "warpline = { path = \"{root}/runtime/warpline\", features = [\"enable\"] }",
        items: NAMESPACE,
        mark: MARK,
        main: SESSION,
    },
    Program {
        row: "`enable`, `cuda`, `cupti`",
        dependencies: "warpline = { path = \"{root}/runtime/warpline\", features = [\"enable\", \"cuda\", \"cupti\"] }",
        items: NAMESPACE,
        mark: MARK,
        main: SESSION,
    },
    Program {
        row: "tracing, tracing-subscriber, tracing-chrome",
        dependencies: "tracing = \"0.1\"\ntracing-subscriber = \"0.3\"\ntracing-chrome = \"0.7\"",
        items: "use tracing_subscriber::prelude::*;\n",
        mark: "#[tracing::instrument]\n",
        main: [
            "let (layer, guard) = tracing_chrome::ChromeLayerBuilder::new().build();\n    tracing_subscriber::registry().with(layer).init();",
            "drop(guard);",
        ],
    },
    Program {
        row: "fastrace, `enable`",
        dependencies: "fastrace = { version = \"0.7\", features = [\"enable\"] }",
        items: "",
        mark: "#[fastrace::trace]\n",
        main: [
            "fastrace::set_reporter(fastrace::collector::ConsoleReporter, Default::default());\n    let root = fastrace::Span::root(\"main\", \
             fastrace::prelude::SpanContext::random());\n    let local = root.set_local_parent();",
            "drop(local);\n    drop(root);\n    fastrace::flush();",
        ],
    },
];

impl Program {
    fn manifest(&self) -> String {
        let dependencies = self.dependencies.replace("{root}", &root().display().to_string());
        // It is no member of the workspace that it lies in.
        format!(
            "[package]\nname = \"program\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n[dependencies]\n{dependencies}\n\n[workspace]\n"
        )
    }

    fn source(&self) -> String {
        let Program { items, mark, main: [first, last], .. } = self;
        format!(
            "{items}\n{mark}fn work(n: u64) -> u64 {{\n    std::hint::black_box(n)\n}}\n\n\
             fn main() {{\n    {first}\n    println!(\"{{}}\", work(1));\n    {last}\n}}\n"
        )
    }
}

/// What a program costs.
struct Cost {
    /// Crates that the compiler is called for, with build scripts and the program itself.
    crates: usize,
    wall_s: f64,
    cpu_s: f64,
    bytes: u64,
}

/// Builds the programs and prints the table.
///
/// # Errors
/// Options: it has none.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    if !options.is_empty() {
        return Err(format!("`cost` has no options, and `{}` is given", options.join(" ")));
    }
    Ok(match table() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Failed(why) | Stop::Lacks(why) | Stop::Skipped(why)) => {
            eprintln!("failed: {why}");
            ExitCode::FAILURE
        }
    })
}

fn table() -> Result<(), Stop> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = || fs::read_to_string("/proc/loadavg").map_or_else(|_| "unknown".to_owned(), |text| load_of(&text));
    println!("a clean release build, {cores} cores; the load before it: {}\n", load());
    println!("| program | crates | wall s | CPU s | stripped, bytes | more than no mark |\n|---|---|---|---|---|---|");
    let mut least = None;
    for program in &PROGRAMS {
        let Cost { crates, wall_s, cpu_s, bytes } = measure(program)?;
        let more = bytes as i64 - *least.get_or_insert(bytes) as i64;
        println!("| {} | {crates} | {wall_s:.1} | {cpu_s:.1} | {bytes} | {more} |", program.row);
    }
    println!("\nthe load after it: {}", load());
    Ok(())
}

/// Builds a program from nothing. What it downloads is there before the time begins.
fn measure(program: &Program) -> Result<Cost, Stop> {
    let folder = target().join("cost");
    let built = folder.join("target");
    let failed = |path: &Path, error| Stop::Failed(format!("`{}`: {error}", path.display()));
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| failed(&folder, error))?;
    }
    fs::create_dir_all(folder.join("src")).map_err(|error| failed(&folder, error))?;
    let manifest = folder.join("Cargo.toml");
    let write = |path: &Path, text: String| fs::write(path, text).map_err(|error| failed(path, error));
    write(&manifest, program.manifest())?;
    write(&folder.join("src/main.rs"), program.source())?;
    // The versions that everything else is tested with.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).map_err(|error| failed(&folder, error))?;
    let cargo = |words: &str| {
        let command = format!("cargo {words} --quiet --manifest-path {}", manifest.display());
        line(&command).output().ok_or_else(|| Stop::Failed(format!("`{command}` fails; run it to see why")))
    };
    cargo("fetch")?;
    let (begun, before_s) = (Instant::now(), cpu_s());
    let said = cargo(&format!(
        "build --release --message-format json --config profile.release.strip=true --target-dir {}",
        built.display()
    ))?;
    let (wall_s, cpu_s) = (begun.elapsed().as_secs_f64(), cpu_s() - before_s);
    let program = built.join("release").join(format!("program{}", std::env::consts::EXE_SUFFIX));
    let bytes = fs::metadata(&program).map_err(|error| failed(&program, error))?.len();
    Ok(Cost { crates: crates_in(&said), wall_s, cpu_s, bytes })
}

/// The processor time of all processes that this one has waited for, in seconds; 0 where there is no `/proc`.
fn cpu_s() -> f64 {
    fs::read_to_string("/proc/self/stat").ok().and_then(|stat| children_s(&stat)).unwrap_or(0.0)
}

/// The fields `cutime` and `cstime` of `/proc/self/stat`. The kernel counts in hundredths of a second for every
/// program.
fn children_s(stat: &str) -> Option<f64> {
    // The name of the program, in parentheses, may have blanks.
    let mut fields = stat.rsplit_once(") ")?.1.split_ascii_whitespace().skip(13);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / 100.0)
}

/// The crates that Cargo's messages say are built.
fn crates_in(messages: &str) -> usize {
    messages.lines().filter(|line| line.starts_with("{\"reason\":\"compiler-artifact\"")).count()
}

/// The mean number of running processes over the last minute.
fn load_of(text: &str) -> String {
    text.split(' ').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_children_is_read_behind_a_name_with_blanks() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 200 0 0 11 12 345 155 20 0 1 0 99 0 0";
        assert_eq!(children_s(stat), Some(5.0));
        assert_eq!(children_s("7 (a) S 1"), None);
    }

    #[test]
    fn a_crate_is_counted_for_each_call_of_the_compiler() {
        let said = "{\"reason\":\"compiler-artifact\",\"package_id\":\"a\"}\n{\"reason\":\"build-script-executed\"}\n\
                    {\"reason\":\"compiler-artifact\",\"package_id\":\"b\"}\n{\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(crates_in(said), 2);
    }

    #[test]
    fn the_programs_differ_from_the_first_in_their_mark_alone() {
        let [plain, marked, ..] = &PROGRAMS;
        let source = marked.source().replace(NAMESPACE, "").replace(MARK, "");
        assert_eq!(source, plain.source());
        assert!(marked.manifest().contains("/runtime/warpline\""), "{}", marked.manifest());
    }
}
