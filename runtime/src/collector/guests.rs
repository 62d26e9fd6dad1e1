//! Sinks that come and go while a session runs: what is asked for from outside (`control`).
//!
//! A guest takes what the session records from the moment in which it is let in until it asks to leave, or the session ends.
//! It is in no report of the session and changes nothing of it; its own report counts what came by meanwhile.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Collector, lock};
use crate::kernel::KernelRecord;
use crate::record::{SpanRecord, ZoneRecord};
use crate::replay::ReplayRecord;
use crate::session::config::{Filter, lets_through};
use crate::session::{Dropped, KernelCounts, Report, SpanCounts};
use crate::sink::{SessionChange, SessionInfo, Sink};
use crate::stream::context::Account;
use crate::wait::{QueueDepth, WaitRecord};

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
    leaving: Option<Leaving>,
}

/// A guest that leaves waits for what began before.
struct Leaving {
    since: Instant,
    /// Slots that were taken until then, by the address of the stream's context.
    taken: HashMap<usize, u64>,
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
            // One that leaves at once waits for zones of streams that nobody has looked at yet, too.
            self.meet_streams();
            for index in 0..self.guests.len() {
                if self.guests[index].tie.is_leaving.load(Ordering::Acquire) && self.guests[index].leaving.is_none() {
                    self.guests[index].leaving = Some(self.what_began());
                }
            }
        }
        if self.guests.iter().any(|guest| guest.leaving.is_some()) {
            let leave = |collector: &Collector, guest: &Seated| match &guest.leaving {
                Some(leaving) => collector.on_their_way(leaving) == 0 || leaving.since.elapsed() >= LEAVES_WITHIN,
                None => false,
            };
            let guests = std::mem::take(&mut self.guests);
            for guest in guests {
                if leave(self, &guest) { self.see_off(guest, false) } else { self.guests.push(guest) }
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
            let _ = catch_unwind(AssertUnwindSafe(|| call(&mut guest.sink)));
        }
    }

    fn seat(&mut self, guest: Guest) {
        let Guest { sink, filters, mut info, tie } = guest;
        info.kernels = self.has_kernels();
        let mut guest = Seated {
            sink: Chosen { sink, filters, known: HashMap::new(), passed: 0, lost: 0 },
            tie,
            came: Instant::now(),
            before: self.recorder.account(),
            spans_before: self.recorder.span_counts(),
            kernels_before: *lock(&self.tally.kernels),
            leaving: None,
        };
        let _ = catch_unwind(AssertUnwindSafe(|| guest.sink.sink.start(&info)));
        self.guests.push(guest);
    }

    fn see_off(&self, mut guest: Seated, with_session: bool) {
        let report = self.report_of(&guest);
        let done = catch_unwind(AssertUnwindSafe(|| {
            let outcome = guest.sink.sink.finish(&report);
            outcome.map(|()| guest.sink.sink.lost())
        }));
        let lost = guest.sink.lost + done.ok().and_then(Result::ok).unwrap_or(0);
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
            unfinished: guest.leaving.as_ref().map_or(now.dropped.unfinished, |leaving| self.on_their_way(leaving)),
        };
        let (recorded, captured) = (guest.sink.passed, since(now.captured, before.captured));
        let (spans, spans_before) = (self.recorder.span_counts(), guest.spans_before);
        let (kernels, kernels_before) = (*lock(&self.tally.kernels), guest.kernels_before);
        let (spans_recorded, buffer_full) =
            (since(spans.recorded, spans_before.recorded), since(spans.buffer_full, spans_before.buffer_full));
        let mut notes = lock(&self.tally.notes).clone();
        if guest.sink.lost > 0 {
            notes.push(format!("{} records are missing: the reader was slower than the program", guest.sink.lost));
        }
        Report {
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
                recorded: since(kernels.recorded, kernels_before.recorded),
                dropped: since(kernels.dropped, kernels_before.dropped),
                untimed: since(kernels.untimed, kernels_before.untimed),
                buffers_refused: since(kernels.buffers_refused, kernels_before.buffers_refused),
            },
            duration: guest.came.elapsed(),
            clocks: lock(&self.tally.clocks).clone(),
            notes,
            ..Report::default()
        }
    }

    fn what_began(&self) -> Leaving {
        let address = |stream: &super::Stream| Arc::as_ptr(&stream.context).addr();
        let taken = self.streams.iter().map(|stream| (address(stream), stream.context.ring().taken())).collect();
        Leaving { since: Instant::now(), taken }
    }

    /// How many zones that began before somebody wanted to leave are neither recorded nor given up.
    fn on_their_way(&self, leaving: &Leaving) -> u64 {
        let left = self.streams.iter().filter_map(|stream| {
            let taken = leaving.taken.get(&Arc::as_ptr(&stream.context).addr())?;
            Some(taken.saturating_sub(stream.context.done(stream.given_back)))
        });
        left.sum()
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

/// Hands on the zones of the ranges that were chosen, and all that is no zone.
struct Chosen {
    sink: Box<dyn Sink>,
    filters: Vec<Filter>,
    /// Whether a range is chosen, by its address.
    known: HashMap<usize, bool>,
    passed: u64,
    lost: u64,
}

impl Chosen {
    fn lets_through(&mut self, range: &'static crate::catalog::RangeSpec) -> bool {
        let filters = &self.filters;
        filters.is_empty()
            || *self
                .known
                .entry(std::ptr::from_ref(range).addr())
                .or_insert_with(|| lets_through(filters, range.name()))
    }
}

impl Chosen {
    /// Counts what could not be taken.
    fn count(&mut self, records: usize, taken: std::io::Result<()>) -> std::io::Result<()> {
        if taken.is_err() {
            self.lost += records as u64;
        }
        taken
    }
}

impl Sink for Chosen {
    fn records(&mut self, batch: &[ZoneRecord]) -> std::io::Result<()> {
        let chosen = batch.iter().filter(|record| self.lets_through(record.range)).count();
        let taken = match chosen {
            0 => return Ok(()),
            all if all == batch.len() => self.sink.records(batch),
            _ => {
                let batch: Vec<_> = batch.iter().filter(|record| self.lets_through(record.range)).cloned().collect();
                self.sink.records(&batch)
            }
        };
        self.passed += if taken.is_ok() { chosen as u64 } else { 0 };
        self.count(chosen, taken)
    }

    fn spans(&mut self, batch: &[SpanRecord]) -> std::io::Result<()> {
        let taken = self.sink.spans(batch);
        self.count(batch.len(), taken)
    }

    /// Of chosen ranges those kernels that their zones launched.
    fn kernels(&mut self, batch: &[KernelRecord]) -> std::io::Result<()> {
        if self.filters.is_empty() {
            let taken = self.sink.kernels(batch);
            return self.count(batch.len(), taken);
        }
        let is_chosen = |record: &&KernelRecord| record.zone.is_some_and(|zone| self.lets_through(zone.range));
        let batch: Vec<_> = batch.iter().filter(is_chosen).cloned().collect();
        let taken = self.sink.kernels(&batch);
        self.count(batch.len(), taken)
    }

    fn replays(&mut self, batch: &[ReplayRecord]) -> std::io::Result<()> {
        let taken = self.sink.replays(batch);
        self.count(batch.len(), taken)
    }

    fn waits(&mut self, batch: &[WaitRecord]) -> std::io::Result<()> {
        let taken = self.sink.waits(batch);
        self.count(batch.len(), taken)
    }

    fn depths(&mut self, batch: &[QueueDepth]) -> std::io::Result<()> {
        let taken = self.sink.depths(batch);
        self.count(batch.len(), taken)
    }

    fn changes(&mut self, batch: &[SessionChange]) -> std::io::Result<()> {
        let taken = self.sink.changes(batch);
        self.count(batch.len(), taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.sink.flush()
    }
}
