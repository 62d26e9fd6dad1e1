//! Tables for people, as wide as the width with which a report is formatted, which is that of a terminal. A name that does not fit is written in full,
//! so that it can be searched for and copied into a filter: on a terminal on its own line, and elsewhere before its figures, so that each
//! line is a row.
//!
//! `text` fills them in. Nothing here knows the meaning of the cells.

use std::fmt;

use warpline_core::text::printable;

/// The width of a row without a terminal, unless its names are longer than that leaves.
pub(super) const WIDTH: usize = 80;

/// The longest name that is in one column with the others where no terminal bounds the row.
const ALIGNED: usize = 32;

/// The width from which rows have columns for which there is no room otherwise.
pub(super) const WIDE: usize = 100;

/// The width of the gap between two columns.
const GAP: usize = 2;

/// The bar in the gap before a column that describes something other than the columns before it.
pub(super) const BAR: char = '│';

/// The replacement for a missing figure.
pub(super) const NONE: &str = "–";

/// A name, its figures in columns to the right, and optionally a text at the end of the row.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) figures: Vec<String>,
    /// Left-aligned text after the figures, in its own column; shortened if it does not fit.
    pub(super) text: Option<String>,
    /// A line below the row.
    pub(super) note: Option<String>,
}

impl Row {
    /// Creates a row whose name may contain any characters.
    pub(super) fn new<const N: usize>(name: impl AsRef<str>, figures: [String; N]) -> Row {
        Row { name: printable(name.as_ref()).into_owned(), figures: figures.into(), text: None, note: None }
    }
}

/// Writes rows below their head, which is also a row.
pub(super) fn table(f: &mut fmt::Formatter<'_>, head: Row, rows: &[Row]) -> fmt::Result {
    let all = || std::iter::once(&head).chain(rows);
    let width_of = |column: usize| all().filter_map(|row| row.figures.get(column)).map(|cell| length(cell)).max();
    let widths: Vec<usize> = (0..head.figures.len()).map(|column| width_of(column).unwrap_or(0)).collect();
    let bars = head.figures.iter().filter(|cell| cell.starts_with(BAR)).count();
    let figures: usize = widths.iter().map(|width| GAP + width).sum::<usize>() - bars;
    let width = f.width().unwrap_or(WIDTH);
    let longest_text = all().filter_map(|row| row.text.as_deref()).map(length).max();
    // A text gets a third of the row, or the space that the names leave.
    let least_text = longest_text.map_or(0, |longest| GAP + longest.min(width / 3));
    let room = width.saturating_sub(figures + least_text).max(if f.width().is_none() { ALIGNED } else { 0 });
    let fitting = all().map(|row| length(&row.name)).filter(|name| *name <= room).max().unwrap_or(0);
    let text_room = width.saturating_sub(fitting + figures + GAP).max(least_text.saturating_sub(GAP));
    for row in all() {
        let mut name = row.name.as_str();
        if length(name) > fitting && f.width().is_some() {
            writeln!(f, "{name}")?;
            name = "";
        }
        let mut line = format!("{name}{:1$}", "", fitting.saturating_sub(length(name)));
        for (cell, width) in row.figures.iter().zip(&widths) {
            let gap = if cell.starts_with(BAR) { GAP - 1 } else { GAP };
            line += &format!("{:gap$}{cell:>width$}", "");
        }
        if let Some(text) = &row.text {
            line += &format!("{:1$}{2}", "", GAP, shortened(text, text_room));
        }
        writeln!(f, "{}", line.trim_end())?;
        row.note.as_ref().map_or(Ok(()), |note| writeln!(f, "  {note}"))?;
    }
    Ok(())
}

/// Returns the width of a text on a terminal, in columns.
pub(super) fn length(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Returns the width of a character: two for East Asian scripts and emoji, zero for combining characters.
fn columns(c: char) -> usize {
    match u32::from(c) {
        0x0300..=0x036f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff => 2,
        0xfe30..=0xfe6f | 0xff01..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Removes the middle of a text that is too long.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let all = length(text);
    if all <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let front: String = first(text.chars(), kept - kept / 2).collect();
    let back: Vec<char> = first(text.chars().rev(), kept / 2).collect();
    front.chars().chain(['…']).chain(back.into_iter().rev()).collect()
}

/// Returns as many characters as fit into this many columns.
fn first(text: impl Iterator<Item = char>, most: usize) -> impl Iterator<Item = char> {
    text.scan(0, move |taken, c| {
        *taken += columns(c);
        (*taken <= most).then_some(c)
    })
}

/// Returns the text of a figure, which is marked if it is only an upper bound.
pub(super) fn bounded(is_bound: bool, text: String) -> String {
    if is_bound { format!("≤{text}") } else { text }
}

/// Formats a fraction of 1 as a percentage.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent >= 999.95 => format!("{percent:.0} %"),
        percent => format!("{percent:.1} %"),
    }
}

