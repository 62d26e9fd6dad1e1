//! Holds the zones of one stream back until their enclosing zones are known.
//!
//! Records come in the order in which zones end, so inner zones come before the zone around them. The sequence is the order of the begins:
//! when every zone that began before has come, no enclosing zone is missing. A dropped zone never comes, and a zone may stay open for a
//! whole run. After [`PATIENCE`], or when too many zones wait, missing zones are no longer waited for. If one comes later, it is shown at
//! once, on a separate context.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::tracy::Location;
use warpline_core::record::Span;

/// The longest time that zones wait for an enclosing one.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// The maximum number of zones of one stream that wait.
pub(super) const MOST: usize = if cfg!(test) { 64 } else { 1 << 16 };

/// The maximum number of gaps that are kept.
const GAPS: usize = 256;

/// The part of a record that Tracy shows.
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
    /// The sequence of the first missing zone.
    next: u64,
    /// Zones that began after it, with the times when they came; none for a zone that is not shown.
    held: BTreeMap<u64, (Option<Zone>, Instant)>,
    /// The missing zones that are no longer waited for, oldest first.
    gaps: Vec<Range<u64>>,
}

impl Order {
    /// Adds a zone. Zones that can be shown now go to `ready`.
    pub(super) fn add(&mut self, zone: Zone, now: Instant, ready: &mut Vec<Zone>) {
        self.take(zone.sequence, Some(zone), now, ready);
    }

    /// Adds a zone that cannot be shown.
    pub(super) fn leave_out(&mut self, sequence: u64, now: Instant, ready: &mut Vec<Zone>) {
        self.take(sequence, None, now, ready);
    }

    fn take(&mut self, sequence: u64, zone: Option<Zone>, now: Instant, ready: &mut Vec<Zone>) {
        if sequence < self.next {
            if self.gaps.iter().any(|gap| gap.contains(&sequence)) {
                ready.extend(zone);
                return;
            }
            // The session removed the stream and added it again, with a new count.
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

    /// Returns whether it holds nothing back.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Stops waiting for missing zones when other zones have waited for [`PATIENCE`].
    pub(super) fn give_up_waiting(&mut self, now: Instant, ready: &mut Vec<Zone>) {
        while self.held.first_key_value().is_some_and(|(_, (_, came))| now.duration_since(*came) >= PATIENCE) {
            self.give_up_first_gap(ready);
        }
    }

    /// Releases all zones, because no more come.
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

    /// Releases the zones that no longer wait for another.
    fn release_ready(&mut self, ready: &mut Vec<Zone>) {
        while let Some(first) = self.held.first_entry()
            && *first.key() == self.next
        {
            ready.extend(first.remove().0);
            self.next += 1;
        }
    }
}
