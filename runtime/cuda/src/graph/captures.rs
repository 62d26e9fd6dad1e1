//! What zones noted while their streams were captured, until the graph is registered.
//!
//! Launching threads call [`captured`] when a zone ends that was captured, and [`spanned`] when one ends in which a capture
//! began and ended. Nothing here calls the driver about a graph, or keeps one alive. A capture is known by its id, which the
//! driver never gives twice. One that is aborted, or whose graph nobody registers, stays until [`MOST_CAPTURES`] or
//! [`MOST_ZONES`] newer ones have come; what is let go of is counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::captured_zone::{Capture, CapturedZone, Streams};
use super::label::ZoneLabel;
use super::registry;
use crate::capture::Mark;
use crate::graphs::Handle;
use crate::stamps;
use warpline_core::backend::EndedZone;
use warpline_core::clock::now_ns;
use warpline_core::fork::PerProcess;

/// Captures that wait for their graph to be registered.
const MOST_CAPTURES: usize = 256;
/// Zones of all of them.
const MOST_ZONES: usize = 1 << 16;

/// When the last zone of a capture ended; zones that are timed look here whether they have to look further.
static LATEST_NS: AtomicI64 = AtomicI64::new(i64::MIN);

static CAPTURES: PerProcess<Mutex<Captures>> = PerProcess::new(Mutex::default);

#[derive(Default)]
struct Captures {
    /// Oldest first.
    waiting: VecDeque<Capture>,
    zones: usize,
    /// Captures that were let go of with their zones since somebody asked.
    evicted: u64,
}

/// A zone ends that was captured, or whose stream is being captured now. Says whether it is known where it stands.
pub fn captured(stream: Handle, begin: Option<Mark>, end: Option<Mark>, zone: EndedZone<'_>) -> bool {
    let Some((id, graph)) = begin.as_ref().or(end.as_ref()).map(|mark| (mark.place.capture, mark.place.graph)) else {
        return false;
    };
    if begin.is_none() || end.is_none() {
        stamps::spans();
    }
    lock().add(id, graph, CapturedZone { stream, begin, begin_ns: zone.begin_ns, end, label: zone.into() });
    LATEST_NS.fetch_max(now_ns(), Ordering::Relaxed);
    true
}

/// Whether a zone of a capture has ended since then.
#[inline]
pub fn captured_since(ns: i64) -> bool {
    LATEST_NS.load(Ordering::Relaxed) > ns
}

/// A zone with times ends, and so have captures since it began: those of its stream are captured in it.
#[cold]
pub fn spanned(stream: Handle, zone: EndedZone<'_>) {
    let zone = CapturedZone { stream, begin: None, begin_ns: zone.begin_ns, end: None, label: zone.into() };
    let mut captures = lock();
    let mut added = 0;
    for capture in captures.waiting.iter_mut().filter(|capture| capture.streams.are_inside(&zone)) {
        capture.push(zone.clone());
        added += 1;
    }
    captures.zones += added;
    drop(captures);
    registry::add_around(&zone);
}

/// What was noted of the latest capture into a graph. Older ones were aborted, and the driver gave their handle again; so was
/// this one if a node of it is not in the graph. Of those nothing is left.
pub(super) fn take(graph: Handle, has: impl Fn(Handle) -> bool) -> Option<Capture> {
    let mut captures = lock();
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

/// For the report of a session: what was let go of, with the remedy.
pub(super) fn note() -> Option<String> {
    let evicted = std::mem::take(&mut lock().evicted);
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

impl From<EndedZone<'_>> for ZoneLabel {
    fn from(zone: EndedZone<'_>) -> ZoneLabel {
        ZoneLabel {
            range: zone.range,
            label: zone.fields.label().map(Arc::from),
            fields: zone.fields.iter().map(|(name, value)| (name, value.clone())).collect(),
            entries: zone.entries.to_vec().into(),
            message: zone.message.cloned().map(Arc::new),
            status: zone.status,
        }
    }
}

/// No code of a user's runs under this lock, and it is taken before the registry's.
fn lock() -> MutexGuard<'static, Captures> {
    CAPTURES.lock().unwrap_or_else(PoisonError::into_inner)
}
