//! A zone that somebody asked for: in its slot it carries the ticket that will be answered, and where no session has the zone
//! it takes a slot for this alone. Called from `request.rs` while there are requests, and by `time!`.

use std::sync::Arc;

use super::Zone;
use super::opening::{Begin, Opening};
use crate::catalog::RangeSpec;
use crate::inside::Inside;
use crate::profile::{self, ProfileError, Shared, Ticket};
use crate::sample::Sampled;
use crate::stream::StreamRef;
use crate::stream::context::NoSlot;

impl Begin {
    /// The zone, on a stream or on the host, while there are requests: with a ticket, if it was asked for.
    #[cold]
    #[inline(never)]
    pub(super) fn asked(self, stream: Option<&StreamRef<'_>>) -> Option<Opening> {
        let _inside = Inside::enter();
        let stream = stream.filter(|stream| stream.is_some());
        let others = self.word.of_zone(true, false).map(|word| Begin { word, ..self });
        let opening =
            others.and_then(|begin| stream.map_or_else(|| begin.opened_on_host(), |stream| begin.on_stream(stream)));
        let Some(ticket) = profile::take(self.range, stream) else { return opening };
        // What is only mirrored is given back: a zone that is recorded is mirrored, too.
        match opening.filter(|opening| opening.0.is_active()) {
            Some(opening) => Some(opening.with(ticket)),
            None => open(self.range, ticket, stream).or_else(|| self.mirrored()),
        }
    }
}

/// Begins a zone that no session has.
pub(crate) fn timed(range: &'static RangeSpec, stream: &StreamRef<'_>) -> (Zone, Arc<Shared>) {
    let (ticket, shared) = profile::ask_now();
    let stream = Some(stream).filter(|stream| stream.is_some());
    (open(range, ticket, stream).map_or_else(Zone::none, Opening::start), shared)
}

/// A zone with a slot for its ticket alone; none where the ticket has its answer already.
fn open(range: &'static RangeSpec, ticket: Ticket, stream: Option<&StreamRef<'_>>) -> Option<Opening> {
    let context = || stream.map_or_else(profile::host_context, profile::context);
    let open = |context| Opening::of(range, context);
    let opened = match context().map(open) {
        Ok(Err(NoSlot::Retired)) => context().map(open),
        opened => opened,
    };
    match opened.and_then(|opened| opened.map_err(ProfileError::from)) {
        Ok(opening) => {
            let mut opening = match stream {
                Some(stream) => opening.owning(stream),
                None => opening,
            };
            if let Some(slot) = opening.0.slot() {
                slot.sampled = Sampled::ALL;
            }
            Some(opening.with(ticket))
        }
        Err(error) => {
            ticket.fail(&error);
            None
        }
    }
}

impl Opening {
    fn with(mut self, ticket: Ticket) -> Opening {
        if let Some(slot) = self.0.slot() {
            slot.ticket = Some(ticket);
        }
        self
    }
}
