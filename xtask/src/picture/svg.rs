//! Draws a picture as SVG: a card with a background of its own, light or dark as the reader's system is, generic fonts and
//! no script. It only draws; what is in the window was decided before.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Picture, Row, Slice};

/// Widths and heights, in px.
const WIDTH: f64 = 1200.0;
const GUTTER: f64 = 184.0;
const MARGIN: f64 = 14.0;
const AXIS: f64 = 34.0;
const HEADING: f64 = 24.0;
const SLICE: f64 = 21.0;
const GAP: f64 = 2.0;
const BETWEEN_ROWS: f64 = 16.0;
const DETAILS: f64 = 66.0;
/// The width of a letter, a little more than most have.
const LETTER: f64 = 6.4;

/// Fills of the ranges, those that take most of the time first: light enough for dark letters on both backgrounds.
const COLORS: [&str; 18] = [
    "#8ab4f8", "#f6c26b", "#81c995", "#f28b82", "#c58af9", "#78d9ec", "#fba4c4", "#c6d86e", "#b9a7f2", "#f3a978",
    "#7fcfc0", "#d3b58f", "#a8c0d8", "#e6a0e0", "#b5d3a1", "#ffd6a5", "#9fb3ff", "#d9d2c5",
];

/// Light by default; renderers that do not know the media query stay with it.
const STYLE: &str = "
  text { font: 11.5px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
  .dim { fill: #656d76 } .strong { font-weight: 600 } .in { fill: #16191d; font-size: 11px }
  .card { fill: #ffffff; stroke: #d0d7de } .band { fill: #f3f5f8 }
  .line { stroke: #e9edf1 } .edge { stroke: #d0d7de }
  .flow { fill: none; stroke: #57606a; stroke-opacity: .4 } .tip { fill: #57606a; fill-opacity: .75 }
  .waits { stroke: #8c959f; stroke-opacity: .7 } .hatch { stroke: #8c959f; stroke-opacity: .35; stroke-width: 1.4 }
  .signal { fill: none; stroke: #d1242f; stroke-width: 1.7 } .point { fill: #d1242f }
  .picked { fill: none; stroke: #1f2328; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .dim { fill: #8d96a0 } .in { fill: #16191d }
    .card { fill: #161b22; stroke: #30363d } .band { fill: #1f252e }
    .line { stroke: #232930 } .edge { stroke: #30363d }
    .flow { stroke: #adbac7 } .tip { fill: #adbac7 } .picked { stroke: #f0f3f6 }
    .waits { stroke: #6e7681 } .hatch { stroke: #6e7681 } .signal { stroke: #ff7b72 } .point { fill: #ff7b72 }
  }
";

/// What waits are filled with.
const HATCH: &str = r#"<pattern id="waits" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="hatch" d="M0 0V7"/></pattern>"#;

/// Where a slice was drawn.
#[derive(Clone, Copy)]
struct DrawnSlice {
    x: f64,
    width: f64,
    y: f64,
}

struct Canvas<'a> {
    picture: &'a Picture,
    out: String,
    /// Slices, which hide the lines of flows.
    slices: String,
    colors: BTreeMap<&'a str, &'static str>,
    places: BTreeMap<i64, DrawnSlice>,
    marks: BTreeMap<i64, Mark>,
}

/// Where an end of an arrow from a signal to a wait is.
#[derive(Clone, Copy)]
struct Mark {
    x: f64,
    /// The row.
    top: f64,
    bottom: f64,
}

/// The picture as an SVG document.
pub fn render(picture: &Picture) -> String {
    let rows: Vec<&Row> =
        picture.rows.iter().filter(|row| row.lanes.iter().flatten().any(|s| picture.shows(s))).collect();
    let headings = rows.iter().enumerate().filter(|(index, row)| *index == 0 || rows[index - 1].heading != row.heading);
    let heights: f64 = rows.iter().map(|row| row_height(picture, row) + BETWEEN_ROWS).sum();
    let details = if picture.selected.is_some() { DETAILS } else { 0.0 };
    let height = AXIS + headings.count() as f64 * (HEADING + 4.0) + heights + details + MARGIN;

    let mut canvas = Canvas {
        picture,
        out: String::new(),
        slices: String::new(),
        colors: BTreeMap::new(),
        places: BTreeMap::new(),
        marks: BTreeMap::new(),
    };
    canvas.color_ranges(&rows);
    canvas.line(&format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="A timeline: launches on threads, and the zones that they became on their streams">"#
    ));
    canvas.line(&format!("<style>{STYLE}</style>"));
    canvas.line(&format!(
        r#"<clipPath id="window"><rect x="{GUTTER}" y="0" width="{}" height="{height}"/></clipPath>"#,
        span()
    ));
    canvas.line(HATCH);
    canvas.line(&format!(
        r#"<rect class="card" x=".5" y=".5" width="{}" height="{}" rx="10"/>"#,
        WIDTH - 1.0,
        height - 1.0
    ));
    canvas.axis(height - details - MARGIN);
    let mut y = AXIS;
    let mut heading = None;
    for row in rows {
        if heading != Some(&row.heading) {
            heading = Some(&row.heading);
            canvas.heading(&row.heading, y + 4.0);
            y += HEADING + 4.0;
        }
        canvas.row(row, y + 4.0);
        y += row_height(picture, row) + BETWEEN_ROWS;
    }
    canvas.slices_and_flows();
    canvas.details(y + 4.0);
    canvas.line("</svg>");
    canvas.out
}

/// Px for the window.
fn span() -> f64 {
    WIDTH - GUTTER - MARGIN
}

fn row_height(picture: &Picture, row: &Row) -> f64 {
    row.lanes.iter().map(|lane| lane_levels(picture, lane) as f64 * (SLICE + GAP)).sum()
}

/// How many slices lie below each other on a lane, within the window.
fn lane_levels(picture: &Picture, lane: &[Slice]) -> usize {
    lane.iter().filter(|slice| picture.shows(slice) && !slice.is_mark()).map(|slice| slice.depth + 1).max().unwrap_or(0)
}

impl<'a> Canvas<'a> {
    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// Ranges on streams choose first, then those of threads, the ones with the largest total before others.
    fn color_ranges(&mut self, rows: &[&'a Row]) {
        let mut totals: BTreeMap<&str, (bool, i64)> = BTreeMap::new();
        for row in rows {
            let is_zone = |slice: &&Slice| self.picture.shows(slice) && !slice.is_mark() && !slice.is_wait();
            for slice in row.lanes.iter().flatten().filter(is_zone) {
                let (on_stream, total) = totals.entry(&slice.name).or_default();
                *on_stream |= !row.is_thread;
                *total += slice.length_ns;
            }
        }
        let mut names: Vec<_> = totals.into_iter().collect();
        names.sort_by_key(|(_, rank)| std::cmp::Reverse(*rank));
        self.colors = names.into_iter().map(|(name, _)| name).zip(COLORS.into_iter().cycle()).collect();
    }

    fn x(&self, ns: i64) -> f64 {
        let (from, to) = (self.picture.from_ns as f64, self.picture.to_ns as f64);
        GUTTER + (ns as f64 - from) / (to - from) * span()
    }

    /// Round times at the top, with a line down through all rows.
    fn axis(&mut self, bottom: f64) {
        let (from, to) = (self.picture.from_ns, self.picture.to_ns);
        let step = round_step((to - from) / 10);
        let mut ns = (from / step + 1) * step;
        while ns < to {
            let x = self.x(ns);
            if x < WIDTH - 60.0 {
                let label = axis_label(ns, step);
                self.line(&format!(r#"<path class="line" d="M{x:.1} 26V{bottom:.1}"/>"#));
                self.line(&format!(r#"<text class="dim" x="{x:.1}" y="20" text-anchor="middle">{label}</text>"#));
            }
            ns += step;
        }
    }

    fn heading(&mut self, heading: &str, y: f64) {
        self.line(&format!(r#"<rect class="band" x="1" y="{y:.1}" width="{}" height="{HEADING}"/>"#, WIDTH - 2.0));
        let (x, y) = (MARGIN, y + 16.0);
        self.line(&format!(r#"<text class="strong" x="{x}" y="{y:.1}">{}</text>"#, escape(heading)));
    }

    fn row(&mut self, row: &'a Row, top: f64) {
        let name = fitting(&[&row.name], GUTTER - MARGIN - 16.0);
        self.line(&format!(r#"<text x="{}" y="{:.1}">{}</text>"#, MARGIN + 10.0, top + 15.0, escape(&name)));
        let bottom = top + row_height(self.picture, row) - GAP;
        let mut y = top;
        for lane in &row.lanes {
            for mark in lane.iter().filter(|slice| slice.is_mark()) {
                let x = self.x(mark.begin_ns);
                self.marks.insert(mark.id, Mark { x, top, bottom });
            }
            for slice in lane.iter().filter(|slice| self.picture.shows(slice) && !slice.is_mark()) {
                self.slice(slice, y + slice.depth as f64 * (SLICE + GAP));
            }
            y += lane_levels(self.picture, lane) as f64 * (SLICE + GAP);
        }
    }

    fn slice(&mut self, slice: &Slice, y: f64) {
        let x = self.x(slice.begin_ns);
        let width = (self.x(slice.end_ns()) - x).max(1.5);
        self.places.insert(slice.id, DrawnSlice { x, width, y });
        if slice.is_wait() && width < 2.0 {
            // What did not wait takes no room.
            return;
        }
        let fill = self.colors.get(slice.name.as_str()).copied().unwrap_or(COLORS[0]);
        let fill = if slice.is_wait() { r#"url(#waits)" class="waits"# } else { fill };
        let round = if width > 8.0 { 3.0 } else { 0.5 };
        let _ = write!(
            self.slices,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{:.1}" height="{SLICE}" rx="{round}" fill="{fill}"/>"#,
            (width - 0.6).max(1.0)
        );
        // The name stands in what is visible of the slice.
        let (left, right) = (x.max(GUTTER), (x + width).min(WIDTH - MARGIN));
        let short = slice.name.split_once('.').map_or(slice.name.as_str(), |(_, rest)| rest);
        let name = fitting(&[&slice.name, short], right - left - 8.0);
        if name.chars().count() > 2 {
            let (x, y) = (left + 5.0, y + 14.5);
            let class = if slice.is_wait() { "dim" } else { "in" };
            let _ = write!(self.slices, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#, escape(&name));
        }
        self.slices.push('\n');
    }

    /// The slices, with lines behind them from the launches to what they launched: to the outermost zones only, or the
    /// picture would be all lines.
    fn slices_and_flows(&mut self) {
        let (mut lines, mut tips) = (String::new(), String::new());
        let outermost: Vec<i64> = (self.picture.rows.iter().filter(|row| !row.is_thread))
            .flat_map(|row| row.lanes.iter().flatten())
            .filter(|slice| slice.depth == 0)
            .map(|slice| slice.id)
            .collect();
        for (launch, zone) in &self.picture.flows {
            let (Some(from), Some(to)) = (self.places.get(launch), self.places.get(zone)) else { continue };
            if !outermost.contains(zone) {
                continue;
            }
            let (x0, y0) = (from.x + from.width / 2.0, from.y + SLICE);
            let (x1, y1) = (to.x, to.y + SLICE / 2.0);
            let bend = ((x1 - x0) * 0.45).clamp(6.0, 90.0);
            let curve =
                format!("M{x0:.1} {y0:.1}C{x0:.1} {:.1} {:.1} {y1:.1} {:.1} {y1:.1}", y0 + 34.0, x1 - bend, x1 - 4.0);
            let _ = writeln!(lines, r#"<path class="flow" d="{curve}"/>"#);
            let _ = writeln!(tips, r#"<path class="tip" d="M{:.1} {y1:.1}l-6 -3.6v7.2z"/>"#, x1 + 0.5);
        }
        let signals = self.signals();
        let slices = std::mem::take(&mut self.slices);
        self.line(r#"<g clip-path="url(#window)">"#);
        self.out.extend([lines, slices, tips, signals]);
        self.line("</g>");
    }

    /// Arrows from signals to the ends of the waits that they ended, over everything else. Those of waits that were none would
    /// say nothing, and are left out.
    fn signals(&self) -> String {
        let mut out = String::new();
        for (signal, resume) in &self.picture.flows {
            let (Some(from), Some(to)) = (self.marks.get(signal), self.marks.get(resume)) else { continue };
            let ends_here = |slice: &&Slice| {
                let place = self.places.get(&slice.id);
                slice.is_wait()
                    && place.is_some_and(|at| {
                        at.width >= 2.0
                            && (at.x + at.width - to.x).abs() < 1.0
                            && at.y >= to.top - 1.0
                            && at.y <= to.bottom
                    })
            };
            let Some(wait) = self.picture.rows.iter().flat_map(|row| row.lanes.iter().flatten()).find(ends_here) else {
                continue;
            };
            let Some(place) = self.places.get(&wait.id) else { continue };
            let down = to.top > from.top;
            let (x0, x1) = (from.x, to.x - 1.0);
            let (y0, y1) = if down { (from.bottom, place.y) } else { (from.top, place.y + SLICE) };
            let (tip, wing) = if down { (y1 - 0.5, -6.0) } else { (y1 + 0.5, 6.0) };
            let middle = f64::midpoint(y0, tip + wing);
            let _ = writeln!(
                out,
                r#"<path class="signal" d="M{x0:.1} {y0:.1}C{x0:.1} {middle:.1} {x1:.1} {middle:.1} {x1:.1} {:.1}"/><circle class="point" cx="{x0:.1}" cy="{y0:.1}" r="2.4"/><path class="point" d="M{x1:.1} {tip:.1}l-3.8 {wing}h7.6z"/>"#,
                tip + wing
            );
        }
        out
    }

    /// The selected zone, as the UI shows it below the timeline.
    fn details(&mut self, top: f64) {
        let Some((id, details)) = &self.picture.selected else { return };
        let slices = self.picture.rows.iter().flat_map(|row| row.lanes.iter().flatten());
        let (Some(slice), Some(place)) = (slices.into_iter().find(|slice| slice.id == *id), self.places.get(id)) else {
            return;
        };
        let DrawnSlice { x, width, y } = *place;
        self.line(&format!(
            r#"<rect class="picked" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{SLICE}" rx="3"/>"#
        ));
        self.line(&format!(r#"<path class="edge" d="M1 {top:.1}H{}"/>"#, WIDTH - 1.0));
        let (name, length) = (escape(&slice.name), duration(slice.length_ns));
        self.line(&format!(
            r#"<text x="{MARGIN}" y="{:.1}"><tspan class="strong">{name}</tspan><tspan class="dim" dx="10">{length}</tspan></text>"#,
            top + 23.0
        ));
        if self.picture.rows.iter().flat_map(|row| row.lanes.iter().flatten()).any(Slice::is_wait) {
            let (x, y) = (WIDTH - MARGIN, top + 23.0);
            self.line(&format!(
                r#"<text class="dim" x="{x}" y="{y:.1}" text-anchor="end">hatched: waits; red: from the signal that ended one</text>"#
            ));
        }
        let (description, fields): (Vec<_>, Vec<_>) = details.iter().partition(|(key, _)| key == "description");
        let mut line = String::new();
        for (key, value) in fields {
            let (key, value) = (escape(key), escape(value));
            let _ = write!(
                line,
                r#"<tspan class="dim">{key}</tspan><tspan dx="5">{value}</tspan><tspan dx="16"> </tspan>"#
            );
        }
        self.line(&format!(r#"<text x="{MARGIN}" y="{:.1}">{line}</text>"#, top + 43.0));
        for (_, text) in description {
            let text = fitting(&[text], WIDTH - 2.0 * MARGIN);
            self.line(&format!(r#"<text class="dim" x="{MARGIN}" y="{:.1}">{}</text>"#, top + 63.0, escape(&text)));
        }
    }
}

/// 1, 2 or 5 of a power of ten that is not below `ns`.
fn round_step(ns: i64) -> i64 {
    let mut step = 1;
    loop {
        for factor in [1, 2, 5] {
            if step * factor >= ns {
                return step * factor;
            }
        }
        step *= 10;
    }
}

fn axis_label(ns: i64, step: i64) -> String {
    match step {
        1_000_000_000.. => format!("{} s", ns / 1_000_000_000),
        1_000_000.. => format!("{} ms", ns / 1_000_000),
        1_000.. => format!("{} µs", ns / 1_000),
        _ => format!("{ns} ns"),
    }
}

fn duration(ns: i64) -> String {
    let time = ns as f64;
    match ns {
        1_000_000_000.. => format!("{:.3} s", time / 1e9),
        1_000_000.. => format!("{:.2} ms", time / 1e6),
        1_000.. => format!("{:.2} µs", time / 1e3),
        _ => format!("{ns} ns"),
    }
}

/// The first of the texts that fits into so many px, or as much of the last as does.
fn fitting(texts: &[&str], width: f64) -> String {
    let room = (width / LETTER).floor().max(0.0) as usize;
    if let Some(text) = texts.iter().find(|text| text.chars().count() <= room) {
        return (*text).to_owned();
    }
    let last = texts.last().copied().unwrap_or_default();
    if room < 4 { String::new() } else { last.chars().take(room - 1).chain(['…']).collect() }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Control characters are not allowed in XML, escaped or not.
            control if control.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fit_or_are_cut() {
        assert_eq!(fitting(&["tensor.matmul", "matmul"], 100.0), "tensor.matmul");
        assert_eq!(fitting(&["tensor.matmul", "matmul"], 60.0), "matmul");
        assert_eq!(fitting(&["tensor.matmul", "matmul"], 33.0), "matm…");
        assert_eq!(fitting(&["matmul"], 20.0), "");
    }

    #[test]
    fn steps_of_the_axis_are_round() {
        assert_eq!([1, 3, 12, 501_000, 1_000_000].map(round_step), [1, 5, 20, 1_000_000, 1_000_000]);
        assert_eq!(axis_label(2_000_000, 500_000), "2000 µs");
    }

    #[test]
    fn user_text_cannot_break_the_document() {
        assert_eq!(escape("a<b>&\"\u{0}"), "a&lt;b&gt;&amp;&quot; ");
    }
}
