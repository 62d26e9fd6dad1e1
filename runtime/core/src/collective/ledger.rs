//! What a process group has launched: the number of its last collective, a signature of all of them, and the last few, for a rank that hangs.
//!
//! The launching thread writes it when a collective of a session begins, with a few stores and without waiting. Another thread reads it
//! at any time, also while every call of the GPU's driver hangs. It is written only while a session wants it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::dtype::DataType;
use super::kind::CollectiveKind;
use crate::hashing::splitmix64;

/// The number of times that a session began to want the ledgers, times two; odd while one wants them.
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// The number of last collectives that a ledger keeps.
const RECENT: usize = 8;

/// The collectives of a group that have begun on the host. Without the GPU's progress they say where a rank stands.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Odd while it is written.
    version: AtomicU32,
    /// The greatest number that has begun, plus one; 0 for none.
    entered: AtomicU64,
    /// The greatest number that has completed, plus one.
    completed: AtomicU64,
    signature: AtomicU64,
    /// The epoch in which the signature began.
    epoch: AtomicU32,
    /// The number of entries that were written in that epoch.
    count: AtomicU64,
    /// The number of the first of them.
    first: AtomicU64,
    recent: [[AtomicU64; 4]; RECENT],
}

/// A copy of a group's ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entered {
    /// The greatest number whose launch began on the host.
    pub entered: u64,
    /// The greatest number whose end on the GPU was seen.
    pub completed: Option<u64>,
    /// The number of the first collective in the signature; none before there is one. Ranks whose sessions began at different collectives have
    /// different ones, and their signatures cannot be compared.
    pub first: Option<u64>,
    /// A hash over the number, kind, type, count and root of each collective from the first on, in the order of their begins: equal for
    /// ranks that have called the same since the same first one.
    pub signature: u64,
    /// The last collectives, oldest first.
    pub recent: Vec<Call>,
}

/// A collective that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub seq: u64,
    pub kind: CollectiveKind,
    pub dtype: Option<DataType>,
    pub items: Option<u64>,
    pub root: Option<u32>,
    /// The signature after it; 0 before it has one.
    pub signature: u64,
}

/// Starts or stops the writing of ledgers. What was called in between is unknown, so signatures begin anew.
pub fn turn(is_on: bool) {
    let next = |epoch: u32| if is_on { (epoch & !1).wrapping_add(3) } else { epoch & !1 };
    let _ = EPOCH.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |epoch| Some(next(epoch)));
}

/// The words of dtype, root and kind, each plus one where it may be missing.
fn pack(call: &Call) -> u64 {
    let kind = call.kind as u64;
    let dtype = call.dtype.map_or(0, |dtype| dtype as u64 + 1);
    let root = call.root.map_or(0, |root| u64::from(root) + 1);
    kind | dtype << 8 | root << 16
}

impl Ledger {
    /// Notes a collective with a number that begins on this thread. `call` is called only while a session wants the ledgers.
    #[inline]
    pub(super) fn enter(&self, call: impl FnOnce() -> Option<Call>) {
        let epoch = EPOCH.load(Ordering::Relaxed);
        if epoch & 1 == 1
            && let Some(call) = call()
        {
            self.note(&call, epoch);
        }
    }

    #[cold]
    fn note(&self, call: &Call, epoch: u32) {
        let seq = call.seq;
        self.entered.fetch_max(seq.saturating_add(1), Ordering::Relaxed);
        // The two ends of a transfer call different things, and other ranks call nothing.
        if call.kind.is_between_two() {
            return;
        }
        // Another thread that begins a collective of this group right now has its own place in the order. Which one comes first is not
        // known, so neither is the signature.
        let version = self.version.load(Ordering::Relaxed);
        let claim =
            self.version.compare_exchange(version & !1, (version & !1) + 1, Ordering::Acquire, Ordering::Relaxed);
        if claim.is_err() {
            return;
        }
        fence(Ordering::Release);
        if self.epoch.swap(epoch, Ordering::Relaxed) != epoch {
            self.signature.store(0, Ordering::Relaxed);
            self.count.store(0, Ordering::Relaxed);
            self.first.store(seq, Ordering::Relaxed);
        }
        let (packed, items) = (pack(call), call.items.map_or(0, |items| items.saturating_add(1)));
        let hash = [seq, packed, items]
            .into_iter()
            .fold(self.signature.load(Ordering::Relaxed), |hash, word| splitmix64(hash ^ word));
        let count = self.count.load(Ordering::Relaxed);
        for (word, value) in self.recent[count as usize % RECENT].iter().zip([seq, packed, items, hash]) {
            word.store(value, Ordering::Relaxed);
        }
        self.signature.store(hash, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Relaxed);
        self.version.store((version & !1).wrapping_add(2), Ordering::Release);
    }

