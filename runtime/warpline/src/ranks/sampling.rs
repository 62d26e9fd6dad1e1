//! Which collectives are kept: every rank keeps the same ones without talking to the others.
//!
//! The choice is a function of the communicator and the number of the collective. The share depends only on what every member knows alike:
//! the kind and the size of the call. A power of two as k makes a coarser choice a part of a finer one, so a rank that must keep fewer still keeps some that the others keep.

use warpline_core::collective::{CollectiveKind, Message};
use warpline_core::hashing::{fnv1a64, splitmix64};

/// Collectives of this size, in bytes, are all kept.
const LARGE: u64 = 1 << 20;
/// Of those of this size, every fourth is kept, and of smaller ones every sixteenth.
const MEDIUM: u64 = 64 << 10;

/// Returns k for a call: one of k is kept.
pub(super) fn share(message: &Message) -> u64 {
    use CollectiveKind::{AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter};
    // Ranks of the other kinds may give different sizes, and such calls are rare.
    let is_equal = matches!(message.kind, AllReduce | AllGather | ReduceScatter | Broadcast | AllToAll);
    match message.bytes().filter(|_| is_equal && message.equal_items().is_some()) {
        // A barrier is a collective of next to nothing.
        None | Some(LARGE.. | ..=8) => 1,
        Some(MEDIUM..) => 4,
        Some(_) => 16,
    }
}

/// Returns the hash of a communicator's name.
pub(super) fn hash(comm: &str) -> u64 {
    fnv1a64(comm.as_bytes())
}

/// Returns whether every rank keeps this collective of a communicator, if one of `k` is kept.
pub(super) fn is_kept(comm: u64, seq: u64, k: u64) -> bool {
    k <= 1 || splitmix64(comm ^ seq).is_multiple_of(k)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_core::collective::{DataType, ProcessGroup};

    #[test]
    fn ranks_keep_the_same_collectives_and_one_of_k() {
        let comm = |rank| hash(ProcessGroup::new("dp", 0..8, rank).comm());
        for k in [1, 4, 16, 64] {
            let kept = |rank| (0..20_000).filter(|seq| is_kept(comm(rank), *seq, k)).collect::<Vec<_>>();
            assert_eq!(kept(0), kept(5));
            let expected = 20_000.0 / k as f64;
            assert!((kept(0).len() as f64 - expected).abs() < 5.0 * expected.sqrt() + 1.0, "{k}");
            assert!(kept(0).iter().all(|seq| k == 1 || is_kept(comm(0), *seq, k / 4)), "a coarser choice is a part");
        }
    }

    #[test]
    fn k_depends_on_what_all_members_know() {
        let group = ProcessGroup::new("dp", 0..8, 3);
        let k = |kind, count: u64| share(&Message::new(kind).count(count).dtype(DataType::F32).group(&group));
        assert_eq!(k(CollectiveKind::AllReduce, 1 << 20), 1);
        assert_eq!((k(CollectiveKind::AllReduce, 1 << 15), k(CollectiveKind::AllReduce, 100)), (4, 16));
        assert_eq!((k(CollectiveKind::AllReduce, 1), k(CollectiveKind::Gather, 100)), (1, 1));
        assert_eq!(share(&Message::new(CollectiveKind::AllReduce)), 1, "a size that is not known");
    }
}
