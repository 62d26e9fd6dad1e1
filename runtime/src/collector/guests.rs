//! Sinks that come and go while a session runs: what is asked for from outside (`control`).
//!
//! A guest takes what the session records from the moment in which it is let in until it asks to leave, or the session ends.
//! What began before it asked is waited for, for a while; what begins later is not its own, although the session goes on.
//! It is in no report of the session and changes nothing of it; its own report counts what came by meanwhile.

mod chosen;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Collector;
use super::left_out::not_sampled;
use crate::caught::caught;
use crate::clock::now_ns;
use crate::lock::lock;
use crate::session::{Dropped, KernelCounts, Report, SpanCounts};
use crate::settings::Filter;
use crate::sink::summary::CameBy;
use crate::sink::{SessionInfo, Sink};
use crate::spelling::counted_are;
use crate::stream::context::Account;
use crate::stream::cut::Cut;

use chosen::Chosen;

/// The longest that a guest that leaves waits for zones that are on their way.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);

/// How guests come to the collector of a session.
#[derive(Default)]
pub(crate) struct Guests {
    door: Mutex<Door>,
    /// Somebody is at the door, or wants to leave.
    is_called: AtomicBool,
}

#[derive(Default)]
struct Door {
    waiting: Vec<Guest>,
    /// The session is over.
    is_closed: bool,
}

/// A sink that comes and goes.
pub(crate) struct Guest {
    pub(crate) sink: Box<dyn Sink>,
    /// The ranges that it takes zones of; none for all.
    pub(crate) filters: Vec<Filter>,
    pub(crate) info: SessionInfo,
    pub(crate) tie: Arc<Tie>,
}

/// What a guest and who sent it share.
pub(crate) struct Tie {
    is_leaving: AtomicBool,
    over: Mutex<Option<Over>>,
    /// Called when it is over.
    tell: Box<dyn Fn() + Send + Sync>,
}

/// What became of a guest.
#[derive(Clone, Debug)]
pub(crate) struct Over {
    /// What came by while it was there.
    pub(crate) report: Report,
    /// Records that it could not take.
    pub(crate) lost: u64,
    /// It did not leave: the session ended.
    pub(crate) with_session: bool,
}

impl Guests {
    /// Lets a guest in; gives it back where the session is over.
    pub(crate) fn admit(&self, guest: Guest) -> Result<(), Box<Guest>> {
        let mut door = lock(&self.door);
        if door.is_closed {
            return Err(Box::new(guest));
        }
        door.waiting.push(guest);
        self.is_called.store(true, Ordering::Release);
        Ok(())
    }

    /// The guest that waits, where no session took it.
    pub(crate) fn take_back(&self) -> Option<Guest> {
        lock(&self.door).waiting.pop()
    }

    /// Asks a guest of this session to leave.
    pub(crate) fn ask_to_leave(&self, tie: &Tie) {
        tie.is_leaving.store(true, Ordering::Release);
        self.is_called.store(true, Ordering::Release);
    }
}

impl Tie {
    pub(crate) fn new(tell: impl Fn() + Send + Sync + 'static) -> Arc<Tie> {
        Arc::new(Tie { is_leaving: AtomicBool::new(false), over: Mutex::default(), tell: Box::new(tell) })
    }

    /// What became of it, once it is over.
    pub(crate) fn over(&self) -> Option<Over> {
        lock(&self.over).clone()
    }

    fn end(&self, over: Over) {
        *lock(&self.over) = Some(over);
        (self.tell)();
    }
}

/// A guest that is in.
pub(super) struct Seated {
    sink: Chosen,
    tie: Arc<Tie>,
    came: Instant,
    before: Account,
    spans_before: SpanCounts,
    kernels_before: KernelCounts,
    not_sampled_before: u64,
    leaving: Option<Leaving>,
}

/// A guest that leaves waits for what began before.
struct Leaving {
    since: Instant,
    /// What began before, on each stream.
    began: Vec<Arc<Cut>>,
}

impl Leaving {
    /// How many zones that began before are neither recorded nor given up.
    fn on_their_way(&self) -> u64 {
        self.began.iter().map(|cut| cut.on_their_way()).sum()
    }
}

impl Collector {
    /// Takes guests from there.
    pub(crate) fn take_guests_from(&mut self, guests: Arc<Guests>) {
        self.door = guests;
    }

    /// Lets guests in and out.
    pub(super) fn pass_guests(&mut self) {
        if self.door.is_called.swap(false, Ordering::Acquire) {
            let door = Arc::clone(&self.door);
            let waiting = std::mem::take(&mut lock(&door.door).waiting);
            waiting.into_iter().for_each(|guest| self.seat(guest));
            for index in 0..self.guests.len() {
                if self.guests[index].tie.is_leaving.load(Ordering::Acquire) && self.guests[index].leaving.is_none() {
                    // A zone has its slot before it has its begin: what is left out by its begin is not waited for.
                    let now_ns = now_ns();
                    let leaving = self.what_began();
                    let guest = &mut self.guests[index];
                    guest.sink.until_ns = now_ns;
                    guest.leaving = Some(leaving);
                }
            }
        }
        if self.guests.iter().any(|guest| guest.leaving.is_some()) {
            let guests = std::mem::take(&mut self.guests);
            for guest in guests {
                let leaves = guest.leaving.as_ref().is_some_and(|leaving| {
                    let is_all_in = leaving.on_their_way() == 0 && self.has_kernels_of(leaving.since);
                    is_all_in || leaving.since.elapsed() >= LEAVES_WITHIN
                });
                if leaves { self.see_off(guest, false) } else { self.guests.push(guest) }
            }
        }
    }

