//! Admits external subscription requests, and ends them on cancellation or with the session.
//!
//! The collector's loop calls this module. After a cancellation, it waits a limited time for zones that began earlier.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::SessionStats;
use super::context::Context;
use super::left_out::not_sampled;
use super::stream::Stream;
use super::subscriptions::{FilteredSink, Leaving, NewSubscription, Outcome, Request};
use warpline_core::caught::caught;
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::stream::recorder::Recorder;
use warpline_core::suggest::counted_are;
use warpline_report::builder::CameBy;
use warpline_report::sink::Sink;
use warpline_report::{Dropped, KernelCounts, Report, SpanCounts, WindowFigures};

/// The longest time that a cancelled request waits for zones in flight.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

impl Context {
    /// Admits new requests and ends cancelled ones. `has_pending` returns whether records from before a time are still to come.
    pub(super) fn pass_requests(&mut self, has_pending: impl Fn(Instant) -> bool) {
        let inbox = Arc::clone(&self.subscriptions.inbox);
        if inbox.has_news.swap(false, Ordering::Acquire) {
            self.subscriptions.removals = inbox.take_removals();
            inbox.take().into_iter().for_each(|request| self.admit(request));
            let is_leaving = |request: &&mut Request| {
                request.leaving.is_none() && request.handle.is_cancelled.load(Ordering::Acquire)
            };
            let leaving = self.subscriptions.requests().filter(is_leaving).count();
            for _ in 0..leaving {
                // A zone takes its slot before its begin time, so the barriers cover every zone that begins before `now_ns`.
                let now_ns = now_ns();
                let began = self.what_began();
                if let Some(request) = self.subscriptions.requests().find(is_leaving) {
                    request.sink.until_ns = now_ns;
                    request.leaving = Some(began);
                }
            }
        }
        if self.subscriptions.requests().any(|request| request.leaving.is_some()) {
            let over = self.subscriptions.take_over(|request| {
                request.leaving.as_ref().is_some_and(|leaving| {
                    let is_all_in = leaving.on_their_way() == 0 && !has_pending(leaving.since);
                    is_all_in || leaving.since.elapsed() >= ENDS_WITHIN
                })
            });
            over.into_iter().for_each(|request| request.end(self, false));
        }
    }

    /// Closes the inbox at the end of the session, admits the requests that still wait, and ends all requests.
    pub(super) fn end_requests(&mut self) {
        let waiting = self.subscriptions.inbox.close();
        waiting.into_iter().for_each(|request| self.admit(request));
        let all = self.subscriptions.take_over(|_| true);
        all.into_iter().for_each(|request| request.end(self, true));
    }

    fn admit(&mut self, request: NewSubscription) {
        let NewSubscription { sink, filters, mut info, handle } = request;
        info.kernels = self.has_kernels;
        let mut request = Request {
            sink: FilteredSink::new(sink, filters),
            handle,
            came: Instant::now(),
            before: self.recorder.account(),
            spans_before: self.recorder.span_counts(),
            kernels_before: *lock(&self.tally.kernels),
            not_sampled_before: not_sampled(),
            windows_before: windows_ended(&self.tally, &self.recorder),
            leaving: None,
        };
        let _ = caught(|| request.sink.start(&info));
        self.subscriptions.add_request(request);
    }

    fn what_began(&mut self) -> Leaving {
        // Zones may have begun on streams that the collector has not discovered yet, and some are not discovered now either: those of a device
        // that is left alone at first.
        self.discover_streams();
        let contexts = self.recorder.contexts();
        let unmet =
            contexts.iter().filter(|context| !context.is_met.load(Ordering::Relaxed)).map(|context| context.cut(0));
        let cut = |stream: &Stream| stream.context.cut(stream.given_back);
        let began = self.streams.all.iter().map(cut).chain(unmet);
        // Captured zones are not collected: they are complete when they end.
        Leaving { since: Instant::now(), began: began.chain([self.recorder.captures().cut(0)]).collect() }
    }
}

