//! The ranks that take part in a collective.

use super::ledger::{Call, Entered, Ledger};
use crate::fork::PerProcess;
use crate::hashing::fnv1a64;
use crate::lock::lock;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The groups of the process. A child of a fork knows those that it makes: another thread of the parent may hold the lock.
static GROUPS: PerProcess<Mutex<Vec<Weak<Inner>>>> = PerProcess::new(Mutex::default);

/// The most groups that are known: later ones have no ledger.
const MOST_GROUPS: usize = 4096;

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
    /// The name of its communicator in the tables of many ranks, computed on first use.
    comm: OnceLock<Box<str>>,
    ledger: Ledger,
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
        ProcessGroup::known(Inner {
            name,
            description,
            ranks,
            rank,
            comm_id,
            lane,
            id: id(),
            next,
            listed: OnceLock::new(),
            comm: OnceLock::new(),
            ledger: Ledger::default(),
        })
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
            comm: OnceLock::new(),
            ledger: Ledger::default(),
        };
        change(&mut inner);
        ProcessGroup::known(inner)
    }

    fn known(inner: Inner) -> ProcessGroup {
        let inner = Arc::new(inner);
        make_known(Arc::downgrade(&inner));
        ProcessGroup(inner)
    }

    /// Notes a collective of the group that begins on this thread, and has its number.
    #[inline]
    pub(super) fn enter(&self, call: impl FnOnce() -> Option<Call>) {
        self.0.ledger.enter(call);
    }

    /// Notes a collective of the group that has completed on the GPU.
    #[doc(hidden)]
    pub fn complete(&self, seq: u64) {
        self.0.ledger.complete(seq);
    }

    /// Returns what the group has launched while a session wrote tables of many ranks; none if nothing.
    #[doc(hidden)]
    pub fn entered(&self) -> Option<Entered> {
        self.0.ledger.read()
    }

    /// Returns the name of the communicator in the tables of many ranks: the group's name, and a hash of its members and of its communicator's
    /// id, by which two groups of one name differ, and a group from the one that replaces it.
    #[doc(hidden)]
    pub fn comm(&self) -> &str {
        self.0.comm.get_or_init(|| {
            let id = self.0.comm_id.map(|id| format!(";{id:x}")).unwrap_or_default();
            let hash = fnv1a64(format!("{}{id}", self.members()).as_bytes());
            format!("{}#{:08x}", self.0.name, hash as u32).into()
        })
    }

    /// Returns the group's ranks in a short form: `0-7,16`.
    #[doc(hidden)]
    pub fn members(&self) -> String {
        let mut text = String::new();
        let mut ranks = self.0.ranks.iter().copied().peekable();
        while let Some(first) = ranks.next() {
            let mut last = first;
            while ranks.peek().is_some_and(|next| Some(*next) == last.checked_add(1)) {
                last += 1;
                ranks.next();
            }
            let comma = if text.is_empty() { "" } else { "," };
            text += &if first == last { format!("{comma}{first}") } else { format!("{comma}{first}-{last}") };
        }
        text
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

/// Returns the groups of the process that have begun a collective since a session first wanted ledgers.
#[doc(hidden)]
pub fn groups() -> Vec<(ProcessGroup, Entered)> {
    let groups: Vec<_> = lock(&GROUPS).iter().filter_map(Weak::upgrade).collect();
    groups.into_iter().map(ProcessGroup).filter_map(|group| Some((group.clone(), group.entered()?))).collect()
}

/// Makes a new group known. Creating a group is not on the hot path.
fn make_known(group: Weak<Inner>) {
    let mut groups = lock(&GROUPS);
    if groups.len() >= MOST_GROUPS {
        groups.retain(|known| known.strong_count() > 0);
    }
    if groups.len() < MOST_GROUPS {
        groups.push(group);
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
    fn members_are_short_and_tell_groups_of_one_name_apart() {
        let group = |ranks: &[u32]| ProcessGroup::new("dp", ranks.iter().copied(), 0);
        assert_eq!(group(&[0, 1, 2, 3, 7, 9, 10]).members(), "0-3,7,9-10");
        assert_eq!((group(&[5]).members().as_str(), group(&[]).members().as_str()), ("5", ""));
        let (one, other) = (group(&[0, 1]), group(&[2, 3]));
        assert!(one.comm().starts_with("dp#") && one.comm().len() == 11 && one.comm() != other.comm());
        assert_eq!(one.comm(), group(&[0, 1]).comm());
        let again = [7, 7, 8].map(|id| one.with_comm_id(id).comm().to_owned());
        assert!(again[0] == again[1] && again[1] != again[2] && again[0] != one.comm(), "{again:?}");
    }

    #[test]
    fn clones_share_the_count() {
        let group = ProcessGroup::new("tp0", [0, 1], 0);
        assert_eq!((group.next_seq(), group.clone().next_seq(), group.next_seq()), (Some(0), Some(1), Some(2)));
        assert_eq!(group.with_description("tensor parallel").next_seq(), Some(0));
    }
}
