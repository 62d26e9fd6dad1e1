//! Admits external subscription requests, and ends them on cancellation or with the session.
//!
//! The collector's loop calls this module. After a cancellation, it waits a limited time for zones that began earlier.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::context::Context;
use super::session_stats::Counts;
use super::stream::Stream;
use super::subscriptions::{Leaving, NewSubscription, Recording};
use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_report::builder::CameBy;
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
            for index in 0..self.subscriptions.recordings.len() {
                if self.subscriptions.recordings[index].is_cancelled() {
                    // A zone takes its slot before its begin time, so the barriers cover every zone that begins before `now_ns`.
                    let now_ns = now_ns();
                    let began = self.what_began();
                    self.subscriptions.recordings[index].leave(now_ns, began);
                }
            }
        }
        self.end_recordings(false, |recording| {
            recording.leaving.as_ref().is_some_and(|leaving| {
                let is_all_in = leaving.on_their_way() == 0 && !has_pending(leaving.since);
                is_all_in || leaving.since.elapsed() >= ENDS_WITHIN
            })
        });
    }

    /// Closes the inbox at the end of the session, admits the requests that still wait, and ends all recordings.
    pub(super) fn end_requests(&mut self) {
        let waiting = self.subscriptions.inbox.close();
        waiting.into_iter().for_each(|request| self.admit(request));
        self.end_recordings(true, |_| true);
    }

    fn admit(&mut self, request: NewSubscription) {
        let (came, before) = (Instant::now(), self.stats.counts(&self.recorder));
        self.subscriptions.recordings.push(Recording::start(request, self.has_kernels, came, before));
    }

    fn end_recordings(&mut self, with_session: bool, is_over: impl Fn(&Recording) -> bool) {
        let over: Vec<_> = self.subscriptions.recordings.extract_if(.., |recording| is_over(recording)).collect();
        for recording in over {
            let report = self.report_of(&recording);
            recording.end(report, with_session);
        }
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

    /// Returns the report of what was recorded during a recording. Zones that its filter left out do not count as begun. Zones in
    /// flight at its begin count when they are recorded; zones in flight at its end are unfinished.
    fn report_of(&self, recording: &Recording) -> Report {
        let Recording { subscription, came, before, leaving, .. } = recording;
        let Counts { account, spans_full, kernels, not_sampled, .. } = self.stats.counts(&self.recorder).since(before);
        let unfinished = leaving.as_ref().map_or(account.dropped.unfinished, Leaving::on_their_way);
        let (recorded, captured, dropped) =
            (subscription.zones, account.captured, Dropped { unfinished, ..account.dropped });
        let on_time = subscription.filter.on_time;
        let mut notes = lock(&self.stats.notes).clone();
        notes.extend(lock(&self.stats.windows).map(|figures| said_of(figures, before.windows_ended)));
        let mut left_out = lock(&self.stats.left_out).since(Some(*came));
        left_out.ranges = left_out.ranges.max(subscription.filter.left_out);
        let mut report = Report {
            not_sampled,
            left_out,
            begun: recorded + captured + dropped.total(),
            recorded,
            captured,
            dropped,
            spans: SpanCounts {
                begun: on_time.spans + spans_full,
                recorded: on_time.spans,
                buffer_full: spans_full,
                unfinished: 0,
            },
            kernels: KernelCounts { recorded: on_time.kernels, ..kernels },
            duration: leaving.as_ref().map_or_else(Instant::now, |leaving| leaving.since) - *came,
            clocks: lock(&self.stats.clocks).clone(),
            notes,
            ..Report::default()
        };
        lock(&subscription.stats.figures).add_to(&mut report, CameBy::Unknown);
        report
    }
}

/// Returns what a request says of the session's windows, of which so many had ended before it.
fn said_of(mut figures: WindowFigures, ended_before: u64) -> String {
    if figures.windows == ended_before {
        figures.windows = 0;
    }
    figures.to_string()
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
