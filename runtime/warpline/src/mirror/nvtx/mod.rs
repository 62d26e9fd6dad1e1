//! The NVTX mirror: each zone is also an NVTX range on the launching thread, for tools that get names from NVTX (Nsight
//! Systems, Nsight Compute, and tools that are built on CUPTI). It needs no session.
//!
//! [`attach`] finds a tool once, when the first zone begins or the first session starts. From then on, a bit of the
//! switch says whether zones are mirrored. NVIDIA's client is a C header, and this module is its equivalent in Rust:
//! `abi` contains the header's types, `find` finds the tool, `legacy` a library of old toolkits, `table` holds its
//! functions, `pushes` knows what they answer, `range` passes the catalog's data to it, `payload` the fields of zones,
//! `message` the data of collectives, and `sync` the calls of semaphores. Without a tool, none of this runs. With one,
//! a mirrored zone takes no lock and does not allocate.

mod abi;
mod find;
mod legacy;
mod message;
mod payload;
mod pushes;
mod range;
mod sync;
mod table;

use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::settings;
use find::{NoTool, Tool};
use range::NvtxRange;
use warpline_core::catalog::RangeSpec;
use warpline_core::collective::Message;
use warpline_core::fork::PerProcess;
use warpline_core::observer;
use warpline_core::observer::{LaunchObserver, Position, SyncCall, Token, ZoneEnd, ZoneLaunch};
use warpline_core::stderr;
use warpline_core::stream::thread;
use warpline_core::stream::thread::Thread;
use warpline_core::switch;
use warpline_core::wait::WaitOutcome;

/// The result of the search for a tool.
struct ToolSearch {
    /// Whether the parent of this process has looked for a tool.
    is_child: bool,
    /// Whether this process, or its parent, has looked for a tool.
    has_looked: bool,
    /// The same for the library of old toolkits, which needs an explicit request.
    has_looked_for_old: bool,
    is_attached: bool,
    /// A sentence for the user, with the remedy.
    problem: Option<String>,
}

static STATE: PerProcess<Mutex<ToolSearch>> = PerProcess::new(|| Mutex::new(ToolSearch::new()));

/// Attaches to a tool, if there is one and the settings do not forbid it, and mirrors zones to it from then on. Returns
/// none if this thread is inside the tool.
///
/// The first call takes as long as the tool takes to start, and the first zones of other threads wait for it, as with
/// NVIDIA's client.
#[cold]
pub(crate) fn attach(setting: Option<bool>) -> Option<()> {
    // A tool that begins zones while it starts must not wait for itself.
    let is_mirrored = table::enter(|| {
        let wishes = [settings::of_environment().nvtx, setting];
        let mut state = lock();
        if wishes.contains(&Some(false)) {
            return false;
        }
        let is_asked = wishes.contains(&Some(true));
        if !state.has_looked || (is_asked && !state.has_looked_for_old) {
            let was_attached = state.is_attached;
            state.attach(is_asked);
            if state.is_attached && !was_attached {
                range::register_all();
            }
        }
        if is_asked && state.is_child {
            let problem =
                "no zone reaches NVTX: this process was forked, and a tool follows only processes that call `exec`";
            state.problem = Some(problem.to_owned());
        }
        state.is_attached
    })?;
    observer::register(Position::Nvtx, &OBSERVER);
    observer::turn(Position::Nvtx, is_mirrored);
    Some(())
}

/// Returns a sentence about the mirror for the user. It was also printed to standard error, except in a forked process.
pub(crate) fn problem() -> Option<String> {
    // As above: a tool that starts a session during its own start must not wait for itself.
    table::enter(|| lock().problem.clone()).flatten()
}

/// Begins the count of what the tool refuses, for a session.
pub(crate) fn begin_session() {
    pushes::begin_session();
}

/// Returns a note on what the tool has refused since the session began.
pub(crate) fn refusals() -> Option<String> {
    pushes::note()
}

