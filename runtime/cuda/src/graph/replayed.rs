//! The record of a captured zone in one replay, as sinks get it. The module that timed the zone calls [`replayed`]. A batch of collectives
//! comes with its entries, like one that was not captured.

use std::sync::Arc;

use super::label::ZoneLabel;
use super::plan::lane_of;
use warpline_core::catalog::RangeSpec;
use warpline_core::collective::Message;
use warpline_core::fields::{Fields, IntoValue, Value};
use warpline_core::record::{EndSource, Shares, Span, StreamInfo, ThreadInfo, ZoneRecord};
use warpline_core::replay::ReplayedZone;

/// The time and place of a captured zone in a replay.
pub struct Ran {
    /// Counts the zones of the replay.
    pub sequence: u64,
    pub depth: u32,
    pub lane: Option<Arc<str>>,
    pub kernels: u32,
    pub stream: Arc<StreamInfo>,
    pub thread: Arc<ThreadInfo>,
    /// The launch of the graph.
    pub host: Span,
    pub gpu: Span,
    pub bracket_ns: i64,
}

/// Returns the zone's record with all that was captured of it, followed by those of its entries, if it is a batch.
pub fn replayed(label: ZoneLabel, ran: Ran) -> impl Iterator<Item = ReplayedZone> {
    let ZoneLabel { range, label, lane, fields: values, message, entries, status, stream: captured_on } = label;
    let captured_on = captured_on as u64;
    let mut fields = Fields::default();
    for (name, value) in values.iter() {
        fields.push(name, CapturedValue(value.clone()));
    }
    if let Some(label) = label {
        fields.set_label(label);
    }
    if let Some(lane) = lane {
        fields.set_known_lane(lane);
    }
    let zone = ZoneRecord {
        range,
        stream: Some(ran.stream),
        thread: ran.thread,
        depth: ran.depth,
        parent: None,
        sequence: ran.sequence,
        host: ran.host,
        gpu: Some(ran.gpu),
        sample_share: 1.0,
        window: 0,
        end: EndSource::Event,
        end_early_by_ns: 0,
        begin_late_by_ns: 0,
        bracket_ns: ran.bracket_ns,
        status,
        error: None,
        fields,
        message: message.map(|message| Box::new((*message).clone())),
        entry: None,
    };
    let (batch, shares) =
        (ReplayedZone { zone, lane: ran.lane, kernels: ran.kernels, captured_on }, Shares::new(&entries));
    let entry = |(index, (range, message)): (usize, &(&'static RangeSpec, Message))| {
        let lane = lane_of(range, Some(message)).or_else(|| batch.lane.clone());
        let zone = shares.entry(index, range, message.clone(), &batch.zone);
        ReplayedZone { zone, lane, ..batch.clone() }
    };
    let entries: Vec<_> = entries.iter().enumerate().map(entry).collect();
    std::iter::once(batch).chain(entries)
}

/// A captured value.
struct CapturedValue(Value);

impl IntoValue for CapturedValue {
    fn into_value(self) -> Value {
        self.0
    }
}
