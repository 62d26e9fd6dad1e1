//! The ring that stamps are written to, as its one reader sees it: numbers in memory, and no driver.
//!
//! A slot is two words of 64 bits. The device numbers its stamps from 0 and writes stamp `n` to slot `n` modulo the ring's
//! length; it never waits. Each word says by itself which stamp it is of: the first one has the time and the lap, the second
//! the stamp's id and its number. So it does not matter in which order the words become visible, and nothing half written
//! is ever taken: the device needs no fence between them, which would cost each replay a round trip to the host.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bits of a time. The laps stand above them.
pub(super) const TIME_BITS: u32 = 48;
/// So many laps are told apart.
pub(super) const LAPS: u32 = 1 << 15;

/// A slot that is not written for so long, while later ones are, never will be.
const STUCK: Duration = Duration::from_millis(100);
/// How far behind a slot that is not written a look goes.
const BEHIND: u32 = 64;

/// Time and lap, id and number.
pub(super) type Slot = [AtomicU64; 2];

/// Where the reader stands.
pub(super) struct Reader {
    /// The number of the stamp that is read next, as far as 32 bits go.
    next: u32,
    stuck: Option<(u32, Instant)>,
}

/// What one look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) taken: u64,
    /// Stamps that were overwritten before they were read, or never written.
    pub(crate) lost: u64,
}

/// Makes a ring as if it had been written to all around: a lap before the first.
pub(super) fn clear(ring: &[Slot]) {
    for (at, slot) in (0..).zip(ring) {
        let number = u64::from((at + 1_u32).wrapping_sub(ring.len() as u32));
        slot[0].store(u64::from(LAPS - 1) << TIME_BITS, Ordering::Relaxed);
        slot[1].store(number, Ordering::Relaxed);
    }
}

impl Reader {
    /// Reads what is written from now on.
    pub(super) fn new(ring: &[Slot]) -> Reader {
        let first = number(&ring[0]);
        // They are all within one lap of each other, but for those that are being written.
        let ahead = ring.iter().map(|slot| number(slot).wrapping_sub(first).cast_signed()).max().unwrap_or(0);
        // The number in a slot is one more than its stamp's.
        Reader { next: first.wrapping_add_signed(ahead), stuck: None }
    }

    /// Reads all that was ever written to a ring.
    pub(super) fn from_start() -> Reader {
        Reader { next: 0, stuck: None }
    }

    /// Hands on the id and the time of what has come, in the order in which the device came to it. Where stamps were lost it
    /// stops: what comes behind them is for the next call.
    pub(super) fn read(&mut self, ring: &[Slot], mut each: impl FnMut(u32, u64)) -> Found {
        let len = ring.len() as u32;
        let mut found = Found::default();
        // No more than one lap at a time: a device that is faster than this thread must not hold it.
        while found.taken < u64::from(len) {
            let slot = &ring[(self.next % len) as usize];
            let second = slot[1].load(Ordering::Acquire);
            let first = slot[0].load(Ordering::Acquire);
            let ahead = (second as u32).wrapping_sub(self.next.wrapping_add(1)).cast_signed();
            if ahead > 0 {
                // The device has been here again since. Half of a lap is left for it to go on in meanwhile.
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

    /// Whether a stamp has taken its slot and did not come to write it, for long, while later ones did.
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
