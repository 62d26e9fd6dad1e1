//! The streams and threads of a session, and the counts of forgotten streams.
//!
//! The recorder holds it under its lock, so nothing here calls a driver or code of the application. Its memory is bounded: streams and
//! threads that have ended are forgotten, the oldest first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::context::{Account, StreamContext};
use crate::backend::{StreamKey, names};
use crate::counts::Dropped;
use crate::record::{DeviceInfo, StreamInfo, ThreadInfo};
use crate::sorting;

/// What the recorder knows of streams and threads.
#[derive(Default)]
pub(super) struct StreamRegistry {
    pub(super) streams: HashMap<StreamKey, Arc<StreamContext>>,
    /// Streams that the session has evicted while zones that began before are still open, by the address of the context.
    pub(super) retiring: HashMap<usize, Arc<StreamContext>>,
    /// Streams that the application has dropped and the collector has not yet forgotten.
    pub(super) dropped: usize,
    /// Names and numbers of streams, which an evicted stream gets again when it comes back.
    pub(super) infos: HashMap<StreamKey, EvictedStream>,
    /// Goes up with each stream that is added or evicted.
    pub(super) turn: u64,
    /// The streams on which CUPTI saw work or zones began, by its numbers of context and stream.
    pub(super) of_tool: HashMap<(u32, u32), Arc<StreamInfo>>,
    /// The names that the program gave streams through NVTX, by CUPTI's numbers.
    tool_names: HashMap<(u32, u32), String>,
    /// The stream that stands for the unknown streams of replayed graphs, by context.
    of_graphs: HashMap<u64, Arc<StreamInfo>>,
    last_id: u32,
    pub(super) threads: HashMap<u64, ThreadEntry>,
    /// At this number of threads the session checks which ones have ended.
    many_threads: usize,
    /// The counts of forgotten streams, and of zones whose stream is unknown.
    pub(super) retired: Account,
    /// Why streams were refused: messages for the user that have not been taken yet.
    pub(super) refusals: Vec<String>,
    /// All such messages, so that each is given once.
    pub(super) refused: Vec<String>,
    /// No zone begins any more, and no stream is added.
    pub(super) is_closed: bool,
}

/// What a backend says of a stream that a session meets. It is asked without the lock.
pub(super) struct StreamFacts {
    pub(super) name: Option<String>,
    pub(super) device: DeviceInfo,
    pub(super) tool_numbers: Option<(u32, u32)>,
}

/// A stream that the session knows, also after it was evicted.
pub(super) struct EvictedStream {
    pub(super) info: Arc<StreamInfo>,
    /// How many zones had begun on it when it was evicted.
    pub(super) begun: u64,
    /// The turn in which it was last added or evicted.
    pub(super) turn: u64,
}

/// How many evicted streams a session remembers. Beyond that it forgets the older half; a forgotten stream that comes back gets a new
/// number.
pub(super) const REMEMBERED: usize = 3_000;

/// The most names of streams from a tool; beyond that, all are forgotten.
const MOST_TOOL_NAMES: usize = 16_384;

/// While this many dropped streams wait for the collector, no new stream is recorded. Each takes some tens of kB until the collector
/// has read it, and a program may make streams faster than that for as long as it runs.
pub(super) const MOST_DROPPED: usize = 1_024;

/// A thread that the session knows.
pub(super) struct ThreadEntry {
    /// The thread holds a second reference until it ends.
    pub(super) info: Arc<ThreadInfo>,
    /// It had ended at the last check.
    pub(super) has_ended: bool,
}

/// After this many further threads the session checks which ones have ended. A thread is forgotten at the second check that finds it
/// ended, because its zones may not have been read at the first.
pub(super) const MORE_THREADS: usize = 1024;

impl StreamRegistry {
    /// The stream's name and number, and how many zones had begun on it before.
    pub(super) fn info(&mut self, key: StreamKey, facts: StreamFacts) -> (Arc<StreamInfo>, u64) {
        self.turn += 1;
        let turn = self.turn;
        if let Some(remembered) = self.infos.get_mut(&key) {
            remembered.turn = turn;
            return (Arc::clone(&remembered.info), remembered.begun);
        }
        self.forget_some();
        let info = self.new_info(key, facts);
        self.infos.insert(key, EvictedStream { info: Arc::clone(&info), begun: 0, turn });
        (info, 0)
    }

