//! The ring with its storage, so that Miri detects a shared slot; the loom model has none.

use super::*;

/// Unlike the loom model, this test has storage, so that Miri detects a shared slot.
#[test]
fn slots_go_round_between_threads_and_the_collector_and_none_is_shared() {
    const EACH: u64 = if cfg!(miri) { 60 } else { 20_000 };
    const THREADS: u64 = 3;
    let ring = Ring::<Vec<u64>>::new(70);
    let (mut collected, mut sum) = (0, 0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let ring = &ring;
            scope.spawn(move || {
                for n in 0..EACH {
                    let (mut token, sequence) = loop {
                        match ring.take(|| Ok::<_, ()>(Vec::new())) {
                            Ok(Taken::Slot { token, sequence }) => break (token, sequence),
                            _ => std::thread::yield_now(),
                        }
                    };
                    let slot = ring.slot(&mut token).expect("a slot");
                    assert!(slot.is_empty(), "it was given back");
                    slot.extend([thread * EACH + n, sequence]);
                    ring.publish(token);
                }
            });
        }
        while collected < THREADS * EACH {
            ring.collect(|mut token| {
                let slot = ring.slot(&mut token).expect("a slot");
                sum += slot[0];
                slot.clear();
                collected += 1;
                ring.give(token);
            });
            std::thread::yield_now();
        }
    });
    let all = THREADS * EACH;
    assert_eq!((ring.taken(), sum), (all, all * (all - 1) / 2));
    assert_eq!(ring.close(), all);
}

#[test]
fn the_count_goes_round_and_the_ring_stays_open() {
    let links = Links::new(2);
    links.give(0);
    links.give(1);
    let near = COUNT_MASK - 1;
    links.heads.free.fetch_or(near << INDEX_BITS, Ordering::Relaxed);
    for n in 0..5 {
        assert_eq!(links.taken(), near + n);
        match links.take() {
            Take::Taken { index, sequence, .. } if sequence == near + n => links.give(index),
            other => panic!("{other:?} at {n}"),
        }
    }
    assert!(!links.is_closed());
    assert_eq!((links.close(), links.take(), links.taken()), (near + 5, Take::Closed, near + 5));
}

#[test]
fn a_token_is_of_one_ring() {
    let make = || Ok::<_, ()>(7_u64);
    let (one, other) = (Ring::<u64>::new(4), Ring::<u64>::new(4));
    let taken = |ring: &Ring<u64>| match ring.take(make) {
        Ok(Taken::Slot { token, .. }) => token,
        _ => panic!("no slot"),
    };
    let (mut mine, mut its) = (taken(&one), taken(&other));
    assert!(one.slot(&mut mine).is_some() && one.slot(&mut its).is_none() && one.peek(&its).is_none());
    one.publish(its);
    one.collect(|token| panic!("{token:?} is of the other ring"));
    assert!(one.slot(&mut mine.take()).is_some() && one.slot(&mut mine).is_none());
}

#[test]
fn a_thread_takes_a_slot_while_another_one_makes_slots() {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    let ring = &Ring::<u64>::new(64);
    let (go, may_go) = channel::<()>();
    let (begun, has_begun) = channel();
    let (done, is_done) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let made = ring.grow(|| {
                let _ = begun.send(());
                // A driver that holds the collector up.
                let _ = may_go.recv();
                Ok::<_, ()>(1)
            });
            assert_eq!(made, Ok(CHUNK));
        });
        has_begun.recv().expect("it begins");
        scope.spawn(move || done.send(matches!(ring.take(|| Ok::<_, ()>(2)), Ok(Taken::Slot { .. }))));
        let took = is_done.recv_timeout(Duration::from_secs(20));
        drop(go);
        assert_eq!(took, Ok(true), "it waited for the other thread");
    });
    assert_eq!(ring.grown(), 2 * CHUNK);
}
