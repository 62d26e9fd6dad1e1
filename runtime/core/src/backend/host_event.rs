//! Events on in-process streams, with which a session times a [`HostStream`](super::host::HostStream).
//!
//! An event is a stamp that the stream's worker sets when it reaches it. It uses the clock of all host times, so positions on a
//! host stream are exact.

use std::sync::Arc;

use super::host::{HostEventPair, HostStream, Op, PENDING, Queue, Stamp};
use super::{Backend, BackendError, Clock, EventPair, Reader, Reading};
use crate::clock::{EventOverhead, now_ns};
use crate::record::{DeviceInfo, DeviceKind, EndSource, Span};
use crate::sorting;

/// The reader of points that already have times of the host's clock.
struct HostReader;

impl Reader for HostReader {
    fn is_complete(&mut self, points: &EventPair) -> Result<bool, BackendError> {
        match points {
            EventPair::Host(points) => points.is_complete(),
            _ => Err(BackendError("points of another device".to_owned())),
        }
    }

    fn read(&mut self, points: &EventPair, _: Span, _: &mut dyn Clock) -> Result<Option<Reading>, BackendError> {
        let EventPair::Host(points) = points else {
            return Err(BackendError("points of another device".to_owned()));
        };
        let times = points.begin.get().zip(points.end.get());
        Ok(times.map(|(begin_ns, end_ns)| Reading {
            gpu: Span { begin_ns, end_ns },
            end: EndSource::Event,
            end_early_by_ns: 0,
        }))
    }
}

/// The clock of a device that shares the host's clock: it is always exact.
struct HostClock(EventOverhead);

impl Clock for HostClock {
    fn renew(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn uncertainty_ns(&self) -> i64 {
        0
    }

    fn bracket(&self) -> EventOverhead {
        self.0
    }

    fn zone_ns(&self) -> i64 {
        400
    }
}

struct HostBackend(Arc<Queue>);

impl Backend for HostBackend {
    fn name(&self) -> Option<String> {
        Some(self.0.name.clone())
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo { ordinal: 0, name: "host".to_owned(), kind: DeviceKind::Host }
    }

    fn clock_space(&self) -> u64 {
        0
    }

    fn points(&self) -> Result<EventPair, BackendError> {
        // Two events are created, and a test may make either fail.
        self.0.faults.before_create().map_err(BackendError)?;
        self.0.faults.before_create().map_err(BackendError)?;
        let (begin, end) = (Stamp::new(PENDING), Stamp::new(PENDING));
        Ok(EventPair::Host(HostEventPair { queue: Arc::clone(&self.0), begin, end }))
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(HostReader)
    }

    fn clock(&self) -> Result<Box<dyn Clock>, BackendError> {
        Ok(Box::new(HostClock(bracket())))
    }
}

/// Measures the lengths of pairs of stamps with nothing between them: on an idle worker, and after queued work. A separate stream
/// is used, so that nothing is added to the application's.
///
/// All pairs of one kind are queued at once. If the worker reached the first stamp of a pair before the second is queued, the
/// result would be this thread's queueing time instead of the cost of a pair.
fn bracket() -> EventOverhead {
    const PAIRS: usize = 33;
    const WORK_NS: i64 = 2_000;
    let stream = HostStream::new("warpline-bracket");
    let median = |behind_work: bool| {
        let pairs: Vec<_> = (0..PAIRS).map(|_| (Stamp::new(PENDING), Stamp::new(PENDING))).collect();
        stream.queue().push_together(pairs.iter().flat_map(|(begin, end)| {
            let work: Box<dyn FnOnce() + Send> = Box::new(|| spin(WORK_NS));
            let work = behind_work.then_some(Op::Run(work));
            work.into_iter().chain([Op::Stamp(Arc::clone(begin)), Op::Stamp(Arc::clone(end))])
        }));
        // The launched work only spins, which does not panic.
        let _ = stream.synchronize();
        let mut lengths: Vec<i64> = pairs.iter().filter_map(|(begin, end)| Some(end.get()? - begin.get()?)).collect();
        sorting::sort(&mut lengths);
        lengths.get(lengths.len() / 2).copied().unwrap_or(0)
    };
    EventOverhead { idle_ns: median(false), busy_ns: median(true) }
}

/// Keeps the worker busy for this long.
fn spin(ns: i64) {
    let until_ns = now_ns() + ns;
    while now_ns() < until_ns {
        std::hint::spin_loop();
    }
}

impl Queue {
    /// Returns the stream's backend in a session.
    pub(crate) fn backend(self: &Arc<Self>) -> Arc<dyn Backend> {
        Arc::new(HostBackend(Arc::clone(self)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// An idle worker wakes at once. It could reach the first stamp of a pair before the second is queued.
    #[test]
    fn no_stamp_is_set_before_all_that_are_queued_together_are_there() {
        let stream = HostStream::new("together");
        let stamps = [Stamp::new(PENDING), Stamp::new(PENDING)];
        let mut queued_ns = 0;
        stream.queue().push_together(stamps.iter().enumerate().map(|(index, stamp)| {
            if index == 1 {
                thread::sleep(Duration::from_millis(20));
                queued_ns = now_ns();
            }
            Op::Stamp(Arc::clone(stamp))
        }));
        stream.synchronize().expect("stamps do not panic");
        let first_ns = stamps[0].get().expect("the stream was synchronized");
        assert!(first_ns >= queued_ns, "set {} ns before the last one was queued", queued_ns - first_ns);
    }

    /// On a busy machine, a worker may be interrupted between the two stamps of a pair. Single sessions may measure that; half of
    /// them may not.
    #[test]
    fn the_bracket_is_the_same_on_idle_and_on_busy_machines() {
        let processors = thread::available_parallelism().map_or(2, usize::from);
        let [idle_machine, busy_machine] = [0, processors + processors / 2].map(|load| {
            let stop = Arc::new(AtomicBool::new(false));
            let spin = |stop: Arc<AtomicBool>| move || while !stop.load(Ordering::Relaxed) {};
            let load: Vec<_> = (0..load).map(|_| thread::spawn(spin(Arc::clone(&stop)))).collect();
            let mut lengths: Vec<i64> =
                (0..100).map(|_| bracket()).flat_map(|all| [all.idle_ns, all.busy_ns]).collect();
            stop.store(true, Ordering::Relaxed);
            load.into_iter().for_each(|thread| thread.join().expect("it only spins"));
            lengths.sort_unstable();
            assert!(lengths[0] >= 0, "{lengths:?}");
            lengths[lengths.len() / 2]
        });
        // Two threads that share a core are about half as fast each.
        let most_ns = (4 * idle_machine).max(1_000);
        assert!(busy_machine <= most_ns, "{busy_machine} ns with a load, {idle_machine} ns without");
    }
}
