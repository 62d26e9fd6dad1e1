//! Metrics for Prometheus (`prometheus=ADDR`): an HTTP server with one page, `/metrics`.
//!
//! [`PrometheusSink`] adds records to the figures on the collector's thread. The server's threads (`server`, `request`) write them as text (`text`)
//! for each request. What a client does, or fails to do, costs no other thread more than the lock of the figures while a page is written.

mod request;
mod server;
mod text;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use request::Format;
use server::Server;

use super::figures::{Figures, Series};
use super::job::Job;
use crate::collector::SessionStats;
use crate::settings::ServeAt;
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::report::Report;
use warpline_core::sink::{Batch, Progress, SessionInfo, Sink, not_started};
use warpline_core::stderr;

/// A series is a line: lengths are a sum and a count; a collective has its bus bandwidth and two means under the names of NCCL's Inspector.
pub(super) const SERIES: Series = Series { range: 2, collective: 3, steps: 2, waits: 2, rest: 4 };

/// Serves metrics.
pub(crate) struct PrometheusSink {
    at: ServeAt,
    is_sampled: bool,
    is_quiet: bool,
    tally: Arc<SessionStats>,
    begun: Option<Begun>,
}

struct Begun {
    page: Arc<Page>,
    server: Server,
}

/// What the server shows.
struct Page {
    figures: Mutex<Figures>,
    job: Job,
    /// The session's begin on the clock of records.
    begin_ns: i64,
    scrapes: AtomicU64,
}

impl Page {
    fn text(&self, format: Format) -> String {
        self.scrapes.fetch_add(1, Ordering::Relaxed);
        let mut figures = lock(&self.figures);
        let now_ns = now_ns();
        let now_unix_ns = figures.begin_unix_ns + (now_ns - self.begin_ns);
        figures.give_series(now_ns, now_unix_ns, false);
        text::of(&figures, &self.job, format)
    }
}

impl PrometheusSink {
    pub(crate) fn new(at: ServeAt, is_sampled: bool, is_quiet: bool, tally: Arc<SessionStats>) -> PrometheusSink {
        PrometheusSink { at, is_sampled, is_quiet, tally, begun: None }
    }
}

impl Sink for PrometheusSink {
    fn name(&self) -> String {
        format!("prometheus={}", self.at)
    }

    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        let page = Arc::new(Page {
            figures: Figures::new(SERIES, self.is_sampled, session.begin_unix_ns).into(),
            job: Job::new(session),
            begin_ns: session.begin_ns,
            scrapes: AtomicU64::new(0),
        });
        let shown = Arc::clone(&page);
        // The end of a long program is too late to hear of it.
        let server = Server::start(self.at, move |format| shown.text(format)).inspect_err(|error| {
            self.tally.warn(format!("{}: {error}; the session goes on without it", self.name()));
        })?;
        if !self.is_quiet {
            let address = server.address();
            let reach = if address.ip().is_loopback() { "" } else { ", for everyone who can reach this address" };
            stderr::line(format_args!("metrics are at http://{address}/metrics{reach}"));
        }
        self.begun = Some(Begun { page, server });
        Ok(())
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        let Some(begun) = &self.begun else { return Err(not_started()) };
        lock(&begun.page.figures).add(batch, now_ns());
        Ok(())
    }

    fn progress(&mut self, progress: &Progress) -> io::Result<()> {
        let Some(begun) = &self.begun else { return Err(not_started()) };
        lock(&begun.page.figures).zones = *progress;
        Ok(())
    }

    fn finish(&mut self, _report: &Report) -> io::Result<()> {
        let Some(begun) = self.begun.take() else { return Err(not_started()) };
        begun.server.stop();
        if begun.page.scrapes.load(Ordering::Relaxed) == 0 {
            let note = format!(
                "{}: nobody asked for the metrics; add `{}` to Prometheus's targets",
                self.name(),
                begun.server.address()
            );
            lock(&self.tally.notes).push(note);
        }
        Ok(())
    }
}

/// Returns a page, for the measurement of its cost.
#[cfg(test)]
pub(super) fn page(figures: &Figures, job: &Job) -> String {
    text::of(figures, job, Format::OpenMetrics)
}
