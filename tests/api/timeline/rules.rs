//! What a timeline promises beyond the cases of others, on in-process streams.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use warpline::HostStream;
use warpline::timeline::{Error, Queue, Semaphore, WhenFull, wait_all, wait_any};
use warpline_tests::{PanicsInDrop, alone, in_child, in_time, resident_bytes, this_test, waker_that_calls};

use crate::timelines::device::*;

/// Holds a stream until it is told to go on.
fn hold(stream: &HostStream) -> mpsc::Sender<()> {
    let (go, wait) = mpsc::channel();
    stream.launch(move || wait.recv().unwrap_or_default());
    go
}

#[test]
fn a_signal_that_does_not_go_forward_says_which_where_it_is_and_what_was_asked() {
    let _turn = alone();
    let semaphore = Semaphore::named("weights", 5);
    let stream = HostStream::new("copy");
    for error in [semaphore.signal(5), semaphore.signal_on(&stream, 4)] {
        let text = error.expect_err("it does not go forward").to_string();
        for part in ["`weights`", "signalled", "5 has been submitted"] {
            assert!(text.contains(part), "{text}");
        }
    }
    let go = hold(&stream);
    semaphore.signal_on(&stream, 8).unwrap();
    let error = semaphore.signal(7).expect_err("8 has been submitted");
    assert!(matches!(error, Error::NotMonotonic { current: 8, asked: 7, .. }), "{error}");
    check_value(&semaphore, 5);
    go.send(()).unwrap();
    semaphore.wait(8, LONG).unwrap();
    check_value(&semaphore, 8);
}

#[test]
fn a_stream_waits_on_the_device_and_the_thread_that_says_so_goes_on() {
    let _turn = alone();
    let (copy, compute) = (HostStream::new("copy"), HostStream::new("compute"));
    let copied = Semaphore::named("copied", 0);
    let go = hold(&copy);
    let word = Arc::new(AtomicU32::new(0));
    let (written, read) = (Arc::clone(&word), Arc::clone(&word));
    copy.launch(move || written.store(7, Ordering::Relaxed));
    copied.signal_on(&copy, 1).unwrap();
    copied.wait_on(&compute, 1).unwrap();
    let (sent, seen) = mpsc::channel();
    compute.launch(move || sent.send(read.load(Ordering::Relaxed)).unwrap_or_default());
    // This thread is here while `copy` is held.
    assert!(seen.try_recv().is_err());
    check_value(&copied, 0);
    go.send(()).unwrap();
    assert_eq!(seen.recv().unwrap(), 7);
}

#[test]
fn a_wait_of_a_stream_that_nobody_has_submitted_is_an_error_that_says_what_to_use() {
    let _turn = alone();
    let semaphore = Semaphore::named("later", 3);
    let text = semaphore.wait_on(&HostStream::new("compute"), 4).expect_err("nobody signals").to_string();
    for part in ["4 of semaphore `later`", "the greatest submitted one is 3", "timeline::Queue"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_future_is_ready_when_the_value_is_and_when_the_semaphore_fails() {
    let _turn = alone();
    let (semaphore, stream) = (Semaphore::new(0), HostStream::new("device"));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| block_on(semaphore.wait_async(2)));
        let go = hold(&stream);
        semaphore.signal_on(&stream, 2).unwrap();
        drop(go);
        waiter.join().unwrap().unwrap();
        let waiter = scope.spawn(|| block_on(semaphore.wait_async(3)));
        semaphore.fail(Code(3));
        assert_eq!(code_of(waiter.join().unwrap()), Code(3));
    });
}

#[test]
fn a_failed_stream_fails_what_it_was_to_signal() {
    let _turn = alone();
    let (semaphore, stream) = (Semaphore::named("lost", 0), HostStream::new("device"));
    let go = hold(&stream);
    semaphore.signal_on(&stream, 1).unwrap();
    stream.faults().fail_stream("a bad access");
    drop(go);
    let error = semaphore.wait(1, LONG).expect_err("the stream never gets there").to_string();
    assert!(error.contains("`lost`") && error.contains("the stream failed"), "{error}");
    let error = Semaphore::new(0).signal_on(&stream, 1).expect_err("the stream takes nothing").to_string();
    assert!(error.contains("a bad access"), "{error}");
}

