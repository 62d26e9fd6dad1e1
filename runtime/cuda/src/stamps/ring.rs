//! The reader of the ring to which stamps are written. It only reads memory and calls no driver.
//!
//! A slot is two 64-bit words. The device numbers its stamps from 0, and writes stamp `n` to slot `n` modulo the ring's length; it never
//! waits. Each word identifies its stamp: the first has the time and the lap, the second has the stamp's id and number. The words may
//! therefore become visible in any order, and an incomplete stamp is never read. The device needs no fence between them, which would cost
//! each replay a round trip to the host.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of bits of a time. The bits above it are the lap.
pub(super) const TIME_BITS: u32 = 48;
/// The number of laps that can be distinguished.
pub(super) const LAPS: u32 = 1 << 15;

/// A slot counts as lost if it is not written for this time while later slots are.
const STUCK: Duration = Duration::from_millis(100);
/// The number of slots after an unwritten one that are checked.
const BEHIND: u32 = 64;

/// A stamp: time and lap; id and number.
pub type Slot = [AtomicU64; 2];

/// The position of the reader.
pub(super) struct Reader {
    /// The low 32 bits of the number of the next stamp.
    next: u32,
    stuck: Option<(u32, Instant)>,
}

/// The result of one read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub taken: u64,
    /// Stamps that were overwritten before they were read, and stamps that were never written.
    pub lost: u64,
}

/// Initialises a ring as if one lap had been written before the first stamp.
pub(super) fn clear(ring: &[Slot]) {
    for (at, slot) in (0..).zip(ring) {
        let number = u64::from((at + 1_u32).wrapping_sub(ring.len() as u32));
        slot[0].store(u64::from(LAPS - 1) << TIME_BITS, Ordering::Relaxed);
        slot[1].store(number, Ordering::Relaxed);
    }
}

impl Reader {
    /// Creates a reader for the stamps that are written from now on.
    pub(super) fn new(ring: &[Slot]) -> Reader {
        let first = number(&ring[0]);
        // All numbers are within one lap of each other, except for slots that are being written.
        let ahead = ring.iter().map(|slot| number(slot).wrapping_sub(first).cast_signed()).max().unwrap_or(0);
        // The number in a slot is its stamp's number plus one.
        Reader { next: first.wrapping_add_signed(ahead), stuck: None }
    }

    /// Creates a reader for all stamps that were ever written to the ring.
    pub(super) fn from_start() -> Reader {
        Reader { next: 0, stuck: None }
    }

    /// Calls `each` with the id and the time of each new stamp, in the order in which the device executed them. If stamps were lost, it
    /// stops there, and the next call reads the later stamps.
    pub(super) fn read(&mut self, ring: &[Slot], mut each: impl FnMut(u32, u64)) -> Found {
        let len = ring.len() as u32;
        let mut found = Found::default();
        // One call reads at most one lap, so that a device that is faster than this thread does not keep it here.
        while found.taken < u64::from(len) {
            let slot = &ring[(self.next % len) as usize];
            let second = slot[1].load(Ordering::Acquire);
            let first = slot[0].load(Ordering::Acquire);
            let ahead = (second as u32).wrapping_sub(self.next.wrapping_add(1)).cast_signed();
            if ahead > 0 {
                // The device has overwritten the slot. Continue half a lap behind it, which leaves half a lap for further stamps.
                let next = (second as u32).wrapping_sub(1 + len / 2);
                found.lost = u64::from(next.wrapping_sub(self.next));
                (self.next, self.stuck) = (next, None);
                break;
            } else if ahead == 0 && (first >> TIME_BITS) as u32 == lap(self.next, len) {
                each((second >> 32) as u32, first & ((1 << TIME_BITS) - 1));
                found.taken += 1;
                (self.next, self.stuck) = (self.next.wrapping_add(1), None);
            } else if self.is_passed_over(ring) {
                found.lost = 1;
                (self.next, self.stuck) = (self.next.wrapping_add(1), None);
                break;
            } else {
                break;
            }
        }
        found
    }

    /// Returns whether the next slot was not written for `STUCK` while later slots were.
    fn is_passed_over(&mut self, ring: &[Slot]) -> bool {
        let len = ring.len() as u32;
        let is_written = |behind: u32| {
            let of = self.next.wrapping_add(behind);
            number(&ring[(of % len) as usize]) == of.wrapping_add(1)
        };
        if !(1..BEHIND.min(len)).any(is_written) {
            self.stuck = None;
            return false;
        }
        let since = match self.stuck {
            Some((of, since)) if of == self.next => since,
            _ => Instant::now(),
        };
        self.stuck = Some((self.next, since));
        since.elapsed() >= STUCK
    }
}

