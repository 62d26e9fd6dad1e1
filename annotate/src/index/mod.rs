//! The first reading of a trace: collects what must be known of the whole trace before any of it can be written.
//!
//! It keeps two bytes for each event, which say how the event is written, 24 bytes for each slice, and some more for each end of an arrow
//! and each kernel of a graph, but no contents. Events are identified by their number in the file, so that the second reading finds
//! them again. Because the whole file is read, a truncated or damaged file is detected before anything is written.

mod arrows;
mod copies;
mod lanes;
mod rows;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use warpline_trace::read::budget::MemoryBudget;
use warpline_trace::read::event::Event;

use super::join::Join;

pub(super) use arrows::Link;
use arrows::{End, Phase};
use copies::Copies;
use lanes::Loose;
pub(super) use lanes::{Slice, place};
pub(super) use rows::{Rows, TooMany};

/// The memory limit for the names of processes and rows.
const NAMES: usize = 256 << 20;
/// The memory limit for arguments at the ends of slices, which are shown with the slices.
const END_ARGS: usize = 64 << 20;

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    /// As a slice, on this lane of its row.
    Slice(u16),
    /// As its phase says: an instant, a counter, metadata.
    AsItIs,
    /// As an end of an arrow without a slice.
    Arrow,
    /// Not at all: it is a part of another event, or counted as lost.
    Done,
    /// Not at all, in any format: a copy of an annotation on a stream without work, or no event.
    LeftOut,
}

/// The same in two bytes.
#[derive(Clone, Copy, Debug)]
struct Packed(u16);

impl Packed {
    const AS_IT_IS: Packed = Packed(u16::MAX);
    const ARROW: Packed = Packed(u16::MAX - 1);
    const DONE: Packed = Packed(u16::MAX - 2);
    const LEFT_OUT: Packed = Packed(u16::MAX - 3);

    fn open(self) -> Disposition {
        match self.0 {
            0xFFFF => Disposition::AsItIs,
            0xFFFE => Disposition::Arrow,
            0xFFFD => Disposition::Done,
            0xFFFC => Disposition::LeftOut,
            lane => Disposition::Slice(lane),
        }
    }
}

/// Why the output differs from the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Lost {
    NoEvent,
    Mended,
    NoTime,
    BeforeZero,
    EndWithoutBegin,
    NeverEnds,
    TooDeep,
    ArrowEnd,
    EndArgs,
    CounterText,
}

impl Lost {
    /// Whether it is of every format. Apart from it, the Chrome output has every event unchanged.
    pub(super) fn is_of_all(self) -> bool {
        matches!(self, Lost::NoEvent | Lost::Mended)
    }

    /// The text that the command prints before the count.
    pub(super) fn text(self) -> &'static str {
        match self {
            Lost::NoEvent => "events that are not JSON, left out",
            Lost::Mended => {
                "events with what JSON does not allow (such as control characters or NaN), escaped or null in the output"
            }
            Lost::NoTime => "events without a time, left out",
            Lost::BeforeZero => "events before the time 0, left out",
            Lost::EndWithoutBegin => "ends of slices without a begin, left out",
            Lost::NeverEnds => "slices without an end, drawn to the end of the trace",
            Lost::TooDeep => "slices on a row where more than 1000 overlap, left out",
            Lost::ArrowEnd => "arrows with only one end in the input, which no reader shows",
            Lost::EndArgs => "arguments at the ends of slices, left out because the memory for them is used up",
            Lost::CounterText => "values of counters that are not numbers, or of too many counters, left out",
        }
    }
}

/// The begin or end of a slice whose begin and end are separate events.
#[derive(Clone, Copy)]
struct Edge {
    ns: i64,
    number: u32,
    is_begin: bool,
}

/// The result of the first reading.
pub(super) struct Index {
    fates: Vec<Packed>,
    pub(super) rows: Rows,
    pub(super) links: Vec<Link>,
    /// The number of arrows.
    pub(super) arrows: u32,
    /// The separate ends of slices with their arguments, by the number of the begin.
    pub(super) ends: HashMap<u32, (i64, Option<Box<str>>)>,
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    pub(super) lost: HashMap<Lost, u64>,
    /// The number of copies of annotations that are left out.
    pub(super) copies: u64,
    /// The hash of all times.
    contents: u64,
}

impl Index {
    pub(super) fn events(&self) -> usize {
        self.fates.len()
    }

    /// How this event is written; none if the first reading found fewer events.
    pub(super) fn fate(&self, number: usize) -> Option<Disposition> {
        self.fates.get(number).map(|fate| fate.open())
    }

    /// A number that differs between traces.
    pub(super) fn seed(&self) -> u64 {
        let names = self.rows.processes.iter().map(|process| (&process.pid, &process.name)).collect::<Vec<_>>();
        hash(&(self.contents, self.events(), self.first_ns, self.last_ns, names))
    }

