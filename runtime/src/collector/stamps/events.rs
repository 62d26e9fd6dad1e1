//! Takes the events of launches that the program told of, in a session with `graph_timing=events`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{About, Collector, EventSource, Replays, Side, record};
use crate::backend::cuda::stamps::{self, Done, EventClock, Ring, Stamped};
use crate::graph::exchange::{self, Known};
use crate::graph::plan::Plan;
use crate::lock::lock;
use crate::replay::ReplayTiming;

/// Times are told in 32-bit floats of ms: what is less apart has no order.
const STEP_NS: i64 = 1_000;

/// A device that refused what reading it needs is asked again after so long.
const AGAIN: Duration = Duration::from_secs(1);

impl Collector {
    /// Says how many events were read, and whether others are awaited.
    pub(super) fn read_events(&self, side: &mut Side, last: bool) -> (u64, bool) {
        let Side { clocks: Some(clocks), session, replays, .. } = side else { return (0, false) };
        replays.counts.by_events = true;
        // This collector was left to itself, and comes back late: another session reads what there is now.
        if stamps::session() != *session {
            return (0, false);
        }
        let (mut taken, mut is_waiting) = (0, false);
        for known in exchange::waiting() {
            let ring = &known.ring;
            if !ring.is_there() {
                replays.counts.incomplete += ring.waiting(*session);
                exchange::forget(ring);
                continue;
            }
            let clock = clocks.entry(ring.context_id).or_insert_with(|| Err(Instant::now()));
            if clock.as_ref().is_err_and(|again| *again <= Instant::now()) {
                *clock = self.event_source(ring);
            }
            if let Ok((clock, stream)) = clock {
                clock.renew();
                let pauses = &self.recorder.pauses;
                let about = About { stream, bracket_ns: 0, pauses, timed_by: ReplayTiming::Events };
                let done = ring.read(clock, *session).into_iter().filter(|done| done.session == *session);
                taken += done.map(|done| replays.end_launch(&known, done, &about)).sum::<u64>();
                replays.counts.uncertainty_ns = replays.counts.uncertainty_ns.max(clock.uncertainty_ns());
            }
            if last {
                let incomplete = ring.waiting(*session);
                replays.counts.incomplete += incomplete;
                if incomplete > 0 && clock.as_ref().is_ok_and(|(clock, _)| !clock.knows_time()) {
                    self.tell_once(
                        "replays of graphs were not timed by events: the device was too busy to tell its time",
                    );
                }
            }
            is_waiting |= !ring.is_empty();
        }
        (taken, is_waiting)
    }

    fn event_source(&self, ring: &Ring) -> EventSource {
        let clock = EventClock::new(ring).map_err(|error| {
            self.tell_once(&format!("replays of graphs are not timed by events as long as this fails: {error}"));
            Instant::now() + AGAIN
        })?;
        let stream = self.recorder.stream_of_graphs(ring.context_id, &clock.device);
        Ok((clock, stream))
    }

    fn tell_once(&self, note: &str) {
        let mut notes = lock(&self.tally.notes);
        if !notes.iter().any(|told| told == note) {
            notes.push(note.to_owned());
        }
    }
}

impl Replays {
    /// Says how many events it had.
    fn end_launch(&mut self, known: &Known, done: Done, about: &About<'_>) -> u64 {
        self.counts.launches_untold += u64::from(done.is_behind_untold);
        let plan = known.plan();
        let Some(times) = done.times.filter(|times| times.len() == plan.stamps.len()) else {
            self.counts.incomplete += 1;
            return 0;
        };
        if !are_in_order(&plan, &times) {
            // A launch that nobody told of was in the midst of it.
            self.counts.mixed += 1;
        } else if times.first().is_some_and(|first| about.pauses.has(first.host_ns)) {
            self.counts.stopped += times.len() as u64;
        } else {
            self.counts.replays += 1;
            let record = record(&plan, &times, self.counts.replays as u32, about);
            self.counts.zones += record.zones.len() as u64;
            self.complete.push(record);
        }
        times.len() as u64
    }
}

fn are_in_order(plan: &Arc<Plan>, times: &[Stamped]) -> bool {
    let at = |place: usize| times[place].device_ns;
    (0..)
        .zip(&plan.stamps)
        .all(|(place, before)| before.iter().all(|before| at(*before as usize) <= at(place) + STEP_NS))
}
