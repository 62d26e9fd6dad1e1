//! The guard of a zone: begin and end. The hot path; nothing else lives here.
//!
//! The macros call [`enter`] and its siblings; people call [`RangeSpec::zone`]. With no session a zone is one relaxed load
//! and a branch; without feature `enable` it is nothing.

use std::fmt::Display;
use std::marker::PhantomData;

use crate::catalog::RangeSpec;
use crate::fields::{Fields, IntoValue};
use crate::stream::AsStream;

#[cfg(feature = "enable")]
use open::Open;

/// A zone on the thread that began it: it ends when it is dropped.
///
/// `!Send`: zones of one thread nest. Use [`AsyncZone`] where a zone is held across an `.await`.
#[must_use = "a zone ends when it is dropped: bind it, `let _zone = …`"]
#[derive(Debug)]
pub struct Zone {
    #[cfg(feature = "enable")]
    open: Option<Open>,
    _not_send: PhantomData<*const ()>,
}

/// A zone that may end on another thread than it began on: it ends when it is dropped, takes no part in the nesting of
/// any thread, and its records have depth 0.
#[must_use = "a zone ends when it is dropped: bind it, `let _zone = …`"]
#[derive(Debug)]
pub struct AsyncZone {
    #[cfg(feature = "enable")]
    open: Option<Open>,
}

impl RangeSpec {
    /// Begins a zone of this range on `stream`; it ends when the guard is dropped.
    #[inline]
    pub fn zone(&'static self, stream: &(impl AsStream + ?Sized)) -> Zone {
        enter(self, |on| on.stream(stream), |_| ())
    }

    /// Begins a zone of this range on this thread, with no stream.
    #[inline]
    pub fn host(&'static self) -> Zone {
        enter_host(self, |_| ())
    }

    /// Begins a zone of this range on `stream` that may end on another thread.
    #[inline]
    pub fn async_zone(&'static self, stream: &(impl AsStream + ?Sized)) -> AsyncZone {
        enter_async(self, |on| on.stream(stream), |_| ())
    }

    /// Begins a host zone of this range that may end on another thread.
    #[inline]
    pub fn async_host(&'static self) -> AsyncZone {
        enter_host_async(self, |_| ())
    }
}

