//! What CI runs, in order: the cheap and telling steps first, and behind all others those that only `cargo xtask test --all` runs. `test.rs` runs
//! them; `cargo xtask test --list` shows them.

use crate::needs::{self, OFF, TRACY, linted};
use crate::shell::{Stop, line};
use crate::{
    api, cycles, deny, docs, features, gate, miri, msrv, package, pages, prometheus, query, quickstart, ranks, readme,
    sanitize, size,
};

/// One step of `cargo xtask test`.
pub struct Step {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it checks.
    pub about: &'static str,
    /// What to do when it fails.
    pub remedy: &'static str,
    /// Runs it, and says how many tests passed.
    pub run: fn() -> Result<u64, Stop>,
    /// It runs beside the other steps at a lower priority: its checks tolerate a busy host. Cargo makes it wait if both build in one folder.
    pub is_beside: bool,
    /// Only `cargo xtask test --all` runs it: it takes long, or what it checks seldom breaks.
    pub is_slow: bool,
}

/// Every step.
pub const STEPS: &[Step] = &[
    Step {
        name: "format",
        about: "the code is formatted",
        remedy: "run `cargo fmt --all`; if cargo has no `fmt`: `rustup component add rustfmt`",
        run: format,
        is_beside: false,
        is_slow: false,
    },
    Step {
        name: "cycles",
        about: "the modules of a crate depend on each other in one direction",
        remedy: "move the item that is named above into the module that both need, or into one below both",
        run: cycles::check,
        is_beside: false,
        is_slow: false,
    },
    Step {
        name: "size",
        about: "no crate has more lines, conditions and public names, and no dependent compiles more crates, than in xtask/size.txt",
        remedy: "make it smaller, or record the growth with its reason: `cargo xtask size --bless \"why\"`, and commit the table",
        run: size::check,
        is_beside: false,
        is_slow: false,
    },
    Step {
        name: "clippy",
        about: "no warning in the library with few features; the tests are compiled with Clippy, too",
        remedy: "fix what Clippy says above; if cargo has no `clippy`: `rustup component add clippy`",
        run: clippy,
        is_beside: true,
        is_slow: false,
    },
    Step {
        name: "docs",
        about: "the documentation of `warpline` builds with no warning, as docs.rs builds it, and its links lead somewhere; each \
                promise of SECURITY.md has a test",
        remedy: "fix the link, the code block or the name of the test that is named above",
        run: docs::run,
        is_beside: true,
        is_slow: false,
    },
    Step {
        name: "api",
        about: "the public API is the one in runtime/public-api.txt, and the same with feature `enable`",
        remedy: "if the change is meant, `cargo xtask api --bless` records it; commit the list, and say it in CHANGELOG.md",
        run: api::check,
        is_beside: true,
        is_slow: false,
    },
    Step {
        name: "release",
        about: "the examples that later steps run compile for a release",
        remedy: "mend the example that is named above",
        run: release,
        is_beside: true,
        is_slow: false,
    },
    Step {
        name: "tests-off",
        about: "the tests, and every example in the docs, with features off",
        remedy: "the failing test says above what it wanted; run it alone with its name behind the command",
        run: tests_off,
        is_beside: false,
        is_slow: false,
    },
    Step {
        name: "tests-on",
        about: "all tests with feature `enable`; zones on CUDA streams on a driver without a GPU; spans of `tracing`",
        remedy: "the failing test says above what it wanted; run it alone with its name behind the command",
        run: tests_on,
        is_beside: false,
        is_slow: false,
    },
    Step {
        name: "quickstart",
        about: "the main job runs and checks its own numbers; its catalog reads the same from the stripped binary",
        remedy: "run the command above by hand; its error says what is wrong",
        run: quickstart::run,
        is_beside: false,
        is_slow: false,
    },
    Step {
        name: "ranks",
        about: "ranks on in-process streams, as threads and as processes: their sums are right, and the late one is named",
        remedy: "run the command above by hand; its error says what is wrong",
        run: ranks::run,
        is_beside: false,
        is_slow: false,
    },
    Step {
        name: "gate",
        about: "Perfetto's own reader loses nothing of the sinks' traces, and broken traces are refused",
        remedy: "the rows above show what is read (+) and what should be (-); `cargo xtask gate TRACE` repeats one trace",
        run: gate::self_test,
        is_beside: false,
        is_slow: false,
    },
    Step {
        name: "clippy-all",
        about: "no warning in anything with all features, with the other feature sets of the library, nor with the defaults of \
                each package",
        remedy: "fix what Clippy says above; if cargo has no `clippy`: `rustup component add clippy`",
        run: clippy_all,
        is_beside: false,
        is_slow: true,
    },
    Step {
        name: "ui-off",
        about: "what must not compile, and the messages, with features off: the same as with `enable`",
        remedy: "the message that differs is above; read it as a user will, and write it anew with TRYBUILD=overwrite",
        run: ui_off,
        is_beside: false,
        is_slow: true,
    },
    Step {
        name: "docs-all",
        about: "the documentation of every crate builds with no warning, and that of `warpline` without a feature",
        remedy: "fix the link or the code block that is named above",
        run: docs::run_all,
        // Not beside `docs`, which removes pages.
        is_beside: false,
        is_slow: true,
    },
    Step {
        name: "deny",
        about: "licenses, sources, duplicates and known faults of the dependencies, of the workspace and of `fuzz/`",
        remedy: "update or replace the crate that is named above, or list it in `deny.toml` with the reason",
        run: deny::run,
        is_beside: false,
        is_slow: true,
    },
    Step {
        name: "tracy",
        about: "the calls to Tracy, whose client is compiled from C++",
        remedy: "the failing test says above what it wanted; the client needs a C++ compiler, such as g++",
        run: tracy,
        is_beside: false,
        is_slow: true,
    },
    Step {
        name: "prometheus",
        about: "Prometheus scrapes a running session and answers the dashboard's queries; `promtool` finds no fault in the names",
        remedy: "the failing test says above what it wanted; Prometheus's log is in its message",
        run: prometheus::run,
        is_beside: false,
        is_slow: true,
    },
    Step {
        name: "ranks-crate",
        about: "the tables of many ranks: late and slow ranks, hangs and clocks of generated jobs are found, and nobody is blamed in clean ones",
        remedy: "the failing test says above what it wanted; `ranks/` is a workspace of its own and needs Rust 1.94",
        run: ranks_crate,
        is_beside: true,
        is_slow: true,
    },
    Step {
        name: "faults",
        about: "a job of in-process ranks with a late rank, a slow one, a hang, a call that differs, a cycle: each is named with number and line, and both commands name the same rank",
        remedy: "run the last command above by hand with `--only FAULT --tables FOLDER`, and ask `warpline-ranks report` about the folder and `warpline stragglers` about its traces",
        run: ranks::faults,
        is_beside: false,
        is_slow: true,
    },
    Step {
        name: "gate-ranks",
        about: "Perfetto's own reader loses nothing of the traces of ranks that `warpline-ranks perfetto` merges",
        remedy: "the rows above show what is read (+) and what should be (-); `cargo xtask gate TRACE` repeats one trace",
        run: gate::self_test_of_ranks,
        is_beside: false,
        is_slow: true,
    },
    Step {
        name: "pages",
        about: "the HTML pages that the commands write open in a headless browser: no request, no error, and what the tests of each want",
        remedy: "the failing test says above what it wanted; the pages are in `target/pages`, and their tests in `tests/pages`",
        run: pages::run,
        is_beside: false,
        is_slow: true,
    },
    Step {
        name: "loom",
        about: "the ring, the switch and semaphores hold under every interleaving that loom finds",
        remedy: "set LOOM_LOG=trace and run the command above: it shows the interleaving that breaks",
        run: loom,
        is_beside: true,
        is_slow: true,
    },
    Step {
        name: "miri",
        about: "no undefined behaviour in slots, notes, semaphores and queues, where a nightly toolchain with Miri is installed",
        remedy: "the report above shows the bad access; start at the topmost line of this project",
        run: miri::run,
        is_beside: true,
        is_slow: true,
    },
    Step {
        name: "sanitize",
        about: "no memory error and no leak in the tests of what has `unsafe` (AddressSanitizer, LeakSanitizer)",
        remedy: "the report above shows the bad access or the leak, with its stacks; start at the topmost line of this project; if \
                 LeakSanitizer itself fails, the container forbids ptrace: allow it, or set ASAN_OPTIONS=detect_leaks=0",
        run: sanitize::run,
        is_beside: true,
        is_slow: true,
    },
    Step {
        name: "readme",
        about: "the README's first program builds as it stands there, and its zone has the length of its work",
        remedy: "mend the first program or the first dependencies in README.md; the package made of them is in `target/readme`",
        run: readme::run,
        is_beside: true,
        is_slow: true,
    },
    Step {
        name: "query",
        about: "SQL over the trace of the main job has the figures of `warpline report`, and each query that is shipped is answered",
        remedy: "run the command that is named above by hand; the trace is in `target/query`",
        run: query::run,
        is_beside: true,
        is_slow: true,
    },
    Step {
        name: "package",
        about: "each published crate packs completely, and its package compiles beside the packages that it depends on",
        remedy: "compare `include`, `readme` and the versions in the crate's Cargo.toml with what is said above",
        run: package::run,
        is_beside: true,
        is_slow: true,
    },
    Step {
        name: "large",
        about: "the command reads traces of a million slices in bounded memory",
        remedy: "the failing test says above what it wanted; run it alone with its name behind the command",
        run: large,
        is_beside: true,
        is_slow: true,
    },
    Step {
        name: "builds",
        about: "programs of several crates, versions and kinds of libraries have their catalogs and record; each choice of cudarc, CUDA and \
                NCCL compiles with every feature",
        remedy: "the failing test says above what it wanted; run it alone with its name behind the command",
        run: builds,
        is_beside: true,
        is_slow: true,
    },
    Step {
        name: "msrv",
        about: "the published crates compile with the oldest Rust that they name, where that toolchain is installed",
        remedy: "use what that Rust has, or raise `rust-version` and say so in CHANGELOG.md",
        run: msrv::run,
        is_beside: true,
        is_slow: true,
    },
];

