//! The names that the application gives its streams with `warpline::name_stream`.
//!
//! A session looks a stream's name up once, when it first sees the stream. Zones on launching threads never come here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::device::device;
use super::{Source, StreamKey, StreamRef};
use crate::fork::PerProcess;
use crate::lock::lock;
use crate::sorting;

/// The most names that are kept. Beyond that the older half is forgotten, because CUDA streams end unnoticed.
const MOST_NAMES: usize = 16_384;

static NAMES: PerProcess<Mutex<Names>> = PerProcess::new(Mutex::default);

#[derive(Default)]
struct Names {
    by_stream: HashMap<StreamKey, (u64, Arc<str>)>,
    /// The number of names given so far.
    given: u64,
}

impl Names {
    fn set(&mut self, key: StreamKey, name: &str) {
        if self.by_stream.len() >= MOST_NAMES && !self.by_stream.contains_key(&key) {
            let mut turns: Vec<u64> = self.by_stream.values().map(|(turn, _)| *turn).collect();
            let oldest = sorting::median(&mut turns);
            self.by_stream.retain(|_, (turn, _)| *turn >= oldest);
        }
        self.given += 1;
        self.by_stream.insert(key, (self.given, Arc::from(name)));
    }
}

/// Names a stream, for the sessions that see it for the first time from now on, and for tools. Returns false if the stream has no key.
pub fn name(stream: &StreamRef<'_>, name: &str) -> bool {
    let Ok(key) = stream.key else { return false };
    lock(&NAMES).set(key, name);
    // Without the lock, because this may call a tool.
    if let (Source::Device(stream), Some(device)) = (stream.source, device()) {
        device.name_in_tools(stream, name);
    }
    true
}

/// Returns the name that the application gave the stream.
pub(crate) fn get(key: StreamKey) -> Option<Arc<str>> {
    lock(&NAMES).by_stream.get(&key).map(|(_, name)| Arc::clone(name))
}

/// Forgets the name of a stream that the application has dropped.
pub(super) fn forget(key: StreamKey) {
    lock(&NAMES).by_stream.remove(&key);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_half_of_too_many_names_is_forgotten() {
        let key = |stream: usize| crate::backend::Space(9).key(stream as u64);
        let mut names = Names::default();
        (0..=MOST_NAMES).for_each(|n| names.set(key(n), "name"));
        assert_eq!(names.by_stream.len(), MOST_NAMES / 2 + 1);
        assert!(!names.by_stream.contains_key(&key(0)) && names.by_stream.contains_key(&key(MOST_NAMES)));
        names.set(key(MOST_NAMES), "another");
        assert_eq!(&*names.by_stream[&key(MOST_NAMES)].1, "another");
    }
}
