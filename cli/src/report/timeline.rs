//! The slices of one step, or of a whole trace, for the timeline of the page. It is a second reading of the trace,
//! after the figures have said which steps are worth looking at.
//!
//! Memory is bounded: the longest slices stay, and the others are merged.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use warpline_core::record::Span;
use warpline_report::path::{CriticalPath, Track};

use super::figures::{shown_value, track};
use super::merged::{Block, Merged};
use super::texts::Texts;
use crate::trace::{Kind, Name, Names, Place, Rows, Slice, Visitor};

/// The most slices of one timeline.
pub(super) const SLICES: usize = 4_000;

/// The most rows of one timeline: those with most time in slices.
const ROWS: usize = 64;

/// The most rows of which slices are kept meanwhile.
const KNOWN: usize = 1 << 12;

/// The most characters of the fields of one slice.
const FIELDS: usize = 200;

/// The window that a timeline shows.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) title: String,
    /// A step; none for the whole trace.
    pub(super) step: Option<Span>,
}

/// The timelines that one reading of a trace fills.
pub(super) struct Timelines(pub(super) Vec<Timeline>);

/// Collects the slices of one window.
pub(super) struct Timeline {
    window: Window,
    /// The shortest first.
    kept: BinaryHeap<Reverse<Kept>>,
    merged: Merged,
    rows: HashMap<usize, RowOf>,
    order: u64,
    /// The slices of rows that are not known.
    left_out: u64,
    /// The end of what the step launched.
    until_ns: i64,
}

/// The facts about a row.
struct RowOf {
    /// Steps and the like first, then threads and streams.
    rank: u8,
    device: Arc<str>,
    label: String,
    /// The stream or thread, with its name, of its main row.
    track: Option<(Track, Arc<str>)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    ns: i64,
    order: u64,
    row: usize,
    name: Name,
    kind: u8,
    step: Option<u64>,
    begin_ns: i64,
    /// The time by which it may have ended earlier, if its length is only a bound; otherwise 0.
    early_by_ns: i64,
    /// Its fields and its label: `layer = 3, label = warm-up`.
    fields: Option<Box<str>>,
}

impl Timeline {
    pub(super) fn new(window: Window) -> Timeline {
        let until_ns = window.step.map_or(i64::MIN, |step| step.end_ns);
        Timeline {
            window,
            kept: BinaryHeap::new(),
            merged: Merged::default(),
            rows: HashMap::new(),
            order: 0,
            left_out: 0,
            until_ns,
        }
    }

    /// Returns the row of a slice; none if there are too many.
    fn row(&mut self, slice: &Slice<'_>, rows: &Rows) -> Option<usize> {
        if !self.rows.contains_key(&slice.row) {
            if self.rows.len() >= KNOWN {
                return None;
            }
            self.rows.insert(slice.row, RowOf::new(slice.row, rows)?);
        }
        Some(slice.row)
    }

    fn slice(&mut self, kind: u8, slice: &Slice<'_>, rows: &Rows, names: &Names) {
        if let Some(step) = self.window.step {
            let is_launched =
                slice.launch.is_some_and(|(_, host)| step.begin_ns <= host.begin_ns && host.begin_ns < step.end_ns);
            let overlaps = slice.span.begin_ns < step.end_ns && slice.span.end_ns > step.begin_ns;
            if !is_launched && !overlaps {
                return;
            }
            if is_launched {
                // Time in which it may have ended makes no window longer.
                self.until_ns = self.until_ns.max(slice.span.without_tail(slice.early_by_ns()).end_ns);
            }
        }
        let Some(row) = self.row(slice, rows) else {
            self.left_out += 1;
            return;
        };
        self.order += 1;
        let (ns, begin_ns) = (slice.span.duration_ns().max(0), slice.span.begin_ns);
        let early_by_ns = if slice.is_bounded() { slice.early_by_ns().min(ns) } else { 0 };
        let (order, name, step) = (self.order, slice.name, slice.args.step);
        // Most slices of a large trace are shorter than those that stay.
        let stays = self.kept.len() < SLICES || self.kept.peek().is_some_and(|Reverse(least)| least.ns <= ns);
        let fields = if stays { fields(slice, names) } else { None };
        self.kept.push(Reverse(Kept { ns, order, row, name, kind, step, begin_ns, early_by_ns, fields }));
        if self.kept.len() > SLICES
            && let Some(Reverse(Kept { row, ns, begin_ns, .. })) = self.kept.pop()
        {
            self.merged.add(row, Span { begin_ns, end_ns: begin_ns.saturating_add(ns) });
        }
    }

