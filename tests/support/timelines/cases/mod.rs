//! The cases of IREE's conformance tests for semaphores, submissions, events and host calls, each by its name there, on any
//! device. What differs is said at the case.
#![allow(non_snake_case, reason = "the names are those of the other suite")]

mod submissions;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use warpline::timeline::{Queue, Semaphore, wait_all, wait_any};

use super::device::*;
pub use submissions::SemaphoreSubmissionTest;

type S<D> = <D as Device>::Stream;

fn zero() -> Semaphore {
    Semaphore::new(0)
}

/// An empty submission, like an empty command buffer.
fn execute<T: warpline::AsStream + Send + 'static>(
    queue: &Queue<T>,
    waits: &[(&Semaphore, u64)],
    signals: &[(&Semaphore, u64)],
) {
    queue.submit(waits, signals, |_| Ok(())).expect("there is room");
}

/// Semaphores on the host.
pub mod SemaphoreTest {
    use super::*;

    pub fn NoOp<D: Device>(_: &D) {
        check_value(&Semaphore::new(123), 123);
    }

    pub fn NormalSignaling<D: Device>(_: &D) {
        let semaphore = Semaphore::new(2);
        check_value(&semaphore, 2);
        semaphore.signal(3).unwrap();
        check_value(&semaphore, 3);
        semaphore.signal(40).unwrap();
        check_value(&semaphore, 40);
    }

    pub fn Failure<D: Device>(_: &D) {
        let semaphore = Semaphore::new(2);
        semaphore.signal(3).unwrap();
        check_value(&semaphore, 3);
        assert!(semaphore.fail(Code(2)));
        assert_eq!(code_of(semaphore.value()), Code(2));
    }

    pub fn EmptyWait<D: Device>(_: &D) {
        for timeout in [Duration::MAX, Duration::ZERO] {
            assert_eq!(wait_any(&[], timeout).unwrap(), None);
            wait_all(&[], timeout).unwrap();
        }
    }

    pub fn WaitAlreadySignaled<D: Device>(_: &D) {
        let semaphore = Semaphore::new(2);
        for timeout in [Duration::MAX, LONG, Duration::ZERO] {
            semaphore.wait(1, timeout).unwrap();
            semaphore.wait(2, timeout).unwrap();
        }
    }

    pub fn WaitUnsignaled<D: Device>(_: &D) {
        assert!(is_timeout(Semaphore::new(2).wait(3, Duration::ZERO)));
    }

    pub fn WaitAllButNotAllSignaled<D: Device>(_: &D) {
        let (a, b) = (Semaphore::new(0), Semaphore::new(1));
        assert!(is_timeout(wait_all(&[(&a, 1), (&b, 1)], Duration::ZERO)));
    }

    pub fn WaitAllAndAllSignaled<D: Device>(_: &D) {
        let (a, b) = (Semaphore::new(1), Semaphore::new(1));
        wait_all(&[(&a, 1), (&b, 1)], Duration::MAX).unwrap();
    }

    pub fn WaitAnyAlreadySignaled<D: Device>(_: &D) {
        let (a, b) = (Semaphore::new(0), Semaphore::new(1));
        assert_eq!(wait_any(&[(&a, 1), (&b, 1)], Duration::MAX).unwrap(), Some(1));
    }

    pub fn FailThenWait<D: Device>(_: &D) {
        let semaphore = zero();
        semaphore.fail(Code(1));
        assert_eq!(code_of(semaphore.wait(1, Duration::MAX)), Code(1));
        assert_eq!(code_of(semaphore.value()), Code(1));
    }

    pub fn FailurePreservesStatusCode<D: Device>(_: &D) {
        let semaphore = Semaphore::named("link", 0);
        semaphore.fail(Code(15));
        assert_eq!(code_of(semaphore.value()), Code(15));
        assert_eq!(semaphore.failure().map(|failure| failure.origin().to_owned()), Some("link".to_owned()));
    }

    pub fn DoubleFailurePreservesFirst<D: Device>(_: &D) {
        let semaphore = zero();
        assert!(semaphore.fail(Code(15)));
        assert!(!semaphore.fail(Code(1)), "the second one is not taken");
        assert_eq!(code_of(semaphore.value()), Code(15));
    }
}

