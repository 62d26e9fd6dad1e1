//! The report as one HTML page in the [frame](crate::frame) of all pages.
//!
//! The figures are those of [`Report::to_json`]. The command `warpline report` adds what a report does not have: histograms, the calls of ranges,
//! and timelines. The size is bounded, and the page says what it leaves out.

mod verdict;

use serde_json::{Map, Value, json};

use super::Report;
use crate::frame::Page;
use crate::path::CriticalPath;
use warpline_core::text::printable;

const PAGE: Page<'static> = Page {
    title: "Report",
    body: include_str!("page.html"),
    style: include_str!("style.css"),
    scripts: &[
        include_str!("data.js"),
        include_str!("table.js"),
        include_str!("chart.js"),
        include_str!("histogram.js"),
        include_str!("roofline.js"),
        include_str!("charts.js"),
        include_str!("tables.js"),
        include_str!("verdict.js"),
        include_str!("main.js"),
    ],
};

/// The most rows of a table.
const ROWS: usize = 2_000;

/// The most characters of a text.
const TEXT: usize = 1_000;

/// The most stretches of the critical path that are drawn: the last ones.
const STRETCHES: usize = 2_000;

impl Report {
    /// Returns the report as one HTML page, which makes no request: the figures of [`to_json`](Self::to_json) as tables that can be sorted and
    /// searched, and the critical path as a drawing. A table has at most 2,000 rows and a text at most 1,000 characters; the page says what it
    /// leaves out.
    pub fn to_html(&self) -> String {
        self.to_page(json!({}))
    }

    /// Returns the page with what a trace shows beside the report: an object with `traces`, `histograms`, `calls` and `timelines`, each of which may be missing.
    #[doc(hidden)]
    pub fn to_page(&self, mut details: Value) -> String {
        let mut report = self.members();
        let left_out = shorten_tables(&mut report);
        shorten_texts(&mut report);
        shorten_texts(&mut details);
        let mut data = json!({
            "report": report,
            "details": details,
            "left_out": left_out,
            "verdict": verdict::verdict(self),
            // Without an arrow, it is the row of the last zone.
            "path": self.critical_path.as_ref().filter(|path| path.arrows > 0).map(drawn),
            "program": concat!("warpline ", env!("CARGO_PKG_VERSION")),
        });
        shorten_texts(&mut data["verdict"]);
        shorten_texts(&mut data["path"]);
        PAGE.with_data(&data.to_string())
    }
}

/// Cuts long tables, and returns how many rows of which are left out.
fn shorten_tables(report: &mut Value) -> Map<String, Value> {
    let mut left_out = Map::new();
    for (key, table) in report.as_object_mut().into_iter().flatten() {
        if let Some(rows) = table.as_array_mut().filter(|rows| rows.len() > ROWS) {
            left_out.insert(key.clone(), (rows.len() - ROWS).into());
            rows.truncate(ROWS);
        }
    }
    left_out
}

/// Makes every text fit to be shown: characters that deceive are escapes, and long texts are cut.
fn shorten_texts(value: &mut Value) {
    match value {
        Value::String(text) => {
            let shown = printable(text);
            if let Some((end, _)) = shown.char_indices().nth(TEXT) {
                *text = format!("{}…", &shown[..end]);
            } else if *shown != **text {
                *text = shown.into_owned();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(shorten_texts),
        Value::Object(members) => members.values_mut().for_each(shorten_texts),
        _ => {}
    }
}

/// The last stretches of the path: rows by name, and for each stretch its row, begin and length.
fn drawn(path: &CriticalPath) -> Value {
    let first = path.stretches.len().saturating_sub(STRETCHES);
    let stretches = &path.stretches[first..];
    let from_ns = stretches.first().map_or(path.from_ns, |stretch| stretch.span.begin_ns);
    let mut rows: Vec<&str> = Vec::new();
    let mut placed = Vec::with_capacity(stretches.len());
    for stretch in stretches {
        let row = rows.iter().position(|row| *row == stretch.on).unwrap_or_else(|| {
            rows.push(&stretch.on);
            rows.len() - 1
        });
        placed.push(json!([row, stretch.span.begin_ns.saturating_sub(from_ns), stretch.span.duration_ns()]));
    }
    json!({
        "rows": rows,
        "stretches": placed,
        "left_out": first,
        "length_ns": path.to_ns.saturating_sub(from_ns),
        "all_ns": path.to_ns.saturating_sub(path.from_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{KernelStats, RangeStats};
    use super::*;

    #[test]
    fn the_parts_need_nothing_else() {
        PAGE.assert_needs_nothing_else();
    }

    #[test]
    fn names_are_no_markup_and_sizes_are_bounded() {
        let hostile = "</script><script>alert(1)</script><!-- \u{202e} {{DATA}}";
        let clean = Report::default().to_html();
        let kernel = |name: String| KernelStats { name, range: None, count: 1, total_ns: 5, max_ns: 5 };
        let mut report = Report { notes: vec![hostile.to_owned()], ..Report::default() };
        report.top_kernels = (0..3_000).map(|n| kernel(format!("{hostile}{n}"))).collect();
        report.top_kernels[0].name = "é".repeat(100_000);
        let page = report.to_html();
        for word in ["</script", "<script", "<!--"] {
            assert_eq!(page.matches(word).count(), clean.matches(word).count(), "{word}");
        }
        assert!(!page.contains('\u{202e}') && page.contains("u{202e}"));
        assert!(page.contains(r#""left_out":{"kernels":1000}"#));
        assert!(page.len() < clean.len() + (2 << 20), "{} bytes", page.len());
    }

    #[test]
    fn the_verdict_names_the_range_with_the_longest_own_time() {
        let range = |name: &'static str, self_ns| RangeStats {
            name: name.into(),
            on_stream: true,
            in_replays: false,
            count: 2,
            seen: 2,
            failed: 0,
            total_ns: 100,
            total_error_ns: 0,
            recorded_ns: 100,
            self_ns,
            self_early_ns: 0,
            share: 0.5,
            first_ns: None,
            mean_ns: 50,
            min_ns: 50,
            p50_ns: 50,
            p99_ns: 50,
            max_ns: 50,
            mean_launch_ns: 5,
            work: None,
            bounded: 0,
            bounded_total_ns: 0,
            bounded_least_ns: 0,
            bounded_max_ns: 0,
        };
        let bounded = RangeStats { bounded: 2, ..range("a.bounded", 0) };
        let all = verdict::verdict(&Report { ranges: vec![bounded], ..Report::default() });
        let text = all[0]["parts"][0].as_str().unwrap();
        assert!(text.contains("2 zones on streams") && text.contains("only known as a bound"), "{all}");
        let uncertain = RangeStats { self_early_ns: 30, ..range("a.around", 60) };
        let all = verdict::verdict(&Report { ranges: vec![uncertain], ..Report::default() });
        assert!(all[0]["parts"][2].as_str().unwrap().contains("takes at most 100.0 %"), "{all}");
        let report = Report { ranges: vec![range("a.outer", 20), range("a.inner", 60)], ..Report::default() };
        let verdict = verdict::verdict(&report);
        assert_eq!(verdict[0]["parts"][1], "a.inner", "{verdict}");
        assert!(verdict[0]["parts"][2].as_str().unwrap().contains("75.0 %"), "{verdict}");
        let nothing = &verdict::verdict(&Report::default())[0];
        assert_eq!((&nothing["parts"][0], &nothing["is_bad"]), (&"no zone was recorded".into(), &true.into()));
    }
}
