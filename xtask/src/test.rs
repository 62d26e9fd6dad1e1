//! `cargo xtask test`: picks the steps, runs them in two rows beside each other, so that no core is idle while one step links or waits,
//! times them and sums up.

use std::fs::{self, File};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, thread};

use crate::shell::{Stop, is_ci, target};
use crate::steps::{STEPS, Step};

/// With less than this the disk is what fails: linking the tests takes more.
const LITTLE_MB: u64 = 512;

/// How much lower the priority of the steps beside the others is: they get a tenth of a core that both want, and all that the others leave.
const BESIDE_NICE: i32 = 10;

/// Runs `cargo xtask test` with these options.
///
/// # Errors
/// Options that it does not have.
pub fn run(options: &[&str]) -> Result<ExitCode, String> {
    if matches!(options, ["--list"] | ["--all", "--list"]) {
        STEPS.iter().for_each(|step| println!("{}", listed(step)));
        return Ok(ExitCode::SUCCESS);
    }
    Ok(run_steps(&chosen(options)?))
}

/// A step's line of the list.
fn listed(step: &Step) -> String {
    let command = if step.is_slow { "--all" } else { "" };
    format!("{:<12} {command:<5} {}", step.name, step.about)
}

/// The steps that these options choose.
fn chosen(options: &[&str]) -> Result<Vec<&'static Step>, String> {
    let (is_all, options) = match options {
        ["--all", rest @ ..] => (true, rest),
        _ => (false, options),
    };
    let steps = match options {
        [] => STEPS,
        ["--only", name] => return Ok(vec![&STEPS[index_of(name)?]]),
        ["--from", name] => &STEPS[index_of(name)?..],
        _ => return Err(format!("`test` does not know `{}`", options.join(" "))),
    };
    // From a slow step on, all are slow.
    let is_slow = is_all || steps[0].is_slow;
    Ok(steps.iter().filter(|step| is_slow || !step.is_slow).collect())
}

fn index_of(name: &str) -> Result<usize, String> {
    let found = STEPS.iter().position(|step| step.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        format!("there is no step `{name}`; there are {}", names.join(", "))
    })
}

/// How a step ended: its line of the summary.
enum Outcome {
    Passed(String),
    Skipped(String),
    Failed(String),
}

#[derive(Default)]
struct Summary {
    lines: Vec<String>,
    passed: usize,
    failed: usize,
}

impl Summary {
    fn add(&mut self, outcome: Outcome) {
        self.passed += usize::from(matches!(outcome, Outcome::Passed(_)));
        self.failed += usize::from(matches!(outcome, Outcome::Failed(_)));
        let (Outcome::Passed(line) | Outcome::Skipped(line) | Outcome::Failed(line)) = outcome;
        self.lines.push(line);
    }
}

