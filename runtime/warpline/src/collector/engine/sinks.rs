//! Sinks that a session adds and removes while it runs.
//!
//! [`Session`](crate::Session) calls this module, on any thread. A sink starts on the thread that adds it, and then belongs to the
//! collector.

use super::Engine;
use crate::collector::subscriptions::CountedSink;
use warpline_core::lock::lock;
use warpline_core::reentrancy::Inside;
use warpline_report::SinkReport;
use warpline_report::sink::held::HeldSink;
use warpline_report::sink::{SessionInfo, Sink};

/// The number of removed sinks that stay in the report, the latest ones.
const KEPT: usize = 256;

impl Engine {
    /// Adds a sink that receives the records. Returns the number of its account in the report.
    pub(crate) fn add_sink(&self, sink: Box<dyn Sink>) -> usize {
        let _inside = Inside::enter();
        let info = SessionInfo { kernels: matches!(self.kernels, Some(Ok(()))), ..SessionInfo::now() };
        let added = Some(self.started.elapsed());
        let sink = CountedSink::start(HeldSink::new(sink), &info, added, &self.stats);
        let number = sink.number();
        self.inbox.add_sink(sink);
        number
    }

    /// Completes a sink and drops it. Returns its account; none if there is no such sink, or if the collector does not reach it within
    /// the session's time limit.
    pub(crate) fn remove_sink(&self, number: usize) -> Option<SinkReport> {
        let _inside = Inside::enter();
        if let Some(report) = lock(&self.stats.sinks).get_mut(&number).filter(|report| report.removed.is_none()) {
            report.removed = Some(self.started.elapsed());
        } else {
            return None;
        }
        let done = self.inbox.remove_sink(number);
        self.collector.unpark();
        // A sink that calls this is on the collector's thread, which removes the sink later.
        if self.is_on_collector() {
            return None;
        }
        let finish_timeout = lock(&self.config).finish_timeout.min(super::LONGEST);
        done.recv_timeout(finish_timeout).ok()?;
        let mut sinks = lock(&self.stats.sinks);
        let report = sinks.get(&number).cloned();
        let mut removed = sinks.iter().filter(|(_, sink)| sink.removed.is_some()).map(|(number, _)| *number);
        if let (Some(oldest), true) = (removed.next(), removed.count() >= KEPT) {
            sinks.remove(&oldest);
        }
        report
    }
}
