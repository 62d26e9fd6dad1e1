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
