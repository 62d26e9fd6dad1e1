//! Holds the zones of one stream back until it is known what is around them.
//!
//! Records come in the order in which zones end, so those inside a zone come before it. What tells is the sequence: a zone
//! around another one began before it, so once every zone that began before is there, nothing around it is missing. A zone
//! that was dropped never comes, and one may stay open for a whole run: after [`PATIENCE`], or when too many wait, what is
//! missing is given up on. If it comes after all, it is shown at once, on a context of its own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::tracy::Location;
use warpline_core::record::Span;

/// The longest that zones wait for one around them.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// The most zones of one stream that wait.
pub(super) const MOST: usize = if cfg!(test) { 64 } else { 1 << 16 };

/// The most gaps that are remembered.
const GAPS: usize = 256;

/// What of a record Tracy shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zone {
    pub(super) location: Location,
    pub(super) span: Span,
    pub(super) sequence: u64,
    pub(super) lane: Option<&'static str>,
    /// Whether a record counts as lost without it: parts and second views of records do not.
    pub(super) is_record: bool,
}

#[derive(Debug, Default)]
pub(super) struct Order {
    /// The first zone that is missing.
    next: u64,
    /// Zones that began after it, and when they came; none for one that is not to be shown.
    held: BTreeMap<u64, (Option<Zone>, Instant)>,
    /// What was given up on, oldest first.
    gaps: Vec<Range<u64>>,
}

impl Order {
    /// A zone came. What can be shown now goes to `ready`.
    pub(super) fn add(&mut self, zone: Zone, now: Instant, ready: &mut Vec<Zone>) {
        self.take(zone.sequence, Some(zone), now, ready);
    }

    /// A zone came that cannot be shown.
    pub(super) fn leave_out(&mut self, sequence: u64, now: Instant, ready: &mut Vec<Zone>) {
        self.take(sequence, None, now, ready);
    }

    fn take(&mut self, sequence: u64, zone: Option<Zone>, now: Instant, ready: &mut Vec<Zone>) {
        if sequence < self.next {
            if self.gaps.iter().any(|gap| gap.contains(&sequence)) {
                ready.extend(zone);
                return;
            }
            // The session let go of the stream and has met it anew, with a new count.
            self.finish(ready);
            *self = Order::default();
        }
        if sequence == self.next {
            ready.extend(zone);
            self.next += 1;
            self.release_ready(ready);
            return;
        }
        self.held.insert(sequence, (zone, now));
        if self.held.len() > MOST {
            self.give_up_first_gap(ready);
        }
    }

    /// Whether it holds nothing back.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// What has been waited for long enough is not waited for any more.
    pub(super) fn give_up_waiting(&mut self, now: Instant, ready: &mut Vec<Zone>) {
        while self.held.first_key_value().is_some_and(|(_, (_, came))| now.duration_since(*came) >= PATIENCE) {
            self.give_up_first_gap(ready);
        }
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self, ready: &mut Vec<Zone>) {
        ready.extend(std::mem::take(&mut self.held).into_values().filter_map(|(zone, _)| zone));
    }

    fn give_up_first_gap(&mut self, ready: &mut Vec<Zone>) {
        let Some((&first, _)) = self.held.first_key_value() else { return };
        if self.gaps.len() == GAPS {
            self.gaps.remove(0);
        }
        self.gaps.push(self.next..first);
        self.next = first;
        self.release_ready(ready);
    }

    /// Lets go of the zones that miss nothing.
    fn release_ready(&mut self, ready: &mut Vec<Zone>) {
        while let Some(first) = self.held.first_entry()
            && *first.key() == self.next
        {
            ready.extend(first.remove().0);
            self.next += 1;
        }
    }
}
