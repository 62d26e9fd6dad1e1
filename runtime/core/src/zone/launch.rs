//! The begin and end of a zone on its thread. This is the hot path; `stream/slot/launch.rs` is the part of the slot.
//!
//! `guard.rs` calls [`start`] when a mark has filled in the slot, and [`end`] when the guard is dropped.

use std::panic::Location;

use crate::observer;
use crate::reentrancy::Inside;
pub(super) use crate::stream::context::SlotGuard;
use crate::stream::roots;
use crate::stream::slot::launch::Launch;
use crate::stream::thread::{self, Thread};

/// Starts a zone on this thread. Returns whether there is anything to end.
#[inline]
pub(super) fn start(claim: &mut SlotGuard, nests: bool, place: &'static Location<'static>) -> bool {
    let _inside = Inside::enter();
    let (is_recorded, observed) = (claim.is_recorded(), observer::active());
    let stream = if observed.any() { claim.stream_id() } else { 0 };
    let launch = Launch { is_of_session: claim.is_of_session(), stream, observed };
    let Some(slot) = claim.slot() else { return false };
    slot.start(nests, launch, |range, is_followed| roots::start(range, nests, is_followed));
    if is_recorded {
        // Only zones of a session count for the nesting depth.
        let counts = nests && launch.is_of_session;
        let at = thread::with(|thread| (thread.id(), if counts { thread.push(slot.range()) } else { 0 }));
        slot.begin(launch, at, place);
    }
    slot.must_end()
}

/// Ends a zone, or gives back the slot of a zone that never started.
#[inline(never)]
pub(super) fn end(claim: SlotGuard) {
    if claim.is_inherited() {
        return leave_to_parent(claim);
    }
    let _inside = Inside::enter();
    // Dropped inside: it may be the last that holds the stream's slots.
    let mut claim = claim;
    let (is_recorded, is_of_session) = (claim.is_recorded(), claim.is_of_session());
    let is_closed = is_recorded && claim.is_closed();
    let Some(slot) = claim.slot() else { return };
    let (mirrors, owner) = (slot.take_mirrors(), slot.take_owner());
    let has_entries = slot.entries() > 0;
    slot.end_root(roots::end);
    if is_recorded {
        slot.end_launch();
        let thread = thread::with(|thread| {
            if slot.nests() && is_of_session {
                thread.pop();
            }
            thread.id()
        });
        match slot.end(thread, is_closed) {
            Ok(()) => {
                if has_entries {
                    claim.count_entries();
                }
                claim.publish()
            }
            Err(why) => claim.give_up(why),
        }
    } else {
        claim.give_back()
    }
    if let Some(mirrors) = mirrors {
        mirrors.end();
    }
    // This comes last, because it may destroy the stream.
    if let Some(owner) = owner {
        owner.release_owner();
    }
}

/// Ends a zone in a forked child of the process that began it. The parent ends the zone itself; here only the nesting depth changes.
#[cold]
fn leave_to_parent(mut claim: SlotGuard) {
    let is_of_session = claim.is_of_session();
    if claim.slot().is_some_and(|slot| slot.nests() && is_of_session) {
        thread::with(Thread::pop);
    }
    // The slot belongs to the parent's stream, which this process must not drop.
    std::mem::forget(claim);
}