    /// Returns the timeline for the page. `path` is the critical path, if it is that of the trace.
    pub(super) fn page(self, trace: &str, path: Option<&CriticalPath>, texts: &mut Texts, names: &Names) -> Value {
        let Timeline { window, kept, merged, rows, mut left_out, until_ns, .. } = self;
        let merged = merged.blocks();
        let mut kept: Vec<Kept> = kept.into_iter().map(|Reverse(kept)| kept).collect();
        let from_ns = window.step.map(|step| step.begin_ns);
        let first_ns =
            kept.iter().map(|kept| kept.begin_ns).chain(merged.iter().map(|block| block.span.begin_ns)).min();
        let from_ns = from_ns.or(first_ns).unwrap_or(0);
        let end_ns = |kept: &Kept| kept.begin_ns.saturating_add(kept.ns);
        let until_ns = match window.step {
            Some(_) => until_ns,
            None => {
                kept.iter().map(end_ns).chain(merged.iter().map(|block| block.span.end_ns)).max().unwrap_or(from_ns)
            }
        };
        let shown = shown_rows(&rows, &kept, &merged);
        let before = kept.len();
        kept.retain(|kept| shown.contains(&kept.row));
        left_out += (before - kept.len()) as u64;
        let blocks: Vec<Value> = merged
            .iter()
            .filter_map(|block| {
                let Some(row) = shown.iter().position(|row| *row == block.row) else {
                    left_out += block.slices;
                    return None;
                };
                let (begin_ns, end_ns) = (block.span.begin_ns.max(from_ns), block.span.end_ns.min(until_ns));
                let share = (block.share * 1_000.0).ceil() / 1_000.0;
                Some(json!([
                    row,
                    begin_ns.saturating_sub(from_ns),
                    end_ns.saturating_sub(begin_ns).max(0),
                    share,
                    block.slices
                ]))
            })
            .collect();
        kept.sort_unstable_by_key(|kept| (kept.begin_ns, Reverse(kept.ns), kept.order));
        let slices: Vec<Value> = kept
            .iter()
            .filter_map(|one| {
                let row = shown.iter().position(|row| *row == one.row)?;
                let begin_ns = one.begin_ns.max(from_ns);
                let ns = end_ns(one).min(until_ns).saturating_sub(begin_ns).max(0);
                let name = match one.step {
                    Some(number) => texts.of_step(number),
                    None => texts.of_slice(one.name, one.early_by_ns > 0, names),
                };
                let x = begin_ns.saturating_sub(from_ns);
                let certain_ns = end_ns(one).saturating_sub(one.early_by_ns);
                Some(if one.early_by_ns > 0 {
                    let uncertain_ns = begin_ns.saturating_add(ns).saturating_sub(certain_ns).clamp(0, ns);
                    json!([row, name, one.kind, x, ns, one.ns, one.ns - one.early_by_ns, uncertain_ns])
                } else if ns < one.ns {
                    json!([row, name, one.kind, x, ns, one.ns])
                } else {
                    json!([row, name, one.kind, x, ns])
                })
            })
            .collect();
        let fields = kept.iter().enumerate();
        let fields = fields.filter_map(|(at, one)| Some((at.to_string(), one.fields.as_deref()?.into())));
        let fields: serde_json::Map<String, Value> = fields.collect();
        let devices: Vec<&Arc<str>> =
            shown.iter().map(|row| &rows[row].device).filter(|device| !device.is_empty()).collect();
        let are_several = devices.iter().any(|device| *device != devices[0]);
        let label = |row: &usize| match &rows[row] {
            RowOf { device, label, .. } if are_several && !device.is_empty() => format!("{device}: {label}"),
            RowOf { label, .. } => label.clone(),
        };
        let length_ns = until_ns.saturating_sub(from_ns).max(1);
        let on_path = path
            .map_or_else(Vec::new, |path| on_path(path, &shown, &rows, Span { begin_ns: from_ns, end_ns: until_ns }));
        json!({
            "title": window.title,
            "trace": trace,
            "length_ns": length_ns,
            "edges": window.step.map(|step| [0, step.duration_ns()]),
            "rows": shown.iter().map(label).collect::<Vec<_>>(),
            "slices": slices,
            "fields": fields,
            "merged": blocks,
            "left_out": left_out,
            "path": on_path,
        })
    }
}

