//! Completions and manual pages, as shells and `man` take them.

use std::path::Path;
use std::process::{Command, Output};

const WARPLINE: &str = env!("CARGO_BIN_EXE_warpline");

fn warpline(args: &[&str]) -> Output {
    Command::new(WARPLINE).args(args).output().unwrap()
}

/// Whether a program is installed; without it, its part of a test is left out, with a line that says so.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("`{program}` is not installed: not tested with it");
    }
    found
}

#[test]
fn bash_completes_a_command_and_an_option() {
    let output = warpline(&["completions", "bash"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    if !has("bash") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("warpline.bash");
    std::fs::write(&script, &output.stdout).unwrap();
    let completed = |words: &str| {
        // As bash calls a completion: the words, the number of the last one, and the one before it.
        let ask = format!(
            "set -u; source {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _warpline warpline \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["--norc", "--noprofile", "-c", &ask]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(completed("warpline strag"), ["stragglers"]);
    assert_eq!(completed("warpline stragglers --to"), ["--top"]);
    assert_eq!(completed("warpline stragglers --format j"), ["json"]);
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = warpline(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("stragglers") && script.contains("recover"), "{shell}");
    }
    let output = warpline(&["completions", "csh"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("deep/man1");
    let output = warpline(&["man", pages.to_str().unwrap()]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let definition = warpline_cli::definition();
    let commands = definition.get_subcommands().filter(|command| !command.is_hide_set());
    let names = commands.map(|command| format!("warpline-{}.1", command.get_name())).chain(["warpline.1".to_owned()]);
    for name in names.filter(|name| name != "warpline-help.1") {
        let page = std::fs::read_to_string(pages.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".TH") && page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{name}");
        rendered(&pages.join(&name));
    }
    // A file is no folder.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = warpline(&["man", file.to_str().unwrap()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && text.contains("cannot write the manual pages into"), "{text}");
}

/// What `man` makes of the page, without a warning.
fn rendered(page: &Path) {
    if !has("man") {
        return;
    }
    let page = page.to_str().unwrap();
    let output =
        Command::new("man").args(["--warnings", "-E", "UTF-8", "-l", page]).env("MANWIDTH", "200").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{page}: {output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("SYNOPSIS"), "{page}");
}
