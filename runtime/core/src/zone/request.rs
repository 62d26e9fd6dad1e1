//! The first functions that a mark calls: they check whether the zone is needed, and take a slot for it (`slots`).
//!
//! They are the same with and without the feature `enable`, so that a mark compiles with the feature if and only if
//! it compiles without it, and an invalid mark has the same error message.

use super::builder::ZoneBuilder;
use crate::backend::AsStream;
use crate::catalog::RangeSpec;
use crate::if_feature;

/// A zone that is needed and whose stream is not known yet: a session records it, a request waits for it, or a tool observes it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ZoneRequest {
    #[cfg(feature = "enable")]
    pub(super) range: &'static RangeSpec,
    /// The purpose, and above it the chance with which a session records the zone: in one word, so that a request is in two
    /// registers.
    #[cfg(feature = "enable")]
    pub(super) purpose_and_chance: u64,
}

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
    if_feature!("enable", crate::switch::word().and_then(|word| ZoneRequest::by(range, word)), {
        let _ = range;
        None
    })
}

impl ZoneRequest {
    /// Takes a slot of the stream's ring; none if the zone is dropped and counted. The stream is not accessed for a zone that is only
    /// mirrored.
    #[inline(always)]
    pub fn on(self, stream: &(impl AsStream + ?Sized)) -> Option<ZoneBuilder> {
        if_feature!("enable", self.on_any(stream), {
            let _ = stream;
            None
        })
    }

    /// Takes a slot of the ring of the host zones.
    #[inline(always)]
    pub fn on_host(self) -> Option<ZoneBuilder> {
        if_feature!("enable", self.on_no_stream(), None)
    }
}
