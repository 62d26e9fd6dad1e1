//! Replaces `guard` in a build without the feature `enable`: a guard has size zero, and its methods compile to nothing.

use std::panic::Location;

use crate::catalog::RangeSpec;
use crate::collective::Message;
use crate::fields::Fields;

/// It is dropped like the guard of a zone, so that the compiler checks the same borrows.
#[derive(Debug)]
pub(super) struct Guard(());

#[rustfmt::skip]
impl Guard {
    pub(super) const NONE: Guard = Guard(());

    #[inline(always)] pub(super) fn is_active(&self) -> bool { false }
    #[inline(always)] pub(super) fn change(&mut self, _: impl FnOnce(&mut Fields)) {}
    #[inline(always)] pub(super) fn set_message(&mut self, _: Message) {}
    #[inline(always)] pub(super) fn add_entry(&mut self, _: &'static RangeSpec, _: Message) {}
    #[inline(always)] pub(super) fn begin_at_launch(&mut self) {}
    #[inline(always)] pub(super) fn fail(&mut self, _: impl FnOnce() -> Option<String>) {}
    #[inline(always)] pub(super) fn start(self, _nests: bool, _: &'static Location<'static>) -> Guard { self }
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {}
}
