//! Launches, host zones, and the waits of threads for semaphores, as ordinary zones of Tracy on the threads that run them.
//!
//! Tracy accepts a thread's zones only from that thread and only when they happen, so this module observes launches while a session
//! writes to Tracy. A thread's zones are a stack in Tracy, but guards may be dropped
//! in any order. A zone that ends below others is therefore kept until it is on top, and no zone gets the end of another.

use std::cell::RefCell;
use std::ffi::CStr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tracy_client::sys;

use super::{Location, SourceLocation, TEXT_BYTES, location, text};
use warpline_core::fields;
use warpline_core::observer;
use warpline_core::observer::{LaunchObserver, Position, SyncCall, SyncKind, Token, ZoneEnd, ZoneLaunch};
use warpline_core::wait::WaitOutcome;

/// Whether threads show their zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ZoneEmission {
    /// No session writes to Tracy.
    Off,
    /// Zones go to Tracy, which ignores them while no viewer is connected.
    On,
    /// No viewer will see them: host zones are counted.
    Paused,
}

static STATE: AtomicU8 = AtomicU8::new(ZoneEmission::Off as u8);

/// The number of host zones that Tracy does not show.
static NOT_SHOWN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static THREAD: RefCell<Thread<Live>> = const { RefCell::new(Thread::new(Live)) };
}

/// The calls of Tracy's client on a thread: a trait, so that a test can see them.
trait Calls {
    type Zone: Copy;

    /// Begins a zone, unless no viewer will see it.
    fn begin(&mut self, location: Location) -> Option<Self::Zone>;

    /// Adds text to a zone, which is the innermost one that is open.
    fn text(&mut self, zone: Self::Zone, text: &str);

    /// Ends a zone, which is the innermost one that is open.
    fn end(&mut self, zone: Self::Zone);
}

/// Tracy's client.
struct Live;

/// What Tracy shows of a thread.
struct Thread<C: Calls> {
    calls: C,
    open: Stack<C::Zone>,
    /// The text of a zone. Kept for its memory.
    text: String,
}

/// The open zones of a thread, and the ended zones below them.
struct Stack<Z>(Vec<(Z, IsEnded)>);

type IsEnded = bool;

/// The position of an open zone on its thread's stack, from 1.
type StackIndex = NonZeroU32;

pub(crate) fn set(state: ZoneEmission) {
    STATE.store(state as u8, Ordering::Relaxed);
    observer::register(Position::Launch, &OBSERVER);
    observer::turn(Position::Launch, state != ZoneEmission::Off);
}

static OBSERVER: &dyn LaunchObserver = &Launches;

struct Launches;

impl LaunchObserver for Launches {
    fn zone_begins(&self, zone: &mut ZoneLaunch<'_>) -> Option<Token> {
        let state = STATE.load(Ordering::Relaxed);
        if state == ZoneEmission::Off as u8 || !zone.is_of_session {
            return None;
        }
        // A zone that may end on another thread cannot be shown.
        let is_shown = zone.nests && state == ZoneEmission::On as u8;
        let place =
            if is_shown { location(zone.range).and_then(|at| with(|thread| thread.begin(at)).flatten()) } else { None };
        if place.is_none() && zone.is_host {
            NOT_SHOWN.fetch_add(1, Ordering::Relaxed);
        }
        place.map(|place| Token(place.get().into()))
    }

    fn zone_ends(&self, token: Token, zone: &ZoneEnd<'_>) {
        if let Some(place) = StackIndex::new(token.0 as u32) {
            with(|thread| thread.end_zone(place, zone));
        }
    }

    fn sync_begins(&self, call: &SyncCall<'_>) -> Option<Token> {
        let state = STATE.load(Ordering::Relaxed);
        let place =
            if state == ZoneEmission::On as u8 { with(|thread| thread.begin_sync(call)).flatten() } else { None };
        if place.is_none() && state != ZoneEmission::Off as u8 && call.kind == SyncKind::Wait {
            // A wait is a record of the session; a signal is not.
            NOT_SHOWN.fetch_add(call.values as u64, Ordering::Relaxed);
        }
        place.map(|place| Token(place.get().into()))
    }

    fn sync_ends(&self, token: Token, outcome: WaitOutcome) {
        if let Some(place) = StackIndex::new(token.0 as u32) {
            with(|thread| thread.end_sync(place, outcome));
        }
    }
}

/// Calls `call` with the thread's state; returns none while the thread-local values are being destroyed.
fn with<T>(call: impl FnOnce(&mut Thread<Live>) -> T) -> Option<T> {
    THREAD.try_with(|thread| thread.try_borrow_mut().ok().map(|mut thread| call(&mut thread))).ok().flatten()
}

/// Returns the number of host zones that Tracy does not show since the last call.
pub(crate) fn take_not_shown() -> u64 {
    NOT_SHOWN.swap(0, Ordering::Relaxed)
}

/// Returns the place of all waits, or of all signals.
fn sync_location(kind: SyncKind) -> Location {
    static PLACES: [SourceLocation; 2] = [sync_place(c"wait"), sync_place(c"signal")];
    Location(std::ptr::from_ref(&PLACES[kind as usize].0) as u64)
}

const fn sync_place(name: &'static CStr) -> SourceLocation {
    SourceLocation(sys::___tracy_source_location_data {
        name: name.as_ptr(),
        function: c"warpline::timeline".as_ptr(),
        file: c"".as_ptr(),
        line: 0,
        color: 0,
    })
}

