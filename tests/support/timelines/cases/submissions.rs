//! The cases of submissions to queues.

use super::*;

/// Submissions to queues that wait and signal.
pub mod SemaphoreSubmissionTest {
    use super::*;

    pub fn SubmitWithNoCommandBuffers<D: Device>(device: &D) {
        let signal = zero();
        device.queue("a").barrier(&[], &[(&signal, 1)]).unwrap();
        signal.wait(1, LONG).unwrap();
    }

    pub fn SubmitAndSignal<D: Device>(device: &D) {
        let signal = zero();
        execute(&device.queue("a"), &[], &[(&signal, 1)]);
        signal.wait(1, LONG).unwrap();
    }

    pub fn SubmitWithWait<D: Device>(device: &D) {
        let (wait, signal) = (zero(), Semaphore::new(100));
        let queue = device.queue("a");
        execute(&queue, &[(&wait, 1)], &[(&signal, 101)]);
        assert_eq!(queue.flush(), 1, "it is held back");
        check_value(&signal, 100);
        wait.signal(1).unwrap();
        signal.wait(101, LONG).unwrap();
    }

    pub fn CrossQueueWaitBeforeSignal<D: Device>(device: &D) {
        let (producer, consumer) = (device.queue("producer"), device.queue("consumer"));
        let (produced, consumed) = (zero(), zero());
        consumer.barrier(&[(&produced, 1)], &[(&consumed, 1)]).unwrap();
        assert_eq!(consumer.flush(), 1);
        check_value(&consumed, 0);
        producer.barrier(&[], &[(&produced, 1)]).unwrap();
        consumed.wait(1, LONG).unwrap();
    }

    pub fn MultiQueueFanOutDifferentValuesBeforeSignal<D: Device>(device: &D) {
        let queues = [device.queue("0"), device.queue("1")];
        let (producer, done) = (zero(), [zero(), zero()]);
        queues[1].barrier(&[(&producer, 2)], &[(&done[1], 1)]).unwrap();
        queues[0].barrier(&[(&producer, 1)], &[(&done[0], 1)]).unwrap();
        queues.iter().for_each(|queue| assert_eq!(queue.flush(), 1));
        done.iter().for_each(|done| check_value(done, 0));
        queues[0].barrier(&[], &[(&producer, 3)]).unwrap();
        done.iter().for_each(|done| done.wait(1, LONG).unwrap());
        check_value(&producer, 3);
    }

    /// What a submission uses lives until it has been issued: the closure owns it.
    pub fn IndirectCommandBufferBindingTableRetainedUntilSignal<D: Device>(device: &D) {
        let (wait, signal, queue) = (zero(), zero(), device.queue("a"));
        let target = device.word();
        let owned = Arc::new(());
        {
            let (source, target, owned) = (device.word(), target.clone(), Arc::clone(&owned));
            let work = move |stream: &S<D>| {
                let _alive = owned;
                D::write(stream, &source, 0x5a);
                D::copy(stream, &source, &target);
                Ok(())
            };
            queue.submit(&[(&wait, 1)], &[(&signal, 1)], work).unwrap();
        }
        queue.flush();
        assert_eq!(Arc::strong_count(&owned), 2, "the queue keeps it while the work is held back");
        wait.signal(1).unwrap();
        signal.wait(1, LONG).unwrap();
        assert_eq!(Arc::strong_count(&owned), 1);
        assert!(device.read(&target).is_none_or(|word| word == 0x5a));
    }

    pub fn SubmitWithMultipleSemaphores<D: Device>(device: &D) {
        let (waits, signals, queue) = ([zero(), zero()], [zero(), zero()], device.queue("a"));
        execute(&queue, &[(&waits[0], 1), (&waits[1], 1)], &[(&signals[0], 1), (&signals[1], 1)]);
        assert_eq!(queue.flush(), 1);
        signals.iter().for_each(|signal| check_value(signal, 0));
        waits[0].signal(1).unwrap();
        waits[1].signal(1).unwrap();
        wait_all(&[(&signals[0], 1), (&signals[1], 1)], LONG).unwrap();
    }

    /// A thread and a queue that each wait for a host signal, and signal in turn.
    fn host_and_device<D: Device>(device: &D, then: impl FnOnce([&Semaphore; 4])) {
        let [host_wait, device_wait, host_signal, device_signal] = [zero(), zero(), zero(), zero()];
        let queue = device.queue("a");
        execute(&queue, &[(&device_wait, 1)], &[(&device_signal, 1)]);
        thread::scope(|scope| {
            scope.spawn(|| {
                host_wait.wait(1, LONG).unwrap();
                host_signal.signal(1).unwrap();
            });
            check_value(&host_signal, 0);
            check_value(&device_signal, 0);
            then([&host_wait, &device_wait, &host_signal, &device_signal]);
        });
    }

    pub fn WaitAllHostAndDeviceSemaphores<D: Device>(device: &D) {
        host_and_device(device, |[host_wait, device_wait, host_signal, device_signal]| {
            host_wait.signal(1).unwrap();
            device_wait.signal(1).unwrap();
            wait_all(&[(host_signal, 1), (device_signal, 1)], LONG).unwrap();
        });
    }

    pub fn WaitAnyHostAndDeviceSemaphoresAndDeviceSignals<D: Device>(device: &D) {
        host_and_device(device, |[host_wait, device_wait, host_signal, device_signal]| {
            device_wait.signal(1).unwrap();
            assert_eq!(wait_any(&[(host_signal, 1), (device_signal, 1)], LONG).unwrap(), Some(1));
            check_value(host_signal, 0);
            check_value(device_signal, 1);
            host_wait.signal(1).unwrap();
            host_signal.wait(1, LONG).unwrap();
        });
    }

