//! One stream as the collector sees it: its pending zones, and how many of them are complete.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpline_core::backend::{BackendError, Reader};
use warpline_core::record::DeviceKind;
use warpline_core::stream::context::StreamContext;
use warpline_core::stream::ring::Token;
use warpline_core::stream::snapshot::OpenZoneSnapshot;

/// The number of slots that are given back at once.
const CLEARED: usize = 64;

/// The time between two queries that make threads wait which launch on other streams.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// The zones of one stream that have ended on the host and perhaps not yet on the GPU.
pub(crate) struct Stream {
    pub(super) context: Arc<StreamContext>,
    pub(super) pending: VecDeque<Token>,
    /// The slots that are cleared and not given back yet.
    cleared: Vec<Token>,
    pub(super) reader: Option<Box<dyn Reader>>,
    pub(super) given_back: u64,
    /// Its index in `Streams::clocks`.
    pub(super) clock: usize,
    /// The time at which the collector last saw that a zone had begun, and the number of begun zones then.
    pub(super) active: (Instant, u64),
    /// Whether zones began on it between the last two looks.
    pub(super) is_launching: bool,
    /// Whether these were few, with ends that only a look bounds.
    pub(super) is_sparse: bool,
    /// The time at which queries that make launching threads wait were last allowed.
    pub(super) asked: Instant,
    /// The flight recorder's state for it.
    pub(super) watched: Watched,
}

/// The flight recorder's state for a stream.
pub(super) struct Watched {
    /// The snapshots of its open zones.
    pub(super) snapshots: Vec<Arc<OpenZoneSnapshot>>,
    /// The time at which it last had nothing open or recorded another zone, and the number of recorded zones then.
    pub(super) moved: (Instant, u64),
    /// Whether it finishes no zone, and that has been reported.
    pub(super) is_stalled: bool,
    /// The time at which that was last written to standard error.
    pub(super) told: Option<Instant>,
}

impl Stream {
    /// Creates a stream that was just discovered.
    pub(super) fn new(context: Arc<StreamContext>, reader: Option<Box<dyn Reader>>, clock: usize) -> Stream {
        let now = Instant::now();
        Stream {
            context,
            pending: VecDeque::new(),
            cleared: Vec::new(),
            reader,
            given_back: 0,
            clock,
            active: (now, 0),
            is_launching: false,
            is_sparse: false,
            asked: now,
            watched: Watched { snapshots: Vec::new(), moved: (now, 0), is_stalled: false, told: None },
        }
    }

    /// Prefetches what a later zone has written on another core.
    #[inline]
    pub(super) fn prefetch(&mut self, ahead: usize) {
        let ring = self.context.ring();
        if let Some(token) = self.pending.get(ahead) {
            ring.prefetch(token);
        }
        if let (Some(reader), Some(token)) = (&self.reader, self.pending.get_mut(ahead / 2))
            && let Some(points) = ring.slot(token).and_then(|slot| slot.points())
        {
            reader.prefetch(points);
        }
    }

    /// Clears the slot of the oldest zone. Cleared slots are given back together.
    #[inline]
    pub(super) fn clear_first(&mut self) {
        let Some(mut token) = self.pending.pop_front() else { return };
        if let Some(reader) = &mut self.reader
            && let Some(points) = self.context.ring().slot(&mut token).and_then(|slot| slot.points_mut())
        {
            reader.release(points);
        }
        self.context.clear(&mut token);
        self.given_back += 1;
        self.cleared.push(token);
        if self.cleared.len() >= CLEARED {
            self.give_back();
        }
    }

    /// Gives back the cleared slots.
    pub(super) fn give_back(&mut self) {
        self.context.give_back(self.cleared.drain(..));
    }

    /// Returns whether more than a quarter of its slots are in use.
    pub(super) fn is_short(&self) -> bool {
        self.context.in_use(self.given_back) * 4 > self.context.ring().capacity()
    }

    /// Returns whether it is a device's stream, which an application may destroy unnoticed.
    pub(super) fn is_of_device(&self) -> bool {
        self.context.info.as_ref().is_some_and(|info| info.device.kind != DeviceKind::Host)
    }

    /// Returns whether zones that end on it now have no event that times the end.
    pub(super) fn has_lazy_ends(&self) -> bool {
        self.context.backend.as_ref().is_some_and(|backend| backend.has_lazy_ends())
    }

    /// Returns whether a pass may send the device queries that make launching threads wait: at any time if the program rests, sometimes
    /// if it launches on other streams, and never while it launches on this one. There, later work answers them.
    pub(super) fn may_ask(&mut self, asks: bool) -> bool {
        let may = asks || (!self.is_launching && self.asked.elapsed() >= ASK_EVERY);
        if may {
            self.asked = Instant::now();
        }
        may
    }
}

/// Returns how many of the oldest pending zones are complete. The newest is queried first: events of one stream complete in order, so
/// while a stream keeps up, one query is enough for all of them.
pub(super) fn complete_prefix(stream: &mut Stream) -> Result<usize, BackendError> {
    let Stream { context, pending, reader, .. } = stream;
    let waiting = pending.len();
    let mut is_complete = |at: usize| -> Result<bool, BackendError> {
        let slot = pending.get_mut(at).and_then(|token| context.ring().slot(token));
        match (slot.and_then(|slot| slot.points()), &mut *reader) {
            (Some(points), Some(reader)) => reader.is_complete(points),
            _ => Ok(true),
        }
    };
    if waiting == 0 || is_complete(waiting - 1)? {
        return Ok(waiting);
    }
    // Bisect between the newest known complete zone and the oldest known incomplete one.
    let (mut complete, mut incomplete) = (0, waiting - 1);
    while complete < incomplete {
        let middle = complete + (incomplete - complete) / 2;
        if is_complete(middle)? { complete = middle + 1 } else { incomplete = middle }
    }
    Ok(complete)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use warpline_core::backend::Limits;
    use warpline_core::stream::context::SlotGuard;
    use warpline_core::stream::recorder::Recorder;
    use warpline_core::stream::slot::Lost;
    use warpline_core::timing::EndMode;

    #[test]
    fn slots_that_were_given_back_unread_make_no_stream_short() {
        let limits = Limits { zones: 64, events: 2, ends: EndMode::Auto, watch: false };
        let recorder = Recorder::new(NonZeroU32::MIN, limits);
        let stream = Stream::new(Arc::clone(recorder.host()), None, usize::MAX);
        let claim = || Arc::clone(&stream.context).claim(|_| {}).ok().expect("there is room");
        (0..100).for_each(|_| claim().give_up(Lost::EventFailed));
        assert!(!stream.is_short() && stream.context.in_use(stream.given_back) == 0, "none of them is in use");
        let open: Vec<SlotGuard> = (0..17).map(|_| claim()).collect();
        assert!(stream.is_short(), "a quarter of them is, and one more");
        open.into_iter().for_each(|mut claim| claim.give_up(Lost::EventFailed));
    }
}
