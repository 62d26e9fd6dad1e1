//! Waits of host threads: for one semaphore, for any of several, or for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::error::Error;
use super::semaphore::{Semaphore, WaitStep};
use super::state::Waiter;
use super::trace::HostWait;

/// How long a thread queries a device without a pause, and how long without a nap, as in the driver's own waits.
const NO_PAUSE: Duration = Duration::from_millis(2);
const NO_NAP: Duration = Duration::from_millis(100);
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// A nap lasts for the time waited so far, divided by this.
const PART: u32 = 256;

/// The number of queries in a row for a single semaphore. They take about 20 µs, so the work between two rows rarely delays a thread.
const IN_A_ROW: u32 = 64;

impl Semaphore {
    /// Blocks the calling thread until `value` is reached. `Duration::MAX` means no timeout, and a timeout of zero queries once.
    ///
    /// While a CUDA stream has not reached the value, the thread polls the driver, as the driver's own waits do: without a pause for 2 ms,
    /// then yielding to other threads, and after 100 ms with naps of 1/256 of the time waited so far (at most 1 ms). Otherwise it sleeps. A
    /// task that waits with [`wait_async`](Self::wait_async) occupies no CPU.
    /// # Errors
    /// [`Error::Timeout`], or the semaphore has failed or fails during the wait.
    pub fn wait(&self, value: u64, timeout: Duration) -> Result<(), Error> {
        wait_all(&[(self, value)], timeout)
    }
}

/// Waits until each semaphore has reached its value. An empty list returns at once. `Duration::MAX` means no timeout, and a timeout of zero
/// queries once.
///
/// # Errors
/// [`Error::Timeout`] for the first semaphore that has not reached its value, or a semaphore has failed or fails during the wait.
pub fn wait_all(list: &[(&Semaphore, u64)], timeout: Duration) -> Result<(), Error> {
    wait_for(list, timeout, Mode::All).map(drop)
}

/// Waits until any of the semaphores has reached its value, and returns its index in the list; none for an empty list. `Duration::MAX`
/// means no timeout, and a timeout of zero queries once.
///
/// # Errors
/// [`Error::Timeout`] for the first semaphore, or a semaphore has failed and none before it in the list has reached its value.
pub fn wait_any(list: &[(&Semaphore, u64)], timeout: Duration) -> Result<Option<usize>, Error> {
    wait_for(list, timeout, Mode::Any)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    All,
    Any,
}

fn wait_for(list: &[(&Semaphore, u64)], timeout: Duration, mode: Mode) -> Result<Option<usize>, Error> {
    let Some((first, value)) = list.first() else { return Ok(None) };
    let one = if mode == Mode::Any { &list[..1] } else { list };
    let traced = HostWait::begin((&first.core, *value), one.len(), timeout);
    let waited = wait_until(list, timeout, mode);
    let ended = waited.as_ref().ok().copied().flatten().and_then(|at| list.get(at..=at)).unwrap_or(one);
    traced.end(ended.iter().map(|(semaphore, value)| (&*semaphore.core, *value)), waited.as_ref().err());
    waited
}

fn wait_until(list: &[(&Semaphore, u64)], timeout: Duration, mode: Mode) -> Result<Option<usize>, Error> {
    let begin = Instant::now();
    let deadline = begin.checked_add(timeout);
    let mut sleeper = None;
    let mut in_a_row = 1;
    let mut asked = Vec::with_capacity(list.len());
    loop {
        asked.clear();
        for (at, (semaphore, value)) in list.iter().enumerate() {
            match semaphore.ask(*value, in_a_row)? {
                WaitStep::Reached if mode == Mode::Any => return Ok(Some(at)),
                answer => asked.push(answer),
            }
        }
        let Some(missing) = asked.iter().position(|asked| !matches!(asked, WaitStep::Reached)) else {
            return Ok(None);
        };
        let now = Instant::now();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        if left == Some(Duration::ZERO) {
            let (semaphore, value) = list[missing];
            let (reached, _) = semaphore.core.values()?;
            return Err(Error::Timeout { semaphore: Arc::clone(semaphore.core.name()), value, reached, timeout });
        }
        if asked.iter().any(|asked| matches!(asked, WaitStep::AskAgain)) {
            rest(now - begin, left);
            in_a_row = if list.len() == 1 { IN_A_ROW } else { 1 };
            continue;
        }
        let (sleeper, waiter) = sleeper.get_or_insert_with(Sleeper::new);
        let mut places = Vec::with_capacity(list.len());
        for ((semaphore, value), asked) in list.iter().zip(&asked) {
            if let WaitStep::Sleep(stage) = asked {
                places.push((semaphore, semaphore.enlist(*value, *stage, waiter)));
            }
        }
        // A semaphore that returned no entry has changed since it was queried, so all are queried again.
        if places.iter().all(|(_, place)| place.is_some()) {
            sleeper.sleep(deadline);
        }
        for (semaphore, mut place) in places {
            semaphore.leave(&mut place);
        }
    }
}

/// Pauses a thread before it queries a device again.
fn rest(waited: Duration, left: Option<Duration>) {
    if waited < NO_PAUSE {
        return std::hint::spin_loop();
    }
    if waited < NO_NAP {
        return thread::yield_now();
    }
    let nap = (waited / PART).min(LONGEST_NAP);
    thread::sleep(left.map_or(nap, |left| nap.min(left)));
}

/// A thread that sleeps until it is woken.
struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Sleeper {
    fn new() -> (Arc<Sleeper>, Waiter) {
        let sleeper = Arc::new(Sleeper { thread: thread::current(), is_woken: AtomicBool::new(false) });
        let waiter = Waiter::Waker(Waker::from(Arc::clone(&sleeper)));
        (sleeper, waiter)
    }

    fn sleep(&self, deadline: Option<Instant>) {
        while !self.is_woken.swap(false, Ordering::Acquire) {
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return,
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
