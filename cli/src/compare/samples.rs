//! The lengths of everything that two sides have in common, run by run, in blocks.
//!
//! Lengths of one run are not independent: the clock of a device changes, a neighbour comes and goes. So a run is cut
//! into blocks that follow one another, each of as many steps or, without steps, of as many lengths, and the later
//! random draws take whole blocks. Memory is bounded: of more than [`LENGTHS`] lengths, every second one is kept, then
//! every fourth, and so on.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use warpline_core::record::Span;

use crate::report::complain_of;
use crate::trace::{self, Kind, Name, Names, ReadError, Rows, Slice, Visitor};

/// The most lengths that are kept of one subject in one run.
const LENGTHS: usize = 1 << 14;

/// The most subjects of a run. Further ones are not compared, and counted.
const SUBJECTS: usize = 2_048;

/// The most blocks of a run.
const BLOCKS: usize = 32;

/// The least number of lengths in a block that is not one of steps.
pub(super) const LEAST_IN_BLOCK: usize = 4;

/// The most steps of which the begins are kept.
const STEPS: usize = 1 << 20;

/// A first call is left out if it took more than this many times the median.
const FIRST_BY: u64 = 10;

/// The kind of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum What {
    Step,
    /// The time from the first begin in a trace to the last end.
    Wall,
    Range,
    Replayed,
    HostRange,
    Collective,
    Kernel,
}

impl What {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            What::Step => "step",
            What::Wall => "wall time",
            What::Range => "range",
            What::Replayed => "range in replays",
            What::HostRange => "range on threads",
            What::Collective => "collective",
            What::Kernel => "kernel",
        }
    }
}

/// A subject: what it is, its name, and for a kernel the range in which it runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(super) what: What,
    pub(super) name: Arc<str>,
    pub(super) range: Option<Arc<str>>,
}

/// The lengths of one subject in one run: the block of each, in ns, in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lengths {
    pub(super) lengths: Vec<(u16, u64)>,
    /// The number of all lengths, including those that were not kept.
    pub(super) count: u64,
    /// The number of zones whose end is not timed, so that their length is only a bound. They are not among the
    /// lengths.
    pub(super) bounded: u64,
}

/// One run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(super) subjects: BTreeMap<Subject, Lengths>,
    pub(super) left_out: u64,
}

/// Reads a run from its trace. Warnings go to standard error.
pub(super) fn read(path: &Path) -> Result<Run, ReadError> {
    let (mut names, mut reader) = (Names::default(), Reader::default());
    let skipped = trace::read(path, &mut names, &mut reader)?;
    complain_of(path, &skipped);
    Ok(reader.run(&names))
}

#[derive(Default)]
struct Reader {
    subjects: BTreeMap<(What, Name, Option<Name>), Kept>,
    steps: Vec<i64>,
    window: Option<Span>,
    left_out: u64,
    has_stages: bool,
}

/// The times and lengths that are kept, each of which represents `every`.
struct Kept {
    lengths: Vec<(i64, u64)>,
    every: u64,
    count: u64,
    bounded: u64,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { lengths: Vec::new(), every: 1, count: 0, bounded: 0 }
    }
}

impl Kept {
    fn add(&mut self, at_ns: i64, ns: u64) {
        if self.count.is_multiple_of(self.every) {
            if self.lengths.len() == LENGTHS {
                let mut at = 0;
                self.lengths.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.every *= 2;
            }
            if self.count.is_multiple_of(self.every) {
                self.lengths.push((at_ns, ns));
            }
        }
        self.count += 1;
    }
}

