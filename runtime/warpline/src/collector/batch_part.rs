//! The part of a batch that somebody wants, which is borrowed if it is all of it.

use std::borrow::Cow;

use warpline_core::kernel::KernelLaunch;
use warpline_core::record::Span;

/// Returns the wanted records of a batch.
pub(super) fn only<T: Clone>(batch: &[T], mut is_wanted: impl FnMut(&T) -> bool) -> Cow<'_, [T]> {
    let wanted: Vec<bool> = batch.iter().map(&mut is_wanted).collect();
    match wanted.iter().all(|is_wanted| *is_wanted) {
        true => batch.into(),
        false => {
            batch.iter().zip(wanted).filter(|(_, is_wanted)| *is_wanted).map(|(record, _)| record.clone()).collect()
        }
    }
}

/// Returns the time at which a kernel or a replay began for the program: its launch, if that is known.
pub(super) fn begin_of(launch: Option<&KernelLaunch>, gpu: Span) -> i64 {
    launch.map_or(gpu.begin_ns, |launch| launch.host.begin_ns)
}