fn run_steps(steps: &[&Step]) -> ExitCode {
    let begin = Instant::now();
    let (beside, own): (Vec<&Step>, Vec<&Step>) = steps.iter().partition(|step| step.is_beside && steps.len() > 1);
    let mut summary = Summary::default();
    let is_failed = &AtomicBool::new(false);
    let note = |outcome: &Outcome| {
        is_failed.fetch_or(matches!(outcome, Outcome::Failed(_)), Ordering::Relaxed);
    };
    let next = AtomicUsize::new(0);
    let run_next = |done: &mpsc::Sender<_>| {
        while !is_failed.load(Ordering::Relaxed)
            && let Some(step) = beside.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let (outcome, text) = run_beside(step);
            note(&outcome);
            let _ = done.send((*step, outcome, text));
        }
    };
    thread::scope(|scope| {
        let (done, others) = mpsc::channel();
        let sender = done.clone();
        let run_next = &run_next;
        scope.spawn(move || {
            // What is shown as it runs comes first; tests there compare times. On Linux a thread has a priority, and its children too.
            let _ = rustix::process::nice(BESIDE_NICE);
            run_next(&sender);
        });
        let show = |summary: &mut Summary, (step, outcome, text): (&Step, Outcome, String)| {
            println!("\n=== {} (beside the others): {}\n{text}", step.name, step.about);
            summary.add(outcome);
        };
        for (at, step) in own.iter().enumerate().take_while(|_| !is_failed.load(Ordering::Relaxed)) {
            println!("\n=== {} ({} of {}): {}", step.name, at + 1, own.len(), step.about);
            let outcome = run_step(step);
            note(&outcome);
            summary.add(outcome);
            others.try_iter().for_each(|other| show(&mut summary, other));
        }
        run_next(&done);
        drop(done);
        others.iter().for_each(|other| show(&mut summary, other));
    });
    let Summary { lines, passed, failed } = summary;
    println!("\n{}\n{:<12} {:>7}", lines.join("\n"), "in all", seconds(begin.elapsed()));
    let left = steps.len() - lines.len();
    if left > 0 {
        println!("{left} steps were not run");
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_step(step: &Step) -> Outcome {
    let begin = Instant::now();
    let result = (step.run)();
    let time = seconds(begin.elapsed());
    let line = |what: String| format!("{:<12} {time:>7}  {what}", step.name);
    match result {
        Ok(0) => Outcome::Passed(line("passed".to_owned())),
        Ok(tests) => Outcome::Passed(line(format!("passed, {tests} tests"))),
        Err(Stop::Skipped(what)) => {
            println!("skipped: {what}");
            Outcome::Passed(line(format!("passed, but {what}")))
        }
        Err(Stop::Lacks(what)) if !is_ci() => {
            println!("skipped: {what}");
            Outcome::Skipped(line(format!("skipped: {what}")))
        }
        Err(Stop::Lacks(why) | Stop::Failed(why)) => {
            println!("\nfailed: {why}\nwhat to do: {}", step.remedy);
            if let Some(mb) = free_mb().filter(|mb| *mb < LITTLE_MB) {
                println!("the disk of {} is full, {mb} MB are free; make room first: cargo clean", target().display());
            }
            println!("run it again: cargo xtask test --only {name}, then --from {name}", name = step.name);
            Outcome::Failed(line(format!("FAILED: {why}")))
        }
    }
}

/// Runs a step in a process of its own, and keeps what that prints: it is shown in one piece.
fn run_beside(step: &Step) -> (Outcome, String) {
    let path = target().join(format!("xtask-{}.txt", step.name));
    let run = || {
        let output = File::create(&path)?;
        let mut command = Command::new(env::current_exe()?);
        command.args(["test", "--only", step.name]).stdin(Stdio::null());
        command.stdout(output.try_clone()?).stderr(output).status()
    };
    let status = run();
    let text = fs::read_to_string(&path).unwrap_or_default();
    let begin = format!("{:<12} ", step.name);
    let line = text.lines().rev().find(|line| line.starts_with(&begin));
    let line = line.map_or_else(|| format!("{begin}FAILED: it did not run to its end: {status:?}"), str::to_owned);
    let is_success = status.is_ok_and(|status| status.success());
    let outcome = match is_success {
        true if line.contains(" skipped: ") => Outcome::Skipped(line),
        true => Outcome::Passed(line),
        false => Outcome::Failed(line),
    };
    (outcome, text)
}

/// What is free on the disk that holds what is built.
fn free_mb() -> Option<u64> {
    let disk = rustix::fs::statvfs(target().as_path()).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize) >> 20)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(options: &[&str]) -> Vec<&'static str> {
        chosen(options).expect("options that it has").iter().map(|step| step.name).collect()
    }

    #[test]
    fn each_step_runs_in_one_command_or_in_both_and_alone() {
        let (each, all) = (names(&[]), names(&["--all"]));
        assert_eq!(all.len(), STEPS.len());
        assert!(all.starts_with(&each) && each.len() < all.len(), "{each:?}");
        for step in STEPS {
            assert_eq!(names(&["--only", step.name]), [step.name]);
            assert_eq!(names(&["--from", step.name])[0], step.name);
        }
        assert!(each.ends_with(&names(&["--from", "tests-on"])));
        assert!(all.ends_with(&names(&["--all", "--from", "tests-on"])));
        assert!(all.ends_with(&names(&["--from", "deny"])));
    }

    #[test]
    fn the_list_says_which_command_runs_a_step() {
        let of = |name: &str| STEPS.iter().find(|step| step.name == name).map(listed).unwrap_or_default();
        assert!(of("format").starts_with("format             the code"), "{}", of("format"));
        assert!(of("deny").starts_with("deny         --all licenses"), "{}", of("deny"));
    }

    #[test]
    fn options_that_it_does_not_have_are_errors() {
        assert!(chosen(&["--slow"]).is_err_and(|error| error.contains("does not know `--slow`")));
        assert!(chosen(&["--only", "none"]).is_err_and(|error| error.contains("there is no step `none`")));
    }
}
