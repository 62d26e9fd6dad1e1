//! Prepares contexts for stamps. The collector does this on a session's first use of a context, or the capturing thread if a capture comes
//! first.
//!
//! Each context is prepared once, which takes some ms. The lock of the state is not held during the preparation. A capture waits for it only
//! for so long. If it goes on without stamps, so do all captures of the session in that context: a program may update the graph of one with
//! that of another.

use std::sync::{Arc, Condvar, PoisonError};
use std::time::{Duration, Instant};

use super::super::driver::{ContextPtr, CudaError, Driver, StreamPtr};
use super::super::owner::{Hold, Keeper};
use super::device::Stamper;
use super::{lock, session};

/// The message for the user if a zone is captured without a stamp.
const LATE: &str = "captured zones are not timed in replays: another thread was still preparing their context for stamps, and the \
                    captures of a session have stamps all or none; run one zone on the context before the first capture, or start another \
                    session";

/// Signalled when a context that was being prepared is ready, or has failed.
static MADE: Condvar = Condvar::new();

/// How long capturing threads wait for a context after another thread has begun to prepare it. The time is measured from that point and not
/// per call, because a capture may have hundreds of borders.
const MAKING: Duration = Duration::from_millis(500);

/// The state of a context's preparation.
pub(super) enum Readiness {
    Wanted,
    /// A thread has been preparing the context since this time.
    Making(Instant),
    Ready(Arc<Stamper>),
    Failed,
}

/// Returns what stamps need in a context. If no thread is preparing the context, this thread does so, which takes some ms once per context.
/// If another thread is, this waits until [`MAKING`] after that thread began; none if the preparation takes longer or failed, and for the
/// rest of the session.
pub(super) fn stamper_of(driver: &'static Driver, context: ContextPtr, id: u64) -> Option<Arc<Stamper>> {
    let mut state = lock();
    loop {
        if state.left_out.contains(&id) {
            return None;
        }
        match state.contexts.get(&id) {
            Some(Readiness::Ready(stamper)) => return Some(Arc::clone(stamper)),
            Some(Readiness::Failed) => return None,
            Some(Readiness::Making(since)) => {
                let Some(left) = MAKING.checked_sub(since.elapsed()) else {
                    state.left_out.insert(id);
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

/// Returns the context whose stamps time a captured stream, and its id. `context`, the current one or the stream's own, is not it if it is a
/// green context: no other thread may use that one, as the session's does.
pub(super) fn home(
    driver: &'static Driver,
    stream: StreamPtr,
    context: ContextPtr,
    id: u64,
) -> Result<(ContextPtr, u64), CudaError> {
    if !matches!(lock().contexts.get(&id), None | Some(Readiness::Wanted)) {
        return Ok((context, id));
    }
    // Most contexts are primary ones, whose captured streams are asked nothing.
    if let Some(device) = driver.retain_if_primary(context) {
        driver.release_primary(device);
        return Ok((context, id));
    }
    match driver.regular_context(stream)? {
        Some(regular) if regular != context => Ok((regular, driver.context_id(regular)?)),
        _ => Ok((context, id)),
    }
}

/// Prepares a context that is marked as `Making` and that the caller keeps alive, and stores the result.
fn make(driver: &'static Driver, context: ContextPtr, id: u64) {
    // Kernels are loaded while this thread or others may be capturing.
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

/// Requests the preparation of a context that a session with stamps uses.
pub fn want(context: ContextPtr, id: u64, keeper: Option<Keeper>) {
    let mut state = lock();
    state.keep(id, keeper.as_ref());
    state.want(context, id);
}

/// Requests the preparation of the context that is current on this thread. Only a primary context is prepared, because the owner of any
/// other context is unknown.
pub fn want_current() {
    if let Ok(driver) = Driver::get()
        && let Ok(context) = driver.current_context()
        && !context.is_null()
        && let Ok(id) = driver.context_id(context)
    {
        lock().want(context, id);
    }
}

/// Keeps alive a context that the session uses; none if it was destroyed or cannot be kept alive.
pub(crate) fn hold(driver: &'static Driver, context: ContextPtr, id: u64) -> Option<Hold> {
    let keeper = lock().keepers.get(&id).cloned();
    Hold::on(driver, context, id, keeper, session())
}

/// Prepares the requested contexts. It takes some ms for each.
pub fn prepare() {
    let wanted = std::mem::take(&mut lock().wanted);
    let Ok(driver) = Driver::get() else { return };
    for (context, id) in wanted {
        let context = context as ContextPtr;
        let held = hold(driver, context, id);
        let is_wanted = {
            let mut state = lock();
            // A capture may have prepared the context already.
            let is_wanted = matches!(state.contexts.get(&id), Some(Readiness::Wanted));
            match (is_wanted, &held) {
                (true, Some(_)) => state.contexts.insert(id, Readiness::Making(Instant::now())),
                // The first capture in the context prepares it, if there is one.
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

/// Returns the contexts that are ready.
pub fn ready() -> Vec<Arc<Stamper>> {
    let state = lock();
    let ready = state.contexts.values().filter_map(|known| match known {
        Readiness::Ready(stamper) => Some(Arc::clone(stamper)),
        _ => None,
    });
    ready.collect()
}

/// Returns what stamps have in a context, if it is ready.
pub(crate) fn ready_in(id: u64) -> Option<Arc<Stamper>> {
    match lock().contexts.get(&id)? {
        Readiness::Ready(stamper) => Some(Arc::clone(stamper)),
        _ => None,
    }
}

/// Returns whether [`prepare`] has anything to do.
pub fn is_wanted() -> bool {
    !lock().wanted.is_empty()
}
