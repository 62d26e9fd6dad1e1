//! Zones without feature `enable`: the types that a mark needs, and no code.

use std::panic::Location;

use super::Opening;
use crate::backend::AsStream;
use crate::catalog::RangeSpec;
use crate::collective::Message;
use crate::fields::Fields;

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

    #[inline(always)]
    pub(super) fn start(self, _: bool, _: &'static Location<'static>) -> Guard {
        Guard::NONE
    }
}

impl Drop for Guard {
    /// As with feature `enable`, a zone is held until its end: what is an error there is one here.
    #[inline(always)]
    fn drop(&mut self) {}
}

/// A zone that something records. No value is ever made: nothing records.
#[doc(hidden)]
#[derive(Debug)]
pub struct Begin(());

#[doc(hidden)]
#[inline(always)]
pub fn begin(_: &'static RangeSpec) -> Option<Begin> {
    None
}

impl Begin {
    #[inline(always)]
    pub(super) fn opened_on(self, _: &(impl AsStream + ?Sized)) -> Option<Opening> {
        None
    }

    #[inline(always)]
    pub(super) fn opened_on_host(self) -> Option<Opening> {
        None
    }
}
