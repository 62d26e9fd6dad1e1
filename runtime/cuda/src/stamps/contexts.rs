//! Prepares contexts for stamps: by the collector where the session meets one, by the capturing thread where a capture comes first.
//!
//! What a context needs is made once, which takes some ms. The lock of the state is never held meanwhile.

use std::sync::{Arc, Condvar, PoisonError};
use std::time::{Duration, Instant};

use super::super::driver::{ContextPtr, Driver};
use super::super::owner::{Hold, Keeper};
use super::device::Stamper;
use super::{lock, session};

/// What the user has to know where a zone is captured without a stamp.
const LATE: &str = "captured zones are not timed in replays: another thread was still preparing their context for stamps; run one \
                    zone on the context before the first capture, or capture again";

/// Signalled when a context that was being prepared is ready, or has failed.
static MADE: Condvar = Condvar::new();

/// For so long after a thread has begun to prepare a context, capturing threads wait for it. Not for so long each time: a capture
/// may have hundreds of borders.
const MAKING: Duration = Duration::from_millis(500);

/// How far a context is prepared.
pub(super) enum Readiness {
    Wanted,
    /// A thread has been preparing it since then.
    Making(Instant),
    Ready(Arc<Stamper>),
    Failed,
}

/// What stamps need in a context. If no thread has begun to make it, this one does, which takes some ms once a context. A thread that
/// prepares the same context is waited for until [`MAKING`] after it began; none where that takes longer or failed.
pub(super) fn stamper_of(driver: &'static Driver, context: ContextPtr, id: u64) -> Option<Arc<Stamper>> {
    let mut state = lock();
    loop {
        match state.contexts.get(&id) {
            Some(Readiness::Ready(stamper)) => return Some(Arc::clone(stamper)),
            Some(Readiness::Failed) => return None,
            Some(Readiness::Making(since)) => {
                let Some(left) = MAKING.checked_sub(since.elapsed()) else {
                    state.tell_once(LATE);
                    return None;
                };
                state = MADE.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            Some(Readiness::Wanted) | None => {
                state.contexts.insert(id, Readiness::Making(Instant::now()));
                drop(state);
                make(driver, context, id);
                state = lock();
            }
        }
    }
}

/// Makes what a context needs that is marked as being made, and that the caller keeps alive, and says what came of it.
fn make(driver: &'static Driver, context: ContextPtr, id: u64) {
    // Kernels are loaded while this thread or others capture.
    let made = driver.outside_captures(|| Stamper::new(driver, context, id, session()));
    let mut state = lock();
    let known = match made {
        Ok(stamper) => Readiness::Ready(Arc::new(stamper)),
        Err(error) => {
            state.problems.push(format!("replays of graphs are not timed by stamps: {error}"));
            Readiness::Failed
        }
    };
    state.contexts.insert(id, known);
    drop(state);
    MADE.notify_all();
}

/// A session with stamps has met this context.
pub fn want(context: ContextPtr, id: u64, keeper: Option<Keeper>) {
    let mut state = lock();
    state.keep(id, keeper.as_ref());
    state.want(context, id);
}

/// The same of the context that is current on this thread, if it is a primary one: of others it is not known who keeps them alive.
pub fn want_current() {
    if let Ok(driver) = Driver::get()
        && let Ok(context) = driver.current_context()
        && !context.is_null()
        && let Ok(id) = driver.context_id(context)
    {
        lock().want(context, id);
    }
}

/// Keeps a context alive that the session has met; none where it is gone.
pub(crate) fn hold(driver: &'static Driver, context: ContextPtr, id: u64) -> Option<Hold> {
    let keeper = lock().keepers.get(&id).cloned();
    Hold::on(driver, context, id, keeper, session())
}

/// Makes what the contexts need that were met since. It takes some ms for each.
pub fn prepare() {
    let wanted = std::mem::take(&mut lock().wanted);
    let Ok(driver) = Driver::get() else { return };
    for (context, id) in wanted {
        let context = context as ContextPtr;
        let held = hold(driver, context, id);
        let is_wanted = {
            let mut state = lock();
            // A capture may have come first.
            let is_wanted = matches!(state.contexts.get(&id), Some(Readiness::Wanted));
            match (is_wanted, &held) {
                (true, Some(_)) => state.contexts.insert(id, Readiness::Making(Instant::now())),
                // The first capture there makes what it needs, if one comes.
                (true, None) => state.contexts.remove(&id),
                (false, _) => None,
            };
            is_wanted
        };
        if let Some(held) = held {
            if is_wanted {
                make(driver, context, id);
            }
            held.release_owner();
        }
    }
}

/// The contexts that are ready, with a reader each for what is stamped from now on.
pub fn ready() -> Vec<Arc<Stamper>> {
    let state = lock();
    let ready = state.contexts.values().filter_map(|known| match known {
        Readiness::Ready(stamper) => Some(Arc::clone(stamper)),
        _ => None,
    });
    ready.collect()
}

/// Whether there is something for [`prepare`].
pub fn is_wanted() -> bool {
    !lock().wanted.is_empty()
}
