//! Finds the row of an event: its track is described by packets of their own, and the tracks around it say which stream or thread it is of.

use super::super::parts::Track as Described;
use super::super::rows::{Place, Stream, TraceRow, device_of};
use super::{Fact, Reader, Stop, Visitor};
use warpline_report::names::{Name, Names};

/// The most tracks between a row and its process.
const DEPTH: usize = 16;

/// A track as it was described, and its row once it has slices.
#[derive(Default)]
pub(super) struct Track {
    pub(super) parent: u64,
    pub(super) name: Name,
    is_process: bool,
    thread: Option<u64>,
    merge_key: u64,
    row: Option<usize>,
}

impl<V: Visitor> Reader<'_, V> {
    pub(super) fn describe(&mut self, bytes: &[u8], names: &mut Names) -> Result<(), Stop> {
        let Described { uuid, parent, name, process, thread, merge_key } = Described::read(bytes)?;
        let name = thread.as_ref().map_or(name, |thread| thread.name.clone());
        if let Some(process) = &process {
            self.visitor.fact(Fact::Process(process.pid));
        }
        let described = Track {
            parent,
            name: names.number(&name)?,
            is_process: process.is_some(),
            thread: thread.map(|thread| thread.tid as u64),
            merge_key,
            row: None,
        };
        match self.tracks.get_mut(&uuid) {
            // A further piece of the trace describes it again.
            Some(known) => *known = Track { row: known.row, ..described },
            None => {
                names.spend(size_of::<Track>())?;
                self.tracks.insert(uuid, described);
            }
        }
        Ok(())
    }

    /// Returns the row of a track; none if there are too many.
    pub(super) fn row(&mut self, uuid: u64, names: &Names) -> Option<usize> {
        if let Some(row) = self.tracks.get(&uuid).and_then(|track| track.row) {
            return Some(row);
        }
        let group = self.first_lane(uuid);
        let mut around: Vec<u64> = Vec::new();
        let mut next = group;
        while around.len() < DEPTH
            && let Some(track) = self.tracks.get(&next)
        {
            around.push(next);
            if let Some(thread) = track.thread {
                let name = names.text(track.name).clone();
                return self.keep(uuid, TraceRow { place: Place::Thread(thread), name, group });
            }
            next = track.parent;
        }
        if around.last().and_then(|last| self.tracks.get(last)).is_some_and(|last| last.is_process) {
            around.pop();
        }
        let name =
            |uuid: &u64| self.tracks.get(uuid).map_or_else(Default::default, |track| names.text(track.name).clone());
        let own = around.first().map_or_else(|| "".into(), name);
        let place = match around[..] {
            [.., stream, device] => {
                let stream = self.first_lane(stream);
                let (stream_name, device) = (name(&stream), name(&device));
                let place = match self.streams.get(&stream) {
                    Some(known) => *known,
                    None => {
                        let (device, ordinal) = device_of(&device);
                        let ordinal = ordinal.unwrap_or(0);
                        let added = self.rows.add_stream(Stream { name: stream_name, device, ordinal });
                        self.streams.insert(stream, added);
                        added
                    }
                };
                Place::Stream(place)
            }
            _ => Place::Other,
        };
        self.keep(uuid, TraceRow { place, name: own, group })
    }

    /// The first track of those that are drawn as one: a session takes its number for their key. It is beside the others, or, of a thread, around them.
    /// The track itself if it is alone.
    fn first_lane(&self, uuid: u64) -> u64 {
        let first = self.tracks.get(&uuid).filter(|track| track.merge_key != 0).and_then(|track| {
            let first = self.tracks.get(&track.merge_key)?;
            (first.parent == track.parent || track.merge_key == track.parent).then_some(track.merge_key)
        });
        first.unwrap_or(uuid)
    }

    fn keep(&mut self, uuid: u64, row: TraceRow) -> Option<usize> {
        let added = self.rows.add(row)?;
        self.tracks.entry(uuid).or_default().row = Some(added);
        Some(added)
    }
}
