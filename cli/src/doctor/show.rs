//! Prints findings for people: a line for each, and its remedy below it.

use super::{Finding, PartState};
use crate::output::{counted, printable};

/// The findings, and what they mean together.
pub(super) fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        text += &format!("{:<8} {:<13} {}\n", word(finding), finding.part, printable(&finding.what));
        // A part that works needs no remedy.
        if let Some(remedy) = finding.remedy.as_ref().filter(|_| finding.state != PartState::Works) {
            text += &format!("{:22} -> {}\n", "", printable(remedy));
        }
    }
    let problems = findings.iter().filter(|finding| finding.is_problem()).count() as u64;
    let limits =
        findings.iter().filter(|finding| matches!(finding.state, PartState::Limited | PartState::Missing)).count()
            as u64;
    text.push('\n');
    text += &match (problems, limits) {
        (0, 0) if findings.iter().any(|finding| finding.state == PartState::Untried) => {
            "everything that was tried works\n".to_owned()
        }
        (0, 0) => "everything works\n".to_owned(),
        (0, _) => format!("everything that the settings request works; {} limited or missing\n", parts(limits)),
        (_, _) => format!("{}: see the remedies of the lines marked `!`\n", counted(problems, "problem")),
    };
    text
}

fn parts(count: u64) -> String {
    format!("{} {}", counted(count, "part"), crate::output::is_or_are(count))
}

fn word(finding: &Finding) -> String {
    let word = match finding.state {
        PartState::Works => "works",
        PartState::Limited => "limited",
        PartState::Untried => "untried",
        PartState::Off => "off",
        PartState::Missing => "missing",
        PartState::Broken => "broken",
    };
    if finding.is_problem() { format!("{word}!") } else { word.to_owned() }
}
