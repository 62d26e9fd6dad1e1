//! Counters in a group of their own, each described in every piece of the trace that has a value of it.

use std::collections::HashMap;

use super::proto::Buffer;
use super::tables::Tables;

/// The maximum number of counters that are remembered as described. With more, all are described again, with the same ids.
const MOST: usize = 4096;

/// The counters of one group.
#[derive(Debug)]
pub(super) struct Counters {
    group: &'static str,
    /// What stands before a counter's name where it is described.
    prefix: &'static str,
    /// The place of the group among the last rows of the process: smaller is later.
    place: u32,
    unit: u64,
    /// The piece of the trace that last described the group.
    piece: Option<u32>,
    /// The counters by name, each with the piece of the trace that last described it.
    known: HashMap<String, (u64, u32)>,
}

impl Counters {
    /// Creates a group without counters, whose values have this unit.
    pub(super) fn new(group: &'static str, prefix: &'static str, place: u32, unit: u64) -> Counters {
        Counters { group, prefix, place, unit, piece: None, known: HashMap::new() }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// Writes a counter's value from this time on.
    pub(super) fn set(&mut self, name: &str, at_ns: i64, value: u64, tables: &mut Tables, buffer: &mut Buffer) {
        let Tables { session, facts, end_ns, .. } = tables;
        *end_ns = (*end_ns).max(at_ns);
        let known = self.known.get(name).filter(|(_, piece)| *piece == session.piece);
        let counter = known.map(|(counter, _)| *counter).unwrap_or_else(|| {
            let group = session.ids.derive(self.group);
            if self.piece.replace(session.piece) != Some(session.piece) {
                facts.group(group, self.group, i32::MAX as u32 - self.place, buffer);
            }
            let counter = session.ids.derive((self.group, name));
            facts.counter_track(counter, (group, &format!("{}{name}", self.prefix)), self.unit, buffer);
            if self.known.len() >= MOST {
                self.known.clear();
            }
            self.known.insert(name.to_owned(), (counter, session.piece));
            counter
        });
        facts.count(counter, at_ns, i64::try_from(value).unwrap_or(i64::MAX), buffer);
    }
}
