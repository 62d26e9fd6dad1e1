//! Places times of a rank's clock on the time line of the archive: `CLOCK_BOOTTIME` of one host, with which the others
//! are compared as `warpline-ranks clocks` estimates them.

use std::collections::HashMap;
use std::sync::Arc;

use warpline_judge::clocks::{Clock, SEGMENT_NS};
use warpline_report::duration as time;

use crate::clocks::{Clocks, Options, clocks};
use crate::engine::Engine;
use crate::error::Error;

/// The clock of a host compared with the time line.
#[derive(Debug, Clone)]
pub struct Place {
    /// From the host's clock to the time since the run's begin, by its wall clock.
    base_ns: i64,
    /// The same for the host of the time line.
    reference_base_ns: i64,
    /// By how much it is ahead: at the middle of each segment, in order.
    ahead: Vec<(i64, f64)>,
    /// By how much it is faster, before the first middle and after the last one.
    drift: (f64, f64),
}

impl Place {
    /// The time on the time line.
    pub fn timeline_ns(&self, own_ns: i64) -> i64 {
        let at = own_ns.saturating_add(self.base_ns);
        at.saturating_sub(self.ahead_ns(at).round() as i64).saturating_sub(self.reference_base_ns)
    }

    /// By how much the clock is ahead. Between the middles of two segments it changes steadily, so no time jumps.
    fn ahead_ns(&self, at: i64) -> f64 {
        let next = self.ahead.partition_point(|(mid, _)| *mid <= at);
        let beyond = |(mid, ahead): (i64, f64), drift: f64| ahead + drift * (at - mid) as f64;
        match (next.checked_sub(1).and_then(|last| self.ahead.get(last)), self.ahead.get(next)) {
            (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (at - a.0) as f64 / (b.0 - a.0) as f64,
            (Some(last), None) => beyond(*last, self.drift.1),
            (None, Some(first)) => beyond(*first, self.drift.0),
            (None, None) => 0.0,
        }
    }
}

/// The clocks of a run.
pub struct Places {
    clocks: Clocks,
    /// By boot.
    number: HashMap<Arc<str>, usize>,
    base_ns: Vec<i64>,
    wall_ns: Vec<i64>,
    reference: usize,
}

/// The facts about a host's clock at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// By how much it is ahead of the time line's, with the error of the estimate.
    pub ahead_ns: f64,
    pub err_ns: f64,
    /// The bounds that cannot be wrong.
    pub certified: Option<(f64, f64)>,
    /// It is the clock of the time line.
    pub is_reference: bool,
    /// No collective compares it with the time line's host: its wall clock is all there is.
    pub is_apart: bool,
    pub is_inconsistent: bool,
}

impl Places {
    /// Compares the clocks of the run. The time line is that of the host with the boot `boot`, or of the one that it is
    /// compared with.
    pub fn new(engine: &Engine, options: Options, boot: &str) -> Result<Self, Error> {
        let clocks = clocks(engine, options)?;
        let number: HashMap<Arc<str>, usize> = clocks.boots.iter().cloned().zip(0..).collect();
        let mut base_ns = vec![0; number.len()];
        let mut wall_ns = vec![0; number.len()];
        let sql = "SELECT p.boot_id, MIN(p.base_ns) AS base_ns, MIN(w.realtime_offset_ns) AS wall_ns FROM placed p \
                   JOIN windows w ON p.run = w.run AND p.win = w.win AND p.rank = w.rank GROUP BY p.boot_id";
        let rows = engine.query("bases", sql)?;
        for ((boot, base), wall) in
            rows.texts("boot_id")?.into_iter().zip(rows.ints("base_ns")?).zip(rows.ints("wall_ns")?)
        {
            if let Some(host) = number.get(&boot) {
                (base_ns[*host], wall_ns[*host]) = (base, wall);
            }
        }
        let first = number.get(boot).copied().unwrap_or(0);
        let reference = clocks.clocks.iter().find(|clock| clock.host == first).map_or(first, |clock| clock.beside);
        Ok(Self { clocks, number, base_ns, wall_ns, reference })
    }

    /// The name of the host whose clock is the time line.
    pub fn reference(&self) -> &str {
        &self.clocks.hosts[self.reference]
    }

    /// The wall clock of that host minus the time line.
    pub fn wall_ns(&self) -> i64 {
        self.wall_ns[self.reference]
    }

    /// Where times of the host with this boot lie.
    pub fn place(&self, boot: &str) -> Option<Place> {
        let host = *self.number.get(boot)?;
        let known: Vec<&Clock> = self.of_host(host).collect();
        let drift = (known.first().map_or(0.0, |clock| clock.drift), known.last().map_or(0.0, |clock| clock.drift));
        Some(Place {
            base_ns: self.base_ns[host],
            reference_base_ns: self.base_ns[self.reference],
            ahead: known.into_iter().map(|clock| (clock.mid_ns, clock.offset_ns)).collect(),
            drift,
        })
    }

    /// The facts about the clock of the host with this boot at a time of its own clock.
    pub fn known(&self, boot: &str, own_ns: i64) -> Option<Known> {
        let host = *self.number.get(boot)?;
        let at = own_ns.saturating_add(self.base_ns[host]);
        let is_apart = host != self.reference && self.of_host(host).next().is_none();
        let near = self.of_host(host).min_by_key(|clock| (clock.segment - at.div_euclid(SEGMENT_NS)).abs());
        let is_reference = host == self.reference;
        let near = near.filter(|_| !is_reference);
        Some(Known {
            ahead_ns: self.place(boot)?.ahead_ns(at),
            err_ns: near.map_or(0.0, |clock| clock.err_ns),
            certified: near.and_then(|clock| clock.certified),
            is_reference,
            is_apart,
            is_inconsistent: near.is_some_and(|clock| clock.is_inconsistent),
        })
    }

    fn of_host(&self, host: usize) -> impl Iterator<Item = &Clock> {
        let is_compared = move |clock: &&Clock| clock.host == host && clock.beside == self.reference;
        self.clocks.clocks.iter().filter(is_compared)
    }
}

impl Known {
    /// The fact as a label of the process.
    pub fn label(&self, reference: &str) -> String {
        if self.is_reference {
            return "clock: that of the time line".to_owned();
        }
        if self.is_apart {
            return format!("clock: never compared with that of {reference}; placed by its wall clock, error unknown");
        }
        let certified = match self.certified {
            _ if self.is_inconsistent => "; its certified bounds contradict each other".to_owned(),
            Some((least, most)) => format!("; certified: {} to {}", time(least), time(most)),
            None => String::new(),
        };
        let (ahead, err) = (time(self.ahead_ns), time(self.err_ns));
        format!("clock: {ahead} ahead of that of {reference}, ± {err}, corrected{certified}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_do_not_jump_where_segments_meet() {
        let (s, base) = (1_000_000_000, 5_000);
        let place = Place {
            base_ns: base,
            reference_base_ns: 1_000,
            ahead: vec![(30 * s, 500_000.0), (90 * s, 503_000.0)],
            drift: (50e-6, 50e-6),
        };
        let ahead = |at: i64| at - 1_000 - place.timeline_ns(at - base);
        assert_eq!((ahead(30 * s), ahead(60 * s), ahead(90 * s)), (500_000, 501_500, 503_000));
        assert_eq!((ahead(29 * s), ahead(91 * s)), (450_000, 553_000));
        let alone = Place { ahead: Vec::new(), ..place };
        assert_eq!(alone.timeline_ns(7), 7 + base - 1_000);
    }
}
