//! The thread of a queue: it checks submissions when they are made and when they are woken, and issues those that are ready.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use super::WorkResult;
use super::action::{Action, HostAction, Ready, Work};
use super::room::Room;
use crate::call::Signals;
use crate::error::Error;
use crate::memory::{Memory, Origin};
use crate::point::Timepoint;
use crate::semaphore::Semaphore;
use crate::state::{Nudge, Waiter};
use crate::storage::{BufferAllocation, Live, NotFreed, Stays};
use warpline_core::backend::AsStream;
use warpline_core::backend::host::HostStream;
use warpline_core::fork::Home;
use warpline_core::panics::{caught, caught_or_text};

/// The time after which memory that could not be freed is tried again.
const RETRY: Duration = Duration::from_millis(10);

/// The state that the worker shares with the submitting threads.
pub(super) struct Shared<S> {
    name: Arc<str>,
    /// The process of the worker.
    home: Home,
    room: Arc<Room>,
    state: Mutex<WorkerState<S>>,
    /// Wakes the worker.
    work: Condvar,
    /// Wakes threads in `flush`.
    seen: Condvar,
}

struct WorkerState<S> {
    inbox: VecDeque<Action<S>>,
    /// The ids of held-back submissions that must be checked again.
    woken: Vec<u64>,
    phase: Phase,
    /// The buffers that are not freed. The worker stays for them.
    live: usize,
    /// Whether the worker is processing submissions.
    is_busy: bool,
    /// The number of completed passes, and of submissions that were held back after the last one.
    passes: u64,
    held_back: usize,
}

/// How far the end of a queue has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    /// The queue was dropped.
    Closed,
    /// What was submitted is issued or has failed. The worker stays while buffers are not freed.
    Over,
    /// There is no worker any more.
    Gone,
}

impl<S> Shared<S> {
    pub(super) fn new(name: Arc<str>, room: Arc<Room>) -> Shared<S> {
        let state = WorkerState {
            inbox: VecDeque::new(),
            woken: Vec::new(),
            phase: Phase::Open,
            live: 0,
            is_busy: false,
            passes: 0,
            held_back: 0,
        };
        Shared { name, home: Home::here(), room, state: Mutex::new(state), work: Condvar::new(), seen: Condvar::new() }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn room(&self) -> &Arc<Room> {
        &self.room
    }

    /// Returns whether the worker is in this process. A forked child has none.
    pub(super) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// Returns a number that identifies this queue while it exists.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Takes the lock. No user code runs under it, so the state under a poisoned lock is sound.
    fn lock(&self) -> MutexGuard<'_, WorkerState<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, action: Action<S>) {
        let mut state = self.lock();
        if state.phase == Phase::Gone {
            drop(state);
            return action.discard();
        }
        state.inbox.push_back(action);
        drop(state);
        self.work.notify_one();
    }

    pub(super) fn close(&self) {
        self.lock().phase = Phase::Closed;
        self.work.notify_one();
    }

    /// Waits until all submissions of a closed queue are issued or have failed. Returns whether the worker ends then, because all buffers are
    /// freed.
    pub(super) fn ends_now(&self) -> bool {
        let mut state = self.lock();
        while state.phase < Phase::Over {
            state = self.seen.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.phase == Phase::Gone || state.live == 0
    }

    pub(super) fn flush(&self) -> usize {
        if !self.is_here() {
            return 0;
        }
        let mut state = self.lock();
        // Everything submitted so far is processed by the end of the pass that begins next.
        let passes = state.passes + 1 + u64::from(state.is_busy);
        while state.passes < passes && !state.is_idle() && !is_inside(self.address()) {
            state = self.seen.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.held_back
    }

    /// Returns the next submissions to check; none when the queue is closed and nothing is left to do in this phase. If memory could not be
    /// freed, it returns none of them after a while.
    fn take(&self, is_to_retry: bool) -> Option<(VecDeque<Action<S>>, Vec<u64>)> {
        let mut state = self.lock();
        while state.inbox.is_empty() && state.woken.is_empty() {
            match state.phase {
                Phase::Closed => return None,
                Phase::Over if state.live == 0 && !is_to_retry => {
                    // Under the lock: what is pushed from now on finds no worker.
                    state.phase = Phase::Gone;
                    return None;
                }
                Phase::Gone => return None,
                _ if is_to_retry => {
                    state = self.work.wait_timeout(state, RETRY).unwrap_or_else(PoisonError::into_inner).0;
                    break;
                }
                _ => state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
        state.is_busy = true;
        Some((std::mem::take(&mut state.inbox), std::mem::take(&mut state.woken)))
    }

    fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = state.phase.max(phase);
        drop(state);
        self.seen.notify_all();
    }
}

impl<S: AsStream + Send + 'static> Shared<S> {
    /// Counts a buffer, for which the worker stays until the result is dropped.
    pub(super) fn live(shared: &Arc<Shared<S>>) -> Live {
        shared.lock().live += 1;
        Live::new(Arc::clone(shared) as Arc<dyn Stays>)
    }
}

impl<S: AsStream + Send + 'static> Origin for Shared<S> {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn is_here(&self) -> bool {
        self.home.is_here()
    }

