//! Tables of what is only counted and added: kernels, waits of threads, semaphores, signallers. The memory is bounded.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::names::Name;
use warpline_core::sorting;

/// The most rows of a table.
const MOST: usize = 4_096;

/// Sums by key. Beyond 4,096 keys, later ones are counted under the key that stands for them.
#[derive(Clone, Debug)]
pub struct Counted<K>(HashMap<K, Sum>);

/// Numbers that are only counted and added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    pub count: u64,
    pub total_ns: i64,
    /// The time by which `total_ns` may be shorter, because no event times the ends of waits.
    pub early_ns: i64,
    pub max_ns: i64,
}

/// A key of a table.
pub trait Key: Clone + Eq + Hash {
    /// Returns the key of all those for which there is no room.
    fn more() -> Self;
}

impl Key for Name {
    fn more() -> Name {
        Name::MORE
    }
}

/// A kernel and the range in which it ran.
impl Key for (Name, Option<Name>) {
    fn more() -> Self {
        (Name::MORE, None)
    }
}

/// A thread, the call in which it waited, and the range.
impl Key for (Arc<str>, Name, Option<Name>) {
    fn more() -> Self {
        ("(more)".into(), Name::MORE, None)
    }
}

impl<K> Default for Counted<K> {
    fn default() -> Counted<K> {
        Counted(HashMap::new())
    }
}

impl<K: Key> Counted<K> {
    /// Adds a time, which may be shorter by `early_by_ns`.
    pub fn add(&mut self, key: K, ns: i64, early_by_ns: i64) {
        self.add_sum(key, Sum { count: 1, total_ns: ns, early_ns: early_by_ns.clamp(0, ns.max(0)), max_ns: ns });
    }

    /// Adds the sums of another table.
    pub fn merge(&mut self, other: Counted<K>) {
        other.0.into_iter().for_each(|(key, sum)| self.add_sum(key, sum));
    }

    fn add_sum(&mut self, key: K, sum: Sum) {
        let key = if self.has_room() || self.0.contains_key(&key) { key } else { K::more() };
        self.0.entry(key).or_default().add(sum);
    }

    /// Returns whether a new key gets a row of its own.
    pub fn has_room(&self) -> bool {
        self.0.len() < MOST
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a row for each key, those with the longest times first, and rows of equal times by `order`.
    pub(super) fn rows<R, O: Ord>(&self, row: impl Fn(K, Sum) -> R, order: impl Fn(&R) -> O) -> Vec<R> {
        let mut rows: Vec<_> = self.0.iter().map(|(key, sum)| (sum.total_ns, row(key.clone(), *sum))).collect();
        sorting::sort_by(&mut rows, |(a_ns, a), (b_ns, b)| b_ns.cmp(a_ns).then_with(|| order(a).cmp(&order(b))));
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

impl Sum {
    fn add(&mut self, more: Sum) {
        self.count += more.count;
        self.total_ns += more.total_ns;
        self.early_ns += more.early_ns;
        self.max_ns = self.max_ns.max(more.max_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;

    #[test]
    fn ever_new_keys_are_counted_together_beyond_the_bound() {
        let (mut table, mut names) = (Counted::default(), Names::default());
        for n in 0..2 * MOST {
            let name = names.number_if(&format!("kernel {n}"), table.has_room());
            table.add((name, None), 10, 0);
        }
        let first = names.number_if("kernel 0", false);
        table.add((first, None), 5, 0);
        let rows =
            table.rows(|(name, _), sum| (names.text(name).to_string(), sum.count, sum.total_ns), |row| row.0.clone());
        assert_eq!((rows.len(), rows[0].clone()), (MOST + 1, ("(more)".to_owned(), MOST as u64, 10 * MOST as i64)));
        assert_eq!(rows[1], ("kernel 0".to_owned(), 2, 15));
        assert_eq!(names.number_if("kernel 9999999", false), Name::MORE);
    }

    #[test]
    fn sums_of_two_tables_are_added_by_key() {
        let mut names = Names::default();
        let [one, other] = ["one", "other"].map(|name| names.number_if(name, true));
        let table = |sums: &[(Name, i64, i64)]| {
            let mut table = Counted::default();
            sums.iter().for_each(|(name, ns, early_ns)| table.add(*name, *ns, *early_ns));
            table
        };
        let mut both = table(&[(one, 10, 4), (one, 30, 0)]);
        both.merge(table(&[(one, 20, 50), (other, 5, 0)]));
        let rows = both.rows(|name, sum| (name, sum.count, sum.total_ns, sum.early_ns, sum.max_ns), |row| row.1);
        // A time can be shorter by all of itself, and by no more.
        assert_eq!(rows, [(one, 3, 60, 24, 30), (other, 1, 5, 0, 5)]);
    }

    #[test]
    fn threads_beyond_the_bound_are_counted_together() {
        let (mut table, mut names) = (Counted::default(), Names::default());
        let call = names.number_if("cudaStreamSynchronize", true);
        for n in 0..MOST + 3 {
            table.add((format!("thread {n}").into(), call, Some(call)), 10, 0);
        }
        let rows = table.rows(|key: (Arc<str>, Name, Option<Name>), sum| (key, sum.count), |row| row.1);
        assert_eq!((rows.len(), &rows[0]), (MOST + 1, &(("(more)".into(), Name::MORE, None), 3)));
    }
}
