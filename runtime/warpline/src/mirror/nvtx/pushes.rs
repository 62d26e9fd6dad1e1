//! What a tool answers to a push, and how many pushes it refuses. A zone whose push was refused must not be popped, because that would end the
//! range around it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::abi::NVTX_NO_PUSH_POP_TRACKING;
use warpline_core::plural::counted_are;
use warpline_core::stderr;

/// The refused pushes since the session began.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Returns whether a push with this result has begun its range. The headers call every negative result an error, but tools that begin ranges
/// and count no levels return one, too: Nsight Systems always -1, CUPTI in a domain -2. So -1 is a refusal only from a tool that counts.
#[inline]
pub(super) fn has_begun(level: c_int) -> bool {
    static COUNTS_LEVELS: AtomicBool = AtomicBool::new(false);
    if level >= 0 {
        if !COUNTS_LEVELS.load(Ordering::Relaxed) {
            COUNTS_LEVELS.store(true, Ordering::Relaxed);
        }
        return true;
    }
    let has_begun = level == NVTX_NO_PUSH_POP_TRACKING || !COUNTS_LEVELS.load(Ordering::Relaxed);
    if !has_begun {
        refused(level);
    }
    has_begun
}

/// Counts a refused push, and says the first one of the process.
#[cold]
fn refused(level: c_int) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    REFUSED.fetch_add(1, Ordering::Relaxed);
    if !IS_SAID.swap(true, Ordering::Relaxed) {
        stderr::line(format_args!(
            "the NVTX tool refuses a range (nvtxDomainRangePushEx returned {level}), and maybe others: its view lacks them; its \
             documentation says how many ranges it takes"
        ));
    }
}

/// Begins the count of a session.
pub(super) fn begin_session() {
    REFUSED.store(0, Ordering::Relaxed);
}

/// Returns a note on the refused pushes of the session, if there are any.
pub(super) fn note() -> Option<String> {
    let refused = REFUSED.load(Ordering::Relaxed);
    (refused > 0).then(|| {
        format!(
            "{} missing from the view of the NVTX tool, which refused them; its documentation says how many ranges it takes",
            counted_are(refused, "range")
        )
    })
}