    pub fn WaitAnyHostAndDeviceSemaphoresAndHostSignals<D: Device>(device: &D) {
        host_and_device(device, |[host_wait, device_wait, host_signal, device_signal]| {
            host_wait.signal(1).unwrap();
            assert_eq!(wait_any(&[(host_signal, 1), (device_signal, 1)], LONG).unwrap(), Some(0));
            check_value(host_signal, 1);
            check_value(device_signal, 0);
            device_wait.signal(1).unwrap();
            device_signal.wait(1, LONG).unwrap();
        });
    }

    pub fn IntermediateSemaphoreBetweenDeviceBatches<D: Device>(device: &D) {
        let (first, second, queue) = (zero(), zero(), device.queue("a"));
        execute(&queue, &[(&first, 1)], &[(&second, 1)]);
        assert_eq!(queue.flush(), 1);
        check_value(&first, 0);
        check_value(&second, 0);
        execute(&queue, &[], &[(&first, 1)]);
        first.wait(1, LONG).unwrap();
        check_value(&first, 1);
        second.wait(1, LONG).unwrap();
        check_value(&second, 1);
    }

    pub fn TwoBatchesWaitingOn1FormerBatchAmongst2<D: Device>(device: &D) {
        let (former, later, queue) = (zero(), [zero(), zero()], device.queue("a"));
        execute(&queue, &[(&former, 1)], &[(&later[0], 1)]);
        execute(&queue, &[(&former, 1)], &[(&later[1], 1)]);
        assert_eq!(queue.flush(), 2);
        later.iter().for_each(|later| check_value(later, 0));
        execute(&queue, &[], &[(&former, 1)]);
        execute(&queue, &[], &[]);
        wait_all(&[(&later[0], 1), (&later[1], 1)], LONG).unwrap();
        check_value(&former, 1);
    }

    pub fn TwoBatchesWaitingOnDifferentSemaphoreValues<D: Device>(device: &D) {
        let (former, later, queue) = (zero(), [zero(), zero()], device.queue("a"));
        execute(&queue, &[(&former, 2)], &[(&later[1], 1)]);
        execute(&queue, &[(&former, 1)], &[(&later[0], 1)]);
        assert_eq!(queue.flush(), 2);
        [&former, &later[0], &later[1]].into_iter().for_each(|semaphore| check_value(semaphore, 0));
        execute(&queue, &[], &[(&former, 3)]);
        later[0].wait(1, LONG).unwrap();
        check_value(&former, 3);
        later[1].wait(1, LONG).unwrap();
        later.iter().for_each(|later| check_value(later, 1));
    }

    pub fn BatchWaitingOnAnotherAndHostSignal<D: Device>(device: &D) {
        let ([batch, host, last], queue) = ([zero(), zero(), zero()], device.queue("a"));
        execute(&queue, &[(&batch, 1), (&host, 1)], &[(&last, 1)]);
        queue.flush();
        check_value(&last, 0);
        execute(&queue, &[], &[(&batch, 1)]);
        assert_eq!(queue.flush(), 1, "the host has not signalled");
        check_value(&last, 0);
        thread::scope(|scope| {
            scope.spawn(|| host.signal(1).unwrap());
            last.wait(1, LONG).unwrap();
        });
        check_value(&last, 1);
    }

    pub fn DeviceBatchSignalAnotherAndHost<D: Device>(device: &D) {
        let ([to_batch, to_host, last], queue) = ([zero(), zero(), zero()], device.queue("a"));
        execute(&queue, &[(&to_batch, 1)], &[(&last, 1)]);
        queue.flush();
        [&to_batch, &to_host, &last].into_iter().for_each(|semaphore| check_value(semaphore, 0));
        thread::scope(|scope| {
            for semaphore in [&to_batch, &to_host, &last] {
                scope.spawn(|| semaphore.wait(1, LONG).unwrap());
            }
            execute(&queue, &[], &[(&to_batch, 1), (&to_host, 1)]);
        });
        [&to_batch, &to_host, &last].into_iter().for_each(|semaphore| check_value(semaphore, 1));
    }

    pub fn BatchWaitingOnSmallerValueAfterSignaled<D: Device>(device: &D) {
        let (first, second) = (zero(), zero());
        first.signal(2).unwrap();
        execute(&device.queue("a"), &[(&first, 1)], &[(&second, 1)]);
        second.wait(1, LONG).unwrap();
        check_value(&second, 1);
    }

    pub fn BatchWaitingOnSmallerValueBeforeSignaled<D: Device>(device: &D) {
        let (first, second, queue) = (zero(), zero(), device.queue("a"));
        execute(&queue, &[(&first, 1)], &[(&second, 1)]);
        thread::scope(|scope| {
            scope.spawn(|| first.signal(2).unwrap());
            second.wait(1, LONG).unwrap();
        });
        check_value(&second, 1);
    }

    pub fn PropagateFailSignal<D: Device>(device: &D) {
        let (first, second, queue) = (zero(), zero(), device.queue("a"));
        execute(&queue, &[(&first, 1)], &[(&second, 1)]);
        thread::scope(|scope| {
            scope.spawn(|| first.fail(Code(1)));
            assert_eq!(code_of(second.wait(1, LONG)), Code(1));
        });
        assert_eq!(code_of(second.value()), Code(1));
    }
}
