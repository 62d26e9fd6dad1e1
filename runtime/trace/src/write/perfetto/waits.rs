//! Converts waits to slices with arrows.
//!
//! A wait is a slice on the row of the stream or thread that waited, among its zones. A signal is an instant on the row of its
//! sender, one for each wait that it ended. Readers draw an arrow from the earlier of two events to the begin of the later one, and
//! a wait that blocked begins before its signal. So the arrow leads to an instant at the end of the wait.

use super::annotations::{int, text, uint};
use super::category::{Category, write_stalled};
use super::proto::{Buffer, event};
use super::tables::Tables;
use warpline_core::record::EndSource;
use warpline_core::wait::{SignalInfo, WaitOutcome, WaitRecord};

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
            text(event, "semaphore", &record.semaphore);
            if let Some(value) = record.value {
                uint(event, "value", value);
            }
            if let Some(queue) = &record.queue {
                text(event, "queue", queue);
            }
            if let Some(signal) = &record.signal {
                text(event, "signalled_by", &signal.by());
                if let Some(queue) = &signal.queue {
                    text(event, "signalled_by_queue", queue);
                }
            }
            if record.outcome != WaitOutcome::Reached {
                text(event, "outcome", record.outcome.as_str());
            }
            if record.end != EndSource::Event {
                text(event, "end", record.end.as_str());
                int(event, "end_early_by_ns", record.end_early_by_ns);
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
            text(event, "semaphore", &wait.semaphore);
            if let Some(value) = signal.value {
                uint(event, "value", value);
            }
            if let Some(queue) = &signal.queue {
                text(event, "queue", queue);
            }
            if signal.early_by_ns > 0 {
                int(event, "early_by_ns", signal.early_by_ns);
            }
        });
        flow
    }
}
