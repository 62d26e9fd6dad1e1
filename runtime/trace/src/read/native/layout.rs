//! The first look at a Perfetto trace: its tracks, and which end belongs to which begin of a slice.
//!
//! A trace that is written while the program runs has begins and ends in the order of time, and an end closes the innermost open slice of its
//! track. PyTorch's profiler writes a group of begins and then the group of their ends, in the same order: there the n-th end belongs to
//! the n-th begin. The order of the times tells them apart, because in a group the times go back.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};

use super::packets::{Stop, next};
use crate::read::budget::MemoryBudget;
use crate::read::document::Refused;
use crate::read::packets::Packets;
use crate::read::parts::{Clocks, Packet, Process, RenderStage, Thread, Track, TrackEvent};
use crate::write::perfetto::proto::event::{SLICE_BEGIN, SLICE_END};

/// The memory limit for the names of tracks.
const NAMES: usize = 64 << 20;

/// The most tracks between a track and its process.
const DEPTH: usize = 16;

/// The end of a slice that never ends. An `Option` would take twice the memory.
const NEVER: u64 = u64::MAX;

/// What must be known of the whole trace before its first event is translated.
#[derive(Debug, Default)]
pub struct Layout {
    pub(super) tracks: HashMap<u64, Track<'static>>,
    /// The end of each begin, in the order of the file; [`NEVER`] for a slice that never ends.
    ends: Vec<u64>,
    /// The ends without a begin, by their number in the file.
    pub(super) lone_ends: HashSet<usize>,
    /// The work that a call submitted, and the work for which other work waits: at both, an arrow begins or ends. Sorted.
    submitted: Vec<u64>,
    waited_for: Vec<u64>,
    /// The earliest time, by the clock of the events.
    first_ns: Option<u64>,
    /// How much later the wall clock is.
    to_wall_ns: Option<i64>,
}

/// A begin or an end.
#[derive(Clone, Copy)]
struct Edge {
    track: u64,
    ns: u64,
    /// Its number among the begins, or among the ends.
    number: usize,
}

/// Begins that follow one another, and the ends that follow them.
#[derive(Default)]
struct Run {
    begins: Vec<Edge>,
    ends: Vec<Edge>,
}

/// What is known while the trace is read.
struct Pairing<'a> {
    /// The largest number of slices, and what to do about more.
    most: usize,
    remedy: &'a str,
    names: MemoryBudget,
    run: Run,
    /// The slices of earlier runs that are still open, by track.
    open: HashMap<u64, Vec<usize>>,
    /// The number of ends so far.
    ends: usize,
}

impl Layout {
    /// Reads the whole trace. `most` is the largest number of slices, and `remedy` what to do about more.
    ///
    /// # Errors
    /// The file cannot be read, is truncated, or is no trace that this reader understands, as [`Refused`] says.
    pub fn read(input: impl Read, most: usize, remedy: &str) -> io::Result<Layout> {
        let (mut packets, mut layout) = (Packets::new(input), Layout::default());
        let mut pairing = Pairing {
            most,
            remedy,
            names: MemoryBudget::new(NAMES),
            run: Run::default(),
            open: HashMap::new(),
            ends: 0,
        };
        while next(&mut packets, |packet| layout.packet(packet, &mut pairing))?.is_some() {}
        layout.pair(&mut pairing);
        for ids in [&mut layout.submitted, &mut layout.waited_for] {
            ids.sort_unstable();
            ids.dedup();
        }
        Ok(layout)
    }

    fn packet(&mut self, packet: &Packet<'_>, pairing: &mut Pairing<'_>) -> Result<(), Stop> {
        if let Some(track) = packet.track()? {
            let name = track.name.len().max(track.thread.as_ref().map_or(0, |thread| thread.name.len()));
            if !pairing.names.spend(name + 256) {
                let text =
                    format!("more names of tracks than {} MiB; is this a trace of PyTorch's profiler?", NAMES >> 20);
                return Err(Stop::Full(io::Error::other(Refused(text))));
            }
            self.tracks.insert(track.uuid, kept(track));
        }
        let ns = packet.timestamp;
        self.first_ns = ns.into_iter().chain(self.first_ns).min();
        if let (None, Clocks { real_ns: Some(real_ns), boot_ns: Some(boot_ns), .. }) =
            (self.to_wall_ns, packet.clocks()?)
        {
            self.to_wall_ns = Some(real_ns.wrapping_sub(boot_ns));
        }
        if let Some(stage) = packet.stage {
            self.waited_for.extend(RenderStage::read(stage)?.waits_for()?);
        }
        let Some(event) = packet.event else { return self.check_arrows(pairing) };
        let event = TrackEvent::read(event)?;
        self.submitted.extend(event.submitted()?);
        let edge = |number| Edge { track: event.track, ns: ns.unwrap_or(0), number };
        match event.kind {
            SLICE_BEGIN => {
                if !pairing.run.ends.is_empty() {
                    self.pair(pairing);
                }
                if self.ends.len() == pairing.most {
                    return Err(pairing.full("slices"));
                }
                pairing.run.begins.push(edge(self.ends.len()));
                self.ends.push(NEVER);
            }
            SLICE_END => {
                pairing.run.ends.push(edge(pairing.ends));
                pairing.ends += 1;
            }
            _ => {}
        }
        self.check_arrows(pairing)
    }