/// Formats a fraction of 1 as a percentage of two digits.
pub(super) fn short_percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent >= 9.95 => format!("{percent:.0} %"),
        percent => format!("{percent:.1} %"),
    }
}

/// Formats a size for people.
pub(super) fn size(bytes: u64) -> String {
    scaled(bytes as f64, &[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")])
}

/// Formats a time for people.
pub(super) fn time(ns: i64) -> String {
    duration(ns as f64)
}

/// Formats a length of time in ns for people: three digits and a unit.
pub fn duration(ns: f64) -> String {
    scaled(ns, &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")])
}

/// Formats a rate for people: `1.43 TB/s`.
pub fn rate(per_s: f64, unit: &str) -> String {
    scaled(per_s, &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")]) + unit + "/s"
}

/// Formats three digits and a unit: whole numbers in the smallest unit, more digits in the largest.
fn scaled(number: f64, units: &[(f64, &str)]) -> String {
    let [(_, smallest), larger @ ..] = units else { return String::new() };
    if number.abs() < 999.5 {
        return format!("{number:.0} {smallest}");
    }
    let mut text = String::new();
    for (unit, name) in larger {
        let value = number / unit;
        text = match value.abs() {
            ..9.995 => format!("{value:.2} {name}"),
            ..99.95 => format!("{value:.1} {name}"),
            _ => format!("{value:.0} {name}"),
        };
        if value.abs() < 999.5 {
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        let times =
            [0, 999, 1_000, 9_994, 9_996, 99_960, 999_600, 54_000_000, 999_600_000, 25_000_000_000, 7_200_000_000_000];
        let said = [
            "0 ns", "999 ns", "1.00 µs", "9.99 µs", "10.0 µs", "100 µs", "1.00 ms", "54.0 ms", "1.00 s", "25.0 s",
            "7200 s",
        ];
        assert_eq!(times.map(time), said);
        assert_eq!([0, 1_610_000_000, 12].map(size), ["0 B", "1.61 GB", "12 B"]);
        assert_eq!([1.434e12, 999e6, 1_200.0].map(|per_s| rate(per_s, "B")), ["1.43 TB/s", "999 MB/s", "1.20 kB/s"]);
        assert_eq!([0.0, 0.5123, 12.0].map(percent), ["0.0 %", "51.2 %", "1200 %"]);
        assert_eq!([0.0, 0.0994, 0.0996, 0.5123].map(short_percent), ["0.0 %", "9.9 %", "10 %", "51 %"]);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(["copy", "計算", "🚀 a", "e\u{301}"].map(length), [4, 4, 4, 1]);
        assert_eq!(
            (shortened("計算ストリーム", 8), shortened("compute", 5)),
            ("計算…ム".to_owned(), "co…te".to_owned())
        );
        struct Shown;
        impl fmt::Display for Shown {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let rows = ["計算", "copy"].map(|name| Row::new(name, ["1 ns".to_owned()]));
                table(f, Row::new("", ["busy".to_owned()]), &rows)
            }
        }
        assert_eq!(Shown.to_string(), "      busy\n計算  1 ns\ncopy  1 ns\n");
    }

    #[test]
    fn a_name_is_whole_and_a_text_has_the_room_that_is_left() {
        struct Shown(Vec<Row>);
        impl fmt::Display for Shown {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let head = Row { text: Some("on".to_owned()), ..Row::new("range", ["time".to_owned()]) };
                table(f, head, &self.0)
            }
        }
        let row = |name: &str, text: &str| Row { text: Some(text.to_owned()), ..Row::new(name, ["1 ns".to_owned()]) };
        let long = "model.".repeat(12) + "block";
        let rows = vec![row("a.b", "compute"), row(&long, &"stream-".repeat(20))];
        let shown = Shown(rows);
        let text = format!("{shown:80}");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..3], ["range  time  on", "a.b    1 ns  compute", long.as_str()]);
        assert!(
            lines[3].starts_with("       1 ns  stream-") && lines[3].contains('…') && lines[3].ends_with("stream-")
        );
        assert_eq!((lines.len(), length(lines[3])), (4, WIDTH));
        // On a wider terminal it fits, and in a pipe its figures are beside it.
        let wide = format!("{shown:200}");
        assert_eq!(wide.lines().nth(1), Some(format!("{:1$}  1 ns  compute", "a.b", long.len()).as_str()));
        let text = shown.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!((lines.len(), lines[1]), (3, "a.b    1 ns  compute"));
        assert!(lines[2].starts_with(&format!("{long}  1 ns  stream-")), "{}", lines[2]);
    }
}
