//! Metrics for Prometheus (`prometheus=ADDR`): an HTTP server with one page, `/metrics`.
//!
//! [`PrometheusSink`] adds records to the figures on the collector's thread. The threads of the [server](warpline_trace::http) write them as text
//! (`text`) for each request, in the format that the client prefers (`format`). What a client does, or fails to do, costs no other thread more than
//! the lock of the figures while a page is written. `listen` opens the address.

mod format;
mod listen;
mod text;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use format::Format;
use warpline_trace::http::{Answer, Hosts, HttpRequest, Pages, Server};

use super::figures::{Figures, Plan};
use super::job::Job;
use crate::collector::SessionStats;
use crate::collector::engine::EngineBuilder;
use crate::settings::Config;
use crate::settings::addresses::ServeAt;
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::process;
use warpline_core::stderr;
use warpline_report::Report;
use warpline_report::sink::{Batch, Progress, SessionInfo, Sink, not_started};

/// What a client is to do whose `Host` is none of the server's.
const REMEDY: &str = "ask with the address at which it listens, or start the program with `prometheus_hosts=NAME`";

/// Creates the sink, if the settings have an address.
pub(crate) fn sink(config: &Config, engine: &EngineBuilder) -> Option<Box<dyn Sink>> {
    Some(Box::new(PrometheusSink {
        at: config.prometheus?,
        hosts: config.prometheus_hosts.clone(),
        plan: Plan::new(config),
        is_quiet: config.quiet,
        stats: Arc::clone(&engine.stats),
        begun: None,
    }))
}

/// Serves metrics.
struct PrometheusSink {
    at: ServeAt,
    /// Further names by which clients know the server.
    hosts: Vec<String>,
    plan: Plan,
    is_quiet: bool,
    stats: Arc<SessionStats>,
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
    scrapes: AtomicU64,
    /// The setting, for messages.
    name: String,
    stats: Arc<SessionStats>,
}

/// The server's pages: `/metrics`, and `/`, which leads to it.
struct Shown(Arc<Page>);

impl Pages for Shown {
    fn answer(&self, request: &HttpRequest) -> Answer {
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            return Answer::refusal("405 Method Not Allowed").with("Allow", "GET, HEAD");
        }
        match request.path.split(['?', '#']).next() {
            Some("/metrics") => {
                let format = format::negotiate(request.accepts.iter().map(String::as_str));
                let mut answer = Answer::text("200 OK", self.0.text(format));
                answer.headers = vec![("Content-Type", format.content_type().to_owned())];
                answer
            }
            Some("/") => Answer::text("200 OK", "The metrics are at /metrics.\n".to_owned()),
            _ => Answer::refusal("404 Not Found"),
        }
    }

    fn cannot_accept(&self, error: &io::Error) {
        self.0.stats.warn(format!("{}: no connection is accepted: {error}; raise `ulimit -n`", self.0.name));
    }
}

impl Page {
    fn text(&self, format: Format) -> String {
        self.scrapes.fetch_add(1, Ordering::Relaxed);
        let mut figures = lock(&self.figures);
        figures.bandwidths.give_series(now_ns());
        text::render(&figures, &self.job, format)
    }
}

impl PrometheusSink {
    /// Starts the server.
    fn serve(&self, page: &Arc<Page>) -> io::Result<Server> {
        let mut hosts = self.hosts.clone();
        if !self.at.ip.is_loopback() {
            hosts.push(process::host());
        }
        let hosts = Hosts::new(hosts, REMEDY);
        Server::start(listen::bind(self.at)?, hosts, Shown(Arc::clone(page)))
    }
}

impl Sink for PrometheusSink {
    fn name(&self) -> String {
        format!("prometheus={}", self.at)
    }

    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        let page = Arc::new(Page {
            figures: Figures::new(self.plan.clone(), session.begin_unix_ns).into(),
            job: Job::new(session),
            scrapes: AtomicU64::new(0),
            name: self.name(),
            stats: Arc::clone(&self.stats),
        });
        // The end of a long program is too late to hear of it.
        let server = self.serve(&page).inspect_err(|error| {
            self.stats.warn(format!("{}: {error}; the session goes on without it", self.name()));
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
        lock(&begun.page.figures).progress(progress, now_ns());
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
            lock(&self.stats.notes).push(note);
        }
        Ok(())
    }
}

/// Returns a page, for the measurement of its cost.
#[cfg(test)]
pub(super) fn page(figures: &Figures, job: &Job) -> String {
    text::render(figures, job, Format::OpenMetrics)
}
