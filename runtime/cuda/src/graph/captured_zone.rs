//! The positions of a zone in a capture. `captures` keeps them until the graph is registered, and the graph keeps them afterwards.

use std::sync::Arc;

use super::label::ZoneLabel;
use crate::capture::Mark;
use crate::graph_api::Handle;

/// A zone in a capture, or a label of nodes that were not captured.
#[derive(Clone, Debug)]
pub(super) struct CapturedZone {
    pub(super) stream: Handle,
    /// None if the zone began before its stream was captured.
    pub(super) begin: Option<Mark>,
    pub(super) begin_ns: i64,
    /// None if the zone ended after the capture.
    pub(super) end: Option<Mark>,
    pub(super) label: ZoneLabel,
    /// The nodes of a zone that was not captured, but given to nodes as a label.
    pub(super) nodes: Option<Arc<[Handle]>>,
}

/// The zones of one capture.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) id: u64,
    pub(super) graph: Handle,
    pub(super) zones: Vec<CapturedZone>,
    pub(super) streams: Streams,
}

/// The begin of the latest zone on each stream of a capture.
#[derive(Debug, Default)]
pub(super) struct Streams(Vec<(Handle, i64)>);

impl Streams {
    pub(super) fn note(&mut self, zone: &CapturedZone) {
        match self.0.iter_mut().find(|(stream, _)| *stream == zone.stream) {
            Some((_, latest_ns)) => *latest_ns = zone.begin_ns.max(*latest_ns),
            None => self.0.push((zone.stream, zone.begin_ns)),
        }
    }

    pub(super) fn join(&mut self, other: &Streams) {
        self.0.extend(&other.0);
    }

    /// Returns whether a zone of the capture began on this zone's stream after this zone.
    pub(super) fn are_inside(&self, zone: &CapturedZone) -> bool {
        self.0.iter().any(|(stream, latest_ns)| *stream == zone.stream && *latest_ns > zone.begin_ns)
    }
}

impl Capture {
    pub(super) fn push(&mut self, zone: CapturedZone) {
        self.streams.note(&zone);
        self.zones.push(zone);
    }
}
