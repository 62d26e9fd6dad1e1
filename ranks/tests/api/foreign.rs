//! What others wrote, as names of hosts, ranges, groups, runs, files and tables, acts on no terminal and becomes no formula, whichever command prints
//! it. What a user wrote appears in no error with its secrets.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use serde_json::Value;
use warpline_ranks::generate::{Hang, Late, Plan, Slow, Stage, generate, progress};

use crate::bounds::rewrite;
use crate::command::{command, text};
use crate::store::server;

/// Sets a terminal's title, changes colors, hides and turns text, and begins a line of its own.
const HOSTILE: &str = "evil\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}31m\u{202e}\u{2066}\u{2028}\u{200b}\u{8}\r\nFORGED";

/// What must not be written as it is. Kept apart from the code under test, so that a hole there is not one here.
fn deceives(c: char) -> bool {
    matches!(c,
        '\0'..='\u{9}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Tables and progress files of a job whose every name is hostile.
fn hostile(folder: &Path) {
    let late = Late { rank: 3, stage: Stage::Load, ns: 60_000_000, from: 30, to: 100 };
    let slow = Slow { rank: 6, percent: 5.0, from: 40 };
    let plan = Plan { ranks: 12, hosts: 3, steps: 130, late: vec![late], slow: vec![slow], ..Plan::default() };
    generate(folder, &plan).unwrap();
    progress(folder, &plan, Hang::Mismatch { rank: 6, step: 3 }).unwrap();
    for table in ["windows", "steps", "stages", "ranges", "sketches", "collectives", "comms"] {
        rewrite(&folder.join(table), |batch| {
            let worse = |(field, column): (&Arc<datafusion::arrow::datatypes::Field>, &ArrayRef)| -> ArrayRef {
                if !["host", "name", "comm", "range", "coarsened", "version"].contains(&field.name().as_str()) {
                    return column.clone();
                }
                let texts = cast(column, &DataType::Utf8).unwrap();
                let texts = texts.as_string::<i32>().iter().map(|text| text.map(|text| format!("={text}{HOSTILE}")));
                cast(&(Arc::new(texts.collect::<StringArray>()) as ArrayRef), field.data_type()).unwrap()
            };
            let columns = batch.schema().fields().iter().zip(batch.columns()).map(worse).collect();
            RecordBatch::try_new(batch.schema(), columns).unwrap()
        });
        // Ranks give a run no such name, so one that has it is no run.
        std::fs::create_dir(folder.join(table).join(format!("run={HOSTILE}"))).unwrap();
        std::fs::write(folder.join(table).join("run=generated/win=29399999").with_extension(HOSTILE), "").unwrap();
    }
    let of_run = folder.join("progress/run=generated");
    for entry in std::fs::read_dir(&of_run).unwrap() {
        let path = entry.unwrap().path();
        let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        spoil(&mut file);
        std::fs::write(&path, file.to_string()).unwrap();
    }
    std::fs::write(of_run.join(format!("rank-{HOSTILE}.json")), "").unwrap();
    std::fs::rename(&of_run, folder.join(format!("progress/run={HOSTILE}"))).unwrap();
    // None of these ranks waits, and one of the others is late: both kinds of sentences.
    let stuck = Plan { run: "stuck".to_owned(), ..plan };
    progress(folder, &stuck, Hang::Stuck { rank: 6, step: 3 }).unwrap();
    for entry in std::fs::read_dir(folder.join("progress/run=stuck")).unwrap() {
        let path = entry.unwrap().path();
        let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        spoil(&mut file);
        std::fs::write(&path, file.to_string()).unwrap();
    }
}

/// Makes every text of a progress file hostile but those that are no names.
fn spoil(value: &mut Value) {
    match value {
        Value::String(text) => *text += HOSTILE,
        Value::Array(all) => all.iter_mut().for_each(spoil),
        Value::Object(all) => {
            let kept = ["members", "check", "signature"];
            all.iter_mut().filter(|(key, _)| !kept.contains(&key.as_str())).for_each(|(_, value)| spoil(value));
        }
        _ => {}
    }
}

/// Runs the command, and looks at what it says.
struct Looked {
    folder: PathBuf,
    temporary: tempfile::TempDir,
    shown: String,
    /// Commands that show nothing foreign, so that they test nothing.
    bare: Vec<String>,
}

impl Looked {
    fn run(&mut self, args: &[&str]) -> Output {
        let output = command(args).current_dir(&self.folder).env("TMPDIR", self.temporary.path()).output().unwrap();
        for text in [&output.stdout, &output.stderr].map(|bytes| text(bytes)) {
            let found = text.find(deceives).map(|at| text[at..].chars().take(30).collect::<String>());
            assert_eq!(found, None, "{args:?}: {}", text.escape_debug());
            assert!(!text.lines().any(|line| line.starts_with("FORGED")), "{args:?}: {text}");
            self.shown += &text;
        }
        output
    }

    /// The same, and what it says is foreign.
    fn shows(&mut self, args: &[&str]) -> Output {
        let before = self.shown.len();
        let output = self.run(args);
        let shown = &self.shown[before..];
        let is_spelled = ["\\u{202e}", "\\u202e", "%E2%80%AE"].iter().any(|text| shown.contains(text));
        if !is_spelled || !shown.contains("evil") {
            self.bare.push(format!("{args:?} shows nothing foreign: {shown}"));
        }
        output
    }
}

#[test]
fn no_command_lets_a_foreign_name_act_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let tables = folder.path().join(format!("tables{HOSTILE}"));
    std::fs::create_dir(&tables).unwrap();
    hostile(&tables);
    let mut looked = Looked {
        folder: folder.path().to_owned(),
        temporary: tempfile::tempdir().unwrap(),
        shown: String::new(),
        bare: Vec::new(),
    };
    let place = tables.to_str().unwrap();
    let all = "SELECT host, name, dur_ns FROM stages ORDER BY step, rank, idx LIMIT 20";
    for args in [
        &["report", place][..],
        &["report", place, "--json"],
        &["clocks", place],
        &["clocks", place, "--json"],
        &["hang", place, "--run", HOSTILE, "--between", "0"],
        &["hang", place, "--run", HOSTILE, "--between", "0", "--json"],
        &["hang", place, "--run", "stuck", "--between", "0"],
        &["hang", place, "--run", "stuck", "--between", "0", "--json"],
        &["query", place, all],
        &["query", place, all, "--format", "csv"],
        &["query", place, all, "--json"],
        &["query", place, "--name", "placed", "--format", "csv"],
        &["perfetto", place, "--step", "31", "-o", "a.tar"],
        // Errors.
        &["report", place, "--run", "none"],
        &["hang", place, "--run", "none"],
        &["hang", &format!("{place}/none")],
        &["report", &format!("{place}/none")],
        &["compact", &format!("{place}/none")],
        &["clocks", &format!("{place}/none")],
        &["report", place, "-o", &format!("{place}/truth.json/r.html")],
        &["perfetto", place, "--step", "31", "-o", &format!("{place}/truth.json/a.tar")],
        &["perfetto", place, "--step", "31", "--ranks", HOSTILE],
        &["generate", &format!("{place}/truth.json/tables"), "--ranks", "4", "--hosts", "2", "--steps", "10"],
        &["generate", "made", "--late", HOSTILE],
        &["generate", "made", "--run", HOSTILE],
        &["man", &format!("{place}/truth.json/pages")],
        &["query", place, &format!("SELECT \"{HOSTILE}\" FROM steps")],
        &["query", place, &format!("SELECT * FROM \"{HOSTILE}\"")],
        &["query", place, "--name", HOSTILE],
        &["query", place, "--file", &format!("{place}/none.sql")],
        &["query", &format!("{place}/truth.json"), "SELECT 1 FROM zones"],
        &["query", place, "SELECT 1", "--format", HOSTILE],
        &["query", place, "SELECT 1", "--engine", HOSTILE],
        &["report", &format!("s3://bucket/{HOSTILE}"), "--run", "x"],
        &["report", &format!("nfs://{HOSTILE}")],
        &["hang", &format!("s3://bucket/{HOSTILE}")],
        &["completions", HOSTILE],
        &[HOSTILE],
    ] {
        looked.shows(args);
    }
    looked.run(&["query", "--list"]);
    looked.run(&["query", place, &format!("SELECT {HOSTILE}")]);
    looked.run(&["query", place, &format!("DROP TABLE \"{HOSTILE}\"")]);
    let page = folder.path().join("r.html");
    looked.shows(&["report", place, "-o", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    let found = page.find(|c| c != '\t' && deceives(c)).map(|at| page[at..].chars().take(30).collect::<String>());
    assert_eq!(found, None, "the page");
    assert!(page.contains("u{202e}"));
    looked.run(&["compact", place]);
    assert!(looked.bare.is_empty(), "{}", looked.bare.join("\n"));
}

#[test]
fn a_name_is_no_formula_and_no_line_of_its_own_in_csv() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), &Plan { ranks: 2, hosts: 1, steps: 10, ..Plan::default() }).unwrap();
    let sql = "SELECT '=cmd|''/C calc''!A0' AS \"=head\", '@SUM(1)' AS b, '+1+1' AS c, '-x' AS d, -5 AS e, '-5' AS f, 'a\rb' AS g, \
               'a\r\nb' AS h, ' x, \"y\"' AS i, CAST(NULL AS VARCHAR) AS j, -0.5 AS k, arrow_cast('=1', 'Utf8View') AS l, \
               arrow_cast('=2', 'Dictionary(Int32, Utf8)') AS m";
    let ask = |sql: &str| {
        let output = command(&["query", folder.path().to_str().unwrap(), sql, "--format", "csv"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    };
    let lines = "\"'=head\",b,c,d,e,f,g,h,i,j,k,l,m\n\
                 \"'=cmd|'/C calc'!A0\",\"'@SUM(1)\",\"'+1+1\",\"'-x\",-5,-5,a\\rb,a\\r\\nb,\" x, \"\"y\"\"\",,-0.5,\"'=1\",\"'=2\"\n";
    assert_eq!(ask(sql), lines);
    // Without a row there is a head, too.
    assert_eq!(ask(&format!("{sql} WHERE false")), "\"'=head\",b,c,d,e,f,g,h,i,j,k,l,m\n");
}

#[test]
fn no_error_has_the_secrets_of_what_the_user_wrote() {
    let secret = "s3cr3t";
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let of_query = format!("https://host.example/bucket/x?X-Amz-Signature={secret}&sig={secret}#{secret}");
    let (nobody, _requests) = server();
    for (args, environment) in [
        (&["report", &format!("s3://user:{secret}@bucket/x")][..], &[("AWS_ENDPOINT_URL", nobody.clone())][..]),
        (&["report", &format!("s3://user:{secret}/a@bucket/x")], &[("AWS_ENDPOINT_URL", nobody.clone())]),
        (&["report", &format!("nfs://{secret}@host/x")], &[]),
        (&["report", &of_query], &[]),
        (&["hang", &of_query], &[]),
        (&["compact", &format!("gs://user:{secret}@host/x")], &[]),
        (
            &["report", "s3://bucket/x"],
            &[("AWS_ENDPOINT_URL", format!("http://user:{secret}@{}", nobody.trim_start_matches("http://")))],
        ),
        (&["report", "s3://bucket/x"], &[("AWS_ENDPOINT_URL", format!("ftp://user:{secret}@127.0.0.1:9"))]),
        (&["report", "s3://bucket/x"], &[("AWS_ENDPOINT_URL", format!("http://user:{secret}@:9:9"))]),
        (&["report", place, "--engine", &format!("ballista://user:{secret}@host")], &[]),
        (&["report", place, "--engine", &format!("spark://{secret}@host")], &[]),
        (&["query", place, &format!("SELECT * FROM 'https://user:{secret}@host/x'")], &[]),
    ] {
        let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "s3cr3t-key")];
        let environment = environment.iter().map(|(name, value)| (*name, value.as_str()));
        let output = command(args).envs(environment.chain(keys)).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success() && !said.contains(secret), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{args:?}: {said}");
    }
}
