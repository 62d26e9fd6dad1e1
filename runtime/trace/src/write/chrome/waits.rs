//! Converts waits and signals to slices with arrows, and queue depths to counters.
//!
//! A wait is a slice on the row of the stream or thread that waited. An arrow leads to the begin of a slice, and a wait begins
//! before its signal, so the arrow leads from an empty slice at the signal to an empty slice at the end of the wait.

use std::io::{self, Write};

use serde_json::json;

use super::document::Events;
use super::json::Args;
use super::rows::{Owner, TrackId, Whose};
use super::trace::Trace;
use warpline_core::record::{EndSource, Span, StreamInfo, ThreadInfo};
use warpline_core::wait::{QueueDepth, WaitOutcome, WaitRecord};

impl Trace {
    pub(super) fn wait(&mut self, record: &WaitRecord, out: &mut Events) -> io::Result<()> {
        let span = record.span();
        let arrow = match &record.signal {
            Some(signal) => {
                self.arrows += 1;
                let id = self.arrows;
                let at = Span { begin_ns: signal.at_ns, end_ns: signal.at_ns };
                let place = self.place_of(signal.stream.as_deref(), &signal.thread, at, out)?;
                self.named_slice("wait", &format!("signal {}", record.semaphore), at, place, out)?;
                write!(out, r#","bind_id":"{ARROWS}{id:x}","flow_out":true"#)?;
                let mut args = Args::open(out)?;
                args.add("semaphore", &*record.semaphore)?;
                args.add_some("value", signal.value)?;
                args.add_some("queue", signal.queue.as_deref())?;
                args.add_some("early_by_ns", Some(signal.early_by_ns).filter(|ns| *ns > 0))?;
                args.close()?;
                Some(id)
            }
            None => None,
        };
        let place = self.place_of(record.stream.as_deref(), &record.thread, span, out)?;
        self.named_slice("wait", &format!("wait {}", record.semaphore), span, place, out)?;
        let mut args = Args::open(out)?;
        args.add("semaphore", &*record.semaphore)?;
        args.add_some("value", record.value)?;
        args.add_some("queue", record.queue.as_deref())?;
        if let Some(signal) = &record.signal {
            args.add("signalled_by", signal.by())?;
            args.add_some("signalled_by_queue", signal.queue.as_deref())?;
        }
        if record.outcome != WaitOutcome::Reached {
            args.add("outcome", record.outcome.as_str())?;
        }
        if record.end != EndSource::Event {
            args.add("end", record.end.as_str())?;
            args.add("end_early_by_ns", record.end_early_by_ns)?;
        }
        args.close()?;
        let Some(id) = arrow else { return Ok(()) };
        let end = Span { begin_ns: span.end_ns, end_ns: span.end_ns };
        let place = self.place_of(record.stream.as_deref(), &record.thread, end, out)?;
        self.named_slice("wait", &format!("resume {}", record.semaphore), end, place, out)?;
        write!(out, r#","bind_id":"{ARROWS}{id:x}","flow_in":true"#)?;
        Args::open(out)?.close()
    }

    fn place_of(
        &mut self,
        stream: Option<&StreamInfo>,
        thread: &ThreadInfo,
        span: Span,
        out: &mut Events,
    ) -> io::Result<TrackId> {
        match stream {
            Some(stream) => self.rows.place((Owner::Stream(stream.id), None), Whose::stream(stream), span, out),
            None => self.rows.place_on_thread(thread, span, out),
        }
    }

    /// Writes the depth of a queue.
    pub(super) fn depth(&self, QueueDepth { queue, at_ns, depth }: &QueueDepth, out: &mut Events) -> io::Result<()> {
        self.counter(&format!("queue {queue}"), *at_ns, &json!({ "depth": depth }), out)
    }
}

/// The prefix of the ids of arrows of waits, which puts them above the ids of launches.
const ARROWS: &str = "0x1000000";
