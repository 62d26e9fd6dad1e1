//! What a mark calls first: whether anybody wants the zone, and a slot for it.
//!
//! The functions are the same with the feature `enable` and without it, so that a mark compiles with it exactly where it compiles without,
//! and a wrong one has the same message. What they do is in `slots`.

use super::builder::ZoneBuilder;
use super::slots::{self, Wanted};
use crate::backend::AsStream;
use crate::catalog::RangeSpec;

/// A zone that somebody wants and whose stream is not known yet: a session records it, a request waits for it, or a tool
/// follows it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ZoneRequest(Wanted);

/// It is returned in registers, and without `enable` it is nothing.
const _: () = match cfg!(feature = "enable") {
    true => assert!(size_of::<Option<ZoneRequest>>() == 16),
    false => assert!(size_of::<ZoneRequest>() == 0),
};

/// All that a program pays while nobody records: the switch, and a branch. None without feature `enable`.
#[doc(hidden)]
#[inline(always)]
pub fn begin(range: &'static RangeSpec) -> Option<ZoneRequest> {
    slots::wanted(range).map(ZoneRequest)
}

impl ZoneRequest {
    /// Takes a slot of the stream's ring; none when the zone is dropped and counted. The stream is not looked at for a zone
    /// that is only mirrored.
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
