//! Converts waits to slices with arrows, and queue depths to counters.
//!
//! A wait is a slice on the row of the stream or thread that waited, among its zones. A signal is an instant on the row of its
//! sender, one for each wait that it ended. Readers draw an arrow from the earlier of two events to the begin of the later one, and
//! a wait that blocked begins before its signal. So the arrow leads to an instant at the end of the wait.

use std::collections::HashMap;
use std::sync::Arc;

use super::annotations::annotate;
use super::category::{Category, write_stalled};
use super::proto::{Buffer, annotation, event};
use super::tables::Tables;
use warpline_core::record::EndSource;
use warpline_core::wait::{QueueDepth, SignalInfo, WaitOutcome, WaitRecord};

/// The state of queues while the trace is written.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// The group of the counters, and the piece of the trace that last described it.
    group: Option<(u64, u32)>,
    /// The counters that a piece of the trace has described, and that piece.
    counters: HashMap<Arc<str>, (u64, u32)>,
}

/// The maximum number of counters that are remembered as described. With more, all are described again, with the same ids.
const COUNTERS: usize = 4096;

impl Tables {
    pub(super) fn wait(&mut self, record: &WaitRecord, buffer: &mut Buffer) {
        let span = record.span();
        self.end_ns = self.end_ns.max(span.end_ns);
        let flow = record.signal.as_ref().map(|signal| self.signal(signal, record, buffer));
        let row = match &record.stream {
            Some(stream) => self.stream(stream, buffer),
            None => self.thread(&record.thread, buffer),
        };
        let lane = self.tracks[row].lane(span, &mut self.session, buffer);
        let write = |event: &mut Buffer| {
            event.text(event::NAME, &format!("wait {}", record.semaphore));
            Category::Wait.write(event);
            write_stalled(event);
            say(event, "semaphore", &record.semaphore);
            if let Some(value) = record.value {
                annotate(event, None, "value", |annotation| annotation.uint(annotation::UINT, value));
            }
            if let Some(queue) = &record.queue {
                say(event, "queue", queue);
            }
            if let Some(signal) = &record.signal {
                say(event, "signalled_by", &signal.by());
                if let Some(queue) = &signal.queue {
                    say(event, "signalled_by_queue", queue);
                }
            }
            if record.outcome != WaitOutcome::Reached {
                say(event, "outcome", record.outcome.as_str());
            }
            if record.end != EndSource::Event {
                say(event, "end", record.end.as_str());
                let early = |annotation: &mut Buffer| annotation.int(annotation::INT, record.end_early_by_ns);
                annotate(event, None, "end_early_by_ns", early);
            }
        };
        lane.define_category(Category::Wait, buffer);
        lane.slice(span, buffer, write);
        if let Some(flow) = flow {
            lane.define_category(Category::Signal, buffer);
            lane.instant(span.end_ns, buffer, |event| {
                event.text(event::NAME, &format!("resume {}", record.semaphore));
                Category::Signal.write(event);
                event.fixed(event::TERMINATING_FLOW_IDS, flow);
            });
        }
    }

    /// Writes the signal that ended a wait, and begins the arrow.
    fn signal(&mut self, signal: &SignalInfo, wait: &WaitRecord, buffer: &mut Buffer) -> u64 {
        let flow = self.session.ids.next();
        let row = match &signal.stream {
            Some(stream) => self.stream(stream, buffer),
            None => self.thread(&signal.thread, buffer),
        };
        let lane = self.tracks[row].first_lane();
        lane.define_category(Category::Signal, buffer);
        lane.instant(signal.at_ns, buffer, |event| {
            event.text(event::NAME, &format!("signal {}", wait.semaphore));
            Category::Signal.write(event);
            event.fixed(event::FLOW_IDS, flow);
            say(event, "semaphore", &wait.semaphore);
            if let Some(value) = signal.value {
                annotate(event, None, "value", |annotation| annotation.uint(annotation::UINT, value));
            }
            if let Some(queue) = &signal.queue {
                say(event, "queue", queue);
            }
            if signal.early_by_ns > 0 {
                let early = |annotation: &mut Buffer| annotation.int(annotation::INT, signal.early_by_ns);
                annotate(event, None, "early_by_ns", early);
            }
        });
        flow
    }
}

impl Queues {
    /// Writes the depth of a queue.
    pub(super) fn write(&mut self, record: &QueueDepth, tables: &mut Tables, buffer: &mut Buffer) {
        let QueueDepth { queue, at_ns, depth } = record;
        tables.end_ns = tables.end_ns.max(*at_ns);
        let counter = self.counter(queue, tables, buffer);
        tables.facts.count(counter, *at_ns, i64::try_from(*depth).unwrap_or(i64::MAX), buffer);
    }

    fn counter(&mut self, queue: &Arc<str>, tables: &mut Tables, buffer: &mut Buffer) -> u64 {
        let Tables { session, facts, .. } = tables;
        let known = self.counters.get(queue).filter(|(_, piece)| *piece == session.piece);
        if let Some((counter, _)) = known {
            return *counter;
        }
        let group = session.ids.derive("queues");
        if self.group != Some((group, session.piece)) {
            self.group = Some((group, session.piece));
            facts.group(group, "queues", i32::MAX as u32 - 1, buffer);
        }
        let counter = session.ids.derive(("queue", queue));
        facts.counter_track(counter, group, &format!("depth of {queue}"), buffer);
        if self.counters.len() >= COUNTERS {
            self.counters.clear();
        }
        self.counters.insert(Arc::clone(queue), (counter, session.piece));
        counter
    }
}

fn say(event: &mut Buffer, name: &str, value: &str) {
    annotate(event, None, name, |annotation| annotation.text(annotation::STRING, value));
}
