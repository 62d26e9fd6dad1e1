//! `cargo xtask cluster`: each query of `ranks/sql/` on other engines, over one generated job. Their rows must be those of `warpline-ranks query`.
//! The engines are installed into `target/cluster`. It is no step of CI: Spark alone is half a gigabyte, and minutes of work.

mod ballista;
mod process;
mod rows;
mod s3;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use serde_json::Value;

use self::rows::{Answers, difference, is_same, parse};
use crate::needs;
use crate::shell::{Stop, line, root, target};

/// A job with several windows, groups, hosts and clocks, a late rank and a slow one. Its name is a number, as Slurm's are: no engine may take
/// it for one.
const JOB: &str = "--ranks 32 --hosts 4 --steps 150 --run 1234 --late 5:100:50-80 --slow 9:8:20";

/// An engine with a script in `ranks/engines/`.
struct Engine {
    /// Its name on the command line, and in the script's.
    name: &'static str,
    /// Its package on PyPI.
    package: &'static str,
    /// What its package needs that PyPI has not: a program, and the remedy.
    needs: Option<(&'static str, &'static str)>,
}

const ENGINES: [Engine; 3] = [
    Engine { name: "duckdb", package: "duckdb", needs: None },
    Engine { name: "clickhouse", package: "chdb", needs: None },
    Engine {
        name: "spark",
        package: "pyspark",
        needs: Some(("java", "Java 17, such as `apt-get install openjdk-17-jre-headless`")),
    },
];

/// What an engine said, beside what `warpline-ranks` says.
struct Compared {
    engine: String,
    seconds: f64,
    /// For each view, what came of it.
    outcomes: Vec<Outcome>,
}

#[derive(Clone)]
enum Outcome {
    Same,
    Differs(String),
    NotAsked,
}

impl Outcome {
    fn of(difference: Option<String>) -> Self {
        difference.map_or(Self::Same, Self::Differs)
    }
}

/// ClickHouse, with the tables in an object store.
const S3: &str = "s3";

/// What it is asked: its server is slow, and each query lists and reads the files again.
const S3_VIEWS: [&str; 4] = ["account", "bandwidth", "late", "placed"];

/// The engine that is built and not installed by `pip`.
const BALLISTA: &str = "ballista";

/// What the command line asks for.
#[derive(Default)]
struct Options<'a> {
    /// This engine alone.
    only: Option<&'a str>,
    /// Where Ballista's programs and its client are.
    bin: Option<&'a Path>,
}

impl<'a> Options<'a> {
    fn parse(words: &[&'a str]) -> Option<Self> {
        let mut options = Self::default();
        for pair in words.chunks(2) {
            match *pair {
                ["--only", name]
                    if [BALLISTA, S3].contains(&name) || ENGINES.iter().any(|engine| engine.name == name) =>
                {
                    options.only = Some(name);
                }
                ["--bin", folder] => options.bin = Some(Path::new(folder)),
                _ => return None,
            }
        }
        Some(options)
    }

    fn has(&self, engine: &str) -> bool {
        self.only.is_none_or(|only| only == engine)
    }
}

/// Runs the comparison with these options.
///
/// # Errors
/// Options that it does not have.
pub fn run(words: &[&str]) -> Result<ExitCode, String> {
    let Some(options) = Options::parse(words) else {
        let names: Vec<&str> = ENGINES.iter().map(|engine| engine.name).chain([S3, BALLISTA]).collect();
        return Err(format!("`cluster` does not know `{}`; write `--only {}`", words.join(" "), names.join("|")));
    };
    Ok(match compare(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Stop::Failed(why) | Stop::Lacks(why) | Stop::Skipped(why)) => {
            eprintln!("failed: {why}");
            ExitCode::FAILURE
        }
    })
}

