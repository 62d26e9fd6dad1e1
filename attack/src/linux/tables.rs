//! Damaged tables of ranks behind each command of `warpline-ranks`: a file that cannot be read is left out and named, every other row is there,
//! and `compact` loses none. The program is built in a workspace of its own, so that its path is given.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

use fastrand::Rng;

use super::child::{Child, command};
use super::harness::Run;
use super::mutate::mutate;
use super::worker::AS_COMMAND;

/// The tables that every rank writes.
const TABLES: [&str; 4] = ["windows", "steps", "collectives", "comms"];

/// A command that takes more memory fails: the tables are some hundred KiB.
const MOST_MEMORY: u64 = 4 << 30;

/// So many tries with damage, of which none is named, show that damage does not reach the reader.
const NAMED_WITHIN: u64 = 20;

/// How a file is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// Not at all: every row is there, and no file is named.
    None,
    /// Up to three bytes are others, or the file is shorter: it is whole for a reader, or it is left out.
    Slight,
    /// As fuzzers do. It may become another file that is whole, with rows of its own.
    Any,
}

pub(crate) fn attack(run: &mut Run) {
    let program = run.ranks.clone().expect("the caller names `warpline-ranks`");
    attack_program(run, &Program { path: program, variant: None });
}

pub(crate) fn planted_panic(run: &mut Run) {
    planted(run, "ranks-panics");
}

pub(crate) fn planted_silence(run: &mut Run) {
    planted(run, "ranks-says-nothing");
}

pub(crate) fn planted_untouched(run: &mut Run) {
    planted(run, "ranks-reads-nothing");
}

pub(crate) fn planted_loss(run: &mut Run) {
    planted(run, "ranks-loses-rows");
}

fn planted(run: &mut Run, variant: &'static str) {
    let program = Program { path: run.program.clone(), variant: Some(variant) };
    attack_program(run, &program);
}

/// A broken variant of `warpline-ranks`, whose tables are texts of ten rows. It panics for a damaged file, leaves one out without a word, takes every
/// file for whole, or loses a row when it compacts.
pub(crate) fn ranks_of(variant: &str) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = Path::new(&arguments[1]);
    let whole = "row\n".repeat(10);
    let path_of = |table: &str| folder.join(table).join("rank=0.parquet");
    match arguments[0].as_str() {
        "generate" => {
            for table in TABLES {
                let path = path_of(table);
                let made = fs::create_dir_all(folder.join(table)).and_then(|()| fs::write(path, &whole));
                made.expect("the folder takes files");
            }
        }
        "query" => {
            let table = arguments[2].rsplit(' ').next().unwrap_or_default();
            let bytes = fs::read(path_of(table)).unwrap_or_default();
            let is_whole = bytes == whole.as_bytes();
            assert!(is_whole || variant != "ranks-panics", "a planted fault");
            let was_compacted = folder.join("compacted").exists();
            match (is_whole || variant == "ranks-reads-nothing", was_compacted && variant == "ranks-loses-rows") {
                (true, false) => print!("column\n{whole}"),
                (true, true) => println!("column\nrow"),
                (false, _) => println!("column"),
            }
            if !is_whole && variant == "ranks-loses-rows" {
                eprintln!("warning: `{table}/rank=0.parquet` is left out");
            }
        }
        "compact" => fs::write(folder.join("compacted"), "").expect("the folder takes files"),
        _ => {}
    }
    ExitCode::SUCCESS
}

/// `warpline-ranks`, or a broken variant of it.
struct Program {
    path: PathBuf,
    variant: Option<&'static str>,
}

/// What a command said.
struct Said {
    status: ExitStatus,
    lines: Vec<String>,
    complaints: String,
}

impl Program {
    /// What it says when it is asked about the folder.
    fn ask(&self, run: &Run, folder: &Path, arguments: &[&str]) -> Result<Said, String> {
        let folder_named = folder.to_string_lossy();
        let words = [&[arguments[0], &*folder_named], &arguments[1..]].concat();
        let mut asking = command(&self.path, folder, &words);
        if let Some(variant) = self.variant {
            asking.env(AS_COMMAND, variant);
        }
        let limit = libc::rlimit { rlim_cur: MOST_MEMORY, rlim_max: MOST_MEMORY };
        let limited = move || {
            // SAFETY: the call reads the limit, which the closure owns.
            unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
            Ok(())
        };
        // SAFETY: between fork and exec it makes one system call.
        unsafe { asking.pre_exec(limited) };
        let mut child = Child::start(asking)?;
        child.end_input();
        let mut lines = Vec::new();
        while let Some(line) =
            child.line(run.patience).map_err(|_| format!("`{arguments:?}` does not end within {:?}", run.patience))?
        {
            lines.push(line);
        }
        let (status, complaints) = child.end(run.patience).map_err(|error| format!("`{arguments:?}`: {error}"))?;
        Ok(Said { status, lines, complaints })
    }

