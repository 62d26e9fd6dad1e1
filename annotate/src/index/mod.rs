//! The first reading of a trace: what must be known of all of it before any of it can be written.
//!
//! For each event it keeps what becomes of it (two bytes), for each slice where it is (24 bytes), for each end of an arrow
//! and each kernel of a graph some more; nothing of what is in them. Events are known by their number in the file, so that
//! the second reading finds them again. It reads the whole file, so a file that is cut short or damaged is found out before
//! anything is written.

mod arrows;
mod lanes;
mod rows;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::event::Event;
use super::input::MemoryBudget;
use super::join::Join;

pub(super) use arrows::Link;
use arrows::{End, Phase};
use lanes::Loose;
pub(super) use lanes::{Slice, place};
pub(super) use rows::{Rows, TooMany};

/// Memory for the names of processes and rows.
const NAMES: usize = 256 << 20;
/// Memory for arguments that stand at the ends of slices and are shown with them.
const END_ARGS: usize = 64 << 20;

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    /// A slice, on this lane of its row.
    Slice(u16),
    /// What its phase says: an instant, a counter, metadata.
    AsItIs,
    /// An end of an arrow with no slice at it.
    Arrow,
    /// It is in what other events become, or counted as lost.
    Done,
}

/// A fate in two bytes.
#[derive(Clone, Copy, Debug)]
struct Packed(u16);

impl Packed {
    const AS_IT_IS: Packed = Packed(u16::MAX);
    const ARROW: Packed = Packed(u16::MAX - 1);
    const DONE: Packed = Packed(u16::MAX - 2);

    fn open(self) -> Disposition {
        match self.0 {
            0xFFFF => Disposition::AsItIs,
            0xFFFE => Disposition::Arrow,
            0xFFFD => Disposition::Done,
            lane => Disposition::Slice(lane),
        }
    }
}

/// Why events are not in the output as they are in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Lost {
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
    /// What the command prints, followed by the count.
    pub(super) fn text(self) -> &'static str {
        match self {
            Lost::NoTime => "events without a time, left out",
            Lost::BeforeZero => "events before the time 0, left out",
            Lost::EndWithoutBegin => "ends of slices without a begin, left out",
            Lost::NeverEnds => "slices without an end, drawn to the end of the trace",
            Lost::TooDeep => "slices on a row where more than 1000 overlap, left out",
            Lost::ArrowEnd => "arrows with only one end in the input, which no reader draws",
            Lost::EndArgs => "arguments at the ends of slices, left out because the memory for them is used up",
            Lost::CounterText => "values of counters that are not numbers, or of too many counters, left out",
        }
    }
}

/// The begin or end of a slice that has both as events of their own.
#[derive(Clone, Copy)]
struct Edge {
    ns: i64,
    number: u32,
    is_begin: bool,
}

/// What the first reading found.
pub(super) struct Index {
    fates: Vec<Packed>,
    pub(super) rows: Rows,
    pub(super) links: Vec<Link>,
    /// How many arrows there are.
    pub(super) arrows: u32,
    /// Ends of slices that are events of their own, and the arguments that stand there, by the number of their begin.
    pub(super) ends: HashMap<u32, (i64, Option<Box<str>>)>,
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    pub(super) lost: HashMap<Lost, u64>,
    /// All times, hashed.
    contents: u64,
}

impl Index {
    pub(super) fn events(&self) -> usize {
        self.fates.len()
    }

    /// What becomes of this event; none if the file had fewer when it was read first.
    pub(super) fn fate(&self, number: usize) -> Option<Disposition> {
        self.fates.get(number).map(|fate| fate.open())
    }

    /// A number that other traces do not have.
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

/// Reads events into an index.
pub(super) struct Indexer<'a> {
    index: Index,
    join: Join<'a>,
    /// By row.
    slices: Vec<Vec<Slice>>,
    edges: HashMap<u32, Vec<Edge>>,
    /// Arguments at ends, by the number of the end.
    end_args: HashMap<u32, Box<str>>,
    arrows: Vec<End>,
    /// The rows of ends of arrows that are events of their own, and whether the next slice will do.
    loose: Vec<(u32, Loose)>,
    args_purse: MemoryBudget,
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
                contents: 0,
            },
            join,
            slices: Vec::new(),
            edges: HashMap::new(),
            end_args: HashMap::new(),
            arrows: Vec::new(),
            loose: Vec::new(),
            args_purse: MemoryBudget::new(END_ARGS),
        }
    }

    pub(super) fn events(&self) -> usize {
        self.index.events()
    }

    /// Takes the next event.
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
                self.join.slice(event, number, process, (ns, end_ns));
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
                self.loose.push((row, Loose { ns, or_next, arrow: self.arrows.len() }));
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

    /// The arrows that a slice names itself.
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

    /// Puts everything into its place.
    pub(super) fn finish(mut self) -> (Index, Join<'a>) {
        let mut edges: Vec<_> = std::mem::take(&mut self.edges).into_iter().collect();
        edges.sort_unstable_by_key(|(row, _)| *row);
        for (row, edges) in edges {
            self.pair(row, edges);
        }
        let Indexer { mut index, slices, mut arrows, mut loose, .. } = self;
        loose.sort_unstable_by_key(|(row, _)| *row);
        let mut loose = &loose[..];
        let mut too_deep = 0;
        for (row, mut slices) in slices.into_iter().enumerate() {
            let behind = loose.partition_point(|(at, _)| *at as usize <= row);
            let mut here: Vec<Loose> =
                loose[..behind].iter().filter(|(at, _)| *at as usize == row).map(|(_, end)| *end).collect();
            loose = &loose[behind..];
            let fates = &mut index.fates;
            let lanes = lanes::place_and_bind(
                &mut slices,
                &mut here,
                |slice, lane| match lane {
                    Some(lane) => fates[slice.number as usize] = Packed(lane as u16),
                    None => too_deep += 1,
                },
                |arrow, number| arrows[arrow].slice = Some(number),
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

    /// Pairs the begins and ends of a row as a reader does: an end closes the innermost slice that is open.
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

/// Equal in each run, so that one trace becomes one file.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
