//! Launch observers, such as an NVTX tool, Tracy, CUPTI or `tracing`, which follow zones on the threads that launch them.
//!
//! An adapter implements [`LaunchObserver`], registers it for one [`Position`] and turns the position on and off. `zone` calls
//! the observers at a zone's begin and end and keeps their tokens in the zone's slot. While no observer is on, a recorded zone
//! costs two relaxed loads. Nothing here locks or allocates, and nothing here depends on an adapter.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

use linkme::distributed_slice;

use crate::catalog::RangeSpec;
use crate::collective::Message;
use crate::fields::Fields;
use crate::record::SpanRef;
use crate::switch;
use crate::wait::WaitOutcome;

/// Follows zones on the threads that launch them. Its methods are called on the hot path, on any thread, and must not block.
pub trait LaunchObserver: Sync {
    /// Called when a zone begins on this thread. The token is passed to the zone's end; without a token, the observer is not
    /// called then.
    fn zone_begins(&self, zone: &mut ZoneLaunch<'_>) -> Option<Token>;

    /// Called when a zone ends for which the observer returned a token: on the thread that began the zone if it nests, otherwise
    /// on any thread.
    fn zone_ends(&self, _token: Token, _zone: &ZoneEnd<'_>) {}

    /// Called when a batch of collectives, for which the observer returned a token, gets an entry. The batch is open on this thread.
    fn entry_added(&self, _range: &'static RangeSpec, _message: &Message) {}

    /// Called when this thread begins to wait for a semaphore, or to signal one. The token is passed to the call's end.
    fn sync_begins(&self, _call: &SyncCall<'_>) -> Option<Token> {
        None
    }

    /// Called on the same thread when the call ends for which the observer returned a token.
    fn sync_ends(&self, _token: Token, _outcome: WaitOutcome) {}

    /// Called for a zone that is not observed because too many zones of its thread are open.
    fn zone_lost(&self, _open: usize) {}

    /// Called when the application names a stream of the CUDA driver.
    fn stream_named(&self, _stream: *mut c_void, _name: &str) {}
}

/// A zone that begins.
pub struct ZoneLaunch<'a> {
    pub range: &'static RangeSpec,
    pub fields: &'a Fields,
    /// The data that a collective moves.
    pub message: Option<&'a Message>,
    /// Whether the zone nests on its thread, and ends there.
    pub nests: bool,
    /// Whether a session records the zone.
    pub is_of_session: bool,
    /// Whether the zone has no stream.
    pub is_host: bool,
    /// The number of the zone's stream in the session; 0 for a host zone.
    pub stream: u32,
    pub sequence: u64,
    /// The span that the zone begins in: the observer of spans sets it, and the record contains it.
    pub parent: Option<SpanRef>,
}

/// A zone that ends.
pub struct ZoneEnd<'a> {
    pub range: &'static RangeSpec,
    /// Like [`ZoneLaunch::nests`].
    pub nests: bool,
    /// The zone's fields and label; empty if the zone has already been handed to the collector.
    pub fields: &'a Fields,
    /// The data that a collective moves; none also if the zone has already been handed to the collector.
    pub message: Option<&'a Message>,
}

/// A call of a host thread that waits for a semaphore or signals one.
#[derive(Clone, Copy, Debug)]
pub struct SyncCall<'a> {
    pub kind: SyncKind,
    /// The semaphore; of several that a thread waits for, the first.
    pub semaphore: &'a str,
    pub value: u64,
    /// The number of values that the call waits for or signals.
    pub values: usize,
}

/// The kind of a [`SyncCall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    Wait,
    Signal,
}

impl SyncKind {
    /// Returns the name in traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            SyncKind::Wait => "wait",
            SyncKind::Signal => "signal",
        }
    }
}

/// The position at which an observer is called. Each position has one observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Around everything else, and also for zones that are not recorded: on while the switch is set to mirror zones.
    Nvtx,
    /// As [`Nvtx`](Position::Nvtx), and inside it.
    Roctx,
    /// Right before the launch is timed.
    Launch,
    /// After the zone's begin is on its stream. Zones that are captured into a graph are left out: they launch nothing.
    Begun,
    /// Before the launch is timed, for the span that the zone begins in. Its observer hears nothing of a zone's end,
    /// and has no token.
    Spans,
}