    /// The session is over: nobody comes any more, and those that are there are done.
    pub(super) fn end_guests(&mut self) {
        let waiting = {
            let mut door = lock(&self.door.door);
            door.is_closed = true;
            std::mem::take(&mut door.waiting)
        };
        waiting.into_iter().for_each(|guest| self.seat(guest));
        std::mem::take(&mut self.guests).into_iter().for_each(|guest| self.see_off(guest, true));
    }

    /// Calls every guest; an error costs the call.
    pub(super) fn call_guests(&mut self, call: impl Fn(&mut dyn Sink) -> std::io::Result<()>) {
        for guest in &mut self.guests {
            // What a guest cannot take it counts itself.
            let _ = caught(|| call(&mut guest.sink));
        }
    }

    fn seat(&mut self, guest: Guest) {
        let Guest { sink, filters, mut info, tie } = guest;
        info.kernels = self.has_kernels();
        let mut guest = Seated {
            sink: Chosen::new(sink, filters),
            tie,
            came: Instant::now(),
            before: self.recorder.account(),
            spans_before: self.recorder.span_counts(),
            kernels_before: *lock(&self.tally.kernels),
            not_sampled_before: not_sampled(),
            leaving: None,
        };
        let _ = caught(|| guest.sink.start(&info));
        self.guests.push(guest);
    }

    fn see_off(&self, mut guest: Seated, with_session: bool) {
        let report = self.report_of(&guest);
        // The answer to a request has a count of what is missing; a trace has only the notes.
        let mut told = report.clone();
        if guest.sink.lost > 0 {
            let missing = counted_are(guest.sink.lost, "record");
            told.notes.push(format!("{missing} missing: the reader was slower than the program"));
        }
        let done = caught(|| {
            // An error of its end is in the count.
            let _ = guest.sink.finish(&told);
            guest.sink.lost_inside()
        });
        let lost = guest.sink.lost + done.unwrap_or(0);
        guest.tie.end(Over { report, lost, with_session });
    }

    /// What came by while the guest was there. What its filter left out did not begin for it; zones on their way when it came
    /// count when they are recorded, those on their way when it goes are unfinished.
    fn report_of(&self, guest: &Seated) -> Report {
        let (now, before) = (self.recorder.account(), guest.before);
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let dropped = Dropped {
            ring_full: since(now.dropped.ring_full, before.dropped.ring_full),
            event_failed: since(now.dropped.event_failed, before.dropped.event_failed),
            stream_failed: since(now.dropped.stream_failed, before.dropped.stream_failed),
            capture_failed: since(now.dropped.capture_failed, before.dropped.capture_failed),
            unfinished: guest.leaving.as_ref().map_or(now.dropped.unfinished, Leaving::on_their_way),
        };
        let (recorded, captured) = (guest.sink.passed, since(now.captured, before.captured));
        let (spans, spans_before) = (self.recorder.span_counts(), guest.spans_before);
        let (kernels, kernels_before) = (*lock(&self.tally.kernels), guest.kernels_before);
        let late = guest.sink.late;
        let spans_recorded = since(spans.recorded, spans_before.recorded).saturating_sub(late.spans);
        let buffer_full = since(spans.buffer_full, spans_before.buffer_full);
        let notes = lock(&self.tally.notes).clone();
        let mut left_out = lock(&self.tally.left_out).since(Some(guest.came));
        left_out.ranges = left_out.ranges.max(guest.sink.left_out);
        Report {
            ranges: guest.sink.summary.stats(CameBy::Unknown),
            not_sampled: since(not_sampled(), guest.not_sampled_before),
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
            },
            duration: guest.leaving.as_ref().map_or_else(Instant::now, |leaving| leaving.since) - guest.came,
            clocks: lock(&self.tally.clocks).clone(),
            notes,
            ..Report::default()
        }
    }

    fn what_began(&mut self) -> Leaving {
        // Zones may have begun on streams that nobody has looked at yet.
        self.meet_streams();
        let cut = |stream: &super::Stream| stream.context.cut(stream.given_back);
        #[cfg_attr(not(feature = "cuda"), expect(unused_mut, reason = "nothing is captured"))]
        let mut began: Vec<_> = self.streams.iter().map(cut).collect();
        // Nobody collects those that are captured: they are over where they end.
        #[cfg(feature = "cuda")]
        began.push(self.recorder.captures().cut(0));
        Leaving { since: Instant::now(), began }
    }

    #[cfg(feature = "cupti")]
    fn has_kernels(&self) -> bool {
        self.kernels.is_some()
    }

    #[cfg(not(feature = "cupti"))]
    fn has_kernels(&self) -> bool {
        false
    }
}
