//! Late arrivals that stand out: far later than the last rank of such a collective usually is, or the same rank again and again.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, StringArray};
use serde::Serialize;
use warpline_core::record::is_bound;

use super::median;
use crate::engine::{Engine, Rows};
use crate::error::Error;

/// Robust deviations beyond what is usual. Tails that noise has end far below.
const DEVIATIONS: f64 = 10.0;

/// Deviations of a binomial count beyond which a rank is not last by chance.
const NOT_BY_CHANCE: f64 = 6.0;

/// Calls of one group that are enough to say who is usually last.
const LEAST_CALLS: usize = 10;

/// The least that matters, beside the clocks' error and a thousandth of a step.
const LEAST_NS: i64 = 50_000;

/// A collective without the rows of all its ranks counts if what was waited in it is a smaller part of the last one's delay.
const LEAST_PART: i64 = 10;

/// A collective to which a rank came late.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Event {
    /// The group.
    pub comm: Arc<str>,
    /// The number of the collective in it.
    pub seq: i64,
    /// The operation.
    pub kind: Arc<str>,
    /// Who came last.
    pub rank: i64,
    /// How many ranks came.
    pub ranks: i64,
    /// How much later than the others on average.
    pub late_ns: i64,
    /// How much later than the last but one; 0 unless `margins` has asked for it.
    pub margin_ns: i64,
    /// How wrong the two may be.
    pub err_ns: i64,
    /// When, on the rank's own clock.
    #[serde(skip)]
    pub begin_ns: i64,
    /// The same on the common clock.
    #[serde(skip)]
    last_ns: i64,
}

/// A group, an operation and a size.
pub type Shape = (Arc<str>, Arc<str>, i64);

/// All judged collectives, and how long such collectives take.
#[derive(Debug, Default)]
pub struct Calls {
    pub all: Vec<Event>,
    /// The time from the last begin to the first end.
    pub least_dur_ns: Vec<i64>,
    /// The shortest that this may be, where ends are not timed.
    pub least_early_ns: Vec<i64>,
    /// The collectives of which that time is only a bound.
    pub bounded: usize,
    /// Where a collective of a group stands above.
    pub at: HashMap<(Arc<str>, i64), usize>,
    /// How long a collective takes once all ranks have come: by group, operation and size.
    usual_ns: HashMap<Shape, i64>,
    /// Collectives that are not judged, because a rank without a row may have come last.
    pub unknown: usize,
}

impl Calls {
    /// From the view `late`.
    pub fn new(rows: &Rows) -> Result<Self, Error> {
        let (comm, kind, seq, rank) = (rows.texts("comm")?, rows.texts("kind")?, rows.ints("seq")?, rows.ints("rank")?);
        let (n, size, bytes) = (rows.ints("n")?, rows.ints("size")?, rows.ints("bytes")?);
        let (dur, early) = (rows.ints("least_dur_ns")?, rows.ints("least_early_ns")?);
        let (last, sum) = (rows.ints("last_ns")?, rows.ints("sum_ns")?);
        let (clock, read, begin) = (rows.ints("clock_ns")?, rows.ints("read_ns")?, rows.ints("begin_ns")?);
        let is_whole = |row: usize| n[row] >= size[row];
        let shape = |row: usize| (comm[row].clone(), kind[row].clone(), bytes[row]);
        let mut of_shape: HashMap<Shape, Vec<i64>> = HashMap::new();
        let is_timed = |row: &usize| !is_bound(dur[*row], dur[*row] - early[*row]);
        for row in (0..rows.len()).filter(|row| is_whole(*row)).filter(is_timed) {
            of_shape.entry(shape(row)).or_default().push(dur[row]);
        }
        let usual_ns = of_shape.into_iter().map(|(shape, mut all)| (shape, median(&mut all))).collect();
        let bounded = (0..rows.len()).filter(|row| !is_timed(row)).count();
        let mut calls = Self { usual_ns, bounded, ..Self::default() };
        for row in 0..rows.len() {
            let late_ns = last[row] - (sum[row] - last[row]) / (n[row] - 1).max(1);
            // Those that came may have waited for a rank without a row.
            if !is_whole(row) && calls.wait_ns(&shape(row), dur[row]) > late_ns / LEAST_PART {
                calls.unknown += 1;
                continue;
            }
            calls.at.insert((comm[row].clone(), seq[row]), calls.all.len());
            calls.least_dur_ns.push(dur[row]);
            calls.least_early_ns.push(early[row]);
            calls.all.push(Event {
                comm: comm[row].clone(),
                seq: seq[row],
                kind: kind[row].clone(),
                rank: rank[row],
                ranks: n[row],
                late_ns,
                margin_ns: 0,
                err_ns: 2 * (clock[row] + read[row]),
                begin_ns: begin[row],
                last_ns: last[row],
            });
        }
        Ok(calls)
    }