macro_rules! guard_methods {
    ($guard:ident) => {
        impl $guard {
            /// Whether this zone is being recorded.
            #[inline]
            pub fn is_active(&self) -> bool {
                #[cfg(feature = "enable")]
                return self.open.is_some();
                #[cfg(not(feature = "enable"))]
                false
            }

            /// Adds a field to the zone, if it records. For a value that costs something, ask [`is_active`](Self::is_active).
            #[inline]
            pub fn field(self, name: &'static str, value: impl IntoValue) -> Self {
                self.with(|fields| fields.push(name, value))
            }

            /// Sets the zone's own label, if it records.
            #[inline]
            pub fn label(self, label: impl Display) -> Self {
                self.with(|fields| fields.set_label(label))
            }

            /// Notes the `Err` of a marked function.
            #[doc(hidden)]
            #[inline]
            pub fn outcome(&mut self, outcome: &(impl Outcome + ?Sized)) {
                #[cfg(feature = "enable")]
                if let Some(open) = &mut self.open {
                    open.note_error(outcome.error_text());
                }
                let _ = outcome;
            }

            #[inline]
            #[cfg_attr(not(feature = "enable"), expect(unused_mut, unused_variables, reason = "no zone records"))]
            fn with(mut self, change: impl FnOnce(&mut Fields)) -> Self {
                #[cfg(feature = "enable")]
                if let Some(open) = &mut self.open {
                    open.change(change);
                }
                self
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

#[cfg(not(feature = "enable"))]
mod off {
    use super::*;

    /// Stands for the stream of a mark.
    #[doc(hidden)]
    #[derive(Debug)]
    pub struct On(());

    /// What [`On::stream`] found.
    #[doc(hidden)]
    #[derive(Debug)]
    pub struct Found(());

    impl On {
        #[inline(always)]
        pub fn stream(self, stream: &(impl AsStream + ?Sized)) -> Found {
            let _ = stream;
            Found(())
        }
    }

    /// As with feature `enable`, a zone is held until its end: what is an error there is one here.
    impl Drop for Zone {
        #[inline(always)]
        fn drop(&mut self) {}
    }

    /// As above.
    impl Drop for AsyncZone {
        #[inline(always)]
        fn drop(&mut self) {}
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn enter(_: &'static RangeSpec, _: impl FnOnce(On) -> Found, _: impl FnOnce(&mut Fields)) -> Zone {
        Zone { _not_send: PhantomData }
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn enter_async(_: &'static RangeSpec, _: impl FnOnce(On) -> Found, _: impl FnOnce(&mut Fields)) -> AsyncZone {
        AsyncZone {}
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn enter_host(_: &'static RangeSpec, _: impl FnOnce(&mut Fields)) -> Zone {
        Zone { _not_send: PhantomData }
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn enter_host_async(_: &'static RangeSpec, _: impl FnOnce(&mut Fields)) -> AsyncZone {
        AsyncZone {}
    }
}

#[cfg(not(feature = "enable"))]
pub use off::*;

/// A zone that records: one slot of its stream's ring, from begin to end.
#[cfg(feature = "enable")]
mod open {
    use std::fmt;

    use std::num::NonZeroU32;
    use std::sync::Arc;
    use std::thread::panicking;

    use super::*;
    use crate::clock::now_ns;
    use crate::record::Status;
    use crate::stream::StreamRef;
    use crate::stream::context::{Claim, StreamContext};
    use crate::stream::thread::{self, Thread};
    use crate::switch;

    /// Two words, the first never null: a zone that does not record is a zero and travels in registers. Everything else
    /// that a zone has to remember until its end is in its slot.
    pub(super) struct Open(Claim);

    const _: () = assert!(size_of::<Option<Open>>() == 16);

    /// Finds the stream of a mark, while the zone records.
    #[doc(hidden)]
    #[derive(Debug)]
    pub struct On {
        epoch: NonZeroU32,
    }

    /// What [`On::stream`] found.
    #[doc(hidden)]
    pub struct Found(Option<Arc<StreamContext>>);

    impl fmt::Debug for Found {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_tuple("Found").field(&self.0.is_some()).finish()
        }
    }

    impl On {
        #[inline]
        pub fn stream(self, stream: &(impl AsStream + ?Sized)) -> Found {
            let stream: StreamRef<'_> = stream.as_stream();
            Found(thread::with(|thread| thread.context(self.epoch, &stream)))
        }
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn enter(range: &'static RangeSpec, on: impl FnOnce(On) -> Found, fill: impl FnOnce(&mut Fields)) -> Zone {
        let open = switch::epoch().and_then(|epoch| Open::begin_on(range, epoch, on, fill, true));
        Zone { open, _not_send: PhantomData }
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn enter_async(
        range: &'static RangeSpec,
        on: impl FnOnce(On) -> Found,
        fill: impl FnOnce(&mut Fields),
    ) -> AsyncZone {
        AsyncZone { open: switch::epoch().and_then(|epoch| Open::begin_on(range, epoch, on, fill, false)) }
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn enter_host(range: &'static RangeSpec, fill: impl FnOnce(&mut Fields)) -> Zone {
        let open = switch::epoch().and_then(|epoch| Open::begin_host(range, epoch, fill, true));
        Zone { open, _not_send: PhantomData }
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn enter_host_async(range: &'static RangeSpec, fill: impl FnOnce(&mut Fields)) -> AsyncZone {
        AsyncZone { open: switch::epoch().and_then(|epoch| Open::begin_host(range, epoch, fill, false)) }
    }

    impl Open {
        #[inline(never)]
        fn begin_on(
            range: &'static RangeSpec,
            epoch: NonZeroU32,
            on: impl FnOnce(On) -> Found,
            fill: impl FnOnce(&mut Fields),
            nested: bool,
        ) -> Option<Open> {
            if range.is_left_out() {
                return None;
            }
            Open::begin(range, on(On { epoch }).0?, fill, nested)
        }

        #[inline(never)]
        fn begin_host(
            range: &'static RangeSpec,
            epoch: NonZeroU32,
            fill: impl FnOnce(&mut Fields),
            nested: bool,
        ) -> Option<Open> {
            if range.is_left_out() {
                return None;
            }
            let context = thread::with(|thread| thread.host_context(epoch))?;
            Open::begin(range, context, fill, nested)
        }

        #[inline]
        fn begin(
            range: &'static RangeSpec,
            context: Arc<StreamContext>,
            fill: impl FnOnce(&mut Fields),
            nested: bool,
        ) -> Option<Open> {
            let mut open = Open(context.claim()?);
            let slot = open.0.slot()?;
            slot.range = Some(range);
            slot.was_panicking = panicking();
            // The user's expressions run before anything is timed: they may take long, and they may panic.
            fill(&mut slot.fields);
            slot.nested = nested;
            (slot.thread, slot.depth) = thread::with(|thread| (thread.id, if nested { thread.push() } else { 0 }));
            slot.host.begin_ns = now_ns();
            slot.begun = slot.events.as_ref().is_none_or(|[begin, _]| begin.record().is_ok());
            slot.begun.then_some(open)
        }

        #[inline]
        pub(super) fn change(&mut self, change: impl FnOnce(&mut Fields)) {
            if let Some(slot) = self.0.slot() {
                change(&mut slot.fields);
            }
        }

        #[inline]
        pub(super) fn note_error(&mut self, text: Option<String>) {
            if let (Some(slot), Some(text)) = (self.0.slot(), text) {
                slot.status = Status::Error;
                slot.error = Some(text.into());
            }
        }

        #[inline(never)]
        fn end(&mut self) {
            let is_closed = self.0.is_closed();
            let Some(slot) = self.0.slot() else { return };
            if slot.nested {
                thread::with(Thread::pop);
            }
            if !slot.was_panicking && panicking() {
                slot.status = Status::Panicked;
            }
            // After the session's end nothing more is put on the stream for it.
            let recorded = slot.begun && !is_closed && slot.events.as_ref().is_none_or(|[_, end]| end.record().is_ok());
            slot.host.end_ns = now_ns();
            if recorded { self.0.publish() } else { self.0.event_failed() }
        }
    }

    impl Drop for Open {
        /// No more than the call, so that it is inlined where most zones do not record.
        #[inline(always)]
        fn drop(&mut self) {
            self.end();
        }
    }

    impl fmt::Debug for Open {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Open").finish_non_exhaustive()
        }
    }
}

#[cfg(feature = "enable")]
pub use open::{On, enter, enter_async, enter_host, enter_host_async};
