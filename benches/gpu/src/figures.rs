//! From samples to a table: medians, percentiles, and ratios that are taken pair by pair.
//!
//! Every bench measures its rivals in turns, round by round, and compares within a round: what slows the machine for a
//! while slows both.

/// The middle of the samples; not a number if there are none.
pub fn median(samples: &[f64]) -> f64 {
    percentile(samples, 50.0)
}

/// The sample that `percent` of them do not exceed; not a number if there are none.
pub fn percentile(samples: &[f64], percent: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(rank.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// The median of `a / b`, round by round.
pub fn ratio(a: &[f64], b: &[f64]) -> f64 {
    median(&a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<_>>())
}

/// The slope of a line through the points.
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (mean_x, mean_y) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let (mut products, mut squares) = (0.0, 0.0);
    for (x, y) in points {
        products += (x - mean_x) * (y - mean_y);
        squares += (x - mean_x) * (x - mean_x);
    }
    products / squares
}

/// Whether a figure meets its goal.
pub fn verdict(is: f64, at_most: f64) -> &'static str {
    if is <= at_most { "met" } else { "NOT MET" }
}

/// A table in Markdown, so that it can be pasted into a file of `benches/history`.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(title: &str, columns: &[&str]) -> Table {
        println!("\n### {title}\n");
        Table { rows: vec![columns.iter().map(|&column| column.to_owned()).collect()] }
    }

    pub fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.to_vec());
    }

    pub fn print(&self) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
            println!("| {} |", cells.join(" | "));
            if index == 0 {
                let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width.max(3))).collect();
                println!("| {} |", rule.join(" | "));
            }
        }
    }
}