const POSITIONS: usize = 5;

/// The positions whose observers have tokens.
const WITH_TOKEN: usize = Position::Spans as usize;

/// The positions of tools that zones are mirrored to.
pub(crate) const MIRRORS: [Position; 2] = [Position::Nvtx, Position::Roctx];

const MIRRORED: u8 = Position::Nvtx.bit() | Position::Roctx.bit();

impl Position {
    const fn bit(self) -> u8 {
        1 << self as u8
    }

    fn observer(self) -> Option<&'static dyn LaunchObserver> {
        let observer = OBSERVERS[self as usize].load(Ordering::Acquire);
        // SAFETY: it is null, or was a `&'static` when it was registered.
        unsafe { observer.as_ref() }.copied()
    }
}

/// The observers. They have no lock, so a forked child finds them in a consistent state.
static OBSERVERS: [AtomicPtr<&'static dyn LaunchObserver>; POSITIONS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; POSITIONS];

/// The positions that are on. Those of mirrors count while the switch is set to mirror zones, which a forked child
/// turns off.
static ACTIVE: AtomicU8 = AtomicU8::new(0);

/// The functions that are called when a process begins its first zone, for adapters that need no session. The name contains this
/// crate's version: see [`RANGES`](crate::catalog::spec::RANGES).
#[distributed_slice]
#[linkme(crate = linkme)]
pub static WARPLINE_FIRST_ZONE_V0_1: [fn()];

pub use WARPLINE_FIRST_ZONE_V0_1 as FIRST_ZONE;

/// Handles the begin of the process's first zone: observers that work without a session check whether they are needed.
#[cold]
pub(crate) fn first_zone() {
    // Miri does not link, so there is no slice.
    let adapters = if cfg!(miri) { &[] } else { FIRST_ZONE.static_slice() };
    if adapters.is_empty() {
        switch::mirror(false);
    }
    adapters.iter().for_each(|look| look());
}

/// Sets the observer of a position. Only an enabled position calls it.
pub fn register(position: Position, observer: &'static &'static dyn LaunchObserver) {
    OBSERVERS[position as usize].store(ptr::from_ref(observer).cast_mut(), Ordering::Release);
}

/// Turns a position on or off for zones that begin from now on.
pub fn turn(position: Position, on: bool) {
    let bit = position.bit();
    let active = match on {
        true => ACTIVE.fetch_or(bit, Ordering::Release) | bit,
        false => ACTIVE.fetch_and(!bit, Ordering::Release) & !bit,
    };
    if bit & MIRRORED != 0 {
        switch::mirror(active & MIRRORED != 0);
    }
}

/// The positions that are on for a zone.
#[derive(Clone, Copy)]
pub struct Active(u8);

#[inline]
pub fn active() -> Active {
    let off = if switch::is_mirrored() { 0 } else { MIRRORED };
    Active(ACTIVE.load(Ordering::Relaxed) & !off)
}

impl Active {
    #[inline]
    pub(crate) fn any(self) -> bool {
        self.0 != 0
    }

    /// Returns whether zones are mirrored to a tool.
    #[inline]
    pub(crate) fn has_mirror(self) -> bool {
        self.0 & MIRRORED != 0
    }

    #[inline]
    pub fn has(self, position: Position) -> bool {
        self.0 & position.bit() != 0
    }
}

/// The data that an observer keeps with a zone until the zone's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

/// The observers that wait for the end of a zone: one bit per position.
#[derive(Default)]
pub(crate) struct Waiting(u8);

/// The tokens of those observers. They are stored separately from [`Waiting`], which every zone reads.
#[derive(Default)]
pub(crate) struct Tokens([u64; WITH_TOKEN]);

impl Waiting {
    /// Returns whether the observer of a position waits for the zone's end.
    #[inline]
    pub(crate) fn has(&self, position: Position) -> bool {
        self.0 & position.bit() != 0
    }

    /// Returns whether a tool that the zone is mirrored to waits for its end.
    #[inline]
    pub(crate) fn has_mirror(&self) -> bool {
        self.0 & MIRRORED != 0
    }

    pub(crate) fn put(&mut self, position: Position, token: Token, tokens: &mut Tokens) {
        if let Some(kept) = tokens.0.get_mut(position as usize) {
            self.0 |= position.bit();
            *kept = token.0;
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, position: Position, tokens: &Tokens) -> Option<Token> {
        if !self.has(position) {
            return None;
        }
        self.0 &= !position.bit();
        Some(Token(tokens.0[position as usize]))
    }
}

/// Notifies the observer of a position that a zone begins.
pub(crate) fn zone_begins(position: Position, zone: &mut ZoneLaunch<'_>) -> Option<Token> {
    position.observer()?.zone_begins(zone)
}

/// Notifies the observer of a position that a zone ends.
pub(crate) fn zone_ends(position: Position, token: Token, zone: &ZoneEnd<'_>) {
    if let Some(observer) = position.observer() {
        observer.zone_ends(token, zone);
    }
}

/// Notifies the observer of a position that a batch of collectives gets an entry.
#[cold]
pub(crate) fn entry_added(position: Position, range: &'static RangeSpec, message: &Message) {
    if let Some(observer) = position.observer() {
        observer.entry_added(range, message);
    }
}

/// The observers that follow the calls of semaphores.
const SYNC_POSITIONS: [Position; 2] = [Position::Nvtx, Position::Launch];

/// A call of a semaphore that observers follow. Dropping it ends the call as failed.
pub struct ObservedSync {
    tokens: [Option<Token>; SYNC_POSITIONS.len()],
    outcome: WaitOutcome,
}

impl ObservedSync {
    /// Begins a call on this thread, unless nobody observes it. `call` is then not called.
    #[inline]
    pub fn begin<'a>(call: impl FnOnce() -> SyncCall<'a>) -> Option<ObservedSync> {
        let active = if cfg!(feature = "enable") { active() } else { return None };
        if SYNC_POSITIONS.iter().any(|position| active.has(*position)) {
            ObservedSync::notify(active, &call())
        } else {
            None
        }
    }

    #[cold]
    fn notify(active: Active, call: &SyncCall<'_>) -> Option<ObservedSync> {
        let begin = |position: Position| position.observer().filter(|_| active.has(position))?.sync_begins(call);
        let tokens = SYNC_POSITIONS.map(begin);
        tokens.iter().any(Option::is_some).then_some(ObservedSync { tokens, outcome: WaitOutcome::Failed })
    }

    /// Ends the call with this outcome.
    pub fn end(mut self, outcome: WaitOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for ObservedSync {
    fn drop(&mut self) {
        // The reverse of the begins.
        for (position, token) in SYNC_POSITIONS.iter().zip(self.tokens).rev() {
            if let (Some(token), Some(observer)) = (token, position.observer()) {
                observer.sync_ends(token, self.outcome);
            }
        }
    }
}

/// Notifies the mirrors that a zone is not observed because too many zones of its thread are open.
#[cold]
pub(crate) fn zone_lost(open: usize) {
    mirrors().for_each(|observer| observer.zone_lost(open));
}

/// Passes the application's name of a CUDA driver stream to the mirrors.
pub fn stream_named(stream: *mut c_void, name: &str) {
    mirrors().for_each(|observer| observer.stream_named(stream, name));
}

/// The observers of the mirrors that are on.
fn mirrors() -> impl Iterator<Item = &'static dyn LaunchObserver> {
    let active = active();
    MIRRORS.into_iter().filter(move |position| active.has(*position)).filter_map(Position::observer)
}

/// Says once that a tool does not get all zones, because too many zones of one thread are open.
#[cold]
pub fn say_lost(is_said: &AtomicBool, tool: &str, open: usize) {
    if !is_said.swap(true, Ordering::Relaxed) {
        crate::stderr::line(format_args!(
            "more than {open} zones of one thread are open at once; {tool} does not get further ones: end zones earlier"
        ));
    }
}
