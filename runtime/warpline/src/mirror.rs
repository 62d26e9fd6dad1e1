//! The launch observer of zones that are mirrored to tools, with and without a session: NVTX, and with feature `hip` roctx.
//!
//! It asks each adapter whether a tool listens. A zone's token holds what both adapters need for its end.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::nvtx;
#[cfg(feature = "hip")]
use crate::roctx;
use warpline_core::catalog::RangeSpec;
use warpline_core::collective::Message;
use warpline_core::observer;
use warpline_core::observer::{FIRST_ZONE, LaunchObserver, Position, SyncCall, Token, ZoneEnd, ZoneLaunch};
use warpline_core::wait::WaitOutcome;

/// A kind of tool.
#[derive(Clone, Copy)]
enum Mirror {
    Nvtx,
    #[cfg_attr(not(feature = "hip"), expect(dead_code, reason = "its adapter comes with the feature"))]
    Roctx,
}

/// The kinds that listen.
static LISTENING: AtomicU8 = AtomicU8::new(0);

impl Mirror {
    const fn bit(self) -> u8 {
        1 << self as u8
    }

    #[inline]
    fn listens(self) -> bool {
        LISTENING.load(Ordering::Relaxed) & self.bit() != 0
    }
}

/// Looks for tools, unless these settings or those of the environment forbid it. NVTX comes first: it has to find out whether the parent of
/// this process has looked.
#[cold]
pub(crate) fn look(nvtx: Option<bool>, roctx: Option<bool>) {
    // In a zone of the tool itself, while it starts: the look that started it decides. Until then the zones of other threads wait.
    let Some(listens) = nvtx::look(nvtx) else { return };
    set(Mirror::Nvtx, listens);
    #[cfg(feature = "hip")]
    set(Mirror::Roctx, roctx::look(roctx));
    #[cfg(not(feature = "hip"))]
    let _ = roctx;
}

/// Looks for tools at the first zone of the process, because they need no session.
#[cfg(not(miri))]
#[linkme::distributed_slice(FIRST_ZONE)]
#[linkme(crate = linkme)]
#[allow(unsafe_code, reason = "linkme puts it into a section")]
static LOOK: fn() = || look(None, None);

/// Notes whether a tool of this kind listens, and turns the mirroring of zones on or off.
fn set(kind: Mirror, listens: bool) {
    let before = match listens {
        true => LISTENING.fetch_or(kind.bit(), Ordering::Relaxed) | kind.bit(),
        false => LISTENING.fetch_and(!kind.bit(), Ordering::Relaxed) & !kind.bit(),
    };
    observer::register(Position::Mirror, &OBSERVER);
    observer::turn(Position::Mirror, before != 0);
}

static OBSERVER: &dyn LaunchObserver = &Tools;

struct Tools;

/// In the token of a zone that nests: the kinds that have it.
const NESTED_NVTX: u64 = Mirror::Nvtx.bit() as u64;
#[cfg(feature = "hip")]
const NESTED_ROCTX: u64 = Mirror::Roctx.bit() as u64;
/// In the token of a zone that does not nest: it is a range of roctx. NVTX gives numbers of its own.
#[cfg(feature = "hip")]
const STARTED_ROCTX: u64 = 1 << 63;

impl LaunchObserver for Tools {
    fn zone_begins(&self, zone: &mut ZoneLaunch<'_>) -> Option<Token> {
        let by_nvtx = if Mirror::Nvtx.listens() { nvtx::zone_begins(zone) } else { None };
        #[cfg(feature = "hip")]
        if Mirror::Roctx.listens() {
            if zone.nests {
                let by_roctx = if roctx::push(zone.range) { NESTED_ROCTX } else { 0 };
                let by_nvtx = by_nvtx.map_or(0, |_| NESTED_NVTX);
                return Some(Token(by_nvtx | by_roctx)).filter(|token| token.0 != 0);
            }
            // A zone has one token: a range that does not nest goes to one of the tools.
            return by_nvtx.or_else(|| roctx::start(zone.range).map(|range| Token(range | STARTED_ROCTX)));
        }
        by_nvtx.map(|token| if zone.nests { Token(NESTED_NVTX) } else { token })
    }

    fn zone_ends(&self, token: Token, zone: &ZoneEnd<'_>) {
        #[cfg(feature = "hip")]
        {
            if zone.nests && token.0 & NESTED_ROCTX != 0 {
                roctx::pop();
            }
            if !zone.nests && token.0 & STARTED_ROCTX != 0 && !Mirror::Nvtx.listens() {
                return roctx::stop(token.0 & !STARTED_ROCTX);
            }
        }
        if !zone.nests || token.0 & NESTED_NVTX != 0 {
            nvtx::zone_ends(token, zone);
        }
    }

    fn entry_added(&self, range: &'static RangeSpec, message: &Message) {
        if Mirror::Nvtx.listens() {
            nvtx::entry_added(range, message);
        }
        #[cfg(feature = "hip")]
        if Mirror::Roctx.listens() {
            roctx::mark(range);
        }
    }

    fn sync_begins(&self, call: &SyncCall<'_>) -> Option<Token> {
        if Mirror::Nvtx.listens() { nvtx::sync_begins(call) } else { None }
    }

    fn sync_ends(&self, _: Token, _: WaitOutcome) {
        nvtx::sync_ends();
    }

    #[cold]
    fn zone_lost(&self, open: usize) {
        nvtx::zone_lost(open);
    }

    fn stream_named(&self, stream: *mut c_void, name: &str) {
        if Mirror::Nvtx.listens() {
            nvtx::stream_named(stream, name);
        }
    }
}
