//! The recorder for zones that were asked for and that no session has, as far as requests and zones know it.
//!
//! The engine above registers what starts it with the first request, before a zone can be meant. Threads that begin zones come here.

use std::sync::{Arc, OnceLock};

use crate::backend::{NoKey, StreamRef};
use crate::profile::error::ProfileError;
use crate::stream::context::StreamContext;
use crate::stream::recorder::Recorder;
use crate::stream::thread;

/// Why a stream cannot be timed whose device gives no reason.
const UNSAID: &str = "its device does not say which it is";

/// The recorder that runs, or one that starts now.
type Start = fn() -> Result<Arc<Recorder>, ProfileError>;

static START: OnceLock<Start> = OnceLock::new();

/// Registers what starts the recorder; the first one counts.
pub fn register(start: Start) {
    let _ = START.set(start);
}

/// Makes everything ready ahead of the zone.
pub(super) fn prepare() {
    // A failure here comes again, and is answered, with the zone.
    let _ = recorder();
}

/// The context of a stream on which a zone begins that was asked for.
pub(crate) fn context(stream: &StreamRef<'_>) -> Result<Arc<StreamContext>, ProfileError> {
    let recorder = entered()?;
    recorder.context(stream).ok_or_else(|| match stream.key {
        Err(NoKey::Captured) => ProfileError::Captured,
        _ if recorder.is_closed() => ProfileError::Unfinished,
        _ => ProfileError::Stream(recorder.last_refusal().unwrap_or_else(|| UNSAID.to_owned())),
    })
}

/// The context of the host zones that were asked for.
pub(crate) fn host_context() -> Result<Arc<StreamContext>, ProfileError> {
    Ok(Arc::clone(entered()?.host()))
}

/// Why a stream that has no key has none.
pub(super) fn refusal(stream: &StreamRef<'_>) -> ProfileError {
    context(stream).map_or_else(|error| error, |_| ProfileError::Stream(UNSAID.to_owned()))
}

/// The recorder, to which this thread is known.
fn entered() -> Result<Arc<Recorder>, ProfileError> {
    let recorder = recorder()?;
    thread::with(|thread| drop(thread.make_known(&recorder)));
    Ok(recorder)
}

fn recorder() -> Result<Arc<Recorder>, ProfileError> {
    START.get().ok_or(ProfileError::Unfinished)?()
}
