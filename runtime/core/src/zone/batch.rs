//! Several collectives that the library launches as one: a zone with entries.

use std::fmt::Display;

use super::Zone;
use crate::backend::AsStream;
use crate::catalog::RangeSpec;
use crate::collective::Message;

/// Several collectives that are launched as one, between `ncclGroupStart` and `ncclGroupEnd`.
///
/// It is one zone on the stream, with one begin and one end, however many entries it has: the library makes one kernel of
/// them. Each entry is a record of its own with what it moves; their times are the batch's, and each has the share of it that
/// its bytes have of all. Dropping the batch ends it, also where an error leaves the function early.
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
/// `!Send`: it nests on its thread, as every [`Zone`].
#[must_use = "a batch ends when it is dropped: bind it"]
#[derive(Debug)]
pub struct CollectiveBatch {
    zone: Zone,
}

impl RangeSpec {
    /// Begins a batch of collectives on `stream`; it ends when it is dropped. The range is one of `kind = collective`: another
    /// kind would count as compute.
    #[inline]
    #[track_caller]
    pub fn batch(&'static self, stream: &(impl AsStream + ?Sized)) -> CollectiveBatch {
        CollectiveBatch { zone: self.zone(stream) }
    }
}

impl CollectiveBatch {
    /// Whether this batch is being recorded.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.zone.is_active()
    }

    /// Adds an entry of this range, unless the session leaves the range out. `message` is only called while the batch records.
    /// Entries beyond 65,536 are dropped and counted as `ring_full`.
    #[inline]
    pub fn add(&mut self, range: &'static RangeSpec, message: impl FnOnce() -> Message) {
        if self.is_active() {
            self.zone.guard.add_entry(range, message());
        }
    }

    /// Ends the batch with what came of it: the text of an `Err` is recorded.
    pub fn end<T, E: Display>(mut self, outcome: &Result<T, E>) {
        self.zone.outcome(outcome);
    }
}
