//! The figures of ranges, each in one place, and which zone of a row is within which.

use std::collections::HashMap;

use warpline_core::record::{Span, is_bound};
use warpline_core::work::Work;

use crate::work::WorkSum;

use super::Zone;
use super::calls::{Calls, RowId};
use crate::lengths::{Length, Lengths};
use crate::names::Name;
use crate::nesting::{self, Nesting};

/// The most ranges, each in one place, that are counted separately: the histogram of one has some 10 KB.
pub(super) const RANGES: usize = 8_192;

/// The zones of a row that wait until they can be put in the order of their ends.
const REORDERED: usize = 1 << 13;

/// The zones of all rows that wait.
const WAITING: usize = 1 << 21;

/// The largest number of rows of a session in which zones are known to be within others; beyond it, all are forgotten. A program may create ever
/// more streams, and a trace has an end.
const ROWS: usize = 1 << 12;

/// Where a range's times are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    Threads,
    Streams,
    /// Replays of CUDA graphs.
    Replays,
}

impl Place {
    /// Returns the name that the tables of a report have for it.
    pub fn name(self) -> &'static str {
        match self {
            Place::Threads => "thread",
            Place::Streams => "stream",
            Place::Replays => "replay",
        }
    }
}

/// The number of a range in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeId(u32);

impl RangeId {
    pub(super) fn number(self) -> u32 {
        self.0
    }
}

pub(super) struct Range {
    pub(super) name: Name,
    pub(super) place: Place,
    pub(super) lengths: Lengths,
    pub(super) work: WorkSum,
}

/// All ranges.
#[derive(Default)]
pub(super) struct Ranges {
    pub(super) all: Vec<Range>,
    numbers: HashMap<(Name, Place), u32>,
    /// The ranges that are counted together.
    pub(super) more: u64,
}

impl Ranges {
    /// Returns the number of a range in a place; beyond [`RANGES`], that of all further ones there.
    pub(super) fn number(&mut self, name: Name, place: Place) -> RangeId {
        if let Some(number) = self.numbers.get(&(name, place)) {
            return RangeId(*number);
        }
        let is_further = self.all.len() >= RANGES && name != Name::MORE;
        let number = if is_further { self.number(Name::MORE, place).0 } else { self.all.len() as u32 };
        if is_further {
            self.more += 1;
        } else {
            self.all.push(Range { name, place, lengths: Lengths::default(), work: WorkSum::default() });
        }
        self.numbers.insert((name, place), number);
        RangeId(number)
    }

    pub(super) fn name_of(&self, number: u32) -> Option<(Name, Place)> {
        self.all.get(number as usize).map(|range| (range.name, range.place))
    }

    pub(super) fn has(&self, name: Name, place: Place) -> bool {
        self.numbers.contains_key(&(name, place))
    }

    pub(super) fn lengths(&self) -> impl Iterator<Item = (Name, Place, &Lengths)> {
        self.all.iter().map(|range| (range.name, range.place, &range.lengths))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds a zone, and returns its place.
    pub(super) fn add(
        &mut self,
        RangeId(number): RangeId,
        length: &Length,
        work: Option<(Work, i64, &str)>,
        may_lack_first: impl FnOnce() -> bool,
    ) -> Place {
        let Some(range) = self.all.get_mut(number as usize) else { return Place::Threads };
        range.lengths.add(length, may_lack_first);
        if let Some((work, ns, device)) = work {
            range.work.add(work, ns, device);
        }
        range.place
    }
}

/// The rows of a recording.
#[derive(Default)]
pub(super) struct Rows {
    all: Vec<Nested>,
    numbers: HashMap<RowId, usize>,
    /// The row of the last zone: zones of a row follow one another.
    last: Option<(RowId, usize)>,
    /// The rows in which zones wait, and how many do.
    unsettled: Vec<usize>,
    waiting: usize,
    order: u64,
    /// Room for the zones of a row, which rows use in turns.
    spare: Vec<Waiting>,
}

/// A row whose zones nest.
struct Nested {
    at: RowId,
    waiting: Vec<Waiting>,
    nesting: Nesting,
}

/// A zone with its place in the order of arrival, and its range.
struct Waiting {
    span: Span,
    early_by_ns: i64,
    /// Of two equal spans, that which was launched first is around the other one.
    order: (i64, u32, u64),
    range: RangeId,
}

impl Rows {
    /// Puts a zone among those of its row.
    pub(super) fn add(
        &mut self,
        at: RowId,
        range: RangeId,
        zone: &Zone<'_>,
        ranges: &mut Ranges,
        calls: Option<&mut Calls>,
    ) {
        self.order += 1;
        let number = match self.last {
            Some((last, number)) if last == at => number,
            _ => self.number(at),
        };
        let Some(row) = self.all.get_mut(number) else { return };
        let host = zone.host.unwrap_or(zone.span);
        let (span, early_by_ns) = (zone.span, zone.early_by_ns);
        if row.waiting.is_empty() {
            row.waiting = std::mem::take(&mut self.spare);
            self.unsettled.push(number);
        }
        row.waiting.push(Waiting { span, early_by_ns, order: (host.begin_ns, zone.depth, self.order), range });
        self.waiting += 1;
        if row.waiting.len() >= REORDERED {
            self.waiting -= row.settle(REORDERED / 2, ranges, calls);
        } else if self.waiting >= WAITING {
            self.settle(ranges, calls);
        }
    }

    fn number(&mut self, at: RowId) -> usize {
        let number = *self.numbers.entry(at).or_insert_with(|| {
            self.all.push(Nested { at, waiting: Vec::new(), nesting: Nesting::default() });
            self.all.len() - 1
        });
        self.last = Some((at, number));
        number
    }

    /// Forgets the rows if they are too many.
    pub(super) fn forget(&mut self) {
        if self.all.len() > ROWS {
            self.all.clear();
            self.numbers.clear();
            self.last = None;
        }
    }

    /// Finds what is within what among all zones that wait.
    pub(super) fn settle(&mut self, ranges: &mut Ranges, mut calls: Option<&mut Calls>) {
        for number in self.unsettled.drain(..) {
            if let Some(row) = self.all.get_mut(number) {
                row.settle(usize::MAX, ranges, calls.as_deref_mut());
                self.spare = std::mem::take(&mut row.waiting);
            }
        }
        self.waiting = 0;
    }
}

impl Nested {
    /// Finds what is within what among the earliest zones. Returns how many it took.
    fn settle(&mut self, count: usize, ranges: &mut Ranges, mut calls: Option<&mut Calls>) -> usize {
        self.waiting.sort_unstable_by_key(|waiting| nesting::key(waiting.span, waiting.order));
        let count = count.min(self.waiting.len());
        for Waiting { span, early_by_ns, range, .. } in self.waiting.drain(..count) {
            let inner = self.nesting.add(span, early_by_ns);
            let is_bounded = is_bound(span.duration_ns(), early_by_ns);
            if let Some(range) = ranges.all.get_mut(range.0 as usize) {
                range.lengths.subtract_inner(inner, is_bounded);
            }
            if let Some(calls) = &mut calls {
                calls.add(self.at, span, range.0, inner.most_ns, if is_bounded { early_by_ns } else { 0 });
            }
        }
        count
    }
}
