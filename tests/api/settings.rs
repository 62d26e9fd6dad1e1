//! What settings say that are likely to be a mistake: on standard error, where the session starts, and in its report.
//!
//! Each test runs itself in processes of their own, which have `WARPLINE` as a user would set it.

use std::env;
use std::process::{Output, Stdio};

use warpline::sink::MemorySink;
use warpline::{HostStream, Session};
use warpline_tests::{again, alone, this_test};

warpline::range! {
    MATMUL = "api.settings.matmul": "A part of a step.";
    NORM = "api.settings.norm": "Another one.";
}

/// Tells the process what its program does.
const PROGRAM: &str = "WARPLINE_TEST_PROGRAM";

/// In the process of its own: a program with these settings of its own.
fn run_if_told() -> bool {
    let Ok(program) = env::var(PROGRAM) else { return false };
    let builder = Session::builder();
    let builder = match program.strip_prefix("sink ") {
        Some(_) => builder.sink(MemorySink::new(10)),
        None => builder,
    };
    let settings = program.strip_prefix("sink ").unwrap_or(&program);
    if let Some(settings) = program.strip_prefix("default ") {
        drop(MATMUL.zone(&HostStream::new("compute")));
        let report = Session::from_env_or(settings).finish();
        println!("\nbegun {}, and the program goes on", report.begun);
        report.notes.iter().for_each(|note| println!("note: {note}"));
        return true;
    }
    if let Some(settings) = program.strip_prefix("dropped ") {
        let _ = Session::from_env_or(settings);
        drop(MATMUL.zone(&HostStream::new("compute")));
        return true;
    }
    match builder.env_or(settings).and_then(|builder| builder.start()) {
        Ok(session) => {
            let stream = HostStream::new("compute");
            drop(MATMUL.zone(&stream));
            drop(NORM.zone(&stream));
            stream.synchronize().expect("nothing panics");
            let report = session.finish();
            println!("\nbegun {}", report.begun);
            report.notes.iter().for_each(|note| println!("note: {note}"));
        }
        Err(error) => println!("\nerror: {error}"),
    }
    true
}

/// What the program says on standard output and on standard error.
fn said(test: &str, program: &str, settings: &str) -> (String, String) {
    let mut command = again(test, PROGRAM, program);
    command.env("WARPLINE", settings).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().expect("the test can run itself");
    let (stdout, stderr) = (String::from_utf8(stdout).expect("UTF-8"), String::from_utf8(stderr).expect("UTF-8"));
    assert!(status.success(), "{stdout}{stderr}");
    (stdout, stderr)
}

#[test]
fn settings_that_name_nothing_to_write_to_say_so() {
    if run_if_told() {
        return;
    }
    let said = |program: &str, settings: &str| said(this_test!(), program, settings).1;
    let replaced = "warpline: WARPLINE names nothing to write to (it replaces the program's own settings); add `summary` \
                    or `perfetto=FILE`\n";
    let alone = "warpline: WARPLINE names nothing to write to; add `summary` or `perfetto=FILE`\n";
    for settings in ["level=coarse", "filter=api.settings.*", "calibrate", "nvtx=off"] {
        assert_eq!(said("perfetto=/dev/null,summary", settings), replaced, "{settings}");
    }
    assert_eq!(said("off", "level=coarse"), alone);
    for settings in ["summary=/dev/null", "perfetto=/dev/null,level=coarse", "off", "", "nvtx=off"] {
        assert_eq!(said("off", settings), "", "{settings}");
    }
    assert_eq!(said("sink off", "level=coarse"), "", "the program has a sink of its own");
    // There is no tool; that is said, and the mirror was asked for.
    assert!(!said("summary", "nvtx").contains("nothing to write to"));
}