#[test]
fn semaphores_may_go_before_what_streams_still_signal() {
    let _turn = alone();
    let stream = HostStream::new("device");
    let go = hold(&stream);
    for _ in 0..1000 {
        let semaphore = Semaphore::new(0);
        semaphore.signal_on(&stream, 1).unwrap();
        drop(semaphore.wait_async(1));
    }
    let last = Semaphore::new(0);
    last.signal_on(&stream, 1).unwrap();
    drop(go);
    last.wait(1, LONG).unwrap();
}

#[test]
fn two_threads_play_ping_pong() {
    let _turn = alone();
    const ROUNDS: u64 = 20_000;
    let (ping, pong) = (Semaphore::new(0), Semaphore::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                ping.wait(round, LONG).unwrap();
                pong.signal(round).unwrap();
            }
        });
        for round in 1..=ROUNDS {
            ping.signal(round).unwrap();
            pong.wait(round, LONG).unwrap();
        }
    });
    check_value(&ping, ROUNDS);
}

/// Calls `round` ten times; after the first rounds it takes no more memory.
fn assert_flat(round: impl Fn(u64)) {
    let resident: Vec<u64> = (0..10).map(|n| (round(n), resident_bytes()).1).collect();
    let grown = resident[9].saturating_sub(resident[3]);
    // Eight bytes for each of 600,000 signals are more.
    assert!(grown < 2 << 20, "{grown} bytes more: {resident:?}");
}

#[test]
fn a_million_signals_leave_nothing_behind() {
    const ROUND: u64 = 100_000;
    const SIGNALS: u64 = 10 * ROUND;
    struct Idle;
    impl Wake for Idle {
        fn wake(self: Arc<Self>) {}
    }
    // What other tests take of the memory is no matter there.
    in_child(this_test!(), &[], || {
        let semaphore = Semaphore::new(0);
        // Who waits is in the semaphore's list with a clone of it.
        let idle = Arc::new(Idle);
        let waker = Waker::from(Arc::clone(&idle));
        let give_up = |value| {
            let mut wait = pin!(semaphore.wait_async(value));
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(Arc::strong_count(&idle), 3, "it is in the list, alone");
        };
        thread::scope(|scope| {
            // One follows closely, one waits for the last, one gives up all the time.
            scope.spawn(|| (0..=SIGNALS).step_by(997).for_each(|value| semaphore.wait(value, LONG).unwrap()));
            scope.spawn(|| semaphore.wait(SIGNALS, LONG).unwrap());
            scope.spawn(|| while is_timeout(semaphore.wait(SIGNALS, Duration::from_micros(100))) {});
            assert_flat(|round| {
                for value in round * ROUND + 1..=(round + 1) * ROUND {
                    semaphore.signal(value).unwrap();
                    give_up(SIGNALS + value);
                }
            });
        });
        check_value(&semaphore, SIGNALS);
        assert_eq!((semaphore.submitted().unwrap(), Arc::strong_count(&idle)), (SIGNALS, 2), "nobody is in the list");
        // And through a stream, which has a point for each.
        let (semaphore, stream) = (Semaphore::new(0), HostStream::new("device"));
        assert_flat(|round| {
            for value in round * ROUND + 1..=(round + 1) * ROUND {
                semaphore.signal_on(&stream, value).unwrap();
                // As many points as there may be at a time.
                if value % 1000 == 0 {
                    semaphore.wait(value, LONG).unwrap();
                }
            }
        });
        assert_eq!(semaphore.submitted().unwrap(), SIGNALS);
        check_value(&semaphore, SIGNALS);
    });
}

#[test]
fn of_several_the_first_that_is_there_is_named() {
    let _turn = alone();
    let list = [Semaphore::new(0), Semaphore::new(4), Semaphore::new(9)];
    let pairs: Vec<_> = list.iter().map(|semaphore| (semaphore, 4)).collect();
    assert_eq!(wait_any(&pairs, Duration::ZERO).unwrap(), Some(1));
    let error = wait_all(&pairs, Duration::from_millis(1)).expect_err("one is not there").to_string();
    assert!(error.contains("did not reach 4 within 1ms, it is at 0"), "{error}");
}