/// The feature sets of `warpline` of which nothing but the library is compiled here: its tests run with none, with `enable` and with
/// all that the workspace turns on. These are checked with each change: nothing, what records, what reads, and what other APIs need.
const LIBRARY_SETS: [&str; 4] = ["default", "enable", "export", "timeline,cuda"];

/// The others.
const MORE_LIBRARY_SETS: [&str; 12] = [
    "cuda",
    "cublas",
    "cupti",
    "hip",
    "enable,hip",
    "tracing",
    "tracy",
    "timeline",
    "export,cuda",
    "enable,ranks",
    "enable,otlp",
    "enable,prometheus",
];

/// Test files of `api` that build programs of their own, which takes minutes. These have the same features whatever the tests have.
const BUILDING: [&str; 6] =
    ["catalog_crates", "catalog_dylib", "catalog_exclusive", "catalog_static", "catalog_versions", "cuda_builds"];

/// The options that leave out these test files.
fn without_building() -> String {
    BUILDING.iter().map(|name| format!(" --skip {name}::")).collect()
}

fn format() -> Result<u64, Stop> {
    line("cargo fmt --all --check").run()?;
    // Workspaces of their own.
    for folder in ["ranks", "examples/burn", "examples/candle", "examples/pyo3"] {
        line(&format!("cargo fmt --manifest-path {folder}/Cargo.toml --check")).run()?;
    }
    Ok(0)
}

