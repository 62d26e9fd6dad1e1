//! `warpline arm` where no zone comes, or the name is none: what people are told, and what programs read.
#![cfg(target_os = "linux")]

use serde_json::Value;

use crate::support::target::{Target, complaint, runtime_dir, said, state, warpline};

warpline::range! {
    NEVER = "cli.target.never": "What this program never does.";
}

#[test]
fn a_range_that_does_not_run_is_said_to_people_and_to_programs() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let pid = target.pid();
    let said = complaint(dir.path(), &["arm", &pid, "cli.target.never", "--within", "200ms"]);
    assert_eq!(said, "no zone of `cli.target.never` began within 0.2 s; it may not run now: try a longer `--within`");
    let json = ["arm", &pid, "cli.target.never", "-n", "2", "--within", "200ms", "--format", "json"];
    let output = warpline(dir.path(), &json).output().expect("it runs");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(2), &b""[..]));
    let ended: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&ended["is"], &ended["why"]), (&"ended".into(), &"time".into()));
    assert_eq!((&ended["to_come"], &ended["code"]), (&2.into(), &"none_began".into()));
    assert_eq!(state(dir.path(), &pid), "records nothing");
    // The mark is there, and this process is not the one that was asked.
    assert!(!NEVER.host().is_active());
    target.end();
}

#[test]
fn a_name_that_is_none_has_a_remedy_that_can_be_run() {
    let dir = runtime_dir();
    let target = Target::start(dir.path(), "control");
    let pid = target.pid();
    let lists = format!("`warpline catalog /proc/{pid}/exe` lists them");
    let none = |name: &str| complaint(dir.path(), &["arm", &pid, name]);
    for (name, near) in [("cli.target.lode", "cli.target.load"), ("sync", "cli.target.sync")] {
        let wanted =
            format!("error: process {pid}: this program has no range `{name}`; did you mean `{near}`? {lists}");
        assert_eq!(none(name), wanted);
    }
    assert_eq!(none("else.ware"), format!("error: process {pid}: this program has no range `else.ware`; {lists}"));
    for pattern in ["cli.target.*", "!cli.target.part", "cli.target.part,cli.target.load"] {
        assert_eq!(none(pattern), format!("error: `{pattern}` is a pattern; name one range in full: {lists}"));
    }
    assert!(said(dir.path(), &["catalog", &format!("/proc/{pid}/exe")]).contains("cli.target.part"));
    target.end();
}

#[test]
fn the_docs_name_every_key_that_scripts_read() {
    let dir = runtime_dir();
    let recorder = dir.path().join("run.flight");
    let target = Target::start(dir.path(), &format!("control,flight=1MiB:{}", recorder.display()));
    let pid = target.pid();
    let docs = include_str!("../../docs/control.md");
    let (_, docs) = docs.split_once("## For scripts").expect("a section");
    let (docs, _) = docs.split_once("\n## ").expect("another one");
    for args in [
        &["status", &pid, "--format", "json"][..],
        &["ps", "--format", "json"],
        &["arm", &pid, "cli.target.part", "--format", "json"],
        &["arm", &pid, "cli.target.load", "--format", "json"],
    ] {
        let mut reply: Value = serde_json::from_str(&said(dir.path(), args)).expect("JSON");
        if let Some(first) = reply.get_mut(0) {
            reply = first.take();
        }
        let keys: Vec<_> = reply.as_object().expect("an object").keys().collect();
        assert!(keys.len() > 3, "{keys:?}");
        for key in keys {
            assert!(docs.contains(&format!("`{key}`")), "{key} of {args:?}");
        }
    }
    target.end();
}