    /// Notes a collective that has completed on the GPU.
    pub(super) fn complete(&self, seq: u64) {
        self.completed.fetch_max(seq.saturating_add(1), Ordering::Relaxed);
    }

    /// Returns a copy; none if nothing has begun.
    pub(super) fn read(&self) -> Option<Entered> {
        let entered = self.entered.load(Ordering::Relaxed).checked_sub(1)?;
        let completed = self.completed.load(Ordering::Relaxed).checked_sub(1);
        // A thread that was stopped while it wrote leaves the rest of the ledger as it was.
        let copy = (0..64).find_map(|_| self.copy());
        let (first, signature, recent) = copy.unwrap_or_default();
        Some(Entered { entered, completed, first, signature, recent })
    }

    fn copy(&self) -> Option<(Option<u64>, u64, Vec<Call>)> {
        let before = self.version.load(Ordering::Acquire);
        let (count, signature) = (self.count.load(Ordering::Relaxed), self.signature.load(Ordering::Relaxed));
        let first = Some(self.first.load(Ordering::Relaxed)).filter(|_| count > 0);
        let words: [[u64; 4]; RECENT] =
            std::array::from_fn(|at| std::array::from_fn(|word| self.recent[at][word].load(Ordering::Relaxed)));
        fence(Ordering::Acquire);
        if !before.is_multiple_of(2) || self.version.load(Ordering::Relaxed) != before {
            return None;
        }
        let calls =
            (count.saturating_sub(RECENT as u64)..count).map(|at| unpack(words[at as usize % RECENT])).collect();
        Some((first, signature, calls))
    }
}

fn unpack([seq, packed, items, signature]: [u64; 4]) -> Call {
    let index = (packed >> 8 & 0xff).checked_sub(1);
    Call {
        seq,
        kind: CollectiveKind::ALL[(packed & 0xff) as usize % CollectiveKind::ALL.len()],
        dtype: index.and_then(|index| DataType::from_nccl(index as u32)),
        items: items.checked_sub(1),
        root: (packed >> 16).checked_sub(1).map(|root| root as u32),
        signature,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{Message, ProcessGroup, groups};

    fn called(group: &ProcessGroup, kind: CollectiveKind, count: u64) {
        let mut message = Message::new(kind).count(count).dtype(DataType::Bf16).root(2).group(group);
        message.begin();
    }

    #[test]
    fn ranks_that_call_the_same_have_one_signature() {
        turn(true);
        let ranks: [ProcessGroup; 2] = std::array::from_fn(|rank| ProcessGroup::new("ledger", 0..2, rank as u32));
        for count in 0..20 {
            for rank in &ranks {
                called(rank, CollectiveKind::Broadcast, count);
            }
            // A transfer takes a number, and no part in the signature.
            called(&ranks[0], CollectiveKind::Send, count);
            called(&ranks[1], CollectiveKind::Recv, count);
        }
        let [one, other] = ranks.clone().map(|rank| rank.entered().expect("it has begun some"));
        assert_eq!((one.entered, one.completed, one.recent.len()), (39, None, RECENT));
        assert_eq!(one, other);
        let last = one.recent[RECENT - 1];
        assert_eq!((last.seq, last.kind, last.dtype), (38, CollectiveKind::Broadcast, Some(DataType::Bf16)));
        assert_eq!((last.items, last.root, last.signature), (Some(19), Some(2), one.signature));
        called(&ranks[0], CollectiveKind::Broadcast, 7);
        called(&ranks[1], CollectiveKind::Broadcast, 8);
        let [one, other] = ranks.clone().map(|rank| rank.entered().expect("it has begun some"));
        assert!(one.signature != other.signature && one.recent[..RECENT - 1] == other.recent[..RECENT - 1]);
        // Where a session begins later, so does the signature: at its first call.
        let later = ProcessGroup::new("ledger", 0..2, 1);
        let mut message = Message::new(CollectiveKind::Broadcast).count(7_u64).seq(40_u64).group(&later);
        message.begin();
        assert_eq!(later.entered().map(|entered| (entered.first, entered.recent.len())), Some((Some(40), 1)));
        assert_eq!(one.first, Some(0));
        turn(false);
        called(&ranks[0], CollectiveKind::Broadcast, 1);
        turn(true);
        called(&ranks[0], CollectiveKind::Broadcast, 1);
        assert_eq!(ranks[0].entered().map(|entered| (entered.first, entered.recent.len())), Some((Some(42), 1)));
        ranks[0].complete(5);
        assert_eq!(ranks[0].entered().and_then(|entered| entered.completed), Some(5));
        assert!(groups().iter().any(|(group, _)| group.id() == ranks[0].id()));
        turn(false);
    }
}
