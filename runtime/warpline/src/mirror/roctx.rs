//! The roctx mirror: each zone is also a roctx range on the launching thread, for `rocprofv3 --marker-trace` and other tools of ROCm. It
//! needs no session.
//!
//! A tool makes the program load the marker library, so [`attach`] uses the library if it is loaded when the first zone begins or a session
//! starts, and opens it only if the setting asks for it. `warpline_hip::roctx` calls it.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock};

use crate::settings;
use warpline_core::catalog::RangeSpec;
use warpline_core::collective::Message;
use warpline_core::lock::lock;
use warpline_core::observer::{self, LaunchObserver, Position, Token, ZoneEnd, ZoneLaunch};
use warpline_core::stderr;
use warpline_hip::roctx::Roctx;

static LIBRARY: OnceLock<&'static Roctx> = OnceLock::new();

/// A sentence for the user, with the remedy.
static PROBLEM: Mutex<Option<String>> = Mutex::new(None);

/// Mirrors zones if there is a library, and the settings do not forbid it.
#[cold]
pub(crate) fn attach(setting: Option<bool>) {
    let wishes = [settings::of_environment().roctx, setting];
    observer::register(Position::Roctx, &OBSERVER);
    observer::turn(Position::Roctx, !wishes.contains(&Some(false)) && is_found(wishes.contains(&Some(true))));
}

/// Looks for the library. If it `is_asked` for, the library is opened, and its absence is reported.
fn is_found(is_asked: bool) -> bool {
    let found = if is_asked { Roctx::open().map(Some) } else { Ok(Roctx::loaded()) };
    match found {
        Ok(Some(library)) => {
            let _ = LIBRARY.set(library);
        }
        Ok(None) => {}
        Err(why) => {
            let problem = format!("no zone reaches roctx: {why}");
            let mut said = lock(&PROBLEM);
            if said.as_ref() != Some(&problem) {
                stderr::line(&problem);
                *said = Some(problem);
            }
        }
    }
    LIBRARY.get().is_some()
}

/// Returns a sentence about the mirror for the user, which was also printed to standard error.
pub(crate) fn problem() -> Option<String> {
    lock(&PROBLEM).clone()
}

static OBSERVER: &dyn LaunchObserver = &Mirror;

struct Mirror;

/// The token of a zone that nests. It has no meaning, because the library keeps a stack for each thread.
const PUSHED: Token = Token(0);

impl LaunchObserver for Mirror {
    fn zone_begins(&self, zone: &mut ZoneLaunch<'_>) -> Option<Token> {
        let (library, label) = (LIBRARY.get()?, zone.range.label());
        if zone.nests { library.push(label).then_some(PUSHED) } else { library.start(label).map(Token) }
    }

    fn zone_ends(&self, Token(range): Token, zone: &ZoneEnd<'_>) {
        match LIBRARY.get() {
            Some(library) if zone.nests => library.pop(),
            Some(library) => library.stop(range),
            None => {}
        }
    }

    #[cold]
    fn zone_lost(&self, open: usize) {
        static IS_SAID: AtomicBool = AtomicBool::new(false);
        observer::say_lost(&IS_SAID, "roctx", open);
    }

    /// Adds a mark.
    fn entry_added(&self, range: &'static RangeSpec, _: &Message) {
        if let Some(library) = LIBRARY.get() {
            library.mark(range.label());
        }
    }
}