    /// What a rank may have waited in a collective that took `dur_ns` there: all of it, if no such collective is known.
    pub fn wait_ns(&self, shape: &Shape, dur_ns: i64) -> i64 {
        dur_ns - self.usual_ns.get(shape).copied().unwrap_or(0)
    }
}

/// The events that stand out, the largest first.
pub fn events(calls: &Calls, step_ns: i64) -> Vec<Event> {
    let floor = |event: &Event| LEAST_NS.max(step_ns / 1000).max(3 * event.err_ns);
    let mut last: HashMap<(&str, i64), Vec<i64>> = HashMap::new();
    let mut calls_of: HashMap<&str, usize> = HashMap::new();
    for event in &calls.all {
        if event.late_ns > floor(event) {
            last.entry((&event.comm, event.rank)).or_default().push(event.late_ns);
        }
        *calls_of.entry(&event.comm).or_default() += 1;
    }
    let last: HashMap<(&str, i64), (usize, i64)> =
        last.into_iter().map(|(who, mut all)| (who, (all.len(), median(&mut all)))).collect();
    // How often the rank is last in this group, of how many calls, whether that is more often than by chance, and its median delay.
    let often = |event: &Event| {
        let n = calls_of.get(&*event.comm).copied().unwrap_or(0) as f64;
        let (k, usual_ns) = last.get(&(&*event.comm, event.rank)).copied().unwrap_or((0, 0));
        let p = 1.0 / event.ranks as f64;
        let is_more = k as f64 - n * p > NOT_BY_CHANCE * (n * p * (1.0 - p)).sqrt();
        (k as f64, n, n >= LEAST_CALLS as f64 && is_more, usual_ns)
    };
    // What is usual among collectives of one operation and as many ranks, without those ranks: else a slow rank, for which all wait in most calls, would be
    // what is usual.
    let mut shapes: HashMap<(&str, i64), Vec<i64>> = HashMap::new();
    let mut of_others: HashMap<(&str, i64), Vec<i64>> = HashMap::new();
    for event in &calls.all {
        shapes.entry((&event.kind, event.ranks)).or_default().push(event.late_ns);
        if !often(event).2 {
            of_others.entry((&event.kind, event.ranks)).or_default().push(event.late_ns);
        }
    }
    // A few calls have no usual.
    let limit = |all: &mut Vec<i64>| {
        let usual = median(all);
        let mut away: Vec<i64> = all.iter().map(|late| (late - usual).abs()).collect();
        (all.len() >= LEAST_CALLS).then(|| usual + (DEVIATIONS * 1.4826 * median(&mut away) as f64) as i64)
    };
    let limits: HashMap<(&str, i64), i64> = shapes
        .iter_mut()
        .filter_map(|(shape, all)| {
            let of_others = of_others.get_mut(shape).and_then(limit);
            Some((*shape, of_others.or_else(|| limit(all))?))
        })
        .collect();
    let is_usually_last = |event: &Event| {
        let (k, n, is_more, usual_ns) = often(event);
        // Now and then it is last by chance as well.
        is_more && k > n / 2.0 && event.late_ns >= usual_ns / 2
    };
    let is_far = |event: &Event| limits.get(&(&*event.kind, event.ranks)).is_some_and(|limit| event.late_ns > *limit);
    let stands_out = |event: &&Event| event.late_ns > floor(event) && (is_far(event) || is_usually_last(event));
    let mut found: Vec<Event> = calls.all.iter().filter(stands_out).cloned().collect();
    found.sort_by(|a, b| b.late_ns.cmp(&a.late_ns).then_with(|| (&a.comm, a.seq).cmp(&(&b.comm, b.seq))));
    found
}

/// Asks by how much each of these events was later than the last rank but one: of the few that are shown, because it costs a look at every
/// collective.
pub fn margins(engine: &Engine, events: &mut [Event]) -> Result<(), Error> {
    if events.is_empty() {
        return Ok(());
    }
    engine.insert_columns(
        "listed",
        vec![
            ("comm", Arc::new(StringArray::from_iter_values(events.iter().map(|event| &*event.comm)))),
            ("seq", Arc::new(Int64Array::from_iter_values(events.iter().map(|event| event.seq)))),
            ("last_ns", Arc::new(Int64Array::from_iter_values(events.iter().map(|event| event.last_ns)))),
        ],
    )?;
    let rows = engine.view("margins")?;
    let (comm, seq, second) = (rows.texts("comm")?, rows.ints("seq")?, rows.ints("second_ns")?);
    let known: HashMap<(&str, i64), i64> = comm.iter().map(|comm| &**comm).zip(seq).zip(second).collect();
    for event in events {
        if let Some(second) = known.get(&(&*event.comm, event.seq)) {
            event.margin_ns = event.last_ns - second;
        }
    }
    Ok(())
}