    pub(super) fn lose(&mut self, why: Lost, count: u64) {
        if count > 0 {
            *self.lost.entry(why).or_default() += count;
        }
    }
}

/// Builds the index.
pub(super) struct Indexer<'a> {
    index: Index,
    join: Join<'a>,
    /// By row.
    slices: Vec<Vec<Slice>>,
    edges: HashMap<u32, Vec<Edge>>,
    /// Arguments at ends, by the number of the end.
    end_args: HashMap<u32, Box<str>>,
    arrows: Vec<End>,
    /// The separate ends of arrows: the row, the index in `arrows`, and whether the next slice may be used.
    loose: Vec<(u32, u32, bool)>,
    args_purse: MemoryBudget,
    copies: Copies,
}

impl<'a> Indexer<'a> {
    pub(super) fn new(join: Join<'a>) -> Indexer<'a> {
        Indexer {
            index: Index {
                fates: Vec::new(),
                rows: Rows::new(MemoryBudget::new(NAMES)),
                links: Vec::new(),
                arrows: 0,
                ends: HashMap::new(),
                first_ns: i64::MAX,
                last_ns: 0,
                lost: HashMap::new(),
                copies: 0,
                contents: 0,
            },
            join,
            slices: Vec::new(),
            edges: HashMap::new(),
            end_args: HashMap::new(),
            arrows: Vec::new(),
            loose: Vec::new(),
            args_purse: MemoryBudget::new(END_ARGS),
            copies: Copies::default(),
        }
    }

    pub(super) fn events(&self) -> usize {
        self.index.events()
    }

    pub(super) fn lose(&mut self, why: Lost) {
        self.index.lose(why, 1);
    }

    /// Counts the next event, of which nothing can be read.
    pub(super) fn no_event(&mut self) {
        self.lose(Lost::NoEvent);
        self.index.fates.push(Packed::LEFT_OUT);
    }

    /// Adds the next event.
    pub(super) fn event(&mut self, event: &Event<'_>) -> Result<(), TooMany> {
        let number = self.index.fates.len() as u32;
        let fate = self.fate(event, number)?;
        self.index.fates.push(fate);
        Ok(())
    }

    fn fate(&mut self, event: &Event<'_>, number: u32) -> Result<Packed, TooMany> {
        if event.phase == "M" {
            if self.index.rows.metadata(event)? {
                return Ok(Packed::DONE);
            }
            let row = self.index.rows.thread(&event.pid, &event.tid)?;
            self.index.rows.rows[row as usize].is_used = true;
            return Ok(Packed::AS_IT_IS);
        }
        let Some(ns) = event.ts else {
            self.index.lose(Lost::NoTime, 1);
            return Ok(Packed::DONE);
        };
        if ns < 0 {
            self.index.lose(Lost::BeforeZero, 1);
            return Ok(Packed::DONE);
        }
        let end_ns = ns.saturating_add(event.dur.unwrap_or(0).max(0));
        self.index.contents =
            (self.index.contents.rotate_left(5) ^ ns as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ end_ns as u64;
        self.index.first_ns = self.index.first_ns.min(ns);
        self.index.last_ns = self.index.last_ns.max(end_ns);
        if event.phase == "C" {
            self.index.rows.process(&event.pid)?;
            return Ok(Packed::AS_IT_IS);
        }
        let row = if rows::is_asynchronous(event) {
            self.index.rows.asynchronous(event)?
        } else {
            self.index.rows.thread(&event.pid, &event.tid)?
        };
        self.index.rows.rows[row as usize].is_used = true;
        match &*event.phase {
            "X" => {
                self.slice(row, Slice { begin_ns: ns, end_ns, number });
                let process = self.index.rows.rows[row as usize].process;
                self.join.slice(event, number, (row, process), (ns, end_ns));
                self.copies.slice(event, number, (row, process));
                self.bound(event, ns, number);
            }
            "B" | "b" | "S" => {
                self.edges.entry(row).or_default().push(Edge { ns, number, is_begin: true });
                self.bound(event, ns, number);
            }
            "E" | "e" | "F" => {
                self.edges.entry(row).or_default().push(Edge { ns, number, is_begin: false });
                if let Some(args) = event.args.map(|args| args.get()).filter(|args| *args != "{}") {
                    if self.args_purse.spend(args.len() + 64) {
                        self.end_args.insert(number, args.into());
                    } else {
                        self.index.lose(Lost::EndArgs, 1);
                    }
                }
            }
            "s" | "t" | "f" => {
                let phase = match &*event.phase {
                    "s" => Phase::Start,
                    "t" => Phase::Step,
                    _ => Phase::Finish,
                };
                let key = hash(&(&*event.category, &*event.name, event.id.as_deref()));
                let or_next = phase == Phase::Finish && !event.binds_enclosing;
                self.loose.push((row, self.arrows.len() as u32, or_next));
                self.arrows.push(End { key, ns, number, phase, slice: None });
            }
            _ => return Ok(Packed::AS_IT_IS),
        }
        Ok(Packed::DONE)
    }

    fn slice(&mut self, row: u32, slice: Slice) {
        if self.slices.len() <= row as usize {
            self.slices.resize_with(row as usize + 1, Vec::new);
        }
        self.slices[row as usize].push(slice);
    }

    /// Adds the arrows that a slice itself names.
    fn bound(&mut self, event: &Event<'_>, ns: i64, number: u32) {
        let phase = match (event.flow_out, event.flow_in) {
            (true, true) => Phase::Step,
            (true, false) => Phase::Start,
            (false, true) => Phase::Finish,
            (false, false) => return,
        };
        let key = hash(&("bind_id", event.bind_id.as_deref()));
        self.arrows.push(End { key, ns, number, phase, slice: Some(number) });
    }

    /// Completes the index.
    pub(super) fn finish(mut self) -> (Index, Join<'a>) {
        let mut edges: Vec<_> = std::mem::take(&mut self.edges).into_iter().collect();
        edges.sort_unstable_by_key(|(row, _)| *row);
        for (row, edges) in edges {
            self.pair(row, edges);
        }
        self.leave_out_copies();
        let Indexer { mut index, slices, mut arrows, mut loose, .. } = self;
        loose.sort_unstable_by_key(|(row, ..)| *row);
        let mut loose = &loose[..];
        let mut too_deep = 0;
        for (row, mut slices) in slices.into_iter().enumerate() {
            let behind = loose.partition_point(|(at, ..)| *at as usize <= row);
            let ends = loose[..behind].iter().filter(|(at, ..)| *at as usize == row);
            let mut here: Vec<Loose> =
                ends.map(|&(_, arrow, or_next)| Loose { ns: arrows[arrow as usize].ns, or_next, arrow }).collect();
            loose = &loose[behind..];
            let fates = &mut index.fates;
            let lanes = lanes::place_and_bind(
                &mut slices,
                &mut here,
                |slice, lane| match lane {
                    Some(lane) => fates[slice.number as usize] = Packed(lane as u16),
                    None => too_deep += 1,
                },
                |arrow, number| arrows[arrow as usize].slice = Some(number),
            );
            index.rows.rows[row].lanes = lanes as u16;
        }
        index.lose(Lost::TooDeep, too_deep);
        let fates = &mut index.fates;
        let (links, count, nowhere) = arrows::link(arrows, |number| fates[number as usize] = Packed::ARROW);
        (index.links, index.arrows) = (links, count);
        index.lose(Lost::ArrowEnd, nowhere);
        if index.first_ns > index.last_ns {
            (index.first_ns, index.last_ns) = (0, 0);
        }
        (index, self.join)
    }

    /// Removes the copies of annotations on streams without work.
    fn leave_out_copies(&mut self) {
        let mut copies = self.copies.find(|row| self.join.has_work(row));
        self.index.copies = copies.len() as u64;
        copies.sort_unstable();
        for of_row in copies.chunk_by(|one, other| one.0 == other.0) {
            of_row.iter().for_each(|(_, number)| self.index.fates[*number as usize] = Packed::LEFT_OUT);
            let fates = &self.index.fates;
            if let Some(slices) = of_row.first().and_then(|(row, _)| self.slices.get_mut(*row as usize)) {
                slices.retain(|slice| fates[slice.number as usize].0 != Packed::LEFT_OUT.0);
            }
        }
    }

    /// Pairs the begins and ends of a row as a reader does: an end closes the innermost open slice.
    fn pair(&mut self, row: u32, mut edges: Vec<Edge>) {
        edges.sort_unstable_by_key(|edge| (edge.ns, edge.number));
        let mut open: Vec<Edge> = Vec::new();
        for edge in edges {
            if edge.is_begin {
                open.push(edge);
                continue;
            }
            match open.pop() {
                Some(begin) => {
                    let args = self.end_args.remove(&edge.number);
                    self.index.ends.insert(begin.number, (edge.ns, args));
                    self.slice(row, Slice { begin_ns: begin.ns, end_ns: edge.ns, number: begin.number });
                }
                None => self.index.lose(Lost::EndWithoutBegin, 1),
            }
        }
        self.index.lose(Lost::NeverEnds, open.len() as u64);
        for begin in open {
            let end_ns = self.index.last_ns;
            self.index.ends.insert(begin.number, (end_ns, None));
            self.slice(row, Slice { begin_ns: begin.ns, end_ns, number: begin.number });
        }
    }
}

/// A hasher that is equal in each run, so that equal inputs give equal outputs.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
