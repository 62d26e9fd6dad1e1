//! The first look at a Perfetto trace: its tracks, and which end belongs to which begin of a slice.
//!
//! A trace that is written while the program runs has begins and ends in the order of time, and an end closes the innermost open slice of its
//! track. PyTorch's profiler writes a group of begins and then the group of their ends, in the same order: there the n-th end belongs to
//! the n-th begin. The order of the times tells them apart, because in a group the times go back.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead};

use super::packets::Packets;
use super::proto::{SLICE_BEGIN, SLICE_END, TrackDescriptor};
use crate::read::budget::MemoryBudget;
use crate::read::document::Refused;

/// The memory limit for the names of tracks.
const NAMES: usize = 64 << 20;

/// The most tracks between a track and its process.
const DEPTH: usize = 16;

/// The end of a slice that never ends. An `Option` would take twice the memory.
const NEVER: u64 = u64::MAX;

/// What must be known of the whole trace before its first event is translated.
#[derive(Debug, Default)]
pub struct Layout {
    pub(super) tracks: HashMap<u64, TrackDescriptor>,
    /// The end of each begin, in the order of the file; [`NEVER`] for a slice that never ends.
    ends: Vec<u64>,
    /// The ends without a begin, by their number in the file.
    pub(super) lone_ends: HashSet<usize>,
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

impl Layout {
    /// Reads the whole trace. `most` is the largest number of slices.
    pub fn read(input: impl BufRead, most: usize) -> io::Result<Layout> {
        let (mut packets, mut layout) = (Packets::new(input), Layout::default());
        let (mut run, mut open, mut ends) = (Run::default(), HashMap::new(), 0);
        let names = MemoryBudget::new(NAMES);
        while let Some(packet) = packets.next_packet()? {
            if let Some(track) = packet.track {
                let name = track.name.len().max(track.thread.as_ref().map_or(0, |thread| thread.name.len()));
                if !names.spend(name + 256) {
                    return Err(io::Error::other(Refused(format!(
                        "more names of tracks than {} MiB; is this a trace of PyTorch's profiler?",
                        NAMES >> 20
                    ))));
                }
                layout.tracks.insert(track.uuid, track);
            }
            let Some(event) = packet.event else { continue };
            let edge = |number| Edge { track: event.track, ns: packet.timestamp, number };
            match event.kind {
                SLICE_BEGIN => {
                    if !run.ends.is_empty() {
                        layout.pair(&mut run, &mut open);
                    }
                    if layout.ends.len() == most {
                        return Err(io::Error::other(format!(
                            "more than {most} slices; raise the limit with `--limit`"
                        )));
                    }
                    run.begins.push(edge(layout.ends.len()));
                    layout.ends.push(NEVER);
                }
                SLICE_END => {
                    run.ends.push(edge(ends));
                    ends += 1;
                }
                _ => {}
            }
        }
        layout.pair(&mut run, &mut open);
        Ok(layout)
    }

    /// Pairs the begins and ends of a run, and empties it. `open` has the slices of earlier runs that are still open, by track.
    fn pair(&mut self, run: &mut Run, open: &mut HashMap<u64, Vec<usize>>) {
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

    /// The process of a track: its descriptor's, or that of the tracks around it.
    pub(super) fn pid(&self, track: &TrackDescriptor) -> Option<i32> {
        self.around(track).find_map(|track| {
            let (thread, process) = (track.thread.as_ref(), track.process.as_ref());
            thread.map(|thread| thread.pid).or(process.map(|process| process.pid))
        })
    }

    /// The device whose tracks are in this one's process, such as `GPU 0`.
    pub(super) fn device(&self, track: &TrackDescriptor) -> Option<&str> {
        let uuid = self.around(track).find(|track| track.process.is_some())?.uuid;
        let name = self.tracks.get(&uuid)?.process.as_ref()?.name.as_str();
        name.strip_prefix("GPU ").filter(|number| number.parse::<u32>().is_ok()).map(|_| name)
    }

    /// The track, and those around it.
    fn around<'a>(&'a self, track: &'a TrackDescriptor) -> impl Iterator<Item = &'a TrackDescriptor> {
        std::iter::successors(Some(track), |track| self.tracks.get(&track.parent)).take(DEPTH)
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
