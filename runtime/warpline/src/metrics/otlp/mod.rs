//! Metrics for an OpenTelemetry collector (`otlp=URL`): OTLP over HTTP with protobuf bodies.
//!
//! [`OtlpSink`] adds records to the figures on the collector's thread. A thread of its own (`exporter`) makes a message of them (`message`,
//! `resource`) and posts it (`client`). Its figures are cumulative, so an export that fails is not kept: the next one has the same and more.

mod client;
mod exporter;
mod message;
mod resource;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use exporter::{Exporter, Outcome, Shared};

use super::figures::{Figures, Plan};
use super::job::Job;
use crate::collector::SessionStats;
use crate::collector::engine::EngineBuilder;
use crate::settings::Config;
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::plural::counted;
use warpline_report::Report;
use warpline_report::sink::{Batch, Progress, SessionInfo, Sink, not_started};

/// The time between two exports.
const INTERVAL: Duration = Duration::from_secs(15);

/// The most time that the last export may take.
const LAST: Duration = Duration::from_secs(2);

/// Creates the sink, if the settings have a URL.
pub(crate) fn sink(config: &Config, engine: &EngineBuilder) -> Option<Box<dyn Sink>> {
    Some(Box::new(OtlpSink {
        url: config.otlp.clone()?,
        interval: config.otlp_interval.unwrap_or(INTERVAL),
        // The other half of the session's time limit is for the other sinks, and for what is still on the streams.
        patience: LAST.min(config.finish_timeout / 2),
        plan: Plan::new(config),
        stats: Arc::clone(&engine.stats),
        exporter: None,
        lost: 0,
    }))
}

/// Sends metrics to a collector.
struct OtlpSink {
    url: String,
    interval: Duration,
    patience: Duration,
    plan: Plan,
    stats: Arc<SessionStats>,
    exporter: Option<Exporter>,
    lost: u64,
}

impl Sink for OtlpSink {
    fn name(&self) -> String {
        format!("otlp={}", self.url)
    }

    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        let job = Job::new(session);
        let shared = Shared {
            figures: Figures::new(self.plan.clone(), session.begin_unix_ns).into(),
            outcome: Outcome::default().into(),
            name: self.name(),
            stats: Arc::clone(&self.stats),
            resource: resource::detect(&job),
            job,
            begin_ns: session.begin_ns,
        };
        self.exporter = Some(Exporter::start(shared, &self.url, self.interval)?);
        Ok(())
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let Some(exporter) = &self.exporter else { return Err(not_started()) };
        lock(&exporter.shared.figures).add(batch, now_ns());
        Ok(())
    }

    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        let Some(exporter) = &self.exporter else { return Err(not_started()) };
        lock(&exporter.shared.figures).progress(progress, now_ns());
        Ok(())
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        let Some(exporter) = self.exporter.take() else { return Err(not_started()) };
        let records = {
            let mut figures = lock(&exporter.shared.figures);
            figures.finish(report);
            figures.records
        };
        let outcome = exporter.finish(self.patience);
        let failed = outcome.failed();
        let Outcome { exports, first, delivered, rejected, is_complete, .. } = outcome;
        if rejected > 0 {
            let points = counted(rejected, "data point");
            lock(&self.stats.notes).push(format!("{}: the collector rejected {points}", self.name()));
        }
        let why = first.unwrap_or_else(|| "the collector did not answer in time".to_owned());
        if !is_complete {
            self.lost = records - delivered;
            return Err(io::Error::other(format!("{failed} of {exports} exports failed, the last one too: {why}")));
        }
        if failed > 0 {
            let note =
                format!("{}: {failed} of {exports} exports failed; the last one has all figures ({why})", self.name());
            lock(&self.stats.notes).push(note);
        }
        Ok(())
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

/// Returns a message, for the measurement of its cost.
#[cfg(test)]
pub(super) fn body(figures: &Figures, job: &Job) -> Vec<u8> {
    message::encode(figures, job, resource::detect(job), 2)
}
