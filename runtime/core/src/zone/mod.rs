//! Zones: the guards that people hold, and what they can say of a zone.
//!
//! What a mark calls is in `request.rs` and `builder.rs`, how a zone gets its slot in `slots.rs`, what the slot can be given in
//! `guard.rs`, and begin and end in `launch.rs`. Without the feature `enable` the same functions do nothing.

use std::fmt::Display;
use std::marker::PhantomData;

use crate::backend::AsStream;
use crate::catalog::RangeSpec;
use crate::collective::Message;
use crate::fields::IntoValue;

#[cfg(feature = "enable")]
mod asked;
mod batch;
mod builder;
mod guard;
#[cfg_attr(not(feature = "enable"), path = "no_launch.rs")]
mod launch;
mod request;
#[cfg_attr(not(feature = "enable"), path = "no_slots.rs")]
mod slots;

#[cfg(feature = "enable")]
pub use asked::timed;
pub use batch::CollectiveBatch;
pub use builder::{ZoneBuilder, never, once};
use guard::Guard;
pub use request::{ZoneRequest, begin};

/// A zone on the thread that began it: it ends when it is dropped.
///
/// `!Send`: zones of one thread nest. Use [`AsyncZone`] where a zone is held across an `.await`.
#[must_use = "a zone ends when it is dropped: bind it, `let _zone = …`"]
#[derive(Debug)]
pub struct Zone {
    guard: Guard,
    _not_send: PhantomData<*const ()>,
}

/// A zone that may end on another thread than it began on: it ends when it is dropped, takes no part in the nesting of
/// any thread, and its records have depth 0.
#[must_use = "a zone ends when it is dropped: bind it, `let _zone = …`"]
#[derive(Debug)]
pub struct AsyncZone {
    guard: Guard,
}

// The place that a zone begins at is the caller's: a closure or a function's path in place of these calls would lose it.
impl RangeSpec {
    /// Begins a zone of this range on `stream`; it ends when the guard is dropped.
    #[inline]
    #[track_caller]
    pub fn zone(&'static self, stream: &(impl AsStream + ?Sized)) -> Zone {
        match begin(self).and_then(|request| request.on(stream)) {
            Some(builder) => builder.start(),
            None => Zone::none(),
        }
    }

    /// Begins a zone of this range on this thread, with no stream.
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
    /// A zone that records nothing.
    #[doc(hidden)]
    #[inline(always)]
    pub fn none() -> Zone {
        Zone { guard: Guard::NONE, _not_send: PhantomData }
    }
}

impl AsyncZone {
    /// A zone that records nothing.
    #[doc(hidden)]
    #[inline(always)]
    pub fn none() -> AsyncZone {
        AsyncZone { guard: Guard::NONE }
    }
}

macro_rules! guard_methods {
    ($zone:ident) => {
        impl $zone {
            /// Whether this zone is recorded: by a session, or because somebody asked for it. What an NVTX tool is told of a zone is complete when it has begun.
            #[inline]
            pub fn is_active(&self) -> bool {
                self.guard.is_active()
            }

            /// Adds a field to the zone, if it records. For a value that costs something, ask [`is_active`](Self::is_active).
            #[inline]
            pub fn field(mut self, name: &'static str, value: impl IntoValue) -> Self {
                self.guard.change(|fields| fields.push(name, value));
                self
            }

            /// Sets the zone's own label, if it records.
            #[inline]
            pub fn label(mut self, label: impl Display) -> Self {
                self.guard.change(|fields| fields.set_label(label));
                self
            }

            /// Says what the zone moves between ranks, if it records. For what costs something, ask
            /// [`is_active`](Self::is_active).
            #[inline]
            pub fn message(mut self, message: Message) -> Self {
                self.guard.set_message(message);
                self
            }

            /// Lets the zone begin when its thread has launched its work, where the stream had come to the zone before
            /// that and waited. Say it of a zone that launches once and ends right behind that: `begin = launch` in a mark.
            #[inline]
            pub fn begin_at_launch(mut self) -> Self {
                self.guard.begin_at_launch();
                self
            }

            /// Notes the `Err` of a marked function.
            #[doc(hidden)]
            #[inline]
            pub fn outcome(&mut self, outcome: &(impl Outcome + ?Sized)) {
                if self.guard.is_active() {
                    self.guard.note_error(builder::error_text(outcome));
                }
            }
        }
    };
}

guard_methods!(Zone);
guard_methods!(AsyncZone);

/// What `err` in a mark can look into.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`err` needs a function that returns a `Result` whose error has a `Display`",
    label = "returns `{Self}`",
    note = "take `err` out of the mark, or return a `Result`"
)]
pub trait Outcome {
    /// The text of the error, if it is one.
    fn error_text(&self) -> Option<String>;
}

impl<T, E: Display> Outcome for Result<T, E> {
    fn error_text(&self) -> Option<String> {
        self.as_ref().err().map(ToString::to_string)
    }
}
