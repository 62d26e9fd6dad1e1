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
                    change(open.fields());
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
        pub fn stream(self, _stream: &(impl AsStream + ?Sized)) -> Found {
            Found(())
        }
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
