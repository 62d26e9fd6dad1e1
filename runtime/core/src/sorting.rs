//! Stable sorting that the compiler generates code for once, and not again for each type of element.
//!
//! A call of the standard library's `sort_by_key` adds 10 to 15 kB to a program, and a session sorts dozens of types. These functions sort
//! positions, through one call of the standard library, and move the elements afterwards. They are for what is sorted once in a while: at
//! the end of a session, in an answer, for a catalog. Where the time of each record counts, the standard library's functions remain.

use std::cmp::Ordering;

/// Sorts the elements.
pub fn sort<T: Ord>(items: &mut [T]) {
    sort_by(items, T::cmp);
}

/// Sorts the elements by a key.
pub fn sort_by_key<T, K: Ord>(items: &mut [T], mut key: impl FnMut(&T) -> K) {
    sort_by(items, |a, b| key(a).cmp(&key(b)));
}

/// Sorts the elements by a comparison, which is a total order.
pub fn sort_by<T>(items: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    if let Some(from) = sorted_positions(items.len(), &mut |a, b| compare(&items[a], &items[b])) {
        arrange(from, &mut |a, b| items.swap(a, b));
    }
}

/// Returns a value that as many elements are below as above, give or take one; 0 of no elements.
pub fn median(values: &mut [u64]) -> u64 {
    let half = values.len() / 2;
    if values.is_empty() { 0 } else { *values.select_nth_unstable(half).1 }
}

/// Returns the position of the element that belongs at each place, or `None` if all are there already.
fn sorted_positions(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Option<Vec<usize>> {
    if (1..len).all(|at| compare(at - 1, at).is_le()) {
        return None;
    }
    let mut positions: Vec<usize> = (0..len).collect();
    positions.sort_by(|a, b| compare(*a, *b));
    Some(positions)
}

/// Moves the element at `from[place]` to each place, one cycle of the permutation after another.
fn arrange(mut from: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for first in 0..from.len() {
        let mut place = first;
        loop {
            let next = std::mem::replace(&mut from[place], place);
            if next == first {
                break;
            }
            swap(place, next);
            place = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_order_is_that_of_the_standard_library(keys in prop::collection::vec(0_u8..20, 0..80)) {
            let mut items: Vec<(u8, String)> = keys.into_iter().zip((0..).map(|at: u32| at.to_string())).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|(key, _)| *key);
            sort_by_key(&mut items, |(key, _)| *key);
            prop_assert_eq!(&items, &expected, "equal keys keep their order");

            expected.sort_by(|a, b| b.cmp(a));
            sort_by(&mut items, |a, b| b.cmp(a));
            prop_assert_eq!(&items, &expected);

            expected.sort();
            sort(&mut items);
            prop_assert_eq!(items, expected);
        }

        #[test]
        fn as_many_are_below_the_median_as_above(values in prop::collection::vec(0_u64..9, 1..40)) {
            let median = median(&mut values.clone());
            let below = values.iter().filter(|value| **value < median).count();
            let above = values.iter().filter(|value| **value > median).count();
            prop_assert!(values.contains(&median) && below <= values.len() / 2 && above <= values.len() / 2);
        }
    }

    #[test]
    fn the_median_of_nothing_is_0() {
        assert_eq!(median(&mut []), 0);
    }
}