#[allow(unsafe_code)]
impl Calls for Live {
    type Zone = sys::___tracy_c_zone_context;

    fn begin(&mut self, location: Location) -> Option<Self::Zone> {
        // SAFETY: the place holds as long as the process, and the client was started before the state became `On`.
        let zone = unsafe { sys::___tracy_emit_zone_begin(location.0 as *const _, 1) };
        (zone.active != 0).then_some(zone)
    }

    fn text(&mut self, zone: Self::Zone, text: &str) {
        // SAFETY: the text is copied, and it belongs to the zone on top of this thread's stack.
        unsafe { sys::___tracy_emit_zone_text(zone, text.as_ptr().cast(), text.len()) }
    }

    fn end(&mut self, zone: Self::Zone) {
        // SAFETY: this thread began the zone, it is the innermost one that is open, and it comes off the stack.
        unsafe { sys::___tracy_emit_zone_end(zone) }
    }
}

impl<C: Calls> Thread<C> {
    const fn new(calls: C) -> Thread<C> {
        Thread { calls, open: Stack(Vec::new()), text: String::new() }
    }

    fn begin(&mut self, location: Location) -> Option<StackIndex> {
        let zone = self.calls.begin(location)?;
        self.open.push(zone)
    }

    /// Ends a zone, with the data of a collective, the label and the fields as its text.
    fn end_zone(&mut self, place: StackIndex, zone: &ZoneEnd<'_>) {
        self.write(place, |all| {
            if let Some(message) = zone.message {
                text::message(all, message);
            }
            text::fields(all, zone.fields);
        });
        self.end(place);
    }

    fn begin_sync(&mut self, call: &SyncCall<'_>) -> Option<StackIndex> {
        let place = self.begin(sync_location(call.kind))?;
        self.write(place, |all| text::sync(all, call));
        Some(place)
    }

    fn end_sync(&mut self, place: StackIndex, outcome: WaitOutcome) {
        if outcome != WaitOutcome::Reached {
            self.write(place, |all| all.push_str(outcome.as_str()));
        }
        self.end(place);
    }

    /// Adds a text to the zone at this position, if it is on top and the text is not empty.
    fn write(&mut self, place: StackIndex, write: impl FnOnce(&mut String)) {
        let Some(zone) = self.open.top(place) else { return };
        self.text.clear();
        write(&mut self.text);
        if !self.text.is_empty() {
            self.calls.text(zone, fields::cut(&self.text, TEXT_BYTES));
        }
    }

    fn end(&mut self, place: StackIndex) {
        self.open.end(place, |zone| self.calls.end(zone));
    }
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
    use warpline_core::collective::{CollectiveKind, DataType, Message};
    use warpline_core::fields::Fields;
    use warpline_report::fixture::STEP;

    /// It notes the calls; a zone is its number, from 0.
    #[derive(Default)]
    struct Double {
        log: Vec<String>,
        zones: usize,
    }

    impl Calls for Double {
        type Zone = usize;

        fn begin(&mut self, _: Location) -> Option<usize> {
            self.log.push(format!("begin {}", self.zones));
            self.zones += 1;
            Some(self.zones - 1)
        }

        fn text(&mut self, zone: usize, text: &str) {
            self.log.push(format!("text {zone} {text}"));
        }

        fn end(&mut self, zone: usize) {
            self.log.push(format!("end {zone}"));
        }
    }

    #[test]
    fn a_zone_has_its_message_its_label_and_its_fields_as_text() {
        let mut thread = Thread::new(Double::default());
        let mut all = Fields::default();
        all.push("rows", 3_u32);
        all.set_label("layer 1");
        let message = Message::new(CollectiveKind::AllReduce).count(8).dtype(DataType::F32);
        let end = ZoneEnd { range: &STEP, nests: true, fields: &all, message: Some(&message) };
        let place = thread.begin(sync_location(SyncKind::Wait)).expect("a viewer");
        let below = thread.begin(sync_location(SyncKind::Wait)).expect("a viewer");
        // Text goes to the innermost zone only.
        thread.end_zone(place, &end);
        thread.end_zone(below, &ZoneEnd { fields: &Fields::default(), message: None, ..end });
        let third = thread.begin(sync_location(SyncKind::Wait)).expect("a viewer");
        thread.end_zone(third, &end);
        let text = "text 2 all_reduce, 8 f32, 32 bytes\nlayer 1\nrows: 3";
        assert_eq!(thread.calls.log, ["begin 0", "begin 1", "end 1", "end 0", "begin 2", text, "end 2"]);
    }

    #[test]
    fn a_wait_says_its_value_and_how_it_ended_if_not_well() {
        let mut thread = Thread::new(Double::default());
        let call = SyncCall { kind: SyncKind::Wait, semaphore: "weights", value: 5, values: 1 };
        for (outcome, values) in [(WaitOutcome::Reached, 1), (WaitOutcome::TimedOut, 2)] {
            let place = thread.begin_sync(&SyncCall { values, ..call }).expect("a viewer");
            thread.end_sync(place, outcome);
        }
        let expected = [
            "begin 0",
            "text 0 weights: 5",
            "end 0",
            "begin 1",
            "text 1 weights: 5, the first of 2",
            "text 1 timed out",
            "end 1",
        ];
        assert_eq!(thread.calls.log, expected);
        assert_ne!(sync_location(SyncKind::Wait), sync_location(SyncKind::Signal));
    }

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
