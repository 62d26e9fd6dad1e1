//! A comparison as text, Markdown and JSON.

use serde_json::json;

use super::{ALPHA, Compared, Comparison, Subject, Verdict, What, Zones};
use crate::output::{self, Column, fitted, printable, time};

/// The most rows of the text.
const ROWS: usize = 40;

/// The most names in a list.
const NAMES: usize = 20;

/// A longer name, such as that of a kernel from a template, has a line of its own, so that figures stay beside one
/// another.
const LONGEST: usize = 40;

/// A subject, and how much there is of it on each side.
type OfSides<'a> = (&'a Subject, [Zones; 2]);

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Verdict::Regressed => "regressed",
            Verdict::Slower => "slower",
            Verdict::Faster => "faster",
            Verdict::Same => "same",
            Verdict::CannotTell => "cannot tell",
            Verdict::TooFew => "too few",
        }
    }
}

impl Subject {
    fn label(&self) -> String {
        match (self.what, &self.range) {
            (What::Kernel, Some(range)) => format!("{} in {range}", self.name),
            (What::Range | What::Step | What::Wall | What::Collective, _) => self.name.to_string(),
            (what, _) => format!("{} ({})", self.name, what.as_str()),
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// The verdict, and what it could have seen.
fn verdict(one: &Compared, alpha: f64) -> String {
    match (one.verdict, one.difference.tellable(alpha)) {
        (Verdict::CannotTell, Some(least)) => format!("cannot tell (could see ≥{:.0} %)", (least * 100.0).ceil()),
        (verdict, _) => verdict.as_str().to_owned(),
    }
}

fn interval(one: &Compared) -> String {
    one.difference
        .interval(0.05)
        .map_or_else(|| "–".to_owned(), |(low, high)| format!("{:+.1} … {:+.1} %", low * 100.0, high * 100.0))
}

impl Comparison {
    /// One sentence with the result.
    fn result(&self) -> String {
        let count = |verdict| self.compared.iter().filter(|one| one.verdict == verdict).count();
        let limit = self.limit.map_or_else(String::new, |limit| {
            let regressed = count(Verdict::Regressed);
            let what = if regressed == 0 { "nothing is".to_owned() } else { format!("{regressed} figures are") };
            let what = if regressed == 1 { "1 figure is".to_owned() } else { what };
            format!("{what} slower by more than {:.4} %; ", limit * 100.0).replace(".0000 %", " %")
        });
        if self.judges_nothing() {
            return format!("nothing is judged: {}", self.needs());
        }
        let not_timed = match self.not_timed.len() {
            0 => String::new(),
            some => format!(", {some} not timed"),
        };
        format!(
            "{limit}{} slower, {} faster, {} the same, {} undecided, {} with too few blocks to judge{not_timed}",
            count(Verdict::Slower) + if self.limit.is_none() { count(Verdict::Regressed) } else { 0 },
            count(Verdict::Faster),
            count(Verdict::Same),
            count(Verdict::CannotTell),
            count(Verdict::TooFew),
        )
    }

    /// How the figures were found, in parts.
    fn method(&self) -> Vec<String> {
        let [base, new] = self.runs.map(|runs| output::counted(runs as u64, "run"));
        let single = self.runs.contains(&1);
        let mut parts =
            vec![format!("{base} against {new}, intervals of 95 % from a bootstrap over blocks (seed {})", self.seed)];
        if single {
            parts.push("with one run per side, runs are assumed to differ by 0.7 %".to_owned());
        }
        parts.push(format!("the significance level is {:.0} % for all figures together", ALPHA * 100.0));
        if !self.lacks_ends().is_empty() {
            parts.push("zones whose end is only bounded are in no figure; `ends=eager` times them".to_owned());
        }
        parts
    }

    /// The subjects with zones whose length is only a bound, in two lists: those that are not compared, and those that
    /// are compared without these zones.
    fn lacks_ends(&self) -> Vec<(&'static str, Vec<OfSides<'_>>)> {
        let not_timed = self.not_timed.iter().map(|(subject, zones)| (subject, *zones)).collect();
        let has_bounded = |one: &&Compared| one.quantile == "median" && one.zones.iter().any(|zones| zones.bounded > 0);
        let partly = self.compared.iter().filter(has_bounded).map(|one| (&one.subject, one.zones)).collect();
        [("not timed", not_timed), ("partly timed", partly)]
            .into_iter()
            .filter(|(_, all): &(_, Vec<_>)| !all.is_empty())
            .collect()
    }

    /// The figures that are shown to people: all medians, and what else differs.
    fn shown(&self) -> impl Iterator<Item = &Compared> {
        let differs = |one: &&Compared| !matches!(one.verdict, Verdict::Same | Verdict::CannotTell | Verdict::TooFew);
        self.compared.iter().filter(move |one| one.quantile == "median" || differs(one))
    }

    pub(crate) fn to_text(&self, on_terminal: bool) -> String {
        let columns = vec![
            Column::whole("what"),
            Column::whole("figure"),
            Column::whole("base"),
            Column::whole("new"),
            Column::whole("change"),
            Column::whole("95 %").left_out(1),
            Column::whole("verdict"),
        ];
        let all = self.shown().count();
        let long = |one: &Compared| Some(one.subject.label()).filter(|label| label.chars().count() > LONGEST);
        let rows = self.shown().take(ROWS).map(|one| {
            let difference = &one.difference;
            vec![
                if long(one).is_some() { String::new() } else { one.subject.label() },
                one.quantile.to_owned(),
                time(difference.base_ns),
                time(difference.new_ns),
                percent(difference.change()),
                interval(one),
                verdict(one, self.alpha),
            ]
        });
        let (table, without) = fitted(columns, rows.collect(), on_terminal);
        let long_names = std::iter::once(None).chain(self.shown().take(ROWS).map(long));
        let with_name = |(line, name): (&str, Option<String>)| {
            name.map_or_else(|| line.to_owned(), |name| format!(" {}\n{line}", printable(&name)))
        };
        let table = table.lines().zip(long_names).map(with_name).collect::<Vec<_>>().join("\n");
        let more = all.saturating_sub(ROWS);
        let more = if more > 0 { format!("… and {more} more\n") } else { String::new() };
        let mut text = format!("{table}\n{more}\n{}{without}\n", self.result());
        for (what, subjects) in [("new", &self.appeared), ("gone", &self.gone)] {
            if !subjects.is_empty() {
                text += &format!("{what}: {}\n", names(subjects, |label| label));
            }
        }
        for (what, subjects) in self.lacks_ends() {
            text += &format!("{what}: {}\n", not_timed(&subjects, |label| label));
        }
        text + &self.method().join("\n") + "\n"
    }

    /// For a pull request: the result, what differs, and all figures folded.
    pub(crate) fn to_markdown(&self) -> String {
        let head = "| what | figure | base | new | change | 95 % | verdict |\n|---|---|---:|---:|---:|---:|---|\n";
        let row = |one: &Compared| {
            let difference = &one.difference;
            format!(
                "| {} | {} | {} | {} | {} | {} | {} |\n",
                code(&one.subject.label()),
                one.quantile,
                time(difference.base_ns),
                time(difference.new_ns),
                percent(difference.change()),
                interval(one),
                if one.verdict == Verdict::Regressed { "**regressed**".to_owned() } else { verdict(one, self.alpha) }
            )
        };
        let mark = match self.has_regressed() {
            true => "❌",
            false if self.judges_nothing() || !self.not_timed.is_empty() => "⚠️",
            false => "✅",
        };
        let mut text = format!("{mark} **warpline compare**: {}\n\n", self.result());
        let differs: String = self
            .compared
            .iter()
            .filter(|one| !matches!(one.verdict, Verdict::Same | Verdict::CannotTell | Verdict::TooFew))
            .map(row)
            .collect();
        if !differs.is_empty() {
            text += &format!("{head}{differs}\n");
        }
        for (what, subjects) in [("New", &self.appeared), ("Gone", &self.gone)] {
            if !subjects.is_empty() {
                text += &format!("{what}: {}\n\n", names(subjects, |label| code(&label)));
            }
        }
        for (what, subjects) in self.lacks_ends() {
            let (first, rest) = what.split_at(1);
            text += &format!("{}{rest}: {}\n\n", first.to_uppercase(), not_timed(&subjects, |label| code(&label)));
        }
        let all: String = self.compared.iter().map(row).collect();
        text + &format!(
            "<details><summary>All figures</summary>\n\n{head}{all}\n{}\n\n</details>\n",
            self.method().join("; ")
        )
    }

    pub(crate) fn to_json(&self) -> String {
        let figures = self.compared.iter().map(|one| {
            let difference = &one.difference;
            let (low, high) = difference.interval(0.05).unzip();
            json!({
                "kind": one.subject.what.as_str(),
                "name": *one.subject.name,
                "range": one.subject.range.as_deref(),
                "figure": one.quantile,
                "base_count": one.zones[0].count,
                "new_count": one.zones[1].count,
                "base_bounded": one.zones[0].bounded,
                "new_bounded": one.zones[1].bounded,
                "base_ns": difference.base_ns,
                "new_ns": difference.new_ns,
                "change": difference.change(),
                "change_low": low,
                "change_high": high,
                "standard_error": difference.error,
                "verdict": one.verdict.as_str(),
                "tellable": difference.tellable(self.alpha),
            })
        });
        let subject = |subject: &Subject| json!({"kind": subject.what.as_str(), "name": *subject.name, "range": subject.range.as_deref()});
        let not_timed = self.not_timed.iter().map(|(subject, [base, new])| {
            json!({
                "kind": subject.what.as_str(),
                "name": *subject.name,
                "range": subject.range.as_deref(),
                "base_count": base.count,
                "new_count": new.count,
                "base_bounded": base.bounded,
                "new_bounded": new.bounded,
            })
        });
        output::json(&json!({
            "version": 1,
            "regressed": self.has_regressed(),
            "limit": self.limit,
            "base_runs": self.runs[0],
            "new_runs": self.runs[1],
            "seed": self.seed,
            "alpha_of_one": self.alpha,
            "figures": figures.collect::<Vec<_>>(),
            "appeared": self.appeared.iter().map(subject).collect::<Vec<_>>(),
            "gone": self.gone.iter().map(subject).collect::<Vec<_>>(),
            "not_timed": not_timed.collect::<Vec<_>>(),
        }))
    }
}

fn names(subjects: &[Subject], show: impl Fn(String) -> String) -> String {
    listed(subjects, |subject| show(printable(&subject.label())))
}

/// Subjects, each with how many of its zones have no timed end.
fn not_timed(subjects: &[OfSides<'_>], show: impl Fn(String) -> String) -> String {
    listed(subjects, |(subject, zones)| {
        let side = |(zones, name): (&Zones, &str)| format!("{} of {} of the {name} side", zones.bounded, zones.count);
        let sides = zones.iter().zip(["base", "new"]).filter(|(zones, _)| zones.bounded > 0);
        let sides: Vec<String> = sides.map(side).collect();
        format!("{} ({})", show(printable(&subject.label())), sides.join(", "))
    })
}

fn listed<T>(all: &[T], show: impl Fn(&T) -> String) -> String {
    let shown: Vec<String> = all.iter().take(NAMES).map(show).collect();
    let more = all.len().saturating_sub(NAMES);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// A name as code in a table of Markdown.
fn code(name: &str) -> String {
    format!("`{}`", printable(name).replace('`', "'").replace('|', "\\|"))
}
