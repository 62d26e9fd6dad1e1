//! Finds the copies of annotations that PyTorch's profiler puts on streams without work.
//!
//! The profiler writes a range of the program once for each stream on which it saw work (`gpu_user_annotation`). In replays of graphs it
//! also names streams on which the trace has no work, and the copies there say nothing. An annotation is left out only if another one of its
//! name is on a stream of the same device that has work.

use std::collections::HashSet;

use warpline_trace::read::event::Event;

use super::hash;

/// The category of these events.
const CATEGORY: &str = "gpu_user_annotation";

#[derive(Default)]
pub(super) struct Copies {
    /// The number of the event, its row, and the hash of its process and name.
    seen: Vec<(u32, u32, u64)>,
}

impl Copies {
    /// Examines a slice.
    pub(super) fn slice(&mut self, event: &Event<'_>, number: u32, (row, process): (u32, u32)) {
        if event.category == CATEGORY {
            self.seen.push((number, row, hash(&(process, &*event.name))));
        }
    }

    /// The rows and numbers of the copies.
    pub(super) fn find(&self, has_work: impl Fn(u32) -> bool) -> Vec<(u32, u32)> {
        let originals: HashSet<u64> =
            self.seen.iter().filter(|(_, row, _)| has_work(*row)).map(|(_, _, key)| *key).collect();
        let is_copy = |(_, row, key): &&(u32, u32, u64)| !has_work(*row) && originals.contains(key);
        self.seen.iter().filter(is_copy).map(|(number, row, _)| (*row, *number)).collect()
    }
}