#[test]
fn a_session_says_where_its_files_are_unless_it_is_quiet() {
    if run_if_told() {
        return;
    }
    let test = this_test!();
    let folder = env::temp_dir().join(format!("warpline-where-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let at = |name: &str| folder.join(name).display().to_string();
    let settings = format!("perfetto={},chrome={},flight=256KiB:{}", at("t.pftrace"), at("t.json"), at("t.flight"));
    let stderr = said(test, "off", &settings).1;
    let size = |name: &str| {
        let bytes = std::fs::metadata(folder.join(name)).expect("it is there").len();
        if bytes < 1 << 10 { format!("{bytes} bytes") } else { format!("{:.1} KiB", bytes as f64 / 1024.0) }
    };
    let expected = format!(
        "warpline: wrote `{t}` ({}); open it with `warpline open {t}` or at https://ui.perfetto.dev\n\
         warpline: wrote `{j}` ({}); open it with `warpline open {j}` or at https://ui.perfetto.dev or chrome://tracing\n\
         warpline: wrote `{f}` ({}); `warpline recover {f}` converts it to a trace\n",
        size("t.pftrace"),
        size("t.json"),
        size("t.flight"),
        t = at("t.pftrace"),
        j = at("t.json"),
        f = at("t.flight"),
    );
    assert_eq!(stderr, expected);
    let rotated = said(test, "off", &format!("perfetto={},rotate=64KiB", at("r.pftrace"))).1;
    assert!(rotated.starts_with(&format!("warpline: wrote `{}` (", at("r.0001.pftrace"))), "{rotated}");
    assert_eq!(said(test, "off", &format!("quiet,{settings}")).1, "");
    assert_eq!(said(test, "off", &format!("quiet,perfetto={},rotate=64KiB", at("r.pftrace"))).1, "");
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn help_lists_the_settings_and_records_nothing() {
    if run_if_told() {
        return;
    }
    for settings in ["help", "perfetto=none/such/t.pftrace,help"] {
        let (stdout, stderr) = said(this_test!(), "off", settings);
        assert!(stderr.starts_with("warpline: WARPLINE takes these settings, joined by commas:\n"), "{stderr}");
        assert!(stderr.contains("\n  perfetto=FILE        write a Perfetto trace\n"), "{stderr}");
        assert!(stderr.ends_with("Nothing is recorded in this run.\n"), "{stderr}");
        assert!(stdout.contains("\nbegun 0\n"), "{stdout}");
    }
}

#[test]
fn the_guide_has_every_setting() {
    let guide = include_str!("../../docs/settings.md");
    let stderr = said("settings::help_lists_the_settings_and_records_nothing", "off", "help").1;
    let keys: Vec<_> = stderr.lines().filter_map(|line| line.strip_prefix("  ")?.split([' ', '=']).next()).collect();
    assert!(keys.len() > 20, "{stderr}");
    for key in keys {
        assert!(
            ["`", "="].iter().any(|end| guide.contains(&format!("| `{key}{end}"))),
            "docs/settings.md lacks `{key}`"
        );
    }
}

#[test]
fn a_filter_that_no_range_fits_is_said_with_the_one_that_may_be_meant() {
    if run_if_told() {
        return;
    }
    let said = |settings: &str| said(this_test!(), "off", settings);
    for (filter, warning) in [
        ("api.settings.matmull", "no range matches `api.settings.matmull`; did you mean `api.settings.matmul`?"),
        ("!api.settings.nrm", "no range matches `!api.settings.nrm`; did you mean `!api.settings.norm`?"),
        ("api", "no range matches `api`; did you mean `api.*`?"),
        ("!api.settings", "no range matches `!api.settings`; did you mean `!api.settings.*`?"),
        ("apii.*", "no range matches `apii.*`; did you mean `api.*`?"),
        ("nothing.*", "no range matches `nothing.*`; `warpline catalog PROGRAM` lists its ranges"),
    ] {
        let (stdout, stderr) = said(&format!("perfetto=/dev/null,filter={filter}"));
        let nothing = "warpline: no zone was recorded: `filter` and `level` leave out all of the program's ";
        let rest = stderr.strip_prefix(&format!("warpline: {warning}\n")).unwrap_or_else(|| panic!("once: {stderr}"));
        match filter.starts_with('!') {
            true => assert_eq!(rest, "", "once"),
            false => assert!(rest.starts_with(nothing) && rest.lines().count() == 1, "{stderr}"),
        }
        assert!(stdout.contains(&format!("note: {warning}\n")), "{stdout}");
        assert!(stdout.contains(if filter.starts_with('!') { "begun 2" } else { "begun 0" }), "{stdout}");
    }
    let (stdout, stderr) = said("perfetto=/dev/null,filter=api.settings.*,filter=!*.norm");
    assert!(stderr.is_empty() && stdout.contains("begun 1") && !stdout.contains("note:"), "{stdout}{stderr}");
}

#[test]
fn a_trace_under_the_name_of_another_format_is_written_and_questioned() {
    if run_if_told() {
        return;
    }
    let folder = env::temp_dir().join(format!("warpline-misnamed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let at = |name: &str| folder.join(name).display().to_string();
    let [wrong, right] = ["t.json", "t.pftrace"].map(at);
    let (stdout, stderr) = said(this_test!(), "off", &format!("quiet,perfetto={wrong},chrome={right}"));
    let questions = [
        format!("`perfetto={wrong}` writes a Perfetto trace; write `chrome={wrong}` if the name says what you want"),
        format!("`chrome={right}` writes a Chrome JSON trace; write `perfetto={right}` if the name says what you want"),
    ];
    for question in &questions {
        assert!(stderr.contains(&format!("warpline: {question}\n")), "{stderr}");
        assert!(stdout.contains(&format!("note: {question}\n")), "{stdout}");
    }
    let begins = |path: &str| std::fs::read(path).expect("it is written")[0];
    assert!(begins(&wrong) != b'{' && begins(&right) == b'{');
    let (stdout, stderr) = said(this_test!(), "off", &format!("quiet,perfetto={right},chrome={wrong}"));
    assert!(!stderr.contains("the name says") && !stdout.contains("the name says"), "{stdout}{stderr}");
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn a_filter_that_comes_later_and_fits_no_range_is_in_the_report() {
    let _turn = alone();
    let session = Session::builder().sink(MemorySink::new(10)).start().expect("no other session");
    session.set_filter("api.settings.matmul,api.settings.nom").expect("a pattern");
    session.set_filter("api.settings.matmul,api.settings.nom").expect("a pattern");
    let report = session.finish();
    assert_eq!(report.notes, ["no range matches `api.settings.nom`; did you mean `api.settings.norm`?"]);
}

#[test]
fn what_is_wrong_is_blamed_on_who_said_it() {
    if run_if_told() {
        return;
    }
    let said = |program: &str, settings: &str| said(this_test!(), program, settings).0;
    for settings in
        ["rotate=256MiB", "perfetto=a,keep=3", "summary,stall=10s", "dump_on=sigusr2", "perfetto=a,perfetto=./a"]
    {
        let stdout = said("off", settings);
        assert!(stdout.contains("error: WARPLINE has a setting that cannot be used: `"), "{settings}: {stdout}");
    }
    let _turn = alone();
    for settings in ["rotate=256MiB", "perfetto=a,chrome=a"] {
        let builder = Session::builder().settings(settings).expect("settings");
        let error = builder.start().expect_err("they do not go together").to_string();
        assert!(error.starts_with("the program has a setting that cannot be used: `"), "{error}");
    }
    assert!(!std::path::Path::new("a").exists(), "and nothing was made");
}

#[test]
#[cfg(target_os = "linux")]
fn where_nobody_can_ask_safely_the_program_starts_all_the_same() {
    if run_if_told() {
        return;
    }
    let test = this_test!();
    let folder = env::temp_dir().join(format!("warpline-unsafe-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::os::unix::fs::symlink("/tmp", folder.join("warpline")).expect("a link");
    let said = |settings: &str| {
        let mut command = again(test, PROGRAM, "off");
        command.env("WARPLINE", settings).env("XDG_RUNTIME_DIR", &folder).stdin(Stdio::null());
        let output = command.output().expect("the test can run itself");
        assert!(output.status.success());
        (String::from_utf8(output.stdout).expect("UTF-8"), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    for (settings, begun) in [("control,perfetto=/dev/null", 2), ("control", 0)] {
        let (stdout, stderr) = said(settings);
        assert!(stderr.starts_with("warpline: the program cannot be controlled from outside: "), "{stderr}");
        assert!(stderr.contains("it is a symlink") && stderr.lines().count() == 1, "{stderr}");
        assert!(stdout.contains(&format!("begun {begun}\n")), "{stdout}");
        let noted = stdout.contains("note: the program cannot be controlled from outside: ");
        assert_eq!(noted, begun > 0, "a session that records has a report: {stdout}");
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn a_session_that_cannot_start_says_why_and_the_program_goes_on() {
    if run_if_told() {
        return;
    }
    for (settings, why) in [
        ("perfeto=a", "WARPLINE has a setting that cannot be used: `perfeto=a`: there is no setting `perfeto`"),
        ("perfetto=/no/such/folder/t.pftrace", "cannot write the Perfetto trace to `/no/such/folder/t.pftrace`: "),
        ("summary=/no/such/folder/r.html", "cannot write the report to `/no/such/folder/r.html`: "),
    ] {
        let (stdout, stderr) = said(this_test!(), "default summary", settings);
        let why = format!("nothing is recorded: {why}");
        assert!(stderr.starts_with(&format!("warpline: {why}")), "{stderr}");
        assert!(stdout.contains("\nbegun 0, and the program goes on\n"), "{stdout}");
        assert!(stdout.contains(&format!("note: {why}")), "{stdout}");
    }
}

#[test]
fn the_variable_says_which_outputs_of_the_program_it_removes() {
    if run_if_told() {
        return;
    }
    let said = |program: &str, settings: &str| said(this_test!(), program, settings).1;
    let lacks = |what: &str| {
        format!(
            "warpline: WARPLINE replaces the program's own settings, and has no {what}; add to it what you want to keep\n"
        )
    };
    assert_eq!(said("perfetto=/dev/null,summary", "control"), lacks("`perfetto=/dev/null`, `summary`"));
    assert_eq!(said("perfetto=/dev/null", "chrome=/dev/null"), lacks("`perfetto=/dev/null`"));
    assert_eq!(said("perfetto=/dev/null", "perfetto=/dev/null,level=coarse"), "");
    assert_eq!(said("perfetto=/dev/null", "off"), "");
}

#[test]
fn the_report_goes_to_standard_error_or_where_it_is_told() {
    if run_if_told() {
        return;
    }
    let has_report = |text: &str| text.contains("2 zones begun, 2 recorded");
    for (settings, places) in [("summary", [false, true]), ("summary=-", [true, false])] {
        let (stdout, stderr) = said(this_test!(), "off", settings);
        assert_eq!([&stdout, &stderr].map(|text| has_report(text)), places, "{settings}: {stdout}{stderr}");
    }
}

#[test]
fn a_session_without_zones_says_why() {
    if run_if_told() {
        return;
    }
    let said = |program: &str, settings: &str| said(this_test!(), program, settings).1;
    let nothing = "warpline: no zone was recorded: ";
    let stderr = said("dropped off", "perfetto=/dev/null");
    let why = " ms after its start; bind it to a name, as in `let _session = …`, because `let _ = …` drops it\n";
    assert!(stderr.starts_with(&format!("{nothing}the session was dropped ")) && stderr.ends_with(why), "{stderr}");
    let stderr = said("default off", "perfetto=/dev/null");
    assert!(stderr.starts_with(&format!("{nothing}none of the program's ")) && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(said("off", "perfetto=/dev/null"), "", "it has zones");
    // The page of such a session is written, and looks like no success.
    let folder = tempfile::tempdir().expect("a folder for the page");
    let page = folder.path().join("report.html");
    said("default off", &format!("summary={}", page.display()));
    let page = std::fs::read_to_string(page).expect("the page is written");
    let verdict = r#""verdict":[{"is_bad":true,"parts":["no zone was recorded"]}]"#;
    assert!(page.contains(verdict), "{}", page.len());
}
