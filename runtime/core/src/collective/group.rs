//! The ranks that take part in a collective.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ranks that communicate with one another, seen from one of them.
///
/// `Send` and `Sync`; a clone is another handle to the same group and shares its count of collectives.
#[derive(Clone)]
pub struct ProcessGroup(Arc<Inner>);

struct Inner {
    name: String,
    description: String,
    ranks: Box<[u32]>,
    rank: u32,
    comm_id: Option<u64>,
    /// The name of the group's lane in a trace.
    lane: String,
    /// The group's id, which is unique in the process.
    id: u64,
    /// The number of the next collective without an explicit one; none if collectives are not numbered.
    next: Option<AtomicU64>,
    /// The ranks as traces write them, computed on first use.
    listed: OnceLock<Box<str>>,
}

impl ProcessGroup {
    /// Creates a group of these ranks, given by their numbers in the whole job; `rank` is this rank's number in the group.
    ///
    /// For a cudarc communicator: `ProcessGroup::new("tp0", 0..comm.world_size() as u32, comm.rank() as u32)`.
    pub fn new(name: impl Into<String>, ranks: impl IntoIterator<Item = u32>, rank: u32) -> ProcessGroup {
        ProcessGroup::counting(Some(AtomicU64::new(0)), name, ranks, rank)
    }

    /// Creates a group whose collectives have no numbers, because several communicators may share it.
    pub(super) fn unnumbered(name: &str, ranks: impl IntoIterator<Item = u32>, rank: u32) -> ProcessGroup {
        ProcessGroup::counting(None, name, ranks, rank)
    }

    fn counting(
        next: Option<AtomicU64>,
        name: impl Into<String>,
        ranks: impl IntoIterator<Item = u32>,
        rank: u32,
    ) -> ProcessGroup {
        let (name, ranks) = (name.into(), ranks.into_iter().collect::<Box<[u32]>>());
        let lane = lane(&name, &ranks);
        let (description, comm_id) = (String::new(), None);
        ProcessGroup(Arc::new(Inner {
            name,
            description,
            ranks,
            rank,
            comm_id,
            lane,
            id: id(),
            next,
            listed: OnceLock::new(),
        }))
    }

    /// Returns the same group with a description of its purpose. It counts its collectives from 0.
    pub fn with_description(&self, description: impl Into<String>) -> ProcessGroup {
        self.with(|inner| inner.description = description.into())
    }

    /// Returns the same group with the id of its communicator, which distinguishes it from other communicators. It counts its
    /// collectives from 0.
    pub fn with_comm_id(&self, comm_id: u64) -> ProcessGroup {
        self.with(|inner| inner.comm_id = Some(comm_id))
    }

    fn with(&self, change: impl FnOnce(&mut Inner)) -> ProcessGroup {
        let mut inner = Inner {
            name: self.0.name.clone(),
            description: self.0.description.clone(),
            ranks: self.0.ranks.clone(),
            rank: self.0.rank,
            comm_id: self.0.comm_id,
            lane: self.0.lane.clone(),
            id: id(),
            next: Some(AtomicU64::new(0)),
            listed: OnceLock::new(),
        };
        change(&mut inner);
        ProcessGroup(Arc::new(inner))
    }

    /// Returns the group's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the group's purpose; may be empty.
    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// Returns the numbers of the group's ranks in the whole job.
    pub fn ranks(&self) -> &[u32] {
        &self.0.ranks
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.0.ranks.len()
    }

    /// Returns this rank's number in the group, from 0.
    pub fn rank(&self) -> u32 {
        self.0.rank
    }

    /// Returns the id of the communicator, if known.
    pub fn comm_id(&self) -> Option<u64> {
        self.0.comm_id
    }

    /// Returns the name of the group's lane in a trace: `comm: tp0 [0,1]`.
    pub fn lane(&self) -> &str {
        &self.0.lane
    }

    /// Returns the number of the next collective, counted from 0 while a session records.
    pub(crate) fn next_seq(&self) -> Option<u64> {
        self.0.next.as_ref().map(|next| next.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns all ranks as traces write them: `[0, 1]`.
    pub(crate) fn listed(&self) -> &str {
        self.0.listed.get_or_init(|| list(&self.0.ranks, usize::MAX).into())
    }

    /// Returns the group's id, which distinguishes it from other groups.
    #[doc(hidden)]
    pub fn id(&self) -> u64 {
        self.0.id
    }
}

impl fmt::Debug for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { name, ranks, rank, comm_id, .. } = &*self.0;
        f.debug_struct("ProcessGroup")
            .field("name", name)
            .field("ranks", ranks)
            .field("rank", rank)
            .field("comm_id", comm_id)
            .finish_non_exhaustive()
    }
}

fn id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Up to this many ranks are listed one by one.
const TOLD: usize = 8;

fn lane(name: &str, ranks: &[u32]) -> String {
    match ranks {
        [first, .., last] if ranks.len() > TOLD => format!("comm: {name} [{first},…,{last}: {} ranks]", ranks.len()),
        ranks => format!("comm: {name} [{}]", ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
    }
}

/// Formats a list as PyTorch's profiler does; dots replace what follows the first `most` elements.
pub(super) fn list<T: ToString>(values: &[T], most: usize) -> String {
    let mut texts: Vec<String> = values.iter().take(most).map(T::to_string).collect();
    if values.len() > most {
        texts.push("...".to_owned());
    }
    format!("[{}]", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_names_the_group_and_its_ranks() {
        assert_eq!(ProcessGroup::new("tp0", [0, 1], 0).lane(), "comm: tp0 [0,1]");
        assert_eq!(ProcessGroup::new("dp", 0..1024, 3).lane(), "comm: dp [0,…,1023: 1024 ranks]");
    }

    #[test]
    fn clones_share_the_count() {
        let group = ProcessGroup::new("tp0", [0, 1], 0);
        assert_eq!((group.next_seq(), group.clone().next_seq(), group.next_seq()), (Some(0), Some(1), Some(2)));
        assert_eq!(group.with_description("tensor parallel").next_seq(), Some(0));
    }
}
