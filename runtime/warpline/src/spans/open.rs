//! Which spans a thread is in.
//!
//! The layer writes it; a launch observer gives each zone that begins the innermost. Nothing here is shared between threads, and no code of a
//! user's runs while it is borrowed.

use std::cell::{Cell, RefCell};

use tracing_core::Metadata;

use warpline_core::observer;
use warpline_core::observer::{LaunchObserver, Position, Token, ZoneLaunch};
use warpline_core::record::SpanRef;
use warpline_core::stream::spans::SpanPermit;

/// A thread that is in more spans at once than this records no further ones: it forgets to leave them.
const DEEPEST: usize = 4096;

thread_local! {
    static THREAD: OnThread = const { OnThread { open: RefCell::new(Vec::new()), is_muted: Cell::new(false) } };
}

struct OnThread {
    /// The innermost is the last, as long as the program leaves its spans in order.
    open: RefCell<Vec<OpenSpan>>,
    is_muted: Cell<bool>,
}

/// A span that the thread is in.
pub(super) struct OpenSpan {
    pub(super) metadata: &'static Metadata<'static>,
    pub(super) id: u64,
    pub(super) thread: u64,
    pub(super) begin_ns: i64,
    /// None when the buffer was full.
    pub(super) place: Option<SpanPermit>,
}

/// Zones that begin from now on are asked for the span that they begin in.
pub(super) fn observe() {
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

/// The innermost span that this thread is in.
fn innermost() -> Option<SpanRef> {
    let read = |thread: &OnThread| {
        let open = thread.open.try_borrow().ok()?;
        open.last().map(|span| SpanRef { name: span.metadata.name(), id: span.id })
    };
    THREAD.try_with(read).ok().flatten()
}

/// Records nothing of this thread from now on: it is the collector, and would feed itself.
pub(crate) fn mute() {
    let _ = THREAD.try_with(|thread| thread.is_muted.set(true));
}

#[inline]
pub(super) fn is_muted() -> bool {
    THREAD.try_with(|thread| thread.is_muted.get()).unwrap_or(false)
}

/// Whether no span that this thread has entered is recorded.
#[inline]
pub(super) fn is_empty() -> bool {
    THREAD.try_with(|thread| thread.open.try_borrow().is_ok_and(|open| open.is_empty())).unwrap_or(true)
}

/// The thread enters a span. What cannot be remembered, as in a thread that is ending, is dropped and so counted.
#[inline]
pub(super) fn enter(span: OpenSpan) {
    let _ = THREAD.try_with(|thread| {
        if let Ok(mut open) = thread.open.try_borrow_mut()
            && open.len() < DEEPEST
        {
            open.push(span);
        }
    });
}

/// The thread leaves a span: the last one that it entered of those with this id, wherever that stands.
#[inline]
pub(super) fn exit(id: u64, metadata: &'static Metadata<'static>) -> Option<OpenSpan> {
    let take = |thread: &OnThread| {
        let mut open = thread.open.try_borrow_mut().ok()?;
        let at = open.iter().rposition(|span| span.id == id && std::ptr::eq(span.metadata, metadata))?;
        Some(open.remove(at))
    };
    THREAD.try_with(take).ok().flatten()
}
