//! The page of metrics, as Prometheus's text format 0.0.4 and as OpenMetrics 1.0.0.

use std::fmt::{Display, Write};

use super::format::Format;
use crate::metrics::figures::Figures;
use crate::metrics::histogram::Histogram;
use crate::metrics::inspector;
use crate::metrics::job::{Job, label};

/// Returns the page.
pub(super) fn render(figures: &Figures, job: &Job, format: Format) -> String {
    let constant = [("rank", job.rank.to_string()), ("host", job.host.clone())];
    let mut page = Page { text: String::with_capacity(4096), format, constant, is_sampled: false };
    zones(&mut page, figures);
    page.is_sampled = figures.is_sampled;
    ranges(&mut page, figures);
    let about = "Duration of the program's steps, without open communication and waits: the rank's own time.";
    for (name, about, lengths) in [
        ("warpline_step_duration_seconds", "Duration of the program's steps.", &figures.steps),
        ("warpline_step_own_time_seconds", about, &figures.own.lengths),
    ] {
        if lengths.count > 0 {
            page.family(name, "summary", Some("seconds"), about);
            page.summary(name, &[], lengths);
        }
    }
    let mut waits = figures.waits().peekable();
    if waits.peek().is_some() {
        page.family("warpline_wait_seconds", "counter", Some("seconds"), "Time in which streams and threads waited.");
        for (place, waits) in waits {
            page.sample("warpline_wait_seconds_total", &[("place", place.as_str())], waits.sum);
        }
    }
    collectives(&mut page, figures, job);
    if format == Format::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}

fn zones(page: &mut Page, figures: &Figures) {
    page.family("warpline_zones", "counter", None, "Zones that ended, by outcome.");
    for (outcome, count) in figures.outcomes() {
        page.sample("warpline_zones_total", &[("outcome", outcome)], count);
    }
    let about = "Zones and waits whose length is only a bound, because the end is not timed: in no other series.";
    page.family("warpline_bounded", "counter", None, about);
    page.sample("warpline_bounded_total", &[], figures.ranges.bounded);
    let about = "Ranges, and kinds of collectives, without series of their own.";
    page.family("warpline_series_left_out", "gauge", None, about);
    page.sample("warpline_series_left_out", &[], figures.left_out());
}

fn ranges(page: &mut Page, figures: &Figures) {
    let name = "warpline_range_duration_seconds";
    page.family(name, "summary", Some("seconds"), "Duration of zones, by range.");
    for range in figures.ranges.series() {
        page.summary(name, &[("range", range.name), ("place", range.place.as_str())], &range.lengths);
    }
}

fn collectives(page: &mut Page, figures: &Figures, job: &Job) {
    let series: Vec<_> =
        figures.bandwidths.series().filter_map(|series| Some((&series.key, series.means()?))).collect();
    if series.is_empty() {
        return;
    }
    let name = "warpline_collective_bus_bandwidth_bytes_per_second";
    let about =
        "Bus bandwidth, as NCCL's tests define it, over the time of the collectives of the last 15 to 30 seconds.";
    page.family(name, "gauge", None, about);
    for (key, means) in &series {
        let size = key.message_size();
        let labels = [("group", key.group.as_str()), ("collective", key.kind.as_str()), ("message_size", &size)];
        page.sample(name, &labels, means.bus);
    }
    for alias in &inspector::ALIASES {
        let values = series.iter().filter_map(|(key, means)| Some((key, alias.value(key, *means)?)));
        let mut values = values.peekable();
        if values.peek().is_some() {
            page.family(alias.name, "gauge", None, alias.about);
        }
        for (key, value) in values {
            let labels = inspector::labels(key, job);
            page.line(alias.name, labels.iter().map(|(name, value)| (*name, value.as_str())), value);
        }
    }
}

/// A page that is being written.
struct Page {
    text: String,
    format: Format,
    /// The labels of each series that has a name of warpline's.
    constant: [(&'static str, String); 2],
    /// Whether the next series are of a sample.
    is_sampled: bool,
}

impl Page {
    /// Begins a family. `name` is without the `_total` of counters, which the older format has in the family's name
    /// too.
    fn family(&mut self, name: &str, kind: &str, unit: Option<&str>, about: &str) {
        let total = if kind == "counter" && self.format == Format::Text { "_total" } else { "" };
        let _ = writeln!(self.text, "# HELP {name}{total} {about}\n# TYPE {name}{total} {kind}");
        if let (Some(unit), Format::OpenMetrics) = (unit, self.format) {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
    }

    fn summary(&mut self, name: &str, labels: &[(&str, &str)], lengths: &Histogram) {
        self.sample(&format!("{name}_sum"), labels, lengths.sum);
        self.sample(&format!("{name}_count"), labels, lengths.count);
    }

    /// Writes a line of one of warpline's series.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let constant = self.constant.clone();
        let constant = constant.iter().map(|(name, value)| (*name, value.as_str()));
        let sampled = self.is_sampled.then_some(("sampled", "true"));
        self.line(name, labels.iter().copied().chain(constant).chain(sampled), value);
    }

    /// Writes a line. A label with an empty value is as good as none, and is left out.
    fn line<'a>(&mut self, name: &str, labels: impl Iterator<Item = (&'a str, &'a str)>, value: impl Display) {
        self.text.push_str(name);
        let mut separator = '{';
        for (name, value) in labels.filter(|(_, value)| !value.is_empty()) {
            let _ = write!(self.text, "{separator}{name}=\"");
            escape(&label(value), &mut self.text);
            self.text.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

/// Writes a label's value with escapes. It has no line ends any more.
fn escape(value: &str, text: &mut String) {
    for c in value.chars() {
        if matches!(c, '\\' | '"') {
            text.push('\\');
        }
        text.push(c);
    }
}