#[test]
fn a_failure_counts_where_none_before_it_in_the_list_is_there() {
    let _turn = alone();
    let [missing, there, failed] = [0, 4, 0].map(Semaphore::new);
    failed.fail(Code(7));
    for timeout in [Duration::ZERO, LONG] {
        let first_there = wait_any(&[(&missing, 4), (&there, 4), (&failed, 4)], timeout);
        assert_eq!(first_there.expect("the failure is later in the list"), Some(1));
        for list in [[(&missing, 4), (&failed, 4), (&there, 4)], [(&failed, 4), (&there, 4), (&missing, 4)]] {
            assert_eq!(code_of(wait_any(&list, timeout)), Code(7));
        }
    }
    // Also one that fails while the thread sleeps.
    let late = Semaphore::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| late.fail(Code(8)));
        assert_eq!(code_of(wait_any(&[(&missing, 4), (&late, 4)], LONG)), Code(8));
    });
}

#[test]
fn a_full_queue_refuses_or_waits_as_it_was_told() {
    let _turn = alone();
    let (gate, done) = (Semaphore::new(0), Semaphore::new(0));
    let build = |when_full| {
        let builder = Queue::<HostStream>::builder("small").capacity(2).when_full(when_full);
        builder.build(vec![HostStream::new("device")]).unwrap()
    };
    let queue = build(WhenFull::Refuse);
    for _ in 0..2 {
        queue.barrier(&[(&gate, 1)], &[]).unwrap();
    }
    let error = queue.barrier(&[(&gate, 1)], &[(&done, 1)]).expect_err("it is full").to_string();
    assert!(error.contains("`small` holds 2 submissions"), "{error}");
    check_value(&done, 0);

    let waits = build(WhenFull::Wait);
    thread::scope(|scope| {
        let all = scope.spawn(|| {
            for value in 1..=5 {
                waits.barrier(&[(&gate, 1)], &[(&done, value)]).unwrap();
            }
        });
        assert!(is_timeout(done.wait(1, Duration::from_millis(20))));
        assert!(!all.is_finished(), "the third one waits for room");
        gate.signal(1).unwrap();
        all.join().unwrap();
    });
    done.wait(5, LONG).unwrap();
}

#[test]
fn work_that_fails_or_panics_fails_its_signals_and_the_queue_goes_on() {
    let _turn = alone();
    let queue = Queue::new("work", HostStream::new("device")).unwrap();
    let [failed, panicked, called, after] = [const { 0 }; 4].map(Semaphore::new);
    queue.submit(&[], &[(&failed, 1)], |_| Err(Code(4).into())).unwrap();
    queue.submit(&[], &[(&panicked, 1)], |_| panic!("out of cheese")).unwrap();
    queue.submit_host(&[], &[(&called, 1)], |_| panic!("out of milk")).unwrap();
    queue.submit(&[], &[(&after, 1)], |_| Ok(())).unwrap();
    after.wait(1, LONG).unwrap();
    assert_eq!(code_of(failed.wait(1, LONG)), Code(4));
    for (semaphore, text) in [(panicked, "out of cheese"), (called, "out of milk")] {
        let error = semaphore.wait(1, LONG).expect_err("it panicked").to_string();
        assert!(error.contains(text) && error.contains("`work`"), "{error}");
    }
}