fn clippy() -> Result<u64, Stop> {
    clippy_of_library(&LIBRARY_SETS)
}

fn clippy_all() -> Result<u64, Stop> {
    // All that features turn on, also the benches and the tests for a GPU, although none is here.
    let all = features::all(&[])?;
    line(&format!("cargo clippy --workspace --features {all} --all-targets -- -D warnings")).run()?;
    // As a plain command has it. The builds of the tests are compiled with Clippy, also those without features.
    line("cargo clippy --workspace --all-targets -- -D warnings").run()?;
    line(&format!("cargo clippy {OFF} --features warpline/enable --all-targets -- -D warnings")).run()?;
    clippy_of_library(&MORE_LIBRARY_SETS)?;
    // The reader of traces, which no program turns on, beside nothing else.
    line("cargo clippy -p warpline-trace --features read --lib -- -D warnings").run()?;
    Ok(0)
}

/// With the crates that `warpline` has with these features, and with nothing that another package turns on.
fn clippy_of_library(sets: &[&str]) -> Result<u64, Stop> {
    for features in sets {
        line(&format!("cargo clippy -p warpline --features {features} --lib -- -D warnings")).run()?;
    }
    Ok(0)
}

fn tests_off() -> Result<u64, Stop> {
    let test = |what: &str| linted(line(&format!("cargo test {what}")));
    let units = test(&format!("{OFF} -- --exact --skip {UI_TEST}"));
    let catalog = format!("-p warpline-tests -p warpline-third-party --no-default-features --{}", without_building());
    // One is built while the tests of the other run.
    let tests = units.run_tests_beside(test(&catalog))?;
    // What a report says without its figures, which the workspace turns on.
    let report = test("-p warpline-report --no-default-features --lib").run_tests()?;
    Ok(tests + report)
}

/// The test that compiles what must not compile. It takes a minute without features, and as long with them.
const UI_TEST: &str = "ui";

fn ui_off() -> Result<u64, Stop> {
    linted(line(&format!("cargo test {OFF} --test {UI_TEST}"))).with("WARPLINE_UI_TESTS", "off").run_tests()
}

