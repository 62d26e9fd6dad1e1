//! Zones that were requested. A requested zone carries in its slot the ticket that answers the request. If no session records the zone, it
//! takes a slot only for the request. `slots.rs` calls this while there are requests, and so does `time!`.

use std::sync::Arc;

use super::Zone;
use super::builder::ZoneBuilder;
use super::slots::Wanted;
use crate::backend::StreamRef;
use crate::catalog::RangeSpec;
use crate::inside::Inside;
use crate::profile;
use crate::profile::answers::Shared;
use crate::profile::error::ProfileError;
use crate::profile::requests::PendingAnswers;
use crate::sample::Chance;
use crate::stream::context::NoSlot;

impl Wanted {
    /// Takes a slot for a zone on a stream or on the host while there are requests. A zone that was requested gets a ticket.
    #[cold]
    #[inline(never)]
    pub(super) fn asked(self, stream: Option<&StreamRef<'_>>) -> Option<ZoneBuilder> {
        let _inside = Inside::enter();
        let stream = stream.filter(|stream| stream.is_some());
        let others = self.word().unasked().map(|word| self.with(word));
        let builder =
            others.and_then(|request| stream.map_or_else(|| request.on_host(), |stream| request.on_stream(stream)));
        let Some(ticket) = profile::take(self.range, stream) else { return builder };
        // A builder that is only mirrored is given back, because the recorded zone is mirrored as well.
        match builder.filter(|builder| builder.0.is_recorded()) {
            Some(builder) => Some(builder.with(ticket)),
            None => {
                let followed = |mut builder: ZoneBuilder| {
                    builder.follow(self.word());
                    builder
                };
                open(self.range, ticket, stream).map(followed).or_else(|| self.mirrored())
            }
        }
    }
}

/// Begins a zone that no session records.
pub fn timed(range: &'static RangeSpec, stream: &StreamRef<'_>) -> (Zone, Arc<Shared>) {
    let (ticket, shared) = profile::ask_now();
    let stream = Some(stream).filter(|stream| stream.is_some());
    (open(range, ticket, stream).map_or_else(Zone::none, ZoneBuilder::start), shared)
}

/// Takes a slot only for the ticket; none if the ticket was answered with an error.
fn open(range: &'static RangeSpec, ticket: PendingAnswers, stream: Option<&StreamRef<'_>>) -> Option<ZoneBuilder> {
    let context = || stream.map_or_else(profile::host_context, profile::context);
    let open = |context| ZoneBuilder::in_ring(range, Chance::ALWAYS, context);
    let opened = match context().map(open) {
        Ok(Err(NoSlot::Retired)) => context().map(open),
        opened => opened,
    };
    match opened.and_then(|opened| opened.map_err(ProfileError::from)) {
        Ok(builder) => {
            let builder = match stream {
                Some(stream) => builder.owning(stream),
                None => builder,
            };
            Some(builder.with(ticket))
        }
        Err(error) => {
            ticket.fail(&error);
            None
        }
    }
}

impl ZoneBuilder {
    fn with(mut self, ticket: PendingAnswers) -> ZoneBuilder {
        if let Some(slot) = self.0.slot() {
            slot.extras_to_fill().ticket = Some(Box::new(ticket));
        }
        self
    }
}