    fn check_arrows(&self, pairing: &Pairing<'_>) -> Result<(), Stop> {
        if self.submitted.len() + self.waited_for.len() > pairing.most { Err(pairing.full("arrows")) } else { Ok(()) }
    }

    /// Pairs the begins and ends of a run, and empties it.
    fn pair(&mut self, Pairing { run, open, .. }: &mut Pairing<'_>) {
        if run.is_group() {
            for (begin, end) in run.begins.drain(..).zip(run.ends.drain(..)) {
                self.ends[begin.number] = end.ns;
            }
            return;
        }
        for begin in run.begins.drain(..) {
            open.entry(begin.track).or_default().push(begin.number);
        }
        for end in run.ends.drain(..) {
            match open.get_mut(&end.track).and_then(Vec::pop) {
                Some(begin) => self.ends[begin] = end.ns,
                None => {
                    self.lone_ends.insert(end.number);
                }
            }
        }
    }

    /// The end of the n-th begin, from 0; none for a slice that never ends.
    pub(super) fn end(&self, begin: usize) -> Option<u64> {
        self.ends.get(begin).copied().filter(|end| *end != NEVER)
    }

    /// Whether a call submitted the work with this id.
    pub(super) fn is_submitted(&self, id: u64) -> bool {
        self.submitted.binary_search(&id).is_ok()
    }

    /// Whether other work waits for the work with this id.
    pub(super) fn is_waited_for(&self, id: u64) -> bool {
        self.waited_for.binary_search(&id).is_ok()
    }

    /// The earliest time of the trace, by the clock of its events.
    pub(super) fn first_ns(&self) -> u64 {
        self.first_ns.unwrap_or(0)
    }

    /// The wall clock at that time, if the trace says it.
    pub(super) fn base_ns(&self) -> Option<i64> {
        i64::try_from(self.first_ns?).ok()?.checked_add(self.to_wall_ns?)
    }

    /// The process of a track: its descriptor's, or that of the tracks around it.
    pub(super) fn pid(&self, track: &Track<'_>) -> Option<i32> {
        self.around(track).find_map(|track| {
            let (thread, process) = (track.thread.as_ref(), track.process.as_ref());
            thread.map(|thread| thread.pid).or(process.map(|process| process.pid))
        })
    }

    /// The device whose tracks are in this one's process, such as `GPU 0`.
    pub(super) fn device(&self, track: &Track<'_>) -> Option<&str> {
        let uuid = self.around(track).find(|track| track.process.is_some())?.uuid;
        let name = &*self.tracks.get(&uuid)?.process.as_ref()?.name;
        name.strip_prefix("GPU ").filter(|number| number.parse::<u32>().is_ok()).map(|_| name)
    }

    /// The track, and those around it.
    fn around<'a>(&'a self, track: &'a Track<'_>) -> impl Iterator<Item = &'a Track<'a>> {
        std::iter::successors(Some(track), |track| self.tracks.get(&track.parent)).take(DEPTH)
    }
}

/// A track that is kept longer than its packet.
fn kept(track: Track<'_>) -> Track<'static> {
    let Track { uuid, parent, name, process, thread, merge_key } = track;
    let process = process.map(|of| Process { pid: of.pid, name: of.name.into_owned().into() });
    let thread = thread.map(|of| Thread { pid: of.pid, tid: of.tid, name: of.name.into_owned().into() });
    Track { uuid, parent, name: name.into_owned().into(), process, thread, merge_key }
}

impl Pairing<'_> {
    fn full(&self, of: &str) -> Stop {
        Stop::Full(io::Error::other(Refused(format!("more than {} {of}; {}", self.most, self.remedy))))
    }
}

impl Run {
    /// Whether the n-th end belongs to the n-th begin.
    fn is_group(&self) -> bool {
        let belongs = |(begin, end): (&Edge, &Edge)| begin.track == end.track && begin.ns <= end.ns;
        let mut edges = self.begins.iter().chain(&self.ends);
        let in_order = edges.clone().skip(1).all(|edge| edges.next().is_some_and(|before| before.ns <= edge.ns));
        self.begins.len() == self.ends.len() && !in_order && self.begins.iter().zip(&self.ends).all(belongs)
    }
}
