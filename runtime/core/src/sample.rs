//! Sampling: the selection of a range's zones that a session records.
//!
//! Every range has a *chance*, the probability with which each of its zones is recorded. Each zone is drawn independently, so the
//! recorded zones are an unbiased sample of the range. A session sets the chance from its level, its filters and its `sample`, at
//! its start and whenever one of them changes. A session with a budget records windows of its time (`windows`); the chance
//! then applies inside them.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::catalog::{Kind, RangeSpec};
use crate::clock::{now_ns, thread_id};

/// The chance with which every zone is recorded and none is counted.
const ALWAYS: u32 = u32::MAX;

/// The chance of a zone that is recorded: of the range's zones that were drawn with it, each was recorded with this probability.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance(u32);

impl Chance {
    /// The chance of a zone that was recorded without being drawn.
    pub(crate) const ALWAYS: Chance = Chance(ALWAYS);

    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    #[inline]
    pub(crate) fn of_bits(bits: u32) -> Chance {
        Chance(bits)
    }
}

/// A range's chance, and the number of its zones that were drawn.
#[derive(Debug)]
pub struct SampleRate {
    /// The chance, of 2³² − 1; 0 for a range that is left out.
    chance: AtomicU32,
    seen: AtomicU64,
    /// The number of zones that were not chosen.
    passed_over: AtomicU64,
}

impl Default for SampleRate {
    fn default() -> SampleRate {
        SampleRate::new()
    }
}

impl SampleRate {
    pub(crate) const fn new() -> SampleRate {
        SampleRate { chance: AtomicU32::new(ALWAYS), seen: AtomicU64::new(0), passed_over: AtomicU64::new(0) }
    }

    /// Decides whether a zone that begins now is recorded, and returns the chance that it had. A later change does not concern the zone.
    #[inline]
    pub(crate) fn take(&self) -> Option<Chance> {
        let chance = self.chance.load(Ordering::Relaxed);
        let is_taken = match chance {
            ALWAYS => true,
            0 => false,
            chance => self.draw(chance),
        };
        is_taken.then_some(Chance(chance))
    }

    #[cold]
    fn draw(&self, chance: u32) -> bool {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let is_chosen = random() < chance;
        if !is_chosen {
            self.passed_over.fetch_add(1, Ordering::Relaxed);
        }
        is_chosen
    }

    /// Takes a zone back out of the counts of the sample: it was drawn and not chosen, and is recorded for another reason.
    pub(crate) fn choose_after_all(&self) {
        // A new session may have reset the counts in the meantime.
        for count in [&self.seen, &self.passed_over] {
            let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
        }
    }

    /// Returns the number of the range's zones that ran while it was sampled, recorded or not. Zones are not counted while all
    /// are recorded.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Returns whether zones of the range are neither recorded nor counted now.
    pub fn is_left_out(&self) -> bool {
        self.chance.load(Ordering::Relaxed) == 0
    }

    /// Returns the number of the range's zones that ran and were not chosen.
    pub fn passed_over(&self) -> u64 {
        self.passed_over.load(Ordering::Relaxed)
    }

    /// Resets the counts and sets the chance for a new session.
    pub fn reset(&self, wanted: Wanted) {
        self.seen.store(0, Ordering::Relaxed);
        self.passed_over.store(0, Ordering::Relaxed);
        self.chance.store(0, Ordering::Relaxed);
        self.set(wanted);
    }

    /// Sets which zones that begin from now on a running session records. The counts stay.
    pub fn set(&self, wanted: Wanted) {
        let chance = match wanted {
            Wanted::None => 0,
            Wanted::All => ALWAYS,
            Wanted::Share(share) => parts(share),
        };
        self.chance.store(chance, Ordering::Relaxed);
    }
}

/// The zones of a range that a session records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    None,
    All,
    /// Each zone with this probability.
    Share(f64),
}

/// The probability with which a zone was recorded, and the window of the session in which it was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampled {
    /// The chance, of 2³² − 1.
    chance: u32,
    /// The number of the window; 0 for none.
    window: u32,
}