/// Semaphores between threads. Where the other suite sleeps before it signals, so that the waiter surely waits, here the
/// waiter is asked to have a look at it first.
pub mod SemaphoreThreadTest {
    use super::*;

    pub fn WaitLaterSignaledBeyond<D: Device>(_: &D) {
        let semaphore = Semaphore::new(2);
        thread::scope(|scope| {
            scope.spawn(|| semaphore.signal(10).unwrap());
            semaphore.wait(3, LONG).unwrap();
        });
    }

    pub fn WaitAnyLaterSignaled<D: Device>(_: &D) {
        let (a, b) = (zero(), zero());
        thread::scope(|scope| {
            scope.spawn(|| b.signal(1).unwrap());
            assert_eq!(wait_any(&[(&a, 1), (&b, 1)], LONG).unwrap(), Some(1));
        });
    }

    pub fn PingPong<D: Device>(_: &D) {
        let (a2b, b2a) = (zero(), zero());
        thread::scope(|scope| {
            scope.spawn(|| {
                a2b.wait(0, Duration::MAX).unwrap();
                b2a.signal(1).unwrap();
                a2b.wait(4, LONG).unwrap();
            });
            b2a.wait(1, LONG).unwrap();
            a2b.signal(4).unwrap();
        });
    }

    pub fn WaitOnTheSameValueMultipleTimes<D: Device>(_: &D) {
        let semaphore = zero();
        thread::scope(|scope| {
            scope.spawn(|| semaphore.signal(1).unwrap());
            for _ in 0..2 {
                semaphore.wait(1, LONG).unwrap();
                check_value(&semaphore, 1);
            }
        });
    }

    pub fn WaitForFiniteTime<D: Device>(_: &D) {
        for timeout in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(50)] {
            let semaphore = zero();
            assert!(is_timeout(semaphore.wait(1, timeout)));
            check_value(&semaphore, 0);
            thread::scope(|scope| {
                scope.spawn(|| semaphore.signal(1).unwrap());
                loop {
                    match semaphore.wait(1, timeout) {
                        Ok(()) => break,
                        timed_out => assert!(is_timeout(timed_out)),
                    }
                    thread::yield_now();
                }
                check_value(&semaphore, 1);
            });
        }
    }

    pub fn SimultaneousMultiWaitAll<D: Device>(_: &D) {
        let (a, b) = (zero(), zero());
        let list = [(&a, 1), (&b, 1)];
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| wait_all(&list, LONG).unwrap());
            }
            scope.spawn(|| list.iter().for_each(|(semaphore, value)| semaphore.signal(*value).unwrap()));
        });
        check_value(&a, 1);
        check_value(&b, 1);
    }

    pub fn WaitThenFail<D: Device>(_: &D) {
        let semaphore = zero();
        thread::scope(|scope| {
            scope.spawn(|| semaphore.fail(Code(1)));
            assert_eq!(code_of(semaphore.wait(1, LONG)), Code(1));
        });
        assert_eq!(code_of(semaphore.value()), Code(1));
    }

    pub fn MultiWaitThenFail<D: Device>(_: &D) {
        multi_wait_then_fail(|a, b| wait_all(&[(a, 1), (b, 1)], LONG));
    }

    /// There a call of the device; here the wait for any.
    pub fn DeviceMultiWaitThenFail<D: Device>(_: &D) {
        multi_wait_then_fail(|a, b| wait_any(&[(a, 1), (b, 1)], LONG).map(drop));
    }

    fn multi_wait_then_fail(wait: impl Fn(&Semaphore, &Semaphore) -> Result<(), warpline::timeline::Error>) {
        let (a, b) = (zero(), zero());
        thread::scope(|scope| {
            scope.spawn(|| a.fail(Code(1)));
            assert_eq!(code_of(wait(&a, &b)), Code(1));
        });
        assert_eq!(code_of(a.value()), Code(1));
        check_value(&b, 0);
    }
}

/// Events between and within submissions: here a semaphore that work signals and waits for on its stream.
pub mod EventTest {
    use super::*;

