//! The graphs to which executable graphs belong, by handle and by id.
//!
//! The driver shows that an executable graph is gone only by reusing its handle. Its id is then kept for a while, because records of its
//! last replays may still be on their way. If a program keeps instantiating graphs, only the latest are known; those that made room and may
//! still exist are counted. The registry keeps this under its lock.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::registered::Exec;
use crate::graph_api::Handle;

/// The maximum number of executable graphs that may exist.
const MOST: usize = if cfg!(test) { 64 } else { 1 << 14 };
/// The maximum number of ids of executable graphs that are gone.
const MOST_GONE: usize = if cfg!(test) { 16 } else { 1 << 12 };

pub(super) struct Execs<G> {
    by_handle: HashMap<Handle, ExecEntry<G>>,
    by_id: HashMap<u32, Arc<G>>,
    /// Handles, by the age of their last registration.
    by_age: BTreeMap<u64, Handle>,
    told: u64,
    /// Ids of executable graphs whose handles were reused, oldest first.
    gone: VecDeque<u32>,
    /// The number of executable graphs that made room and may still exist, since the last note.
    pub(super) evicted: u64,
}

struct ExecEntry<G> {
    of: Arc<G>,
    id: Option<u32>,
    told: u64,
}

impl<G> Default for Execs<G> {
    fn default() -> Execs<G> {
        let (by_handle, by_id, by_age) = (HashMap::new(), HashMap::new(), BTreeMap::new());
        Execs { by_handle, by_id, by_age, told: 0, gone: VecDeque::new(), evicted: 0 }
    }
}

impl<G> Execs<G> {
    /// Returns the graph of an executable graph.
    pub(super) fn get(&self, handle: Handle) -> Option<&Arc<G>> {
        Some(&self.by_handle.get(&handle)?.of)
    }

    /// Returns the graph of an executable graph, by its id.
    pub(super) fn of_id(&self, id: u32) -> Option<&Arc<G>> {
        self.by_id.get(&id)
    }

    /// Assigns an executable graph to a graph. Calls `leaves` with each handle that a graph loses, and that graph.
    pub(super) fn add(&mut self, exec: Exec, of: &Arc<G>, mut leaves: impl FnMut(Handle, &Arc<G>)) {
        let Exec { handle, id } = exec;
        self.told += 1;
        let known = ExecEntry { of: Arc::clone(of), id, told: self.told };
        if let Some(before) = self.by_handle.insert(handle, known) {
            self.by_age.remove(&before.told);
            if !Arc::ptr_eq(&before.of, of) {
                leaves(handle, &before.of);
            }
            if let Some(gone) = before.id.filter(|before| id != Some(*before)) {
                self.bury(gone);
            }
        }
        self.by_age.insert(self.told, handle);
        if let Some(id) = id {
            self.by_id.insert(id, Arc::clone(of));
        }
        while self.by_handle.len() > MOST {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            let Some(known) = self.by_handle.remove(&oldest) else { continue };
            if let Some(id) = known.id {
                self.by_id.remove(&id);
            }
            self.evicted += 1;
            leaves(oldest, &known.of);
        }
    }

    /// Forgets the executable graphs of a graph.
    pub(super) fn forget(&mut self, graph: &Arc<G>) {
        self.by_id.retain(|_, of| !Arc::ptr_eq(of, graph));
        let by_age = &mut self.by_age;
        self.by_handle.retain(|_, known| {
            let stays = !Arc::ptr_eq(&known.of, graph);
            if !stays {
                by_age.remove(&known.told);
            }
            stays
        });
        let by_id = &self.by_id;
        self.gone.retain(|id| by_id.contains_key(id));
    }

    /// Notes that another executable graph has the handle of this one.
    fn bury(&mut self, id: u32) {
        self.gone.push_back(id);
        if self.gone.len() > MOST_GONE
            && let Some(oldest) = self.gone.pop_front()
        {
            self.by_id.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(execs: &mut Execs<u8>, handle: Handle, id: u32, of: &Arc<u8>) -> Vec<(Handle, u8)> {
        let mut left = Vec::new();
        execs.add(Exec { handle, id: Some(id) }, of, |handle, of| left.push((handle, **of)));
        left
    }

    fn sizes(execs: &Execs<u8>) -> [usize; 4] {
        [execs.by_handle.len(), execs.by_id.len(), execs.by_age.len(), execs.gone.len()]
    }

    #[test]
    fn a_graph_that_is_instantiated_for_ever_keeps_the_ids_of_the_latest_whether_handles_come_back_or_not() {
        let (graph, other) = (Arc::new(1), Arc::new(2));
        let mut execs = Execs::default();
        // The handles are reused, so it is known which graphs are gone.
        for id in 0..100_000 {
            assert!(add(&mut execs, 8 + Handle::try_from(id % 2).expect("small"), id, &graph).is_empty());
        }
        assert_eq!(sizes(&execs), [2, 2 + MOST_GONE, 2, MOST_GONE]);
        assert!(execs.of_id(99_999).is_some() && execs.of_id(99_990).is_some(), "its last replays may be on their way");
        assert!(execs.of_id(99_000).is_none());
        assert_eq!(execs.evicted, 0, "nothing that may be there");
        // The handles are not reused, so the oldest make room and are counted.
        assert!(add(&mut execs, 7, 7, &other).is_empty());
        let mut left = Vec::new();
        for id in 100_000..200_000 {
            left.extend(add(&mut execs, Handle::try_from(id).expect("small"), id, &graph));
        }
        assert_eq!(sizes(&execs), [MOST, MOST + MOST_GONE, MOST, MOST_GONE]);
        assert_eq!((execs.evicted, left.len() as u64), (100_003 - MOST as u64, execs.evicted));
        assert_eq!(left[2], (7, 2), "whoever had it is told");
        assert!(execs.get(199_999).is_some() && execs.of_id(199_999).is_some() && execs.get(100_000).is_none());
        // A graph that is added again is not one of the oldest.
        let kept = 200_000 - MOST as u32;
        assert!(add(&mut execs, Handle::try_from(kept).expect("small"), kept, &graph).is_empty());
        add(&mut execs, 3, 3, &other);
        assert!(execs.of_id(kept).is_some() && execs.of_id(kept + 1).is_none());
        execs.forget(&graph);
        assert_eq!(sizes(&execs), [1, 1, 1, 0]);
        assert_eq!(execs.get(3).map(|of| **of), Some(2));
    }

    #[test]
    fn one_that_goes_to_another_graph_keeps_its_id() {
        let (graph, other) = (Arc::new(1), Arc::new(2));
        let mut execs = Execs::default();
        add(&mut execs, 5, 50, &graph);
        assert_eq!(add(&mut execs, 5, 50, &other), [(5, 1)], "updated with another graph");
        assert_eq!((execs.get(5).map(|of| **of), execs.of_id(50).map(|of| **of)), (Some(2), Some(2)));
        assert_eq!(sizes(&execs), [1, 1, 1, 0]);
        assert!(add(&mut execs, 5, 51, &other).is_empty(), "destroyed, and its handle given again");
        assert_eq!((execs.of_id(50).is_some(), sizes(&execs)), (true, [1, 2, 1, 1]));
    }
}