    fn dealloca(&self, waits: Vec<(Semaphore, u64)>, signals: Signals, memory: Arc<Memory>) {
        self.push(Action::new(waits, signals, Work::Dealloca(memory), None));
    }

    fn reclaim(&self, allocation: BufferAllocation) {
        let signals = Signals::new(Arc::clone(&self.name), Vec::new());
        self.push(Action::new(Vec::new(), signals, Work::Reclaim(allocation), None));
    }
}

impl<S: AsStream + Send + 'static> Stays for Shared<S> {
    fn is_in_this_process(&self) -> bool {
        self.home.is_here()
    }

    fn release(&self) {
        self.lock().live -= 1;
        self.work.notify_one();
    }
}

impl<S> WorkerState<S> {
    fn is_idle(&self) -> bool {
        !self.is_busy && self.inbox.is_empty() && self.woken.is_empty()
    }
}

/// The waker of a submission that is held back.
struct HeldBack<S> {
    shared: Arc<Shared<S>>,
    id: u64,
}

impl<S> Nudge for HeldBack<S> {
    fn nudge(&self) {
        self.shared.lock().woken.push(self.id);
        self.shared.work.notify_one();
    }
}

pub(super) struct Worker<S> {
    shared: Arc<Shared<S>>,
    streams: Vec<S>,
    /// The index of the stream for the next work.
    next: usize,
    /// Submissions to check in this pass, by id. `held_back` has those that must be woken first. Ids are in the order of submission.
    todo: BTreeMap<u64, Action<S>>,
    held_back: BTreeMap<u64, Action<S>>,
    /// Memory that a stream refused to free, because it was being captured.
    refused: Vec<BufferAllocation>,
    last_id: u64,
    host_calls: Option<HostStream>,
}