/// Takes the state's lock. It is not `warpline_core::lock`, because the tool starts under it, and zones that the tool
/// begins meanwhile are recorded.
fn lock() -> MutexGuard<'static, ToolSearch> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ToolSearch {
    /// Returns the state of a new process. A child of a process that has looked for a tool does not look again, because
    /// the tool's threads are the parent's.
    fn new() -> ToolSearch {
        let has_looked = !switch::is_unknown();
        ToolSearch {
            is_child: has_looked,
            has_looked,
            has_looked_for_old: has_looked,
            is_attached: false,
            problem: None,
        }
    }

    /// Looks for a tool and starts it. If `is_asked`, the user requests it by name, so its absence is reported, and the
    /// old library is accepted.
    fn attach(&mut self, is_asked: bool) {
        let found = if self.has_looked { Err(NoTool::None) } else { find::tool() };
        self.has_looked = true;
        self.has_looked_for_old |= is_asked;
        let attached = match found {
            Ok(tool) => start(&tool),
            Err(NoTool::None) if self.is_attached || self.problem.is_some() => return,
            Err(NoTool::None) if !is_asked => return,
            Err(NoTool::None) => legacy::attach(),
            Err(NoTool::Refused) => return self.has_looked_for_old = true,
            Err(NoTool::Broken(problem)) => Err(problem),
        };
        match attached {
            Ok(()) => self.is_attached = true,
            Err(problem) => {
                let problem = format!("no zone reaches NVTX: {problem}");
                stderr::line(&problem);
                self.problem = Some(problem);
            }
        }
    }
}

fn start(tool: &Tool) -> Result<(), String> {
    let name = &tool.name;
    if !table::start(tool.initialize) {
        return Err(format!(
            "{name} refused to start (InitializeInjectionNvtx2 returned 0); its documentation says why"
        ));
    }
    if let Some(extend) = tool.extend {
        table::extend(extend);
    }
    if !table::takes_ranges() {
        return Err(format!("{name} does not support ranges in domains: use a tool for NVTX 3"));
    }
    Ok(())
}

thread_local! {
    static IS_NAMED: Cell<bool> = const { Cell::new(false) };
}

/// The token of a zone that nests. It has no meaning, because the tool keeps a stack for each thread.
const PUSHED: Token = Token(0);

static OBSERVER: &dyn LaunchObserver = &Mirror;

struct Mirror;

impl LaunchObserver for Mirror {
    /// Begins a zone's range. Returns none if this thread is already inside the tool, or if the tool refuses the range.
    fn zone_begins(&self, zone: &mut ZoneLaunch<'_>) -> Option<Token> {
        table::enter(|| {
            let range = NvtxRange::registered(zone.range);
            name_this_thread();
            if zone.nests {
                range.push(zone.fields, zone.message).then_some(PUSHED)
            } else {
                Some(Token(range.start(zone.fields, zone.message)))
            }
        })
        .flatten()
    }

    fn zone_ends(&self, token: Token, zone: &ZoneEnd<'_>) {
        table::enter(|| {
            let range = NvtxRange::registered(zone.range);
            if zone.nests { range.pop() } else { range.end(token.0) }
        });
    }

    fn entry_added(&self, range: &'static RangeSpec, message: &Message) {
        table::enter(|| NvtxRange::registered(range).mark(message));
    }

    fn sync_begins(&self, call: &SyncCall<'_>) -> Option<Token> {
        table::enter(|| {
            name_this_thread();
            sync::push(call).then_some(PUSHED)
        })
        .flatten()
    }

    fn sync_ends(&self, _: Token, _: WaitOutcome) {
        table::enter(sync::pop);
    }

    #[cold]
    fn zone_lost(&self, open: usize) {
        static IS_SAID: AtomicBool = AtomicBool::new(false);
        observer::say_lost(&IS_SAID, "NVTX", open);
    }

    fn stream_named(&self, stream: *mut c_void, name: &str) {
        if let Ok(name) = CString::new(name) {
            table::enter(|| table::name_stream(stream, &name));
        }
    }
}

/// Passes the thread's name to the tool, once.
#[inline]
fn name_this_thread() {
    if !IS_NAMED.replace(true) {
        thread::with(name_thread);
    }
}

#[cold]
fn name_thread(thread: &Thread) {
    if let Some(name) = thread.name().and_then(|name| CString::new(name).ok()) {
        table::name_thread(thread.id() as u32, &name);
    }
}
