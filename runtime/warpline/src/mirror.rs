//! Looks for tools that zones are mirrored to, with and without a session: NVTX, and with feature `hip` roctx. Each
//! adapter is an observer of its own.

use crate::nvtx;
#[cfg(feature = "hip")]
use crate::roctx;
use warpline_core::observer::FIRST_ZONE;

/// Looks for tools, unless these settings or those of the environment forbid it. NVTX comes first: it has to find out whether the parent of
/// this process has looked.
#[cold]
pub(crate) fn look(nvtx: Option<bool>, roctx: Option<bool>) {
    // In a zone of the tool itself, while it starts: the look that started it decides. Until then the zones of other threads wait.
    let Some(()) = nvtx::look(nvtx) else { return };
    #[cfg(feature = "hip")]
    roctx::look(roctx);
    #[cfg(not(feature = "hip"))]
    let _ = roctx;
}

/// Looks for tools at the first zone of the process, because they need no session.
#[cfg(not(miri))]
#[linkme::distributed_slice(FIRST_ZONE)]
#[linkme(crate = linkme)]
#[allow(unsafe_code, reason = "linkme puts it into a section")]
static LOOK: fn() = || look(None, None);
