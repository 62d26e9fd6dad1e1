//! The collectives in which ranks met, from the view `late`, as the judge has them; and the late arrivals that a report
//! lists.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, StringArray};
use serde::Serialize;
use warpline_judge::{Collectives, Key, Met, SYNCHRONISING};

use crate::engine::{Engine, Rows};
use crate::error::Error;

/// A collective to which a rank came late.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Event {
    /// The group.
    pub comm: Arc<str>,
    /// The number of the collective in it.
    pub seq: i64,
    /// The operation.
    pub kind: &'static str,
    /// The rank that came last.
    pub rank: i64,
    /// How many ranks came.
    pub ranks: i64,
    /// How much later than the others on average.
    pub late_ns: i64,
    /// How much later than the last but one; 0 unless `margins` has asked for it.
    pub margin_ns: i64,
    /// How wrong the two may be.
    pub err_ns: i64,
    /// The time of its arrival, on the common clock.
    #[serde(skip)]
    last_ns: i64,
}

/// The collectives, with the names of their groups.
#[derive(Debug, Default)]
pub struct Calls {
    pub met: Collectives,
    comms: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Calls {
    /// From the view `late`.
    pub fn new(rows: &Rows) -> Result<Self, Error> {
        let (comm, kind, seq, rank) = (rows.texts("comm")?, rows.texts("kind")?, rows.ints("seq")?, rows.ints("rank")?);
        let (n, size, bytes) = (rows.ints("n")?, rows.ints("size")?, rows.ints("bytes")?);
        let (dur, early) = (rows.ints("least_dur_ns")?, rows.ints("least_early_ns")?);
        let (last, sum) = (rows.ints("last_ns")?, rows.ints("sum_ns")?);
        let (clock, read, begin) = (rows.ints("clock_ns")?, rows.ints("read_ns")?, rows.ints("begin_ns")?);
        let mut calls = Self::default();
        let met = |row: usize| Met {
            key: Key { group: calls.number(&comm[row]), turn: 0, seq: seq[row] as u64 },
            kind: word(&kind[row]),
            bytes: bytes[row] as u64,
            ranks: n[row] as u32,
            size: size[row] as u32,
            rank: rank[row],
            begin_ns: begin[row],
            at_ns: last[row],
            late_ns: last[row] - (sum[row] - last[row]) / (n[row] - 1).max(1),
            err_ns: 2 * (clock[row] + read[row]),
            is_certain: true,
            least_ns: dur[row],
            least_early_ns: early[row],
        };
        let all = (0..rows.len()).map(met).collect();
        calls.met = Collectives::new(all);
        Ok(calls)
    }

    fn number(&mut self, comm: &Arc<str>) -> u32 {
        *self.numbers.entry(comm.clone()).or_insert_with(|| {
            self.comms.push(comm.clone());
            self.comms.len() as u32 - 1
        })
    }

    /// The name of a group.
    pub fn comm(&self, key: &Key) -> Arc<str> {
        self.comm_of(key.group)
    }

    /// The name of the group with this number.
    pub fn comm_of(&self, group: u32) -> Arc<str> {
        self.comms[group as usize].clone()
    }

    /// The late arrivals that a report lists.
    pub fn events(&self, met: &[Met]) -> Vec<Event> {
        let event = |met: &Met| Event {
            comm: self.comm(&met.key),
            seq: met.key.seq as i64,
            kind: met.kind,
            rank: met.rank,
            ranks: i64::from(met.ranks),
            late_ns: met.late_ns,
            margin_ns: 0,
            err_ns: met.err_ns,
            last_ns: met.at_ns,
        };
        met.iter().map(event).collect()
    }
}

/// An operation in which all wait for all; empty for another one.
fn word(kind: &str) -> &'static str {
    SYNCHRONISING.into_iter().find(|word| *word == kind).unwrap_or_default()
}

/// Asks by how much each of these events was later than the last rank but one: of the few that are shown, because it
/// costs a look at every collective.
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
