//! What a mark calls: the same functions with feature `enable` and without it, so that a mark compiles with it exactly where
//! it compiles without.
//!
//! Without `enable` no value of these types is ever made. They are still inhabited: the compiler does not check the borrows of
//! code behind a value that cannot exist.

use std::fmt::Display;
use std::marker::PhantomData;
use std::panic::Location;

use super::guard::Guard;
use super::{AsyncZone, Outcome, Zone};
use crate::backend::AsStream;
use crate::catalog::RangeSpec;
use crate::caught::caught;
use crate::collective::Message;
use crate::fields::IntoValue;
#[cfg(feature = "enable")]
use crate::switch::{self, SwitchState};

/// A zone that somebody wants and whose stream is not known yet: a session records it, a request waits for it, or a tool
/// follows it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ZoneRequest {
    #[cfg(feature = "enable")]
    pub(super) range: &'static RangeSpec,
    /// Who wants it.
    #[cfg(feature = "enable")]
    pub(super) word: SwitchState,
}

/// It is returned in registers.
#[cfg(feature = "enable")]
const _: () = assert!(size_of::<Option<ZoneRequest>>() == 16);
#[cfg(not(feature = "enable"))]
const _: () = assert!(size_of::<ZoneRequest>() == 0);

/// A zone that has its slot and has not started. Dropped, it counts as unfinished.
#[doc(hidden)]
#[derive(Debug)]
pub struct ZoneBuilder(pub(super) Guard);

/// All that a program pays while nobody records: the switch, and a branch. None without feature `enable`.
#[doc(hidden)]
#[inline(always)]
pub fn begin(range: &'static RangeSpec) -> Option<ZoneRequest> {
    #[cfg(feature = "enable")]
    return switch::word().and_then(|word| ZoneRequest::wanted(range, word));
    #[cfg(not(feature = "enable"))]
    no_request(range)
}

/// What there is for a zone without feature `enable`.
#[cfg(not(feature = "enable"))]
#[inline(always)]
fn no_request<T>(_: impl Sized) -> Option<T> {
    None
}

impl ZoneRequest {
    /// Takes a slot of the stream's ring; none when the zone is dropped and counted. The stream is not looked at for a zone
    /// that is only mirrored.
    #[inline(always)]
    pub fn on(self, stream: &(impl AsStream + ?Sized)) -> Option<ZoneBuilder> {
        #[cfg(feature = "enable")]
        return self.opened_on(stream);
        #[cfg(not(feature = "enable"))]
        no_request(stream)
    }

    /// Takes a slot of the ring of the host zones.
    #[inline(always)]
    pub fn on_host(self) -> Option<ZoneBuilder> {
        #[cfg(feature = "enable")]
        return self.opened_on_host();
        #[cfg(not(feature = "enable"))]
        None
    }
}

// With `enable`, whatever only a recording needs is called out of line, so that it takes neither registers nor stack from the
// marked function. Without it, nothing may be left of the call.
impl ZoneBuilder {
    /// Evaluates the user's expressions, before anything is timed: they may take long. One that panics costs its zone, which
    /// counts as unfinished, and not the application.
    #[cfg_attr(feature = "enable", inline(never))]
    #[cfg_attr(not(feature = "enable"), inline(always))]
    pub fn fill(self, fill: impl FnOnce(ZoneBuilder) -> ZoneBuilder) -> ZoneBuilder {
        caught(|| fill(self)).unwrap_or(ZoneBuilder(Guard::NONE))
    }

    /// Adds a field.
    #[cfg_attr(feature = "enable", inline(never))]
    #[cfg_attr(not(feature = "enable"), inline(always))]
    pub fn field(mut self, name: &'static str, value: impl IntoValue) -> ZoneBuilder {
        self.0.change(|fields| fields.push(name, value));
        self
    }

    /// Sets the zone's own label.
    #[cfg_attr(feature = "enable", inline(never))]
    #[cfg_attr(not(feature = "enable"), inline(always))]
    pub fn label(mut self, label: impl Display) -> ZoneBuilder {
        self.0.change(|fields| fields.set_label(label));
        self
    }

    /// Says what the zone moves between ranks.
    #[cfg_attr(feature = "enable", inline(never))]
    #[cfg_attr(not(feature = "enable"), inline(always))]
    pub fn message(mut self, message: Message) -> ZoneBuilder {
        self.0.set_message(message);
        self
    }

    /// See [`Zone::begin_at_launch`].
    #[cfg_attr(feature = "enable", inline(never))]
    #[cfg_attr(not(feature = "enable"), inline(always))]
    pub fn begin_at_launch(mut self) -> ZoneBuilder {
        self.0.begin_at_launch();
        self
    }

    /// Starts the zone on this thread, at the caller's place: that of the mark, or of the call that begins a zone by hand.
    #[cfg_attr(feature = "enable", inline(never))]
    #[cfg_attr(not(feature = "enable"), inline(always))]
    #[track_caller]
    pub fn start(self) -> Zone {
        Zone { guard: self.0.start(true, Location::caller()), _not_send: PhantomData }
    }

    /// Starts the zone, as [`start`](Self::start) does; any thread may end it.
    #[cfg_attr(feature = "enable", inline(never))]
    #[cfg_attr(not(feature = "enable"), inline(always))]
    #[track_caller]
    pub fn start_async(self) -> AsyncZone {
        AsyncZone { guard: self.0.start(false, Location::caller()) }
    }
}

/// The text of the error, if it is one. A `Display` that panics costs the text, and not the application.
pub(super) fn error_text(outcome: &(impl Outcome + ?Sized)) -> Option<String> {
    caught(|| outcome.error_text()).unwrap_or_else(|| Some("its `Display` panicked".to_owned()))
}

/// A value of any type, in code that never runs: it tells the compiler what `?` in an async body converts to.
#[doc(hidden)]
pub fn never<T>() -> T {
    std::process::abort()
}

/// Runs the body of a function with `err`. The bound lets the closure return what it borrows of its captures.
#[doc(hidden)]
#[inline(always)]
pub fn once<T>(body: impl FnOnce() -> T) -> T {
    body()
}
