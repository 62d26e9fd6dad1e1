//! Launches and host zones as ordinary zones of Tracy, on the threads that run them.
//!
//! Tracy accepts a thread's zones only from that thread and only when they happen, so this module observes launches while a session
//! writes to Tracy. A thread's zones are a stack in Tracy, but guards may be dropped
//! in any order. A zone that ends below others is therefore kept until it is on top, and no zone gets the end of another.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tracy_client::sys;

use super::location;
use warpline_core::catalog::RangeSpec;
use warpline_core::observer;
use warpline_core::observer::{LaunchObserver, Position, Token, ZoneEnd, ZoneLaunch};

/// Whether threads show their zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// No session writes to Tracy.
    Off,
    /// Zones go to Tracy, which ignores them while no viewer is connected.
    On,
    /// No viewer will see them: host zones are counted.
    Paused,
}

static STATE: AtomicU8 = AtomicU8::new(State::Off as u8);

/// The number of host zones that Tracy does not show.
static NOT_SHOWN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OPEN: RefCell<Stack<sys::___tracy_c_zone_context>> = const { RefCell::new(Stack(Vec::new())) };
}

/// The open zones of a thread, and the ended zones below them.
struct Stack<Z>(Vec<(Z, IsEnded)>);

type IsEnded = bool;

/// The position of an open zone on its thread's stack, from 1.
type StackIndex = NonZeroU32;

pub(crate) fn set(state: State) {
    STATE.store(state as u8, Ordering::Relaxed);
    observer::register(Position::Launch, &OBSERVER);
    observer::turn(Position::Launch, state != State::Off);
}

static OBSERVER: &dyn LaunchObserver = &Launches;

struct Launches;

impl LaunchObserver for Launches {
    fn zone_begins(&self, zone: &mut ZoneLaunch<'_>) -> Option<Token> {
        let state = STATE.load(Ordering::Relaxed);
        if state == State::Off as u8 || !zone.is_of_session {
            return None;
        }
        // A zone that may end on another thread cannot be shown.
        let is_shown = zone.nests && state == State::On as u8;
        let place = if is_shown { open(zone.range) } else { None };
        if place.is_none() && zone.is_host {
            NOT_SHOWN.fetch_add(1, Ordering::Relaxed);
        }
        place.map(|place| Token(place.get().into()))
    }

    fn zone_ends(&self, token: Token, zone: &ZoneEnd<'_>) {
        if let Some(place) = StackIndex::new(token.0 as u32) {
            close(place, zone.label);
        }
    }
}

/// Returns the number of host zones that Tracy does not show since the last call.
pub(crate) fn take_not_shown() -> u64 {
    NOT_SHOWN.swap(0, Ordering::Relaxed)
}

fn open(range: &'static RangeSpec) -> Option<StackIndex> {
    let location = location(range)?;
    let open = |open: &RefCell<Stack<_>>| {
        let mut open = open.try_borrow_mut().ok()?;
        // SAFETY: the location is valid as long as the process, and the client was started before the state became `On`.
        #[allow(unsafe_code)]
        let zone = unsafe { sys::___tracy_emit_zone_begin(location.0 as *const _, 1) };
        if zone.active == 0 { None } else { open.push(zone) }
    };
    // None while the thread-local values are being destroyed.
    OPEN.try_with(open).ok().flatten()
}

fn close(place: StackIndex, label: Option<&str>) {
    let _ = OPEN.try_with(|open| {
        let Ok(mut open) = open.try_borrow_mut() else { return };
        if let (Some(zone), Some(label)) = (open.top(place), label) {
            // SAFETY: the text is copied, and it belongs to the zone on top of this thread's stack.
            #[allow(unsafe_code)]
            unsafe {
                sys::___tracy_emit_zone_text(zone, label.as_ptr().cast(), label.len());
            }
        }
        open.end(place, |zone| {
            // SAFETY: this thread began the zone, it is the innermost one that is open, and it comes off the stack.
            #[allow(unsafe_code)]
            unsafe {
                sys::___tracy_emit_zone_end(zone);
            }
        });
    });
}

impl<Z: Copy> Stack<Z> {
    fn push(&mut self, zone: Z) -> Option<StackIndex> {
        self.0.push((zone, false));
        StackIndex::new(self.0.len() as u32)
    }

    /// Returns the zone at this position, if it is on top.
    fn top(&self, place: StackIndex) -> Option<Z> {
        self.0.last().filter(|_| self.0.len() == place.get() as usize).map(|(zone, _)| *zone)
    }

    /// Ends the zone at this position, and those below it that ended while it was open.
    fn end(&mut self, place: StackIndex, mut each: impl FnMut(Z)) {
        if let Some((_, is_ended)) = self.0.get_mut(place.get() as usize - 1) {
            *is_ended = true;
        }
        while let Some((zone, _)) = self.0.pop_if(|(_, is_ended)| *is_ended) {
            each(zone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_that_end_out_of_order_leave_the_stack_in_order() {
        let mut stack = Stack(Vec::new());
        let mut ended = Vec::new();
        let [outer, middle, inner] = [1, 2, 3].map(|zone| stack.push(zone).expect("a place"));
        assert_eq!((stack.top(middle), stack.top(inner)), (None, Some(3)));
        stack.end(middle, |zone| ended.push(zone));
        assert!(ended.is_empty());
        stack.end(inner, |zone| ended.push(zone));
        assert_eq!(ended, [3, 2]);
        let next = stack.push(4).expect("a place");
        stack.end(outer, |zone| ended.push(zone));
        stack.end(next, |zone| ended.push(zone));
        assert_eq!(ended, [3, 2, 4, 1]);
    }
}