fn number(slot: &Slot) -> u32 {
    slot[1].load(Ordering::Acquire) as u32
}

fn lap(number: u32, len: u32) -> u32 {
    number / len % LAPS
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 16;

    fn ring() -> Vec<Slot> {
        let ring: Vec<Slot> = (0..LEN).map(|_| Default::default()).collect();
        clear(&ring);
        ring
    }

    fn words(number: u64, id: u32, time: u64) -> [u64; 2] {
        let lap = number / LEN as u64 % u64::from(LAPS);
        [lap << TIME_BITS | time, u64::from(id) << 32 | u64::from((number as u32).wrapping_add(1))]
    }

    fn write(ring: &[Slot], number: u64, id: u32, time: u64) {
        let slot = &ring[number as usize % LEN];
        slot.iter().zip(words(number, id, time)).for_each(|(word, is)| word.store(is, Ordering::Release));
    }

    fn read(reader: &mut Reader, ring: &[Slot]) -> (Vec<(u32, u64)>, Found) {
        let mut taken = Vec::new();
        let found = reader.read(ring, |id, time| taken.push((id, time)));
        (taken, found)
    }

    #[test]
    fn stamps_are_read_in_their_order_around_the_ring() {
        let ring = ring();
        let mut reader = Reader::from_start();
        assert_eq!(read(&mut reader, &ring), (vec![], Found::default()), "nothing has come");
        for number in 0..LEN as u64 * 5 {
            write(&ring, number, number as u32 % 3, 1_000 + number);
            if number % 7 == 0 {
                let (taken, found) = read(&mut reader, &ring);
                assert_eq!(taken.last(), Some(&(number as u32 % 3, 1_000 + number)));
                assert_eq!(found.lost, 0);
            }
        }
    }

    #[test]
    fn what_was_overwritten_is_counted_to_the_last_one() {
        let ring = ring();
        let mut reader = Reader::from_start();
        (0..100).for_each(|number| write(&ring, number, 1, number));
        let (before, lost) = read(&mut reader, &ring);
        let (taken, found) = read(&mut reader, &ring);
        assert_eq!((before, taken.last()), (vec![], Some(&(1, 99))));
        assert_eq!((found.taken + lost.lost, found.lost, lost.taken), (100, 0, 0));
        assert!((LEN as u64 / 2 - 1..=LEN as u64).contains(&found.taken), "{found:?}");
    }

    #[test]
    fn a_slot_of_which_one_word_is_written_waits() {
        for half in [0, 1] {
            let ring = ring();
            let mut reader = Reader::from_start();
            (0..LEN as u64).for_each(|number| write(&ring, number, 1, number));
            read(&mut reader, &ring);
            let is = words(LEN as u64, 2, 77);
            ring[0][half].store(is[half], Ordering::Release);
            assert_eq!(read(&mut reader, &ring).0, []);
            ring[0][1 - half].store(is[1 - half], Ordering::Release);
            assert_eq!(read(&mut reader, &ring), (vec![(2, 77)], Found { taken: 1, lost: 0 }));
        }
    }

    #[test]
    fn a_stamp_that_is_late_holds_later_ones_up_and_one_that_never_comes_is_lost() {
        let ring = ring();
        let mut reader = Reader::from_start();
        write(&ring, 1, 1, 11);
        assert_eq!(read(&mut reader, &ring).0, []);
        write(&ring, 0, 1, 10);
        assert_eq!(read(&mut reader, &ring).0, [(1, 10), (1, 11)]);
        write(&ring, 3, 1, 13);
        assert_eq!(read(&mut reader, &ring).0, []);
        reader.stuck = reader.stuck.and_then(|(of, since)| Some((of, since.checked_sub(STUCK)?)));
        assert_eq!(read(&mut reader, &ring), (vec![], Found { taken: 0, lost: 1 }));
        assert_eq!(read(&mut reader, &ring), (vec![(1, 13)], Found { taken: 1, lost: 0 }));
    }

    #[test]
    fn a_later_session_begins_where_the_ring_stands_wherever_its_numbers_are() {
        for start in [0, 5, 1 << 20, u64::from(u32::MAX) - 20, u64::from(u32::MAX) - 3] {
            let ring = ring();
            (start.saturating_sub(40)..start).for_each(|number| write(&ring, number, 1, number));
            let mut reader = Reader::new(&ring);
            assert_eq!(read(&mut reader, &ring).0, [], "from {start}");
            (start..start + 40).for_each(|number| {
                write(&ring, number, 2, 1);
                assert_eq!(read(&mut reader, &ring).0, [(2, 1)], "{number}");
            });
        }
    }
}