impl<S: AsStream + 'static> Worker<S> {
    pub(super) fn new(shared: Arc<Shared<S>>, streams: Vec<S>) -> Worker<S> {
        Worker {
            shared,
            streams,
            next: 0,
            todo: BTreeMap::new(),
            held_back: BTreeMap::new(),
            refused: Vec::new(),
            last_id: 0,
            host_calls: None,
        }
    }

    pub(super) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        // Dropped before the streams, and also if the thread unwinds: nobody waits for a worker that is gone.
        let _ends = Ends(&shared);
        self.process();
        for action in std::mem::take(&mut self.held_back).into_values() {
            let error = Error::QueueDropped { queue: Arc::clone(&shared.name) };
            let _ = caught(|| action.fail(error));
        }
        // Host calls run to their end.
        self.host_calls = None;
        shared.enter(Phase::Over);
        self.process();
    }

    /// Processes submissions until nothing is left to do in this phase.
    fn process(&mut self) {
        while let Some((inbox, woken)) = self.shared.take(!self.refused.is_empty()) {
            self.gather(woken);
            for action in inbox {
                self.last_id += 1;
                self.todo.insert(self.last_id, action);
            }
            for allocation in std::mem::take(&mut self.refused) {
                self.reclaim(allocation);
            }
            while let Some((id, action)) = self.todo.pop_first() {
                // A panic while a user's values are dropped must not prevent the rest of the work.
                let _ = caught(|| self.advance(id, action));
            }
            let mut state = self.shared.lock();
            state.is_busy = false;
            state.passes += 1;
            state.held_back = self.held_back.len();
            drop(state);
            self.shared.seen.notify_all();
        }
    }

    /// Moves woken submissions to those that are checked.
    fn gather(&mut self, woken: Vec<u64>) {
        for id in woken {
            // A submission may be woken twice.
            if let Some(action) = self.held_back.remove(&id) {
                self.todo.insert(id, action);
            }
        }
    }

    fn advance(&mut self, id: u64, mut action: Action<S>) {
        let Some(stream) = self.streams.get(self.next) else { return };
        let waiter = Waiter::Nudge(Arc::new(HeldBack { shared: Arc::clone(&self.shared), id }));
        match action.poll(stream, &waiter) {
            Poll::Pending => {
                self.held_back.insert(id, action);
            }
            Poll::Ready(Err(error)) => action.fail(error),
            Poll::Ready(Ok(())) => {
                // The wait that ended may have woken an earlier submission as well, which must be issued first.
                let woken = std::mem::take(&mut self.shared.lock().woken);
                self.gather(woken);
                if self.todo.first_key_value().is_some_and(|(first, _)| *first < id) {
                    self.todo.insert(id, action);
                } else {
                    self.issue(action);
                }
            }
        }
    }

    fn issue(&mut self, action: Action<S>) {
        let Some(stream) = self.streams.get(self.next) else { return };
        match action.into_ready() {
            Ready::Host(action) => self.call_host(action),
            Ready::Reclaim(allocation) => self.reclaim(allocation),
            Ready::Stream(action) => {
                let shared = &*self.shared;
                let place = action.place();
                let at = place.unwrap_or(self.next);
                let stream = self.streams.get(at).unwrap_or(stream);
                action.issue(&shared.name, (stream, at), |work| call(&shared.name, shared.address(), work));
                if place.is_none() {
                    self.next = (self.next + 1) % self.streams.len();
                }
            }
        }
    }

    /// Frees the memory of a dropped buffer on its stream, behind all work that the queue has issued on any stream.
    fn reclaim(&mut self, allocation: BufferAllocation) {
        let (at, name) = (allocation.stream(), &self.shared.name);
        let Some(stream) = self.streams.get(at).map(AsStream::as_stream) else { return };
        let others = self.streams.iter().enumerate().filter(|(place, _)| *place != at);
        let mut is_behind = Ok(());
        for (_, other) in others {
            let put = Timepoint::put(&other.as_stream(), name).and_then(|point| point.hold(&stream, name));
            // A stream that fails in another way executes nothing that could use the memory.
            if let Err(error @ Error::Captured { .. }) = put {
                is_behind = Err(error);
            }
        }
        let freed = match is_behind {
            Ok(()) => allocation.free(&stream, name),
            Err(error) => Err(NotFreed::new(allocation, error)),
        };
        // Any other error is one of the device, which has lost its memory with its context.
        if let Some((allocation, Error::Captured { .. })) = freed.err().map(NotFreed::into_parts) {
            self.refused.push(allocation);
        }
    }

    fn call_host(&mut self, mut action: HostAction) {
        let name = Arc::clone(&self.shared.name);
        let stream = self.host_calls.get_or_insert_with(|| HostStream::new(&format!("{name} host calls")));
        let address = self.shared.address();
        action.passes(&name, stream);
        stream.launch(move || action.run(|work| call(&name, address, work)));
    }
}

/// Notes the end of a worker, however it comes.
struct Ends<'a, S>(&'a Shared<S>);

impl<S> Drop for Ends<'_, S> {
    fn drop(&mut self) {
        self.0.enter(Phase::Gone);
        let left = std::mem::take(&mut self.0.lock().inbox);
        left.into_iter().for_each(Action::discard);
    }
}

/// Calls a user's function on behalf of the queue at this address.
fn call(queue: &Arc<str>, address: usize, work: &mut dyn FnMut() -> WorkResult) -> WorkResult {
    let before = INSIDE.replace(address);
    let done = caught_or_text(work);
    INSIDE.set(before);
    done.unwrap_or_else(|text| Err(Error::Panicked { queue: Arc::clone(queue), text: text.into() }.into()))
}

thread_local! {
    /// The queue whose work this thread is calling.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Returns whether the calling thread runs work of the queue at this address.
pub(super) fn is_inside(address: usize) -> bool {
    INSIDE.try_with(Cell::get) == Ok(address)
}