/// Whether all engines say the same.
fn compare(options: &Options) -> Result<bool, Stop> {
    let reader = needs::reader()?;
    let folder = target().join("cluster");
    let tables = folder.join("DIR");
    let failed = |error| Stop::Failed(format!("cannot empty the folder `{}`: {error}", tables.display()));
    if tables.exists() {
        std::fs::remove_dir_all(&tables).map_err(failed)?;
    }
    std::fs::create_dir_all(&folder).map_err(failed)?;
    line(&format!("{} generate {} {JOB}", reader.display(), tables.display())).run()?;
    line(&format!("{} clocks {} --write", reader.display(), tables.display())).run()?;
    let views = views()?;
    let at = tables.display().to_string();
    let (here, seconds) = timed(|| own(&reader, &at, &views, "", &[]))?;
    let mut all =
        vec![Compared { engine: "warpline-ranks".into(), seconds, outcomes: vec![Outcome::Same; views.len()] }];
    let mut compare = |engine: String, asked: &[String], there: &Answers, seconds| {
        let outcome = |view: &String| match asked.contains(view) {
            true => Outcome::of(difference(rows_of(&here, view), rows_of(there, view))),
            false => Outcome::NotAsked,
        };
        all.push(Compared { engine, seconds, outcomes: views.iter().map(outcome).collect() });
    };
    let mut faults = Vec::new();
    let mut left_out = Vec::new();
    for engine in ENGINES.iter().filter(|engine| options.has(engine.name)) {
        if let Some((program, remedy)) = engine.needs.filter(|(program, _)| !is_there(program)) {
            left_out.push(format!("{} was not run: there is no `{program}`; it needs {remedy}", engine.name));
            continue;
        }
        let (python, version) = engine.install(&folder)?;
        let (there, seconds) = timed(|| engine.answers(&python, &at, &views, &[]))?;
        compare(format!("{} {version}", engine.package), &views, &there, seconds);
    }
    if options.has(S3) {
        let engine = ENGINES.iter().find(|engine| engine.name == "clickhouse");
        let engine = engine.ok_or_else(|| Stop::Failed("there is no engine that reads an object store".to_owned()))?;
        let (python, version) = engine.install(&folder)?;
        let store = s3::Store::start(&python, &folder, &tables)?;
        let asked: Vec<String> = S3_VIEWS.map(str::to_owned).to_vec();
        let (there, seconds) = timed(|| store.answers(engine, &python, &asked))?;
        compare(format!("{S3} {} {version}", engine.package), &asked, &there, seconds);
        let (there, seconds) = timed(|| own(&reader, &store.url(), &views, "", store.settings()))?;
        compare(format!("{S3} warpline-ranks"), &views, &there, seconds);
        let report = |place: &str| report(&reader, place, "", store.settings());
        if !is_same(&report(&at)?, &report(&store.url())?) {
            faults.push("the report of a bucket is not that of the folder".to_owned());
        }
    }
    if options.has(BALLISTA) {
        let programs = options.bin.map_or_else(|| ballista::install(&folder), |bin| Ok(bin.to_owned()))?;
        let mut cluster = ballista::Cluster::start(&programs, &folder)?;
        let client = programs.join("warpline-ranks");
        let (there, seconds) = timed(|| own(&client, &at, &views, &cluster.options(), &[]))?;
        compare(format!("{BALLISTA} {}", ballista::VERSION), &views, &there, seconds);
        faults.extend(cluster.faults(&client, &tables, &here)?);
    }
    print(&views, &here, &all);
    left_out.iter().chain(&faults).for_each(|what| println!("{what}"));
    Ok(faults.is_empty()
        && all.iter().all(|compared| compared.outcomes.iter().all(|outcome| !matches!(outcome, Outcome::Differs(_)))))
}

impl Engine {
    /// Installs it if it is not there, and returns its Python and its version.
    fn install(&self, folder: &Path) -> Result<(PathBuf, String), Stop> {
        let venv = folder.join("venv");
        let python = venv.join("bin/python");
        if !python.exists() {
            line(&format!("python3 -m venv {}", venv.display())).run()?;
        }
        line(&format!("{} -m pip install --quiet {}", python.display(), self.package)).run()?;
        let shown = line(&format!("{} -m pip show {}", python.display(), self.package)).output().unwrap_or_default();
        let version = shown.lines().find_map(|line| line.strip_prefix("Version: ")).unwrap_or_default();
        Ok((python, version.to_owned()))
    }

    /// What it says to each view over the tables in a folder or at a URL, with these environment variables.
    fn answers(
        &self,
        python: &Path,
        tables: &str,
        views: &[String],
        settings: &[(String, String)],
    ) -> Result<Answers, Stop> {
        let script = format!("ranks/engines/on_{}.py", self.name);
        let command = format!("{} {script} {tables} --json {}", python.display(), views.join(" "));
        parse(&printed_with(&command, settings)?)
            .map_err(|why| Stop::Failed(format!("`{script}` prints what is no row: {why}")))
    }
}