    fn new_info(&mut self, key: StreamKey, facts: StreamFacts) -> Arc<StreamInfo> {
        let StreamFacts { name: of_backend, device, tool_numbers } = facts;
        if let Some(info) = tool_numbers.and_then(|numbers| self.of_tool.get(&numbers)) {
            return Arc::clone(info);
        }
        self.last_id += 1;
        let id = self.last_id;
        let given = names::get(key).map(|name| name.to_string());
        let of_tool = || tool_numbers.and_then(|numbers| self.tool_names.get(&numbers).cloned());
        let name = given.or_else(of_tool).or(of_backend).unwrap_or_else(|| format!("stream {id}"));
        let info = Arc::new(StreamInfo { id, name, device });
        if let Some(numbers) = tool_numbers {
            self.of_tool.insert(numbers, Arc::clone(&info));
        }
        info
    }

    /// The stream that was found to have these CUPTI numbers.
    pub(super) fn known_stream_of_tool(&self, numbers: (u32, u32)) -> Option<Arc<StreamInfo>> {
        self.of_tool.get(&numbers).cloned()
    }

    /// The stream with these CUPTI numbers: one on which zones began, or one that only CUPTI saw.
    pub(super) fn stream_of_tool(&mut self, numbers: (u32, u32), device: DeviceInfo) -> Arc<StreamInfo> {
        self.forget_some();
        if let Some(info) = self.known_stream_of_tool(numbers) {
            return info;
        }
        self.last_id += 1;
        let named = self.tool_names.get(&numbers).cloned();
        let name = named.unwrap_or_else(|| format!("CUDA stream {}", numbers.1));
        let info = Arc::new(StreamInfo { id: self.last_id, name, device });
        self.of_tool.insert(numbers, Arc::clone(&info));
        info
    }

    /// Sets the name of a stream that is not known yet. Those of known streams can be warpline's own, which come back from the tool.
    pub(super) fn name_stream_of_tool(&mut self, numbers: (u32, u32), name: String) {
        if self.of_tool.contains_key(&numbers) {
            return;
        }
        if self.tool_names.len() >= MOST_TOOL_NAMES {
            self.tool_names.clear();
        }
        self.tool_names.insert(numbers, name);
    }

    /// The stream that stands for the unknown streams of this context.
    pub(super) fn stream_of_graphs(&mut self, context: u64, device: &DeviceInfo) -> Arc<StreamInfo> {
        let info = self.of_graphs.entry(context).or_insert_with(|| {
            self.last_id += 1;
            Arc::new(StreamInfo { id: self.last_id, name: "graphs".to_owned(), device: device.clone() })
        });
        Arc::clone(info)
    }

    /// See `Recorder::discover_thread`.
    pub(super) fn discover_thread(&mut self, thread: ThreadInfo, is_ending: bool) -> Arc<ThreadInfo> {
        if let (true, Some(thread)) = (is_ending, self.threads.get(&thread.id)) {
            return Arc::clone(&thread.info);
        }
        self.forget_threads();
        let id = thread.id;
        let info = Arc::new(thread);
        self.threads.insert(id, ThreadEntry { info: Arc::clone(&info), has_ended: false });
        info
    }

    /// Bounds the memory for a program that makes ever new streams. Streams on which zones begin are kept.
    fn forget_some(&mut self) {
        let StreamRegistry { infos, streams, .. } = self;
        if infos.len() >= REMEMBERED + streams.len() {
            let gone = infos.iter().filter(|(key, _)| !streams.contains_key(key));
            let mut turns: Vec<_> = gone.map(|(_, remembered)| remembered.turn).collect();
            let oldest = sorting::median(&mut turns);
            infos.retain(|key, remembered| remembered.turn >= oldest || streams.contains_key(key));
        }
        if self.of_tool.len() >= REMEMBERED + self.infos.len() {
            let known: HashSet<u32> = self.infos.values().map(|remembered| remembered.info.id).collect();
            // Of those on which no zone began, the newest are kept.
            let oldest = self.last_id.saturating_sub(REMEMBERED as u32 / 2);
            self.of_tool.retain(|_, info| info.id >= oldest || known.contains(&info.id));
        }
    }

    /// Forgets threads that have ended: neither the thread nor any record holds its name any more.
    fn forget_threads(&mut self) {
        if self.threads.len() < self.many_threads {
            return;
        }
        self.threads.retain(|_, thread| {
            let had_ended = std::mem::replace(&mut thread.has_ended, Arc::strong_count(&thread.info) == 1);
            !(had_ended && thread.has_ended)
        });
        let running = self.threads.values().filter(|thread| !thread.has_ended).count();
        self.many_threads = self.threads.len() + running.max(MORE_THREADS);
    }

    /// Counts a zone that has no context.
    pub(super) fn lose(&mut self, dropped: Dropped) {
        self.retired.add(Account { begun: 1, dropped, ..Account::default() });
    }

