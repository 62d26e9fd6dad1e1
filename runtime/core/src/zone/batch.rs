//! Batches: several collectives that a library launches together, as a zone with entries.

use std::fmt::Display;

use super::Zone;
use crate::backend::AsStream;
use crate::catalog::RangeSpec;
use crate::collective::Message;

/// Several collectives that are launched together, between `ncclGroupStart` and `ncclGroupEnd`.
///
/// A batch is one zone on the stream, with one begin and one end, regardless of its number of entries, because the library launches one
/// kernel for all of them. Each entry has its own record with its message. Its begin and end are those of the batch, and its share of the
/// batch's time is its share of the bytes. Dropping the batch ends it, even if an error leaves the function early.
///
/// ```
/// use warpline::HostStream;
/// use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup};
///
/// warpline::namespace!("demo", "vector arithmetic");
///
/// warpline::range! {
///     GRADIENTS = "demo.gradients": "Sums all gradients.", kind = collective;
///     GRADIENT = "demo.gradient": "Sums the gradient of one layer.", kind = collective;
/// }
///
/// fn sync(stream: &HostStream, group: &ProcessGroup, layers: &[Vec<f32>]) {
///     let mut batch = GRADIENTS.batch(stream);
///     // ncclGroupStart
///     for layer in layers {
///         batch.add(&GRADIENT, || {
///             Message::new(CollectiveKind::AllReduce).count(layer.len()).dtype(DataType::F32).group(group)
///         });
///         // ncclAllReduce
///     }
///     // ncclGroupEnd
/// }
/// # fn main() {}
/// ```
///
/// `!Send`: a batch nests on its thread, as every [`Zone`] does.
#[must_use = "a batch ends when it is dropped: bind it"]
#[derive(Debug)]
pub struct CollectiveBatch {
    zone: Zone,
}

impl RangeSpec {
    /// Begins a batch of collectives on `stream`. Dropping the batch ends it. The range must have `kind = collective`; with another kind,
    /// the batch would count as compute.
    #[inline]
    #[track_caller]
    pub fn batch(&'static self, stream: &(impl AsStream + ?Sized)) -> CollectiveBatch {
        CollectiveBatch { zone: self.zone(stream) }
    }
}

impl CollectiveBatch {
    /// Returns whether this batch is recorded, or seen by an NVTX tool.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.zone.is_active()
    }

    /// Adds an entry of this range, unless the session excludes the range. `message` is called only if the batch is recorded, or if
    /// an NVTX tool sees it. Entries beyond 65,536 are dropped and counted as `ring_full`.
    #[inline]
    pub fn add(&mut self, range: &'static RangeSpec, message: impl FnOnce() -> Message) {
        if self.zone.guard.is_active() {
            self.zone.guard.add_entry(range, message());
        }
    }

    /// Ends the batch with this outcome. The text of an `Err` is recorded.
    pub fn end<T, E: Display>(mut self, outcome: &Result<T, E>) {
        self.zone.guard.fail(|| outcome.as_ref().err().map(ToString::to_string));
    }
}