#[test]
fn a_failure_travels_through_queues_to_all_that_depend_on_it_and_to_nothing_else() {
    let _turn = alone();
    let queues = [0, 1].map(|_| Queue::new("chain", HostStream::new("device")).unwrap());
    let chain: Vec<Semaphore> = (0..50).map(|n| Semaphore::named(&format!("link {n}"), 0)).collect();
    let (never, other) = (Semaphore::new(0), Semaphore::new(0));
    let calls = Arc::new(AtomicU32::new(0));
    for (at, pair) in chain.windows(2).enumerate() {
        let calls = Arc::clone(&calls);
        let work = move |_: &HostStream| {
            calls.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        // Nobody ever signals `never`: the failure does not wait for it.
        queues[at % 2].submit(&[(&pair[0], 1), (&never, 1)], &[(&pair[1], 1)], work).unwrap();
    }
    queues[0].barrier(&[], &[(&other, 1)]).unwrap();
    chain[0].fail(Code(9));
    assert_eq!(code_of(chain[49].wait(1, LONG)), Code(9));
    assert_eq!(chain[49].failure().map(|failure| failure.origin().to_owned()).as_deref(), Some("link 0"));
    assert_eq!(calls.load(Ordering::Relaxed), 0, "no work was called");
    other.wait(1, LONG).unwrap();
    check_value(&never, 0);
}

#[test]
fn a_queue_that_goes_issues_what_it_can_and_fails_the_rest() {
    let _turn = alone();
    let (never, [issued, held, called]) = (Semaphore::new(0), [const { 0 }; 3].map(Semaphore::new));
    let queue = Queue::new("brief", HostStream::new("device")).unwrap();
    queue.submit(&[(&never, 1)], &[(&held, 1)], |_| Ok(())).unwrap();
    queue.submit(&[], &[(&issued, 1)], |_| Ok(())).unwrap();
    queue.submit_host(&[(&issued, 1)], &[(&called, 1)], |_| Ok(())).unwrap();
    issued.wait(1, LONG).unwrap();
    called.wait(1, LONG).unwrap();
    drop(queue);
    let error = held.wait(1, LONG).expect_err("nobody does it").to_string();
    assert!(error.contains("`brief` was dropped"), "{error}");
}

#[test]
fn a_queue_may_go_in_its_own_work() {
    let _turn = alone();
    for host in [false, true] {
        let done = Semaphore::new(0);
        let queue = Arc::new(Queue::new("last", HostStream::new("device")).unwrap());
        let (inner, gate) = (Arc::clone(&queue), Arc::new(Barrier::new(2)));
        let opened = Arc::clone(&gate);
        let work = move || {
            opened.wait();
            assert_eq!(inner.flush(), 0, "it does not wait for itself");
            drop(inner);
            Ok(())
        };
        if host {
            queue.submit_host(&[], &[(&done, 1)], move |_| work()).unwrap();
        } else {
            queue.submit(&[], &[(&done, 1)], move |_| work()).unwrap();
        }
        drop(queue);
        gate.wait();
        done.wait(1, LONG).unwrap();
    }
}

#[test]
fn work_goes_round_the_streams_of_a_queue_and_what_is_held_back_holds_up_nothing() {
    let _turn = alone();
    let streams: Vec<_> = (0..3).map(|_| Arc::new(HostStream::new("device"))).collect();
    let queue = Queue::<Arc<HostStream>>::builder("fan").build(streams.clone()).unwrap();
    let (gate, done) = (Semaphore::new(0), Semaphore::new(0));
    let (sent, got) = mpsc::channel();
    queue.submit(&[(&gate, 1)], &[(&done, 7)], |_| Ok(())).unwrap();
    for _ in 0..6 {
        let sent = sent.clone();
        queue.submit(&[], &[], move |stream| Ok(sent.send(Arc::as_ptr(stream) as usize)?)).unwrap();
    }
    assert_eq!(queue.flush(), 1);
    let order: Vec<usize> = (0..6).map(|_| got.recv().unwrap()).collect();
    let once: Vec<usize> = streams.iter().map(|stream| Arc::as_ptr(stream) as usize).collect();
    assert_eq!(order, [once.clone(), once].concat());
    gate.signal(1).unwrap();
    done.wait(7, LONG).unwrap();
}

#[test]
fn a_host_call_that_lets_go_of_its_signals_fails_them() {
    let _turn = alone();
    let (queue, signal) = (Queue::new("calls", HostStream::new("device")).unwrap(), Semaphore::new(0));
    let call = |call: &mut warpline::timeline::HostCall| {
        drop(call.defer());
        Ok(())
    };
    queue.submit_host(&[], &[(&signal, 1)], call).unwrap();
    let error = signal.wait(1, LONG).expect_err("nobody signals any more").to_string();
    assert!(error.contains("dropped its signals"), "{error}");
}

#[test]
fn signals_of_a_queue_that_come_too_late_fail_their_semaphore() {
    let _turn = alone();
    let (queue, gate, semaphore) =
        (Queue::new("late", HostStream::new("device")).unwrap(), Semaphore::new(0), Semaphore::new(0));
    queue.barrier(&[(&gate, 1)], &[(&semaphore, 1)]).unwrap();
    semaphore.signal(2).unwrap();
    gate.signal(1).unwrap();
    let error = semaphore.wait(3, LONG).expect_err("1 comes after 2").to_string();
    assert!(error.contains("was signalled 1, but 2 has been submitted"), "{error}");
}

#[test]
fn of_two_submissions_whose_waits_end_together_the_first_one_goes_first() {
    let _turn = alone();
    for _ in 0..200 {
        let (gate, done) = (Semaphore::new(0), Semaphore::new(0));
        let queue = Queue::new("in order", HostStream::new("device")).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| gate.signal(1).unwrap());
            // Some find the gate shut, some open.
            for value in 1..=50 {
                queue.barrier(&[(&gate, 1)], &[(&done, value)]).unwrap();
            }
        });
        done.wait(50, LONG).unwrap();
    }
}