fn tests_on() -> Result<u64, Stop> {
    needs::check()?;
    // One build of everything: features only add. The cases of the UI tests are built apart, with what that package has on.
    let test = |rest: &str| needs::everything("test", rest).with("WARPLINE_UI_TESTS", "on");
    test("--no-run").run()?;
    let [waiting, others] = needs::rows()?;
    let waiting = test(&format!("{waiting} --{}", without_building()));
    Ok(waiting.run_tests_beside(test(&others))? + test("--doc").run_tests()?)
}

/// Builds what steps behind it run in a release build.
fn release() -> Result<u64, Stop> {
    line("cargo build --release --example quickstart --example nccl_all_reduce").little_optimized().run()?;
    Ok(0)
}

fn large() -> Result<u64, Stop> {
    needs::everything("test", &format!("--test {}", needs::LARGE)).run_tests()
}

fn tracy() -> Result<u64, Stop> {
    linted(line(&format!("cargo test {TRACY}"))).run_tests()
}

fn builds() -> Result<u64, Stop> {
    let files: String = BUILDING.iter().map(|name| format!(" {name}::")).collect();
    needs::everything("test", &format!("--test api --{files}")).run_tests()
}

fn ranks_crate() -> Result<u64, Stop> {
    line("python3 -B -m unittest discover -s ranks/engines").run()?;
    let tests = needs::ranks_crate("test").run_tests()?;
    truth("score.py", "--seeds 0-0 --require")?;
    truth("clocks.py", "--seeds 0-1 --require")?;
    Ok(tests)
}

/// Asks `warpline-ranks` about jobs that a simulator in Python has made, which knows the truth: a few jobs of each class, with the seeds that are written here.
fn truth(script: &str, options: &str) -> Result<(), Stop> {
    let folder = crate::shell::target().join("truth");
    let python = folder.join("bin/python");
    if !python.exists() {
        line(&format!("python3 -m venv {}", folder.display())).run()?;
    }
    line(&format!("{} -m pip install --quiet -r ranks/tests/truth/requirements.txt", python.display())).run()?;
    let judge = needs::reader()?;
    line(&format!("{} -B ranks/tests/truth/{script} {} {options}", python.display(), judge.display())).run()
}

fn loom() -> Result<u64, Stop> {
    // In a folder of its own: the flag rebuilds everything, and would again for the next step. The profile optimises the models alone.
    line("cargo test -p warpline-core -p warpline-timeline --features warpline-core/enable --profile loom --lib --target-dir target/loom model")
        .with("RUSTFLAGS", "--cfg loom")
        .run_tests()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::root;

    #[test]
    fn what_only_all_runs_stands_behind_what_each_change_runs() {
        let is_slow: Vec<_> = STEPS.iter().map(|step| step.is_slow).collect();
        assert!(is_slow.is_sorted() && is_slow.contains(&false) && is_slow.contains(&true), "{is_slow:?}");
    }

    #[test]
    fn what_is_left_out_exists() {
        let tests = std::fs::read_to_string(root().join("tests/api/main.rs")).expect("the tests");
        for name in BUILDING {
            assert!(tests.contains(&format!("\nmod {name};\n")), "there is no `tests/api/{name}.rs`");
        }
    }

    /// The commands of a file that CI reads, without what stands before them.
    fn commands(path: &str) -> Vec<String> {
        let text = std::fs::read_to_string(root().join(path)).expect("a file of CI");
        let lines = text.lines().filter(|line| !line.trim_start().starts_with(['#', 'n']));
        lines.filter_map(|line| line.find("cargo xtask ").map(|at| line[at..].trim_end().to_owned())).collect()
    }

    #[test]
    fn ci_runs_each_step_once() {
        let slow = STEPS.iter().find(|step| step.is_slow).expect("a slow step").name;
        let rest = format!("--all --from {slow}");
        assert_eq!(commands(".ci/run"), ["cargo xtask test".to_owned(), format!("cargo xtask test {rest}")]);

        let workflow = ".github/workflows/ci.yml";
        assert_eq!(commands(workflow), ["cargo xtask test ${{ matrix.options }}"]);
        let text = std::fs::read_to_string(root().join(workflow)).expect("a file of CI");
        assert!(text.contains(&format!("        options: [\"\", \"{rest}\"]\n")), "{text}");
    }

    #[test]
    fn what_runs_at_night_exists() {
        let commands = commands(".github/workflows/nightly.yml");
        for command in ["attack", "cluster", "soak", "test"] {
            assert!(commands.iter().any(|line| line.starts_with(&format!("cargo xtask {command}"))), "{command}");
        }
        for step in commands.iter().filter_map(|line| line.strip_prefix("cargo xtask test --only ")) {
            assert!(STEPS.iter().any(|it| it.name == step), "there is no step `{step}`");
        }
    }
}
