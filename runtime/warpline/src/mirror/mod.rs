//! Looks for tools that zones are mirrored to, with and without a session: NVTX, and with feature `hip` roctx. Each
//! adapter is an observer of its own.

pub(crate) mod nvtx;
#[cfg(feature = "hip")]
mod roctx;

use crate::settings::Config;
use warpline_core::if_feature;
use warpline_core::observer::FIRST_ZONE;

/// Looks for tools, unless these settings or those of the environment forbid it. NVTX comes first: it has to find out whether the parent of
/// this process has looked.
#[cold]
pub(crate) fn attach(nvtx: Option<bool>, roctx: Option<bool>) {
    // In a zone of the tool itself, while it starts: the call that started it decides. Until then the zones of other threads wait.
    let Some(()) = nvtx::attach(nvtx) else { return };
    if_feature!("hip", roctx::attach(roctx), _ = roctx);
}

/// Returns sentences for the user of a session about tools that its zones do not reach.
pub(crate) fn problems(config: &Config) -> impl Iterator<Item = String> {
    let is_asked = config.roctx == Some(true);
    let roctx = if_feature!(
        "hip",
        {
            let _ = is_asked;
            roctx::problem()
        },
        is_asked
            .then(|| { "no zone reaches roctx: this program was built without warpline's feature `hip`".to_owned() })
    );
    nvtx::problem().into_iter().chain(roctx)
}

/// Looks for tools at the first zone of the process, because they need no session.
#[cfg(not(miri))]
#[linkme::distributed_slice(FIRST_ZONE)]
#[linkme(crate = linkme)]
#[allow(unsafe_code, reason = "linkme puts it into a section")]
static ATTACH: fn() = || attach(None, None);
