//! Zones without feature `enable`: the types that a mark needs, and no code.

use std::fmt::Display;

use super::{AsyncZone, Zone};
use crate::catalog::RangeSpec;
use crate::collective::Message;
use crate::fields::{Fields, IntoValue};
use crate::stream::AsStream;

/// Nothing that ends.
#[derive(Debug)]
pub(super) struct Guard;

impl Guard {
    pub(super) const NONE: Guard = Guard;

    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        false
    }

    #[inline(always)]
    pub(super) fn change(&mut self, _: impl FnOnce(&mut Fields)) {}

    #[inline(always)]
    pub(super) fn set_message(&mut self, _: Message) {}

    #[inline(always)]
    pub(super) fn add_entry(&mut self, _: &'static RangeSpec, _: Message) {}

    #[inline(always)]
    pub(super) fn begin_at_launch(&mut self) {}

    #[inline(always)]
    pub(super) fn note_error(&mut self, _: Option<String>) {}
}

impl Drop for Guard {
    /// As with feature `enable`, a zone is held until its end: what is an error there is one here.
    #[inline(always)]
    fn drop(&mut self) {}
}

/// There is none: nothing records.
#[doc(hidden)]
#[derive(Debug)]
pub enum Begin {}

/// As above.
#[doc(hidden)]
#[derive(Debug)]
pub enum Opening {}

#[doc(hidden)]
#[inline(always)]
pub fn begin(_: &'static RangeSpec) -> Option<Begin> {
    None
}

impl Begin {
    #[inline(always)]
    pub fn on(self, _: &(impl AsStream + ?Sized)) -> Option<Opening> {
        match self {}
    }

    #[inline(always)]
    pub fn on_host(self) -> Option<Opening> {
        match self {}
    }
}

impl Opening {
    #[inline(always)]
    pub fn field(self, _: &'static str, _: impl IntoValue) -> Opening {
        match self {}
    }

    #[inline(always)]
    pub fn label(self, _: impl Display) -> Opening {
        match self {}
    }

    #[inline(always)]
    pub fn message(self, _: Message) -> Opening {
        match self {}
    }

    #[inline(always)]
    pub fn begin_at_launch(self) -> Opening {
        match self {}
    }

    #[inline(always)]
    pub fn start(self) -> Zone {
        match self {}
    }

    #[inline(always)]
    pub fn start_async(self) -> AsyncZone {
        match self {}
    }
}
