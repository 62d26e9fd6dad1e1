//! Lanes that are named at run time: each name is kept once, as long as the process.
//!
//! Sinks then compare and keep a lane as they do one of the catalog, and a program that names a new lane for each zone has a bound. Only a
//! zone with `lane = <expression>` comes here; it takes a lock for reading, and one for writing the first time a name occurs.

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::{PoisonError, RwLock};

use super::label::Label;
use crate::fork::PerProcess;
use crate::reentrancy::Inside;

/// The maximum number of lanes that are named at run time. Zones with further names are on the lane [`MORE_LANES`].
pub const MOST_LANES: usize = 1024;

/// The name of the lane of all names beyond the first [`MOST_LANES`].
pub const MORE_LANES: &str = "(more)";

static NAMES: PerProcess<Names> = PerProcess::new(Names::default);

/// The names so far.
#[derive(Default)]
struct Names(RwLock<HashSet<&'static str>>);

/// A lane.
#[derive(Clone, Copy, Default)]
pub(super) struct Lane {
    /// None for an empty text.
    pub(super) name: Option<&'static str>,
    /// Whether the table of names is full.
    pub(super) is_left_out: bool,
}

/// Returns the lane with this name.
pub(super) fn interned(name: &dyn Display) -> Lane {
    let mut text = Label::default();
    text.set(name);
    match text.as_str().unwrap_or_default() {
        "" => Lane::default(),
        name if name.contains('\0') => NAMES.lane(&name.replace('\0', "␀")),
        name => NAMES.lane(name),
    }
}

impl Names {
    fn lane(&self, name: &str) -> Lane {
        // Under the lock, an allocator that the program has marked begins no zone.
        let _inside = Inside::enter();
        let read = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (known, is_full) = (read.get(name).copied(), read.len() >= MOST_LANES);
        drop(read);
        let name = if is_full { known } else { known.or_else(|| self.add(name)) };
        Lane { name: name.or(Some(MORE_LANES)), is_left_out: name.is_none() }
    }

    fn add(&self, name: &str) -> Option<&'static str> {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = names.get(name) {
            return Some(name);
        }
        let name: &'static str = (names.len() < MOST_LANES).then(|| &*Box::leak(Box::from(name)))?;
        names.insert(name);
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    #[test]
    fn names_beyond_the_bound_share_a_lane() {
        // Like the table of the process, it is never dropped, and keeps its names.
        static TABLE: LazyLock<Names> = LazyLock::new(Names::default);
        let names = &*TABLE;
        let lanes: Vec<_> = (0..=MOST_LANES).map(|n| names.lane(&format!("lane {n}"))).collect();
        let (last, others) = lanes.split_last().expect("there are many");
        assert_eq!((last.name, last.is_left_out), (Some(MORE_LANES), true));
        assert!(others.iter().all(|lane| !lane.is_left_out));
        let known = names.lane("lane 0");
        assert!(!known.is_left_out && known.name == Some("lane 0"), "a lane that is known stays so");
    }
}
