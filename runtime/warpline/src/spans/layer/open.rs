//! The spans that a thread is in.
//!
//! The layer writes them, and a launch observer passes the innermost one to each zone that begins. Nothing here is shared between threads,
//! and no user code runs while it is borrowed.

use std::cell::{Cell, RefCell};

use tracing_core::Metadata;

use warpline_core::observer;
use warpline_core::observer::{LaunchObserver, Position, Token, ZoneLaunch};
use warpline_core::record::SpanRef;
use warpline_core::stream::spans::SpanPermit;
use warpline_core::zone::Zone;

/// The maximum number of spans that a thread is in. Further ones are not recorded: a thread with so many does not leave its spans.
const DEEPEST: usize = 4096;

thread_local! {
    static THREAD: OnThread = const { OnThread { open: RefCell::new(Vec::new()), is_muted: Cell::new(false) } };
}

struct OnThread {
    /// The last one is the innermost, as long as the program leaves its spans in order.
    open: RefCell<Vec<OpenSpan>>,
    is_muted: Cell<bool>,
}

/// A span that the thread is in.
pub(super) struct OpenSpan {
    pub(super) metadata: &'static Metadata<'static>,
    pub(super) id: u64,
    pub(super) thread: u64,
    pub(super) begin_ns: i64,
    /// Its zone, if it has a stream.
    pub(super) zone: Option<Zone>,
    /// None if the buffer was full.
    pub(super) place: Option<SpanPermit>,
}

/// Registers the observer that sets the parent span of each zone that begins from now on.
pub(in crate::spans) fn observe() {
    observer::register(Position::Spans, &OBSERVER);
    observer::turn(Position::Spans, true);
}

static OBSERVER: &dyn LaunchObserver = &Parents;

struct Parents;

impl LaunchObserver for Parents {
    fn zone_begins(&self, zone: &mut ZoneLaunch<'_>) -> Option<Token> {
        zone.parent = innermost();
        None
    }
}

/// Returns the innermost span that this thread is in.
fn innermost() -> Option<SpanRef> {
    let read = |thread: &OnThread| {
        let open = thread.open.try_borrow().ok()?;
        open.last().map(|span| SpanRef { name: span.metadata.name(), id: span.id })
    };
    THREAD.try_with(read).ok().flatten()
}

/// Stops recording this thread. The collector calls it, because it would record its own spans.
pub(crate) fn mute() {
    let _ = THREAD.try_with(|thread| thread.is_muted.set(true));
}

#[inline]
pub(super) fn is_muted() -> bool {
    THREAD.try_with(|thread| thread.is_muted.get()).unwrap_or(false)
}

/// Returns whether this thread has no recorded open span.
#[inline]
pub(super) fn is_empty() -> bool {
    THREAD.try_with(|thread| thread.open.try_borrow().is_ok_and(|open| open.is_empty())).unwrap_or(true)
}

/// Adds a span that the thread enters. A span that cannot be stored, as in a thread that is ending, is dropped and counts as unfinished.
/// Returns whether it is stored.
#[inline]
pub(super) fn enter(span: OpenSpan) -> bool {
    let push = |thread: &OnThread| {
        let Ok(mut open) = thread.open.try_borrow_mut() else { return false };
        let has_room = open.len() < DEEPEST;
        if has_room {
            open.push(span);
        }
        has_room
    };
    THREAD.try_with(push).unwrap_or(false)
}

/// Keeps the zone of the span that this thread has just entered.
pub(super) fn hold(id: u64, zone: Zone) {
    let hold = |thread: &OnThread| {
        let mut open = thread.open.try_borrow_mut().ok()?;
        open.last_mut().filter(|span| span.id == id)?.zone.replace(zone)
    };
    let _ = THREAD.try_with(hold);
}

/// Returns the zone of the span that this thread leaves.
#[inline]
pub(super) fn release(id: u64, metadata: &'static Metadata<'static>) -> Option<Zone> {
    let take = |thread: &OnThread| {
        let mut open = thread.open.try_borrow_mut().ok()?;
        open.iter_mut().rfind(|span| span.id == id && std::ptr::eq(span.metadata, metadata))?.zone.take()
    };
    THREAD.try_with(take).ok().flatten()
}

/// Removes a span that the thread leaves: of those with this id, the last that it entered, at any position.
#[inline]
pub(super) fn exit(id: u64, metadata: &'static Metadata<'static>) -> Option<OpenSpan> {
    let take = |thread: &OnThread| {
        let mut open = thread.open.try_borrow_mut().ok()?;
        let at = open.iter().rposition(|span| span.id == id && std::ptr::eq(span.metadata, metadata))?;
        Some(open.remove(at))
    };
    THREAD.try_with(take).ok().flatten()
}
