//! Pairs the begins and ends of slices, and the ends of arrows.

use warpline_core::record::Span;

use super::super::kinds::{Args, Kind};
use super::super::wire::Fields;
use super::sequence::{Flows, Open, add_field, annotate};
use super::{Arrow, Reader, Slice, Stop, Visitor};
use crate::write::perfetto::proto::event;
use warpline_report::names::{Name, Names};

/// The most slices that are open at once: on one sequence, and on all of them.
const OPEN: usize = 4_096;
const OPEN_IN_ALL: usize = 1 << 18;

/// The name of the group of the counters of device memory.
const MEMORY: &str = "memory";

impl<V: Visitor> Reader<'_, V> {
    pub(super) fn event(&mut self, on: usize, ns: Option<i64>, bytes: &[u8], names: &mut Names) -> Result<(), Stop> {
        let Some(sequence) = self.sequences.get_mut(on) else { return Ok(()) };
        let (mut kind, mut name, mut uuid, mut what) = (Kind::Other, Name::default(), sequence.track, 0);
        let mut flows = Flows::default();
        let (is_ours, mut category) = (self.skipped.is_ours, Name::default());
        let (mut is_session, mut own_name, mut counted, mut has_args) = (false, None, None, false);
        for read in Fields(bytes) {
            let (number, value) = read?;
            match number {
                event::TYPE => what = value.int(),
                event::CATEGORY_IIDS => {
                    (kind, category) = sequence.categories.get(value.int()).copied().unwrap_or((kind, category));
                }
                event::CATEGORIES => {
                    kind = Kind::of_category(&value.text());
                    if kind == Kind::Other && !is_ours {
                        category = names.number(&value.text())?;
                    }
                    is_session = kind == Kind::Session;
                }
                event::NAME_IID => name = sequence.event_names.get(value.int()).copied().unwrap_or_default(),
                event::NAME => own_name = Some(value),
                event::TRACK_UUID => uuid = value.int(),
                event::FLOW_IDS => flows.out = value.int(),
                event::TERMINATING_FLOW_IDS => flows.into = value.int(),
                event::COUNTER_VALUE => counted = Some(value.int()),
                event::ANNOTATIONS if !is_session => {
                    if !has_args {
                        self.args = Args::default();
                        has_args = true;
                    }
                    annotate(value.bytes(), sequence, &mut self.args, names)?;
                    if self.wants_fields {
                        add_field(value.bytes(), sequence, &mut self.args, names)?;
                    }
                }
                _ => {}
            }
        }
        // The names of a session's steps have their numbers, and are of no use here.
        if let Some(own) = own_name.filter(|_| kind != Kind::Step) {
            name = names.number(&own.text())?;
        }
        match what {
            event::SLICE_BEGIN => {
                let has_room = sequence.open.len() < OPEN && self.open < OPEN_IN_ALL;
                let Some(begin_ns) = ns.filter(|_| has_room) else {
                    self.skipped.unplaced += 1;
                    return Ok(());
                };
                let args = if has_args { self.args.clone() } else { Args::default() };
                self.open += 1;
                sequence.open.push(Open { track: uuid, kind, category, name, begin_ns, flows, args });
            }
            event::SLICE_END => {
                let at = sequence.open.iter().rposition(|open| open.track == uuid);
                self.open -= usize::from(at.is_some());
                match at.map(|at| sequence.open.remove(at)).zip(ns) {
                    Some((open, end_ns)) if end_ns >= open.begin_ns => self.slice(open, end_ns, names)?,
                    _ => self.skipped.unpaired += 1,
                }
            }
            event::INSTANT if is_session => self.session(name, ns.unwrap_or(0), bytes, names)?,
            event::INSTANT if kind == Kind::Signal => self.arrow_end(uuid, ns, flows, names),
            event::COUNTER => self.counter(uuid, ns.zip(counted), names),
            _ => {}
        }
        Ok(())
    }

    /// A value of a counter. Those of device memory are in a group of their own.
    fn counter(&mut self, uuid: u64, counted: Option<(i64, u64)>, names: &Names) {
        let Some((ns, value)) = counted else { return };
        let Some(track) = self.tracks.get(&uuid) else { return };
        if self.tracks.get(&track.parent).is_some_and(|group| &**names.text(group.name) == MEMORY) {
            self.visitor.memory(names.text(track.name), ns, value);
        }
    }

    fn slice(&mut self, open: Open, end_ns: i64, names: &mut Names) -> Result<(), Stop> {
        let Open { track, mut kind, category, name, begin_ns, flows, mut args } = open;
        if !self.skipped.is_ours {
            let (category, name) = (names.text(category).clone(), names.text(name).clone());
            let read = self.others.kind((kind, &category, &name), &mut args, self.visitor, names)?;
            let Some(read) = read else { return Ok(()) };
            kind = read;
        }
        let Some(row) = self.row(track, names) else {
            self.skipped.unplaced += 1;
            return Ok(());
        };
        let span = Span { begin_ns, end_ns };
        let flow = flows.out.max(flows.into);
        if kind == Kind::Launch {
            self.launch = Some((flow, row, span));
        }
        let launch = self.launch.filter(|(of, ..)| *of == flow && flow != 0 && kind != Kind::Launch);
        let launch = launch.map(|(_, row, span)| (row, span));
        let mut slice = Slice { kind, name, row, span, launch, args: &args };
        if !self.skipped.is_ours {
            let passed = self.others.launched(Name::default(), slice, self.visitor, (&self.rows, names));
            let Some(passed) = passed else { return Ok(()) };
            slice = passed;
        }
        if kind == Kind::Wait {
            self.wait = Some((row, span, slice.early_by_ns()));
        }
        self.visitor.slice(&slice, &self.rows, names);
        Ok(())
    }

    /// A signal, or the end of the wait that it ended.
    fn arrow_end(&mut self, uuid: u64, ns: Option<i64>, flows: Flows, names: &Names) {
        let Some((row, ns)) = self.row(uuid, names).zip(ns) else { return };
        if flows.out != 0 {
            self.signal = Some((flows.out, row, ns));
        } else if let (Some((flow, from, at_ns)), Some((on, wait, early_by_ns))) = (self.signal, self.wait)
            && flow == flows.into
            && on == row
        {
            self.visitor.arrow(&Arrow { on, wait, early_by_ns, from, at_ns }, &self.rows);
        }
    }
}