/// The rows with most time, in the order in which they are shown.
fn shown_rows(rows: &HashMap<usize, RowOf>, kept: &[Kept], merged: &[Block]) -> Vec<usize> {
    let mut times: HashMap<usize, i64> = HashMap::new();
    let merged = merged.iter().map(|block| (block.row, (block.share * block.span.duration_ns() as f64) as i64));
    for (row, ns) in kept.iter().map(|one| (one.row, one.ns)).chain(merged) {
        let all = times.entry(row).or_default();
        *all = all.saturating_add(ns);
    }
    let mut shown: Vec<usize> = times.keys().copied().collect();
    shown.sort_unstable_by_key(|row| (Reverse(times[row]), *row));
    shown.truncate(ROWS);
    shown.sort_by_key(|row| (rows[row].rank, rows[row].device.clone(), rows[row].label.clone(), *row));
    shown
}

/// The stretches of the path within the span: the number of the row, begin and length. A name that two streams or
/// threads share identifies no row.
fn on_path(path: &CriticalPath, shown: &[usize], rows: &HashMap<usize, RowOf>, span: Span) -> Vec<Value> {
    let mut places: HashMap<&str, Option<(Track, usize)>> = HashMap::new();
    for (at, row) in shown.iter().enumerate() {
        let Some((track, name)) = &rows[row].track else { continue };
        let place = places.entry(name).or_insert(Some((*track, at)));
        if place.is_some_and(|(known, _)| known != *track) {
            *place = None;
        }
    }
    let inside = path.stretches.iter().filter_map(|stretch| {
        let (begin_ns, end_ns) = (stretch.span.begin_ns.max(span.begin_ns), stretch.span.end_ns.min(span.end_ns));
        let (_, row) = (*places.get(&*stretch.on)?)?;
        (begin_ns < end_ns)
            .then(|| json!([row, begin_ns.saturating_sub(span.begin_ns), end_ns.saturating_sub(begin_ns)]))
    });
    inside.take(SLICES).collect()
}

impl RowOf {
    fn new(at: usize, rows: &Rows) -> Option<RowOf> {
        let row = rows.row(at)?;
        Some(match (row.place, track(at, rows)) {
            (Place::Stream(stream), Some((track, name))) => {
                let device = rows.stream(stream).map_or_else(|| "".into(), |stream| stream.device.clone());
                let is_main = row.name.is_empty() || row.name == name;
                let label = if is_main { name.to_string() } else { format!("{name} · {}", row.name) };
                RowOf { rank: 2, device, label, track: is_main.then_some((track, name)) }
            }
            (Place::Thread(_), Some((track, name))) => {
                RowOf { rank: 1, device: "".into(), label: name.to_string(), track: Some((track, name)) }
            }
            _ => RowOf { rank: 0, device: "".into(), label: row.name.to_string(), track: None },
        })
    }
}

/// The fields and the label of a zone in one line; none if it has none.
fn fields(slice: &Slice<'_>, names: &Names) -> Option<Box<str>> {
    let mut text = String::new();
    for (name, value) in slice.args.fields(names) {
        let between = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{between}{name} = {}", shown_value(value));
        if let Some((at, _)) = text.char_indices().nth(FIELDS) {
            text.replace_range(at.., "…");
            break;
        }
    }
    (!text.is_empty()).then(|| text.into())
}

/// The number of a kind in the page; none for what a timeline does not show.
fn kind_of(kind: Kind) -> Option<u8> {
    match kind {
        Kind::Zone => Some(0),
        Kind::Collective => Some(1),
        Kind::HostZone => Some(2),
        Kind::Kernel => Some(3),
        Kind::Copy => Some(4),
        Kind::Wait => Some(5),
        Kind::Sync => Some(6),
        Kind::Step => Some(7),
        _ => None,
    }
}

impl Visitor for Timelines {
    fn wants_fields(&self) -> bool {
        true
    }

    fn slice(&mut self, slice: &Slice<'_>, rows: &Rows, names: &mut Names) {
        // Work that is on no row is there a second time, on the row of its stream.
        if let Some(kind) = kind_of(slice.kind).filter(|_| rows.row(slice.row).is_some()) {
            self.0.iter_mut().for_each(|timeline| timeline.slice(kind, slice, rows, names));
        }
    }
}
