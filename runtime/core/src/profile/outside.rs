//! The recorder of requested zones that no session records, as requests and zones see it.
//!
//! The engine above registers a function that starts the recorder with the first request. Threads that begin zones call this module.

use std::sync::{Arc, OnceLock};

use crate::backend::{NoKey, StreamRef};
use crate::profile::error::ProfileError;
use crate::stream::context::StreamContext;
use crate::stream::recorder::Recorder;
use crate::stream::thread;

/// The error for a stream whose device gives no reason.
const UNSAID: &str = "its device does not identify it";

/// Returns the recorder, and starts it if it does not run.
type Start = fn() -> Result<Arc<Recorder>, ProfileError>;

static START: OnceLock<Start> = OnceLock::new();

/// Registers the function that starts the recorder. Only the first call has an effect.
pub fn register(start: Start) {
    let _ = START.set(start);
}

/// Starts the recorder before the zone begins.
pub(super) fn prepare() {
    // A failure recurs with the zone, and is returned to the request then.
    let _ = recorder();
}

/// Returns the context of a stream for a requested zone.
pub(crate) fn context(stream: &StreamRef<'_>) -> Result<Arc<StreamContext>, ProfileError> {
    let recorder = entered()?;
    recorder.context(stream).ok_or_else(|| match stream.key {
        Err(NoKey::Captured) => ProfileError::Captured,
        _ if recorder.is_closed() => ProfileError::Unfinished,
        _ => ProfileError::Stream(recorder.last_refusal().unwrap_or_else(|| UNSAID.to_owned())),
    })
}

/// Returns the context of the requested host zones.
pub(crate) fn host_context() -> Result<Arc<StreamContext>, ProfileError> {
    Ok(Arc::clone(entered()?.host()))
}

/// Returns why a stream has no key.
pub fn refusal(stream: &StreamRef<'_>) -> ProfileError {
    context(stream).map_or_else(|error| error, |_| ProfileError::Stream(UNSAID.to_owned()))
}

/// Returns the recorder, and adds this thread to it.
fn entered() -> Result<Arc<Recorder>, ProfileError> {
    let recorder = recorder()?;
    thread::with(|thread| drop(thread.make_known(&recorder)));
    Ok(recorder)
}

fn recorder() -> Result<Arc<Recorder>, ProfileError> {
    START.get().ok_or(ProfileError::Unfinished)?()
}