/// What `warpline-ranks` says to each view over the tables in a folder or at a URL, with these options and environment variables, asked with
/// the file itself.
fn own(
    reader: &Path,
    tables: &str,
    views: &[String],
    options: &str,
    settings: &[(String, String)],
) -> Result<Answers, Stop> {
    let one = |view: &String| {
        let file = format!("ranks/sql/{view}.sql");
        let command = format!("{} query {tables} --file {file} --json{options}", reader.display());
        let text = printed_with(&command, settings)?;
        let rows: Result<Vec<_>, _> = text.lines().map(serde_json::from_str).collect();
        let rows = rows.map_err(|error| Stop::Failed(format!("the answer to `{file}` is no JSON: {error}")))?;
        Ok((view.clone(), rows))
    };
    views.iter().map(one).collect()
}

/// The report of `warpline-ranks`, likewise.
fn report(reader: &Path, tables: &str, options: &str, settings: &[(String, String)]) -> Result<Value, Stop> {
    let text = printed_with(&format!("{} report {tables} --json{options}", reader.display()), settings)?;
    serde_json::from_str(&text).map_err(|error| Stop::Failed(format!("a report is no JSON: {error}")))
}

/// The names of the views, in alphabetical order.
fn views() -> Result<Vec<String>, Stop> {
    let folder = root().join("ranks/sql");
    let failed = |error| Stop::Failed(format!("cannot read the folder `{}`: {error}", folder.display()));
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .map_err(failed)?
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(names)
}

fn is_there(program: &str) -> bool {
    line(&format!("{program} -version")).output().is_some()
}

fn printed(command: &str) -> Result<String, Stop> {
    printed_with(command, &[])
}

fn printed_with(command: &str, settings: &[(String, String)]) -> Result<String, Stop> {
    println!("$ {command}");
    let line = settings.iter().fold(line(command), |line, (name, value)| line.with(name, value));
    line.output().ok_or_else(|| Stop::Failed(format!("`{command}` fails; run it to see why")))
}

fn timed<T>(work: impl FnOnce() -> Result<T, Stop>) -> Result<(T, f64), Stop> {
    let begin = Instant::now();
    let done = work()?;
    Ok((done, begin.elapsed().as_secs_f64()))
}

fn rows_of<'a>(answers: &'a Answers, view: &str) -> &'a [rows::Row] {
    answers.get(view).map_or(&[], Vec::as_slice)
}

/// A row for each view, a column for each engine; below it, what differs.
fn print(views: &[String], here: &Answers, all: &[Compared]) {
    let heads: String = all.iter().map(|compared| format!("  {:<18}", compared.engine)).collect();
    println!("\n{:<16}{:>8}{heads}", "view", "rows");
    for (place, view) in views.iter().enumerate() {
        let cell = |compared: &Compared| {
            let said = match &compared.outcomes[place] {
                Outcome::Same => "same",
                Outcome::Differs(_) => "DIFFERS",
                Outcome::NotAsked => "–",
            };
            format!("  {said:<18}")
        };
        let cells: String = all.iter().map(cell).collect();
        println!("{view:<16}{:>8}{}", rows_of(here, view).len(), cells.trim_end());
    }
    let times: String = all.iter().map(|compared| format!("  {:<18}", format!("{:.1} s", compared.seconds))).collect();
    let rows: usize = views.iter().map(|view| rows_of(here, view).len()).sum();
    println!("{:<16}{rows:>8}{}", "all", times.trim_end());
    for compared in all {
        for (view, outcome) in views.iter().zip(&compared.outcomes) {
            if let Outcome::Differs(difference) = outcome {
                println!("{} differs in `{view}`: {difference}", compared.engine);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_it_does_not_have_are_errors_that_say_what_to_write() {
        for options in [&["--only"][..], &["--only", "oracle"], &["duckdb"], &["--only", "spark", "--bin"]] {
            assert!(run(options).is_err_and(|error| error.contains("write `--only duckdb|")), "{options:?}");
        }
        let options = Options::parse(&["--bin", "there", "--only", "ballista"]);
        assert!(options.is_some_and(|options| options.has(BALLISTA) && !options.has("spark") && options.bin.is_some()));
    }

    #[test]
    fn each_engine_has_its_script_and_each_query_a_name() {
        for engine in &ENGINES {
            assert!(root().join(format!("ranks/engines/on_{}.py", engine.name)).exists(), "{}", engine.name);
        }
        assert!(views().is_ok_and(|views| views.iter().any(|view| view == "late")));
    }
}
