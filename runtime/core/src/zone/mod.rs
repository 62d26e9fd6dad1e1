//! Zones: the guards that a program holds, and the values that it can add to a zone.
//!
//! `request` and `builder` have the functions that a mark calls. `slots` takes a slot for a zone, by what the zone is for; `guard` begins
//! and ends the zone, and adds values to the slot. `step` has the steps of the program, and `named` begins zones of ranges that are named
//! at run time. Without the feature `enable` the same functions do nothing.

use std::fmt::Display;
use std::marker::PhantomData;

use crate::backend::AsStream;
use crate::catalog::RangeSpec;
use crate::collective::Message;
use crate::fields::IntoValue;
use crate::work::IntoWork;

mod batch;
mod builder;
#[cfg_attr(not(feature = "enable"), path = "no_guard.rs")]
mod guard;
mod kept;
pub mod named;
mod outcome;
mod request;
#[cfg(feature = "enable")]
mod slots;
pub mod step;

pub use batch::CollectiveBatch;
pub use builder::ZoneBuilder;
use guard::Guard;
pub use kept::{Keep, KeepReference, KeptStream};
#[doc(hidden)]
pub use outcome::{Check, Outcome, Tried, exits, exits_with, never, once, returned};
pub use request::{ZoneRequest, begin};
#[cfg(feature = "enable")]
pub use slots::timed;

/// A zone on the thread that began it. Dropping it ends the zone.
///
/// `!Send`: the zones of one thread nest. To hold a zone across an `.await`, use [`AsyncZone`].
#[must_use = "a zone ends when it is dropped: bind it, `let _zone = …`"]
#[derive(Debug)]
pub struct Zone {
    guard: Guard,
    _not_send: PhantomData<*const ()>,
}

/// A zone that may end on a different thread from the one that began it. Dropping it ends the zone. It is not part of the nesting of any
/// thread, and its records have depth 0.
#[must_use = "a zone ends when it is dropped: bind it, `let _zone = …`"]
#[derive(Debug)]
pub struct AsyncZone {
    guard: Guard,
}

/// Returns whether no zone begins: there is no session, request or tool.
#[inline]
fn is_off() -> bool {
    crate::switch::word().is_none()
}

// These calls pass on the location of the caller. A closure or a function path in their place would lose it.
impl RangeSpec {
    /// Begins a zone of this range on `stream`. Dropping the guard ends the zone.
    #[inline]
    #[track_caller]
    pub fn zone(&'static self, stream: &(impl AsStream + ?Sized)) -> Zone {
        match begin(self).and_then(|request| request.on(stream)) {
            Some(builder) => builder.start(),
            None => Zone::none(),
        }
    }

    /// Begins a zone of this range on this thread, without a stream.
    #[inline]
    #[track_caller]
    pub fn host(&'static self) -> Zone {
        match begin(self).and_then(ZoneRequest::on_host) {
            Some(builder) => builder.start(),
            None => Zone::none(),
        }
    }

    /// Begins a zone of this range on `stream` that may end on another thread.
    #[inline]
    #[track_caller]
    pub fn async_zone(&'static self, stream: &(impl AsStream + ?Sized)) -> AsyncZone {
        match begin(self).and_then(|request| request.on(stream)) {
            Some(builder) => builder.start_async(),
            None => AsyncZone::none(),
        }
    }

    /// Begins a host zone of this range that may end on another thread.
    #[inline]
    #[track_caller]
    pub fn async_host(&'static self) -> AsyncZone {
        match begin(self).and_then(ZoneRequest::on_host) {
            Some(builder) => builder.start_async(),
            None => AsyncZone::none(),
        }
    }
}

impl Zone {
    /// Returns a zone that records nothing.
    #[doc(hidden)]
    #[inline(always)]
    pub fn none() -> Zone {
        Zone { guard: Guard::NONE, _not_send: PhantomData }
    }
}

impl AsyncZone {
    /// Returns a zone that records nothing.
    #[doc(hidden)]
    #[inline(always)]
    pub fn none() -> AsyncZone {
        AsyncZone { guard: Guard::NONE }
    }
}

macro_rules! guard_methods {
    ($zone:ident) => {
        impl $zone {
            /// Returns whether this zone is recorded by a session or for a request, or seen by an NVTX tool. The tool receives the
            /// values of a zone only at its begin: what is added later does not reach it.
            #[inline]
            pub fn is_active(&self) -> bool {
                self.guard.is_active()
            }

            /// Adds a field to the zone, if it is recorded. Before computing an expensive value, check [`is_active`](Self::is_active).
            #[inline]
            pub fn field(mut self, name: &'static str, value: impl IntoValue) -> Self {
                self.guard.change(|fields| fields.push(name, value));
                self
            }

            /// Sets the zone's own label, if the zone is recorded.
            #[inline]
            pub fn label(mut self, label: impl Display) -> Self {
                self.guard.change(|fields| fields.set_label(label));
                self
            }

            /// Sets the lane on which traces show the zone, in place of its range's, if the zone is recorded. An empty text sets none.
            /// The first 1,024 names of a process have lanes of their own; further ones share the lane `(more)`, and the report counts
            /// their zones.
            #[inline]
            pub fn lane(mut self, lane: impl Display) -> Self {
                self.guard.change(|fields| fields.set_lane(lane));
                self
            }

            /// Sets the bytes that the zone's work reads and writes, if the zone is recorded: reports and traces then give a rate.
            #[inline]
            pub fn bytes(mut self, bytes: impl IntoWork) -> Self {
                self.guard.change(|fields| fields.set_bytes(bytes));
                self
            }

            /// Sets the floating-point operations of the zone's work, if the zone is recorded: reports and traces then give a rate.
            #[inline]
            pub fn flops(mut self, flops: impl IntoWork) -> Self {
                self.guard.change(|fields| fields.set_flops(flops));
                self
            }

            /// Sets the message that the zone moves between ranks, if the zone is recorded. Before computing an expensive message, check
            /// [`is_active`](Self::is_active).
            #[inline]
            pub fn message(mut self, message: Message) -> Self {
                self.guard.set_message(message);
                self
            }

            /// Makes the zone begin when its thread has launched the work, if the stream had already reached the zone and was waiting. Use
            /// it for a zone that launches once and ends directly after the launch. In a mark it is `begin = launch`.
            #[inline]
            pub fn begin_at_launch(mut self) -> Self {
                self.guard.begin_at_launch();
                self
            }
        }

        impl outcome::Failing for $zone {
            #[inline]
            fn fail(&mut self, text: impl FnOnce() -> Option<String>) {
                self.guard.fail(text);
            }
        }
    };
}

guard_methods!(Zone);
guard_methods!(AsyncZone);
