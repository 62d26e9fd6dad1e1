//! One row for each fault, in Markdown.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::case::{Case, Fault};
use crate::judge::{Judge, Verdict};

pub fn markdown(what: &str, judge: &Judge, cases: &[Case], verdicts: &[Verdict]) -> String {
    let mut out = format!("### Injected faults: {what}\n\n");
    if judge.noise_ns > 0 {
        let ms = judge.noise_ns as f64 / 1e6;
        let _ = writeln!(
            out,
            "In-process ranks share a machine with other work: others may be named beside the rank with the fault for less than {ms:.0} ms.\n"
        );
    }
    let mut rows = vec![["fault", "injected", "named", "right", "late by", "a number", "source"].map(str::to_owned)];
    for fault in Fault::ALL {
        let of: Vec<&Verdict> =
            cases.iter().zip(verdicts).filter(|(case, _)| case.fault == fault).map(|(_, verdict)| verdict).collect();
        if of.is_empty() {
            continue;
        }
        let mut late: Vec<i64> = of.iter().filter_map(|verdict| verdict.late_ns).collect();
        late.sort_unstable();
        let late = late.get(late.len() / 2).map_or(String::new(), |ns| format!("{:.2} ms", *ns as f64 / 1e6));
        let places: BTreeSet<&str> = of.iter().filter_map(|verdict| verdict.place.as_deref()).collect();
        let number = of.iter().find_map(|verdict| verdict.number.clone()).unwrap_or_default();
        rows.push([
            fault.name().to_owned(),
            if fault == Fault::Clean { format!("0 of {}", of.len()) } else { of.len().to_string() },
            of.iter().filter(|verdict| verdict.names()).count().to_string(),
            of.iter().filter(|verdict| verdict.is_right).count().to_string(),
            late,
            number,
            places.into_iter().collect::<Vec<_>>().join(", "),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
        if index == 0 {
            let _ = writeln!(out, "|{}|", widths.map(|width| "-".repeat(width + 2)).join("|"));
        }
    }
    out
}
