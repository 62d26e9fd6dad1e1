//! The zones of captured streams, until their graph is registered.
//!
//! Launching threads call [`captured`] at the end of a captured zone, and [`spanned`] at the end of a zone in which a capture began and
//! ended. Nothing here calls the driver about a graph, or keeps one alive. A capture is identified by its id, which the driver never
//! reuses. A capture that is aborted, or whose graph is never registered, is kept until there are more than [`MOST_CAPTURES`] captures or
//! [`MOST_ZONES`] zones. Discarded captures are counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use super::captured_zone::{Capture, CapturedZone, Streams};
use super::label::ZoneLabel;
use super::registry;
use crate::capture::Mark;
use crate::graph_api::Handle;
use crate::stamps;
use warpline_core::backend::EndedZone;
use warpline_core::clock::now_ns;
use warpline_core::fork::PerProcess;
use warpline_core::lock::lock;

/// The maximum number of captures that wait for their graph to be registered.
const MOST_CAPTURES: usize = 256;
/// The maximum number of zones in all of them.
const MOST_ZONES: usize = 1 << 16;

/// When the last zone of a capture ended. Timed zones read it to decide whether they must look further.
static LATEST_NS: AtomicI64 = AtomicI64::new(i64::MIN);

/// This lock is taken before the registry's.
static CAPTURES: PerProcess<Mutex<Captures>> = PerProcess::new(Mutex::default);

#[derive(Default)]
struct Captures {
    /// Oldest first.
    waiting: VecDeque<Capture>,
    zones: usize,
    /// Captures that were discarded with their zones since the last note.
    evicted: u64,
}

/// Adds an ended zone that was captured, or whose stream is being captured. Returns whether its position is known.
pub fn captured(stream: Handle, begin: Option<Mark>, end: Option<Mark>, zone: EndedZone<'_>) -> bool {
    let Some((id, graph)) = begin.as_ref().or(end.as_ref()).map(|mark| (mark.place.capture, mark.place.graph)) else {
        return false;
    };
    if begin.is_none() || end.is_none() {
        stamps::spans();
    }
    lock(&CAPTURES).add(
        id,
        graph,
        CapturedZone { stream, begin, begin_ns: zone.begin_ns, end, label: label(stream, zone), nodes: None },
    );
    LATEST_NS.fetch_max(now_ns(), Ordering::Relaxed);
    true
}

/// Returns whether a zone of a capture has ended since then.
#[inline]
pub fn captured_since(ns: i64) -> bool {
    LATEST_NS.load(Ordering::Relaxed) > ns
}

/// Adds an ended zone with times to the captures of its stream that began and ended in it.
#[cold]
pub fn spanned(stream: Handle, zone: EndedZone<'_>) {
    let zone = CapturedZone {
        stream,
        begin: None,
        begin_ns: zone.begin_ns,
        end: None,
        label: label(stream, zone),
        nodes: None,
    };
    let mut captures = lock(&CAPTURES);
    let mut added = 0;
    for capture in captures.waiting.iter_mut().filter(|capture| capture.streams.are_inside(&zone)) {
        capture.push(zone.clone());
        added += 1;
    }
    captures.zones += added;
    drop(captures);
    registry::add_around(&zone);
}

/// Takes the zones of the latest capture into a graph. Older captures were aborted, and the driver reused their handle. So was the latest
/// one if the graph lacks a node of it. Nothing is kept of aborted captures.
pub(super) fn take(graph: Handle, has: impl Fn(Handle) -> bool) -> Option<Capture> {
    let mut captures = lock(&CAPTURES);
    let (taken, left): (VecDeque<_>, VecDeque<_>) =
        std::mem::take(&mut captures.waiting).into_iter().partition(|capture| capture.graph == graph);
    captures.waiting = left;
    captures.zones -= taken.iter().map(|capture| capture.zones.len()).sum::<usize>();
    drop(captures);
    let is_of_graph = |capture: &Capture| {
        let marks = capture.zones.iter().flat_map(|zone| [&zone.begin, &zone.end]).flatten();
        marks.flat_map(|mark| mark.place.frontier.iter()).all(|node| has(*node))
    };
    taken.into_iter().max_by_key(|capture| capture.id).filter(is_of_graph)
}

/// Returns the report's note on discarded captures, with a remedy.
pub(super) fn note() -> Option<String> {
    let evicted = std::mem::take(&mut lock(&CAPTURES).evicted);
    (evicted > 0).then(|| {
        format!(
            "zones of {evicted} captured graphs were discarded, because the graphs were not registered: pass each one to \
             `warpline::graph::GraphZones::for_graph` after its capture"
        )
    })
}

impl Captures {
    fn add(&mut self, id: u64, graph: Handle, zone: CapturedZone) {
        match self.waiting.iter_mut().rev().find(|capture| capture.id == id) {
            Some(capture) => capture.push(zone),
            // The graph may have been registered while the zone was open.
            None => match registry::add(id, graph, zone) {
                None => return,
                Some(zone) => {
                    let mut capture = Capture { id, graph, zones: Vec::new(), streams: Streams::default() };
                    capture.push(zone);
                    self.waiting.push_back(capture);
                }
            },
        }
        self.zones += 1;
        while self.waiting.len() > MOST_CAPTURES || self.zones > MOST_ZONES {
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.zones -= oldest.zones.len();
            self.evicted += 1;
        }
    }
}

/// Returns a zone's label in the graph into which this stream is captured.
fn label(stream: Handle, zone: EndedZone<'_>) -> ZoneLabel {
    ZoneLabel {
        range: zone.range,
        label: zone.fields.label().map(Arc::from),
        lane: zone.fields.lane(),
        fields: zone.fields.iter().map(|(name, value)| (name, value.clone())).collect(),
        entries: zone.entries.to_vec().into(),
        message: zone.message.cloned().map(Arc::new),
        status: zone.status,
        stream,
    }
}
