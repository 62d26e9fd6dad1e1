//! Ranks whose device is slower than that of their peers, and since when.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::since::since;
use super::steps::suspect;
use crate::engine::{Engine, Rows};
use crate::error::Error;

/// Robust deviations.
const DEVIATIONS: f64 = 6.0;

/// The least that is named.
const LEAST_SHARE: f64 = 0.01;

/// With fewer ranks there is no usual.
const LEAST_PEERS: i64 = 4;

/// A slow rank.
#[derive(Debug, Clone, Serialize)]
pub struct SlowRank {
    /// The rank.
    pub rank: i64,
    /// Its host.
    pub host: Arc<str>,
    /// How many ranks do the same work, itself included.
    pub peers: i64,
    /// In how many windows.
    pub windows: usize,
    /// The first slow step.
    pub since_step: i64,
    /// The first one was not before this step, 99 of 100 times.
    pub since_least: i64,
    /// Nor after this one.
    pub since_most: i64,
    /// Robust deviations, of the worst window.
    pub z: f64,
    /// How much longer its device works a step, of the worst window.
    pub more_ns: f64,
    /// The same, of what is usual.
    pub share: f64,
}

/// From the views `slow` and `slow_steps`, and what they build on.
pub fn slow(engine: &Engine) -> Result<Vec<SlowRank>, Error> {
    let mut found = by_window(&engine.view("slow")?)?;
    let named: Vec<(i64, i64)> = found.iter().map(|slow| (slow.rank, 0)).collect();
    if named.is_empty() {
        return Ok(found);
    }
    suspect(engine, &named)?;
    let rows = engine.view("slow_steps")?;
    let (rank, step, n) = (rows.ints("rank")?, rows.ints("step")?, rows.ints("n")?);
    let (own, all) = (rows.ints("compute_ns")?, rows.ints("all_compute_ns")?);
    let mut more: BTreeMap<i64, Vec<(i64, f64)>> = BTreeMap::new();
    for row in 0..rows.len() {
        let others = (all[row] - own[row]) as f64 / (n[row] - 1).max(1) as f64;
        if n[row] > 1 && others > 0.0 {
            more.entry(rank[row]).or_default().push((step[row], own[row] as f64 / others - 1.0));
        }
    }
    for slow in &mut found {
        let Some(more) = more.get_mut(&slow.rank) else { continue };
        more.sort_by_key(|step| step.0);
        if let Some(since) = since(more, slow.share / 4.0) {
            (slow.since_step, slow.since_least, slow.since_most) = (since.step, since.least, since.most);
        }
    }
    Ok(found)
}

fn by_window(rows: &Rows) -> Result<Vec<SlowRank>, Error> {
    let (rank, host, win, peers) = (rows.ints("rank")?, rows.texts("host")?, rows.ints("win")?, rows.ints("peers")?);
    let (mean, median, z) = (rows.floats("mean_ns")?, rows.floats("median_ns")?, rows.floats("z")?);
    let first = rows.ints("first_step")?;
    let mut all: BTreeMap<i64, BTreeMap<i64, usize>> = BTreeMap::new();
    let last = win.iter().copied().max().unwrap_or(0);
    for row in 0..rows.len() {
        let is_slow =
            z[row] > DEVIATIONS && mean[row] - median[row] > LEAST_SHARE * median[row] && peers[row] >= LEAST_PEERS;
        if is_slow {
            all.entry(rank[row]).or_default().insert(win[row], row);
        }
    }
    let found = all.into_iter().filter_map(|(rank, windows)| {
        let (since, first_row) = windows.first_key_value()?;
        // Once in a long run is an event, not a slow device.
        let possible =
            win.iter().filter(|win| (*since..=last).contains(win)).collect::<std::collections::BTreeSet<_>>();
        if windows.len() * 2 < possible.len() {
            return None;
        }
        let worst = *windows.values().max_by(|a, b| z[**a].total_cmp(&z[**b]))?;
        Some(SlowRank {
            rank,
            host: host[worst].clone(),
            peers: peers[worst],
            windows: windows.len(),
            since_step: first[*first_row],
            since_least: first[*first_row],
            since_most: first[*first_row],
            z: z[worst],
            more_ns: mean[worst] - median[worst],
            share: (mean[worst] - median[worst]) / median[worst].max(1.0),
        })
    });
    let mut found: Vec<SlowRank> = found.collect();
    found.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.rank.cmp(&b.rank)));
    Ok(found)
}
