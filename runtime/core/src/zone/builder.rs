//! The functions that a mark calls when its zone has a slot. They are the same with and without the feature `enable`, so that a mark
//! compiles with the feature if and only if it compiles without it.
//!
//! Without `enable` no value of these types is ever created. The types are inhabited nevertheless, because the compiler does not check the
//! borrows of code that depends on a value of an uninhabited type.

use std::fmt::Display;
use std::marker::PhantomData;
use std::panic::Location;

use super::guard::Guard;
use super::{AsyncZone, Zone};
use crate::collective::Message;
use crate::fields::IntoValue;
use crate::panics::caught;
use crate::work::IntoWork;

/// A zone that has its slot and has not started. If it is dropped, the zone counts as unfinished.
#[doc(hidden)]
#[derive(Debug)]
pub struct ZoneBuilder(pub(super) Guard);

// With `enable`, everything that only a recording needs is not inlined, so that it uses neither registers nor stack of the marked function.
// Without it, the calls must compile to nothing.
impl ZoneBuilder {
    /// Evaluates the user's expressions before the zone begins, because they may take long. If one panics, its zone is lost and counts as
    /// unfinished, and the application continues.
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

    /// Sets the lane on which traces show the zone.
    #[cfg_attr(feature = "enable", inline(never))]
    #[cfg_attr(not(feature = "enable"), inline(always))]
    pub fn lane(mut self, lane: impl Display) -> ZoneBuilder {
        self.0.change(|fields| fields.set_lane(lane));
        self
    }

    /// Sets the bytes that the zone's work reads and writes.
    #[cfg_attr(feature = "enable", inline(never))]
    #[cfg_attr(not(feature = "enable"), inline(always))]
    pub fn bytes(mut self, bytes: impl IntoWork) -> ZoneBuilder {
        self.0.change(|fields| fields.set_bytes(bytes));
        self
    }

    /// Sets the floating-point operations of the zone's work.
    #[cfg_attr(feature = "enable", inline(never))]
    #[cfg_attr(not(feature = "enable"), inline(always))]
    pub fn flops(mut self, flops: impl IntoWork) -> ZoneBuilder {
        self.0.change(|fields| fields.set_flops(flops));
        self
    }

    /// Sets the message that the zone moves between ranks.
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

    /// Starts the zone on this thread, at the location of the caller: a mark, or a call that begins a zone manually.
    #[cfg_attr(feature = "enable", inline(never))]
    #[cfg_attr(not(feature = "enable"), inline(always))]
    #[track_caller]
    pub fn start(self) -> Zone {
        Zone { guard: self.0.start(true, Location::caller()), _not_send: PhantomData }
    }

    /// Starts the zone as [`start`](Self::start) does. Any thread may end it.
    #[cfg_attr(feature = "enable", inline(never))]
    #[cfg_attr(not(feature = "enable"), inline(always))]
    #[track_caller]
    pub fn start_async(self) -> AsyncZone {
        AsyncZone { guard: self.0.start(false, Location::caller()) }
    }
}