    /// Counts a zone of a new stream while too many dropped streams wait.
    pub(super) fn refuse_one_more(&mut self) {
        self.lose(Dropped { ring_full: 1, ..Dropped::default() });
        self.say_once(format!(
            "the program drops streams faster than they are collected: while {MOST_DROPPED} wait, zones on new streams are \
             dropped; keep streams, and use them again"
        ));
    }

    /// Counts a zone whose stream cannot be timed.
    pub(super) fn refuse(&mut self, why: &str) {
        self.lose(Dropped { event_failed: 1, ..Dropped::default() });
        self.say_once(format!("a stream could not be timed, its zones are dropped: {why}"));
    }

    fn say_once(&mut self, note: String) {
        if self.refused.len() < 16 && !self.refused.contains(&note) {
            self.refused.push(note.clone());
            self.refusals.push(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::new_space;
    use crate::record::DeviceKind;

    fn device() -> DeviceInfo {
        DeviceInfo { ordinal: 0, name: "H100".to_owned(), kind: DeviceKind::Cuda }
    }

    fn facts(tool_numbers: Option<(u32, u32)>) -> StreamFacts {
        StreamFacts { name: None, device: device(), tool_numbers }
    }

    #[test]
    fn of_streams_that_are_gone_the_newer_half_is_remembered() {
        let (mut registry, space) = (StreamRegistry::default(), new_space());
        let id = |registry: &mut StreamRegistry, key: u64| registry.info(space.key(key), facts(None)).0.id;
        for key in 0..REMEMBERED as u64 {
            assert_eq!(id(&mut registry, key), key as u32 + 1);
        }
        // The oldest is used again, so it is the newest.
        assert_eq!(id(&mut registry, 0), 1);
        assert_eq!(id(&mut registry, REMEMBERED as u64), REMEMBERED as u32 + 1);
        assert_eq!(registry.infos.len(), REMEMBERED / 2 + 1);
        let newer = REMEMBERED as u64 / 2 + 1;
        assert_eq!((id(&mut registry, 0), id(&mut registry, newer)), (1, newer as u32 + 1));
        assert_eq!(id(&mut registry, 1), REMEMBERED as u32 + 2, "a forgotten stream gets a new number");
    }

    #[test]
    fn of_streams_that_only_a_tool_saw_the_newer_half_is_remembered() {
        let (mut registry, space) = (StreamRegistry::default(), new_space());
        // A stream that has zones and is known to the tool.
        let own = registry.info(space.key(7), facts(Some((1, 0)))).0;
        let seen = |registry: &mut StreamRegistry, number: u32| registry.stream_of_tool((1, number), device()).id;
        for number in 1..=REMEMBERED as u32 {
            assert_eq!(seen(&mut registry, number), number + 1);
        }
        assert_eq!(registry.of_tool.len(), REMEMBERED + 1);
        assert_eq!(seen(&mut registry, REMEMBERED as u32), REMEMBERED as u32 + 1);
        assert_eq!(registry.of_tool.len(), REMEMBERED / 2 + 2, "the newer half, and the one with zones");
        assert!(registry.known_stream_of_tool((1, 0)).is_some_and(|info| Arc::ptr_eq(&info, &own)));
        assert_eq!(registry.known_stream_of_tool((1, REMEMBERED as u32 / 2 - 2)).map(|info| info.id), None);
        let oldest = registry.known_stream_of_tool((1, REMEMBERED as u32 / 2)).map(|info| info.id);
        assert_eq!(oldest, Some(REMEMBERED as u32 / 2 + 1));
    }

    #[test]
    fn a_stream_is_named_by_the_tool_until_it_is_known() {
        let mut registry = StreamRegistry::default();
        registry.name_stream_of_tool((1, 7), "copies".to_owned());
        assert_eq!(registry.stream_of_tool((1, 7), device()).name, "copies");
        assert_eq!(registry.stream_of_tool((1, 8), device()).name, "CUDA stream 8");
        // The name of a known stream may be warpline's own, which comes back.
        registry.name_stream_of_tool((1, 8), "late".to_owned());
        assert_eq!(registry.stream_of_tool((1, 8), device()).name, "CUDA stream 8");
        // When there are too many names, the earlier ones are dropped.
        (1..MOST_TOOL_NAMES as u32).for_each(|number| registry.name_stream_of_tool((2, number), "one".to_owned()));
        registry.name_stream_of_tool((2, MOST_TOOL_NAMES as u32), "next".to_owned());
        assert_eq!(registry.tool_names.len(), 1);
        let [one, two] = [3, 4].map(|context| registry.stream_of_graphs(context, &device()));
        assert_eq!((&*one.name, one.id, two.id), ("graphs", 3, 4));
        assert_eq!(registry.stream_of_graphs(3, &device()).id, 3);
    }
}
