//! The way of zones that were asked for and that no session has, as far as requests and zones know it.
//!
//! What times such zones is above them: `recorder` registers it with the first request, before a zone can be meant.

use std::sync::{Arc, OnceLock};

use crate::profile::error::ProfileError;
use crate::backend::StreamRef;
use crate::stream::context::StreamContext;

/// Why a stream cannot be timed whose device gives no reason.
pub(super) const UNSAID: &str = "its device does not say which it is";

static OUTSIDE: OnceLock<Outside> = OnceLock::new();

/// What records zones outside of sessions.
pub(super) struct Outside {
    /// Makes everything ready ahead of the zone.
    pub(super) prepare: fn(),
    pub(super) context: fn(&StreamRef<'_>) -> Result<Arc<StreamContext>, ProfileError>,
    pub(super) host_context: fn() -> Result<Arc<StreamContext>, ProfileError>,
}

/// Registers it; the first one counts.
pub(super) fn register(outside: Outside) {
    let _ = OUTSIDE.set(outside);
}

pub(super) fn prepare() {
    if let Some(outside) = OUTSIDE.get() {
        (outside.prepare)();
    }
}

/// The context of a stream on which a zone begins that was asked for.
pub(crate) fn context(stream: &StreamRef<'_>) -> Result<Arc<StreamContext>, ProfileError> {
    (OUTSIDE.get().ok_or(ProfileError::Unfinished)?.context)(stream)
}

/// The context of the host zones that were asked for.
pub(crate) fn host_context() -> Result<Arc<StreamContext>, ProfileError> {
    (OUTSIDE.get().ok_or(ProfileError::Unfinished)?.host_context)()
}

/// Why a stream that has no key has none.
pub(super) fn refusal(stream: &StreamRef<'_>) -> ProfileError {
    context(stream).map_or_else(|error| error, |_| ProfileError::Stream(UNSAID.to_owned()))
}
