//! Replaces `slots` in a build without the feature `enable`: no zone takes a slot.

use super::builder::ZoneBuilder;
use crate::backend::AsStream;
use crate::catalog::RangeSpec;

#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted;

#[inline(always)]
pub(super) fn wanted(_: &'static RangeSpec) -> Option<Wanted> {
    None
}

impl Wanted {
    #[inline(always)]
    pub(super) fn on(self, _: &(impl AsStream + ?Sized)) -> Option<ZoneBuilder> {
        None
    }

    #[inline(always)]
    pub(super) fn on_host(self) -> Option<ZoneBuilder> {
        None
    }
}