impl Sampled {
    /// Returns the value for a zone outside of windows.
    pub(crate) fn by(chance: Chance) -> Sampled {
        Sampled { chance: chance.0, window: 0 }
    }

    /// Returns the probability, up to 1.
    pub fn share(self) -> f32 {
        (f64::from(self.chance) / f64::from(ALWAYS)) as f32
    }

    /// Returns the number of the window; 0 in a session without a budget.
    pub fn window(self) -> u32 {
        self.window
    }

    /// Returns the value for a window that is open with a probability of `chance`.
    pub(crate) fn in_window(self, chance: u32, window: u32) -> Sampled {
        let chance = (u64::from(self.chance) * u64::from(chance) / u64::from(ALWAYS)) as u32;
        Sampled { chance: chance.max(1), window }
    }
}

/// Converts a share to a chance that is counted and never left out.
pub fn parts(share: f64) -> u32 {
    ((share * f64::from(ALWAYS)) as u32).clamp(1, ALWAYS - 1)
}

/// A sequence of pseudo-random numbers (xorshift64) that chooses what is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Sequence(u64);

impl Sequence {
    /// Creates a sequence with this state, which must not be 0.
    pub const fn new(state: u64) -> Sequence {
        Sequence(state)
    }

    /// Creates a sequence from a seed, which combines a time and an id.
    pub fn seeded(seed: u64) -> Sequence {
        Sequence(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    #[inline]
    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns the next number, from 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns a number from this thread's own sequence.
fn random() -> u32 {
    thread_local!(static SEQUENCE: Cell<Option<Sequence>> = const { Cell::new(None) });
    let next = |state: &Cell<Option<Sequence>>| {
        let seeded = || Sequence::seeded(now_ns() as u64 ^ thread_id().rotate_left(32));
        let mut sequence = state.get().unwrap_or_else(seeded);
        let number = (sequence.draw() >> 32) as u32;
        state.set(Some(sequence));
        number
    };
    SEQUENCE.try_with(next).unwrap_or(0)
}

/// Returns whether a session may record a sample of the range. Ranks match their collectives by number, so each rank must have
/// all of them.
pub fn may_be_sampled(range: &RangeSpec) -> bool {
    range.kind() != Kind::Collective
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chance_is_taken_as_often_as_it_says() {
        let chance = SampleRate::new();
        assert!(chance.take().is_some() && chance.seen() == 0);
        chance.reset(Wanted::None);
        assert!(chance.take().is_none());
        chance.reset(Wanted::Share(1.0 / 16.0));
        let taken = (0..160_000).filter(|_| chance.take().is_some()).count();
        assert_eq!(chance.seen(), 160_000);
        assert!((9_500..10_500).contains(&taken), "{taken} of 160,000 at 1 in 16");
        assert_eq!(chance.passed_over(), 160_000 - taken as u64);
    }

    #[test]
    fn a_change_keeps_what_was_counted() {
        let chance = SampleRate::new();
        chance.reset(Wanted::Share(0.5));
        (0..1_000).for_each(|_| _ = chance.take());
        chance.set(Wanted::None);
        assert!(chance.take().is_none() && chance.seen() == 1_000, "left out");
        chance.set(Wanted::Share(0.01));
        let taken = std::iter::repeat_with(|| chance.take()).flatten().next().expect("one in a hundred");
        assert!((0.009..0.011).contains(&Sampled::by(taken).share()));
        chance.set(Wanted::All);
        assert_eq!(chance.take().map(|taken| Sampled::by(taken).share()), Some(1.0));
    }

    #[test]
    fn a_zone_of_a_sample_in_a_window_has_the_product_of_both_probabilities() {
        let sampled = Sampled::by(Chance(parts(0.5))).in_window(parts(0.1), 7);
        assert!((sampled.share() - 0.05).abs() < 1e-6 && sampled.window() == 7);
        assert!((Sampled::by(Chance::ALWAYS).in_window(parts(0.1), 7).share() - 0.1).abs() < 1e-6);
    }
}
