//! What the calls of `profile` do: they register the backends of the program, and make the request.

use std::sync::Arc;

use crate::collector::engine;
use warpline_core::backend::{AsStream, NoKey, StreamRef, key_of};
use warpline_core::catalog::RangeSpec;
use warpline_core::if_feature;
use warpline_core::profile::answers::Shared;
use warpline_core::profile::error::ProfileError;
use warpline_core::profile::outside;
use warpline_core::profile::pending::{PendingSubmission, PendingZone, PendingZones};
use warpline_core::profile::requests::{self, EndSignal};
use warpline_core::zone::{self, Zone};

/// Requests the next `n` zones on the stream; `signal` returns what is put behind them, if anything.
pub(super) fn next(
    stream: &(impl AsStream + ?Sized),
    n: u32,
    signal: impl FnOnce(&StreamRef<'_>) -> Result<Option<Arc<dyn EndSignal>>, String>,
) -> Arc<Shared> {
    let stream = stream_ref(stream);
    match signal(&stream) {
        Ok(signal) => requests::ask_next(&stream, n, signal),
        // A stream without a key has a reason of its own.
        Err(why) if key_of(&stream).is_ok() => Shared::failed(ProfileError::Event(why)),
        Err(_) => requests::ask_next(&stream, n, None),
    }
}

pub(super) fn next_submission(stream: &(impl AsStream + ?Sized)) -> PendingSubmission {
    let stream = stream_ref(stream);
    match key_of(&stream) {
        Err(NoKey::Captured) => PendingSubmission::failed(ProfileError::Captured),
        Err(NoKey::NoStream) => PendingSubmission::failed(ProfileError::NoStream),
        Err(NoKey::Unknown) => PendingSubmission::failed(outside::refusal(&stream)),
        Ok(_) => if_feature!("cupti", engine::submissions::next_submission(&stream), {
            let why = "this program was built without warpline's feature `cupti`; build it with that, or mark the code and use `profile::next`";
            PendingSubmission::failed(ProfileError::NoKernels(why.to_owned()))
        }),
    }
}

pub(super) fn range(ranges: Result<Vec<&'static RangeSpec>, ProfileError>, n: u32) -> PendingZones {
    register();
    PendingZones::new(match ranges {
        Ok(ranges) => requests::ask_runs(ranges, n),
        Err(error) => Shared::failed(error),
    })
}

pub(super) fn time(range: &'static RangeSpec, stream: &(impl AsStream + ?Sized)) -> (Zone, PendingZone) {
    let (zone, shared) = zone::timed(range, &stream_ref(stream));
    (zone, PendingZone::new(shared))
}

/// Registers the backends of this program, and returns the stream.
pub(crate) fn stream_ref<S: AsStream + ?Sized>(stream: &S) -> StreamRef<'_> {
    register();
    stream.as_stream()
}

/// Registers the backends of this program, as a session does.
fn register() {
    outside::register(engine::for_requests);
    if_feature!("cuda", warpline_cuda::register(), ());
}
