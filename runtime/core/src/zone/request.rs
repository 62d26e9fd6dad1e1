//! The first functions that a mark calls: they check whether the zone is needed, and take a slot for it.
//!
//! They are the same with and without the feature `enable`, so that a mark compiles with the feature if and only if it compiles without
//! it, and an invalid mark has the same error message. `slots` implements them.

use super::builder::ZoneBuilder;
use super::slots::{self, Wanted};
use crate::backend::AsStream;
use crate::catalog::RangeSpec;

/// A zone that is needed and whose stream is not known yet: a session records it, a request waits for it, or a tool observes it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ZoneRequest(Wanted);

/// A request is returned in registers, and has size zero without `enable`.
const _: () = match cfg!(feature = "enable") {
    true => assert!(size_of::<Option<ZoneRequest>>() == 16),
    false => assert!(size_of::<ZoneRequest>() == 0),
};

/// Checks whether the zone is needed. While nothing records, this is a program's only cost: a load of the switch and a branch. Without
/// feature `enable` there is no cost.
#[doc(hidden)]
#[inline(always)]
pub fn begin(range: &'static RangeSpec) -> Option<ZoneRequest> {
    slots::wanted(range).map(ZoneRequest)
}

impl ZoneRequest {
    /// Takes a slot of the stream's ring; none if the zone is dropped and counted. The stream is not accessed for a zone that is only
    /// mirrored.
    #[inline(always)]
    pub fn on(self, stream: &(impl AsStream + ?Sized)) -> Option<ZoneBuilder> {
        self.0.on(stream)
    }

    /// Takes a slot of the ring of the host zones.
    #[inline(always)]
    pub fn on_host(self) -> Option<ZoneBuilder> {
        self.0.on_host()
    }
}