#[test]
fn a_queue_may_go_in_work_on_the_stream_that_it_has_the_last_handle_of() {
    let _turn = alone();
    let (gate, done) = (Arc::new(Barrier::new(2)), Semaphore::new(0));
    let stream = Arc::new(HostStream::new("device"));
    let queue = Queue::new("last", Arc::clone(&stream)).unwrap();
    let (opened, inner) = (Arc::clone(&gate), done.clone());
    stream.launch(move || {
        opened.wait();
        drop(queue);
        inner.signal(1).unwrap();
    });
    drop(stream);
    gate.wait();
    done.wait(1, LONG).unwrap();
}

#[test]
fn a_waker_may_call_the_semaphore_when_it_is_cloned_called_and_dropped() {
    let _turn = alone();
    in_time(|| {
        let semaphore = Semaphore::named("asked", 0);
        let asked = Arc::new(AtomicU32::new(0));
        let (its, count) = (semaphore.clone(), Arc::clone(&asked));
        let waker = waker_that_calls(move || {
            let _ = (its.value(), its.submitted());
            count.fetch_add(1, Ordering::Relaxed);
        });
        let mut context = Context::from_waker(&waker);
        // One that is woken, one that is asked twice, one that is given up, one that has nothing to wait for.
        let mut woken = pin!(semaphore.wait_async(1));
        assert!(woken.as_mut().poll(&mut context).is_pending());
        assert!(woken.as_mut().poll(&mut context).is_pending());
        let mut given_up = Box::pin(semaphore.wait_async(2));
        assert!(given_up.as_mut().poll(&mut context).is_pending());
        drop(given_up);
        semaphore.signal(1).expect("it goes forward");
        assert!(woken.as_mut().poll(&mut context).is_ready());
        assert!(pin!(semaphore.wait_async(1)).poll(&mut context).is_ready());
        let mut failed = pin!(semaphore.wait_async(9));
        assert!(failed.as_mut().poll(&mut context).is_pending());
        assert!(semaphore.fail("given up") && failed.as_mut().poll(&mut context).is_ready());
        assert!(asked.load(Ordering::Relaxed) > 5);
    });
}

#[test]
fn a_queue_may_have_a_nul_in_its_name_and_goes_on_whatever_panics() {
    let _turn = alone();
    in_time(|| {
        let queue = Queue::new("a\0b", HostStream::new("c\0d")).expect("a thread");
        assert_eq!(queue.name(), "a\0b");
        let done = Semaphore::named("done", 0);
        let failed: [Semaphore; 3] = std::array::from_fn(|_| Semaphore::new(0));
        queue.submit(&[], &[(&failed[0], 1)], |_| std::panic::panic_any(PanicsInDrop)).expect("there is room");
        queue.submit_host(&[], &[(&failed[1], 1)], |_| std::panic::panic_any(PanicsInDrop)).expect("there is room");
        // Work that is never called is dropped with what it holds.
        let (never, held) = (Semaphore::named("never", 0), PanicsInDrop);
        let work = move |_: &HostStream| {
            drop(held);
            Ok(())
        };
        queue.submit(&[(&never, 1)], &[(&failed[2], 1)], work).expect("there is room");
        assert!(never.fail("it never comes"));
        queue.submit(&[], &[(&done, 1)], |_| Ok(())).expect("there is room");
        queue.submit_host(&[(&done, 1)], &[(&done, 2)], |_| Ok(())).expect("there is room");
        done.wait(2, LONG).expect("the queue goes on");
        for semaphore in &failed {
            assert!(matches!(semaphore.wait(1, LONG), Err(Error::Failed { .. })), "{semaphore:?}");
        }
        let held = PanicsInDrop;
        let work = move |_: &HostStream| {
            drop(held);
            Ok(())
        };
        let (never, last) = (Semaphore::named("never", 0), Semaphore::named("last", 0));
        queue.submit(&[(&never, 1)], &[], work).expect("there is room");
        queue.submit(&[(&never, 1)], &[(&last, 1)], |_| Ok(())).expect("there is room");
        drop(queue);
        assert!(matches!(last.wait(1, LONG), Err(Error::Failed { .. })), "{last:?}");
    });
}
