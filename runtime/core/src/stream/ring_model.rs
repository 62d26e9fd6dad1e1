//! Checks the ring and the switch under every interleaving that loom explores.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p warpline --features enable --release --lib model`

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use super::ring::{Links, Take};
use crate::switch::{SessionFlags, Switch, SwitchState, UNKNOWN};
use crate::sync::AtomicU32;

/// A ring whose slots report every access to loom, so that loom detects two holders of one slot as a race.
struct Ring {
    links: Links,
    slots: Vec<UnsafeCell<u64>>,
}

// SAFETY: the models check this.
#[allow(unsafe_code)]
unsafe impl Sync for Ring {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Send for Ring {}

impl Ring {
    fn new(capacity: usize) -> Arc<Ring> {
        let ring = Ring { links: Links::new(capacity), slots: (0..capacity).map(|_| UnsafeCell::new(0)).collect() };
        for index in 0..capacity {
            ring.links.give(index as u32);
        }
        Arc::new(ring)
    }

    fn write(&self, index: u32, value: u64) {
        // SAFETY: loom reports any other access at the same time.
        #[allow(unsafe_code)]
        self.slots[index as usize].with_mut(|slot| unsafe { *slot = value });
    }

    fn read(&self, index: u32) -> u64 {
        // SAFETY: loom reports any other access at the same time.
        #[allow(unsafe_code)]
        self.slots[index as usize].with_mut(|slot| unsafe { *slot })
    }

    /// Runs a zone from begin to end; returns whether it had a slot.
    fn zone(&self, value: u64) -> bool {
        let Take::Taken { index, .. } = self.links.take() else { return false };
        self.write(index, value);
        self.links.publish(index);
        true
    }

    fn collect(&self) -> Vec<u64> {
        let (mut values, mut indices) = (Vec::new(), Vec::new());
        self.links.collect(|index| {
            values.push(self.read(index));
            indices.push(index);
        });
        self.links.give_all(&indices);
        values
    }
}

#[test]
fn model_every_published_zone_is_collected_once() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let ring = Ring::new(2);
        let launchers: Vec<_> = (0..2)
            .map(|thread| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || {
                    (0..2).filter(|n| ring.zone(thread * 2 + n + 1)).map(|n| thread * 2 + n + 1).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut collected = ring.collect();
        let mut begun: Vec<_> = launchers.into_iter().flat_map(|launcher| launcher.join().expect("no panic")).collect();
        collected.extend(ring.collect());
        begun.sort_unstable();
        collected.sort_unstable();
        assert_eq!(begun, collected);
        assert_eq!(ring.links.taken(), begun.len() as u64);
    });
}

#[test]
fn model_one_threads_zones_are_collected_in_order() {
    loom::model(|| {
        let ring = Ring::new(3);
        let launcher = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || (1..=3).for_each(|n| assert!(ring.zone(n), "the ring holds three")))
        };
        let mut collected = ring.collect();
        launcher.join().expect("no panic");
        collected.extend(ring.collect());
        assert_eq!(collected, [1, 2, 3]);
    });
}

#[test]
fn model_slots_go_round_between_threads() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let ring = Ring::new(1);
        let launchers: Vec<_> = (0..2)
            .map(|n| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || usize::from(ring.zone(n)) + usize::from(ring.zone(n)))
            })
            .collect();
        let mut collected = ring.collect().len();
        collected += ring.collect().len();
        let begun: usize = launchers.into_iter().map(|launcher| launcher.join().expect("no panic")).sum();
        collected += ring.collect().len();
        assert_eq!(begun, collected);
    });
}

#[test]
fn model_a_zone_that_finds_the_switch_on_sees_what_was_stored_before() {
    loom::model(|| {
        let (switch, chance) = (Arc::new(Switch(AtomicU32::new(0))), Arc::new(AtomicU32::new(0)));
        let zone = {
            let (switch, chance) = (Arc::clone(&switch), Arc::clone(&chance));
            thread::spawn(move || switch.word().map(|word| (word.acquire(), chance.load(Ordering::Relaxed)).1))
        };
        chance.store(7, Ordering::Relaxed);
        switch.set(1, SessionFlags::default());
        assert!(matches!(zone.join().expect("no panic"), None | Some(7)));
    });
}

#[test]
fn model_the_account_is_exact_when_the_session_ends_under_way() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let switch = Arc::new(Switch(AtomicU32::new(UNKNOWN)));
        switch.set(1, SessionFlags::default());
        let ring = Ring::new(2);
        let begun = Arc::new(AtomicUsize::new(0));
        let after_off = Arc::new(AtomicBool::new(false));
        let launchers: Vec<_> = (0..2)
            .map(|n| {
                let (switch, ring, begun) = (Arc::clone(&switch), Arc::clone(&ring), Arc::clone(&begun));
                let after_off = Arc::clone(&after_off);
                thread::spawn(move || {
                    let is_over = after_off.load(Ordering::Acquire);
                    if switch.word().and_then(SwitchState::epoch).is_some() {
                        assert!(!is_over, "off is seen by whoever knows that it was said");
                        if ring.zone(n) {
                            begun.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        switch.clear(1);
        after_off.store(true, Ordering::Release);
        let said = ring.links.close() as usize;
        let recorded = ring.collect().len();
        for launcher in launchers {
            launcher.join().expect("no panic");
        }
        let late = ring.collect().len();
        assert_eq!(said, begun.load(Ordering::Relaxed), "not one zone began that the account does not know");
        assert_eq!(recorded + late, said, "what was not recorded in time was unfinished, and nothing else");
        assert!(matches!(ring.links.take(), Take::Closed));
    });
}