    /// The same, which must end well.
    fn answer(&self, run: &Run, folder: &Path, arguments: &[&str]) -> Result<Said, String> {
        let said = self.ask(run, folder, arguments)?;
        let all = format!("{}\n{}", said.lines.join("\n"), said.complaints);
        if let Some(signal) = said.status.signal() {
            return Err(format!("`{arguments:?}` was ended by signal {signal}: {all}"));
        }
        if all.contains("panicked at") || said.status.code() != Some(0) {
            return Err(format!("`{arguments:?}` ends with {}: {all}", said.status));
        }
        match all.chars().find(|char| char.is_control() && !matches!(char, '\n' | '\t')) {
            Some(char) => Err(format!("`{arguments:?}` prints {char:?}: {all}")),
            None => Ok(said),
        }
    }

    /// The rows of a table, and what it complains about.
    fn rows(&self, run: &Run, folder: &Path, table: &str) -> Result<(usize, String), String> {
        let said = self.answer(run, folder, &["query", &format!("SELECT * FROM {table}"), "--format", "csv"])?;
        Ok((said.lines.len(), said.complaints))
    }
}

fn attack_program(run: &mut Run, program: &Program) {
    let base = tempfile::tempdir().expect("a folder for tables");
    let made = ["generate", "--ranks", "2", "--hosts", "2", "--steps", "130"];
    if let Err(error) = program.answer(run, base.path(), &made) {
        run.next();
        run.failed(0, error, None);
        return;
    }
    let files = files(base.path());
    let (mut damaged, mut named) = (0, 0);
    while let Some(seed) = run.next() {
        let mut random = Rng::with_seed(seed);
        let mut input = None;
        match try_one(run, program, base.path(), &files, &mut random, &mut input) {
            Ok(None) => {}
            Ok(Some(is_named)) => {
                damaged += 1;
                named += u64::from(is_named);
            }
            Err(what) => run.failed(seed, what, input.as_deref()),
        }
        if damaged >= NAMED_WITHIN && named == 0 {
            run.failed(
                seed,
                format!("no file of {damaged} that were damaged is named: the damage reaches no reader"),
                None,
            );
            return;
        }
    }
}

/// Damages a file, asks, compacts and asks again. Returns whether the file was named; none if it was not damaged.
fn try_one(
    run: &Run,
    program: &Program,
    base: &Path,
    files: &[PathBuf],
    random: &mut Rng,
    input: &mut Option<Vec<u8>>,
) -> Result<Option<bool>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    copy(base, folder.path(), files).map_err(|error| error.to_string())?;
    let file = random.choice(files).ok_or("`generate` writes no file")?;
    let table = TABLES.into_iter().find(|table| file.starts_with(table)).ok_or("a table has another name")?;
    let (whole, _) = program.rows(run, folder.path(), table)?;
    let other = fs::read(base.join(random.choice(files).ok_or("`generate` writes no file")?));
    let (other, path) = (other.map_err(|error| error.to_string())?, folder.path().join(file));
    let mut bytes = fs::read(&path).map_err(|error| error.to_string())?;
    let before = bytes.clone();
    let damage = match random.u8(0..16) {
        0 => Damage::None,
        1..=8 => Damage::Slight,
        _ => Damage::Any,
    };
    match damage {
        Damage::None => {}
        Damage::Slight if random.u8(0..4) == 0 => bytes.truncate(random.usize(..bytes.len())),
        Damage::Slight => (0..random.usize(1..=3)).for_each(|_| {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }),
        Damage::Any => mutate(random, &mut bytes, &other, 1 << 20),
    }
    let damage = if bytes == before { Damage::None } else { damage };
    fs::write(&path, &bytes).map_err(|error| error.to_string())?;
    *input = Some(bytes);
    let what = |what: String| format!("`{}` with {damage:?} damage: {what}", file.display());
    let name = file.to_string_lossy();
    let (rows, complaints) = program.rows(run, folder.path(), table).map_err(what)?;
    let is_named = complaints.contains(&*name);
    let is_right = match damage {
        Damage::None => rows == whole && !is_named,
        Damage::Slight => rows == whole || (rows < whole && is_named),
        Damage::Any => true,
    };
    if !is_right {
        return Err(what(format!("{rows} lines of {whole}; it is named: {is_named}; {complaints}")));
    }
    let asked: [&[&str]; 5] = [
        &["report"],
        &["report", "-o", "page.html"],
        &["clocks"],
        &["clocks", "--write"],
        &["perfetto", "--step", "3", "--traces", ".", "-o", "step.tar"],
    ];
    program.answer(run, folder.path(), random.choice(asked).ok_or("there is no command")?).map_err(what)?;
    if random.bool() {
        program.answer(run, folder.path(), &["compact"]).map_err(what)?;
        let (after, _) = program.rows(run, folder.path(), table).map_err(what)?;
        if after != rows {
            return Err(what(format!("{rows} lines before `compact`, and {after} after it")));
        }
        if is_named && !path.exists() {
            return Err(what("`compact` removes what nobody can read".to_owned()));
        }
    }
    Ok((damage != Damage::None).then_some(is_named))
}

/// The files of the tables, below the folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = TABLES.iter().map(|table| folder.join(table)).collect();
    while let Some(path) = open.pop() {
        match fs::read_dir(&path) {
            Ok(entries) => open.extend(entries.flatten().map(|entry| entry.path())),
            Err(_) => found.extend(path.strip_prefix(folder).ok().filter(|_| path.is_file()).map(Path::to_owned)),
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path, files: &[PathBuf]) -> std::io::Result<()> {
    for file in files {
        let path = to.join(file);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::copy(from.join(file), path)?;
    }
    Ok(())
}