    pub fn Create<D: Device>(device: &D) {
        let event = zero();
        event.signal_on(&device.stream(), 1).unwrap();
        event.wait(1, LONG).unwrap();
    }

    /// A timeline is not reset: what comes next has a greater value.
    pub fn SignalAndReset<D: Device>(device: &D) {
        let (event, done) = (zero(), zero());
        let inner = event.clone();
        let work = move |stream: &S<D>| {
            inner.signal_on(stream, 1)?;
            inner.signal_on(stream, 2)?;
            Ok(())
        };
        device.queue("a").submit(&[], &[(&done, 1)], work).unwrap();
        done.wait(1, LONG).unwrap();
        event.wait(2, LONG).unwrap();
    }

    pub fn SubmitWithChainedCommandBuffers<D: Device>(device: &D) {
        let (event, done, queue) = (zero(), [zero(), zero()], device.queue("a"));
        let inner = event.clone();
        queue.submit(&[], &[(&done[0], 1)], move |stream| Ok(inner.signal_on(stream, 1)?)).unwrap();
        done[0].wait(1, LONG).unwrap();
        queue.submit(&[], &[(&done[1], 1)], move |stream| Ok(event.wait_on(stream, 1)?)).unwrap();
        done[1].wait(1, LONG).unwrap();
    }
}

/// Functions of the host in a queue. There they get four numbers; here a closure holds what it needs.
pub mod QueueHostCallTest {
    use super::*;

    pub fn EnqueueBeforeSignal<D: Device>(device: &D) {
        let (wait, signal, queue) = (zero(), zero(), device.queue("a"));
        let (calls, args) = (Arc::new(AtomicU32::new(0)), Arc::new([const { AtomicU64::new(0) }; 4]));
        let given = [10, 20, 30, u64::MAX];
        let (inner_calls, inner_args) = (Arc::clone(&calls), Arc::clone(&args));
        thread::scope(|scope| {
            let (started, has_started) = mpsc::channel();
            let (queue, wait, signal) = (&queue, &wait, &signal);
            scope.spawn(move || {
                started.send(()).unwrap();
                let call = move |_: &mut warpline::timeline::HostCall| {
                    inner_calls.fetch_add(1, Ordering::Relaxed);
                    inner_args.iter().zip(given).for_each(|(arg, given)| arg.store(given, Ordering::Relaxed));
                    Ok(())
                };
                queue.submit_host(&[(wait, 1)], &[(signal, 1)], call).unwrap();
            });
            has_started.recv().unwrap();
            assert_eq!(calls.load(Ordering::Relaxed), 0);
            wait.signal(1).unwrap();
        });
        signal.wait(1, LONG).unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert!(args.iter().zip(given).all(|(arg, given)| arg.load(Ordering::Relaxed) == given));
    }

