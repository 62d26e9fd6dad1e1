//! What is kept by the ids that a trace gives. Writers count from 1, so nearly all are found without a hash; a trace may give any number, and
//! takes no more memory for it.

use std::collections::HashMap;

/// How far an id may be beyond those that came before to be kept in their order.
const GAP: u64 = 8;

/// Values by their ids.
#[derive(Debug)]
pub(super) struct ById<T> {
    /// By id.
    dense: Vec<Option<T>>,
    /// The others, by id.
    sparse: HashMap<u64, T>,
}

impl<T> Default for ById<T> {
    fn default() -> ById<T> {
        ById { dense: Vec::new(), sparse: HashMap::new() }
    }
}

impl<T> ById<T> {
    #[inline]
    pub(super) fn get(&self, id: u64) -> Option<&T> {
        match self.dense.get(usize::try_from(id).ok()?) {
            Some(Some(value)) => Some(value),
            // An id may have come before those around it.
            _ if self.sparse.is_empty() => None,
            _ => self.sparse.get(&id),
        }
    }

    pub(super) fn insert(&mut self, id: u64, value: T) {
        if id >= self.dense.len() as u64 + GAP {
            self.sparse.insert(id, value);
            return;
        }
        let at = id as usize;
        if at >= self.dense.len() {
            self.dense.resize_with(at + 1, || None);
        }
        self.dense[at] = Some(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_an_id_is_found_in_any_order() {
        let mut kept = ById::default();
        for id in [20, u64::MAX, 3, 1, 2, 9, 15, 23, 20, 1] {
            kept.insert(id, id.wrapping_mul(10));
            assert_eq!(kept.get(id), Some(&id.wrapping_mul(10)));
            kept.insert(id, id ^ 1);
            assert_eq!(kept.get(id), Some(&(id ^ 1)));
        }
        for id in [20, u64::MAX, 3, 1, 2, 9, 15, 23] {
            assert_eq!(kept.get(id), Some(&(id ^ 1)), "{id}");
        }
        assert_eq!((kept.get(0), kept.get(4), kept.get(1 << 40)), (None, None, None));
        // No id takes more than a few entries.
        assert!(kept.dense.len() <= 24 && kept.sparse.len() <= 2, "{kept:?}");
    }
}