impl Visitor for Reader {
    fn slice(&mut self, slice: &Slice<'_>, _: &Rows, _: &mut Names) {
        let of_stage = slice.row == usize::MAX;
        let what = match slice.kind {
            Kind::Step => What::Step,
            Kind::Zone if slice.args.has_correlation => What::Replayed,
            Kind::Zone => What::Range,
            Kind::Collective => What::Collective,
            Kind::HostZone => What::HostRange,
            Kind::Kernel | Kind::Copy => {
                // A trace of warpline has each kernel twice: with its zone, and as a slice.
                if of_stage && !self.has_stages {
                    self.has_stages = true;
                    self.subjects.retain(|(what, ..), _| *what != What::Kernel);
                }
                if self.has_stages != of_stage {
                    return;
                }
                What::Kernel
            }
            _ => return,
        };
        let begin_ns = slice.launch.map_or(slice.span, |(_, host)| host).begin_ns;
        let window = self.window.get_or_insert(slice.span);
        *window = window.around(Span { begin_ns, end_ns: slice.span.end_ns });
        if what == What::Step && self.steps.len() < STEPS {
            self.steps.push(begin_ns);
        }
        let name = if what == What::Step { Name::default() } else { slice.name };
        let key = (what, name, slice.args.zone.filter(|_| what == What::Kernel));
        if self.subjects.len() >= SUBJECTS && !self.subjects.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let kept = self.subjects.entry(key).or_default();
        if slice.is_bounded() {
            kept.bounded += 1;
        } else {
            kept.add(begin_ns, slice.span.duration_ns().max(0) as u64);
        }
    }
}

impl Reader {
    fn run(mut self, names: &Names) -> Run {
        let begins = self.blocks();
        let subjects = std::mem::take(&mut self.subjects).into_iter().map(|((what, name, range), kept)| {
            let name = if what == What::Step { "step".into() } else { names.text(name).clone() };
            let subject = Subject { what, name, range: range.map(|range| names.text(range).clone()) };
            let mut lengths = kept.lengths;
            lengths.sort_unstable();
            let mut sorted: Vec<u64> = lengths.iter().map(|(_, ns)| *ns).collect();
            sorted.sort_unstable();
            let median = sorted.get(sorted.len() / 2).copied().unwrap_or(0);
            let is_start = |(_, ns): &(i64, u64)| *ns > FIRST_BY.saturating_mul(median) && sorted.len() > 1;
            let from = usize::from(lengths.first().is_some_and(is_start));
            let lengths = &lengths[from..];
            let blocks = (lengths.len() / LEAST_IN_BLOCK).clamp(1, BLOCKS);
            let in_block = |(at, (at_ns, ns)): (usize, &(i64, u64))| {
                let block = match begins[..] {
                    [] => at * blocks / lengths.len(),
                    _ => begins.partition_point(|begin| begin <= at_ns).saturating_sub(1),
                };
                (block as u16, *ns)
            };
            let lengths = lengths.iter().enumerate().map(in_block).collect();
            (subject, Lengths { lengths, count: kept.count + kept.bounded, bounded: kept.bounded })
        });
        let mut subjects: BTreeMap<_, _> = subjects.collect();
        if let Some(window) = self.window {
            let subject = Subject { what: What::Wall, name: "wall time".into(), range: None };
            let lengths = vec![(0, window.duration_ns().max(0) as u64)];
            subjects.insert(subject, Lengths { lengths, count: 1, bounded: 0 });
        }
        Run { subjects, left_out: self.left_out }
    }

    /// The begins of the blocks, each with as many steps; none without steps.
    fn blocks(&mut self) -> Vec<i64> {
        self.steps.sort_unstable();
        let blocks = if self.steps.len() < 2 { 0 } else { self.steps.len().min(BLOCKS) };
        (0..blocks).map(|block| self.steps[block * self.steps.len() / blocks]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_steps_a_pause_of_the_program_leaves_as_many_blocks() {
        let names = Names::default();
        let mut kept = Kept::default();
        (0..200).for_each(|at| kept.add(if at < 190 { at } else { at + 1_000_000 }, 5));
        let subjects = BTreeMap::from([((What::Range, Name::default(), None), kept)]);
        let run = Reader { subjects, ..Reader::default() }.run(&names);
        let blocks: std::collections::BTreeSet<u16> =
            run.subjects.values().flat_map(|of| &of.lengths).map(|(block, _)| *block).collect();
        assert_eq!(blocks.len(), BLOCKS);
    }

    #[test]
    fn of_many_lengths_some_are_kept_from_all_of_the_time() {
        let mut kept = Kept::default();
        (0..1_000_000).for_each(|at| kept.add(at, at as u64));
        assert!((LENGTHS / 2..=LENGTHS).contains(&kept.lengths.len()) && kept.count == 1_000_000);
        let distances: Vec<_> = kept.lengths.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(
            distances.iter().all(|distance| *distance == 64)
                && kept.lengths.last().is_some_and(|(at, _)| *at > 999_900)
        );
    }
}