/// Returns the number of windows of the session's budget that have ended.
fn windows_ended(tally: &SessionStats, recorder: &Recorder) -> u64 {
    let opened = lock(&tally.windows).map_or(0, |figures| figures.windows);
    opened.saturating_sub(u64::from(recorder.windows().is_open()))
}

/// Returns what a request says of the session's windows, of which so many had ended before it.
fn said_of(mut figures: WindowFigures, ended_before: u64) -> String {
    if figures.windows == ended_before {
        figures.windows = 0;
    }
    figures.to_string()
}

impl Request {
    fn end(mut self, cx: &Context, with_session: bool) {
        let report = self.report(cx);
        // The answer to a request has a count of missing records; a trace has only the notes.
        let mut told = report.clone();
        if self.sink.lost > 0 {
            let missing = counted_are(self.sink.lost, "record");
            told.notes.push(format!("{missing} missing: the reader was slower than the program"));
        }
        let done = caught(|| {
            // The count includes an error in `finish`.
            let _ = self.sink.finish(&told);
            self.sink.lost_inside()
        });
        let lost = self.sink.lost + done.unwrap_or(0);
        self.handle.end(Outcome { report, lost, with_session });
    }

    /// Returns the report of what was recorded during the request. Zones that its filter left out do not count as begun. Zones in
    /// flight at its begin count when they are recorded; zones in flight at its end are unfinished.
    fn report(&self, cx: &Context) -> Report {
        let (now, before) = (cx.recorder.account(), self.before);
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let dropped = Dropped {
            ring_full: since(now.dropped.ring_full, before.dropped.ring_full),
            event_failed: since(now.dropped.event_failed, before.dropped.event_failed),
            stream_failed: since(now.dropped.stream_failed, before.dropped.stream_failed),
            capture_failed: since(now.dropped.capture_failed, before.dropped.capture_failed),
            unfinished: self.leaving.as_ref().map_or(now.dropped.unfinished, Leaving::on_their_way),
        };
        let (recorded, captured) = (self.sink.passed, since(now.captured, before.captured));
        let (spans, spans_before) = (cx.recorder.span_counts(), self.spans_before);
        let (kernels, kernels_before) = (*lock(&cx.tally.kernels), self.kernels_before);
        let late = self.sink.late;
        let spans_recorded = since(spans.recorded, spans_before.recorded).saturating_sub(late.spans);
        let buffer_full = since(spans.buffer_full, spans_before.buffer_full);
        let mut notes = lock(&cx.tally.notes).clone();
        notes.extend(lock(&cx.tally.windows).map(|figures| said_of(figures, self.windows_before)));
        let mut left_out = lock(&cx.tally.left_out).since(Some(self.came));
        left_out.ranges = left_out.ranges.max(self.sink.left_out);
        let mut report = Report {
            not_sampled: since(not_sampled(), self.not_sampled_before),
            left_out,
            begun: recorded + captured + dropped.total(),
            recorded,
            captured,
            dropped,
            spans: SpanCounts {
                begun: spans_recorded + buffer_full,
                recorded: spans_recorded,
                buffer_full,
                unfinished: 0,
            },
            kernels: KernelCounts {
                recorded: since(kernels.recorded, kernels_before.recorded).saturating_sub(late.kernels),
                dropped: since(kernels.dropped, kernels_before.dropped),
                untimed: since(kernels.untimed, kernels_before.untimed),
                buffers_refused: since(kernels.buffers_refused, kernels_before.buffers_refused),
                uncertainty_ns: kernels.uncertainty_ns,
            },
            duration: self.leaving.as_ref().map_or_else(Instant::now, |leaving| leaving.since) - self.came,
            clocks: lock(&cx.tally.clocks).clone(),
            notes,
            ..Report::default()
        };
        self.sink.figures.add_to(&mut report, CameBy::Unknown);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_during_which_no_window_was_open_says_so_also_if_the_session_has_had_some() {
        let figures = WindowFigures { windows: 7, recorded: 0.1, ..WindowFigures::default() };
        assert!(said_of(figures, 7).starts_with("no window of the budget opened before the end"));
        assert!(said_of(figures, 6).starts_with("recorded 10.0 % of the time in 7 windows"));
    }
}