    pub fn NoWaitSemaphores<D: Device>(device: &D) {
        let signal = zero();
        let calls = Arc::new(AtomicU32::new(0));
        let inner = Arc::clone(&calls);
        let queue = device.queue("a");
        let call = move |_: &mut warpline::timeline::HostCall| {
            inner.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        queue.submit_host(&[], &[(&signal, 1)], call).unwrap();
        signal.wait(1, LONG).unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    /// A call that nothing waits for is one without signals, beside a barrier that has them.
    pub fn NonBlockingFlag<D: Device>(device: &D) {
        let (wait, signal, sideband) = (zero(), zero(), zero());
        let (sent, received) = mpsc::channel();
        let (queue, inner) = (device.queue("a"), sideband.clone());
        wait.signal(1).unwrap();
        let call = move |call: &mut warpline::timeline::HostCall| {
            sent.send(call.defer().map(|signals| format!("{signals:?}")))?;
            inner.signal(1)?;
            Ok(())
        };
        queue.submit_host(&[(&wait, 1)], &[], call).unwrap();
        queue.barrier(&[(&wait, 1)], &[(&signal, 1)]).unwrap();
        signal.wait(1, LONG).unwrap();
        sideband.wait(1, LONG).unwrap();
        assert_eq!(received.recv().unwrap().as_deref(), Some("[]"), "it gets no signals");
    }

    pub fn AsyncCallback<D: Device>(device: &D) {
        let (wait, signals, queue) = (zero(), [zero(), zero()], device.queue("a"));
        let (sent, received) = mpsc::channel();
        wait.signal(1).unwrap();
        let call = move |call: &mut warpline::timeline::HostCall| Ok(sent.send(call.defer())?);
        queue.submit_host(&[(&wait, 1)], &[(&signals[0], 1), (&signals[1], 2)], call).unwrap();
        let owed = received.recv().unwrap().expect("it has signals");
        check_value(&signals[0], 0);
        let thread = thread::spawn(move || owed.signal());
        wait_all(&[(&signals[0], 1), (&signals[1], 2)], LONG).unwrap();
        thread.join().unwrap();
    }

    pub fn CallbackReturnsError<D: Device>(device: &D) {
        let wait = zero();
        wait.signal(1).unwrap();
        fails(device, &wait, || ());
    }

    pub fn CallbackReturnsErrorAfterWait<D: Device>(device: &D) {
        let wait = zero();
        fails(device, &wait, || wait.signal(1).unwrap());
    }

    fn fails<D: Device>(device: &D, wait: &Semaphore, then: impl FnOnce()) {
        let (signals, queue) = ([zero(), zero()], device.queue("a"));
        let calls = Arc::new(AtomicU32::new(0));
        let inner = Arc::clone(&calls);
        let call = move |_: &mut warpline::timeline::HostCall| {
            inner.fetch_add(1, Ordering::Relaxed);
            Err(Code(7).into())
        };
        queue.submit_host(&[(wait, 1)], &[(&signals[0], 1), (&signals[1], 2)], call).unwrap();
        then();
        assert_eq!(code_of(wait_all(&[(&signals[0], 1), (&signals[1], 2)], LONG)), Code(7));
        for (semaphore, value) in [(&signals[0], 1), (&signals[1], 2)] {
            assert_eq!(code_of(semaphore.wait(value, LONG)), Code(7));
            assert_eq!(code_of(semaphore.value()), Code(7));
        }
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}

/// Hands all cases to a macro.
#[macro_export]
macro_rules! with_timeline_cases {
    ($take:ident) => {
        $take! {
            SemaphoreTest: NoOp NormalSignaling Failure EmptyWait WaitAlreadySignaled WaitUnsignaled
                WaitAllButNotAllSignaled WaitAllAndAllSignaled WaitAnyAlreadySignaled FailThenWait
                FailurePreservesStatusCode DoubleFailurePreservesFirst;
            SemaphoreThreadTest: WaitLaterSignaledBeyond WaitAnyLaterSignaled PingPong
                WaitOnTheSameValueMultipleTimes WaitForFiniteTime SimultaneousMultiWaitAll WaitThenFail
                MultiWaitThenFail DeviceMultiWaitThenFail;
            SemaphoreSubmissionTest: SubmitWithNoCommandBuffers SubmitAndSignal SubmitWithWait
                CrossQueueWaitBeforeSignal MultiQueueFanOutDifferentValuesBeforeSignal
                IndirectCommandBufferBindingTableRetainedUntilSignal SubmitWithMultipleSemaphores
                WaitAllHostAndDeviceSemaphores WaitAnyHostAndDeviceSemaphoresAndDeviceSignals
                WaitAnyHostAndDeviceSemaphoresAndHostSignals IntermediateSemaphoreBetweenDeviceBatches
                TwoBatchesWaitingOn1FormerBatchAmongst2 TwoBatchesWaitingOnDifferentSemaphoreValues
                BatchWaitingOnAnotherAndHostSignal DeviceBatchSignalAnotherAndHost
                BatchWaitingOnSmallerValueAfterSignaled BatchWaitingOnSmallerValueBeforeSignaled PropagateFailSignal;
            EventTest: Create SignalAndReset SubmitWithChainedCommandBuffers;
            QueueHostCallTest: EnqueueBeforeSignal NoWaitSemaphores NonBlockingFlag AsyncCallback CallbackReturnsError
                CallbackReturnsErrorAfterWait;
        }
    };
}
