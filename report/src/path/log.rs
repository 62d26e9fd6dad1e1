//! The records in which a critical path is found: zones, the waits that held something up, and the names of streams and threads.
//!
//! The collector and the readers of traces add them in order of arrival, which need not be that of the times. Memory is bounded, except where all
//! records are asked for: the records that ended last are kept.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Track;
use crate::names::Name;
use warpline_core::record::{Span, StreamInfo, ThreadInfo, ZoneRecord, is_bound};
use warpline_core::synchronization::SyncRecord;
use warpline_core::wait::{SignalInfo, WaitRecord};

#[derive(Clone)]
pub(super) struct Passed {
    pub(super) on: Track,
    pub(super) name: Name,
    pub(super) span: Span,
    /// The time by which its end may be earlier, if that makes its length a bound; otherwise 0.
    pub(super) early_by_ns: i64,
    /// The thread that launched it, and the time span of the launch.
    pub(super) launch: Option<(Track, Span)>,
}

/// A wait that held its stream up, or a launch to a stream that was idle before.
#[derive(Clone, Copy)]
pub(super) struct Arrow {
    pub(super) on: Track,
    pub(super) end_ns: i64,
    /// The time by which the wait may have ended earlier, if that makes its length a bound; otherwise 0.
    pub(super) early_by_ns: i64,
    pub(super) from: Track,
    pub(super) at_ns: i64,
}

/// A call with which a thread waited for the device.
#[derive(Clone, Copy)]
pub(super) struct Synchronized {
    pub(super) on: Track,
    pub(super) span: Span,
}

/// The records in which a path is found: the zones, waits and synchronisations that ended last.
pub struct PathLog {
    pub(super) zones: Vec<Passed>,
    pub(super) arrows: Vec<Arrow>,
    pub(super) synchronized: Vec<Synchronized>,
    pub(super) names: HashMap<Track, String>,
    /// The stream and the thread of the last record, whose names are known.
    last: [Option<Track>; 2],
    most: usize,
    /// The time up to which ended records are incomplete.
    pub(super) forgotten_until_ns: i64,
}

/// The maximum number of stream and thread names that are kept, unless all records are. An old record whose stream or thread name
/// was discarded shows its number.
const NAMES: usize = 1 << 13;

impl PathLog {
    /// Creates a log that keeps this many of the last zones and as many of the last arrows, and at most a quarter more.
    pub fn new(most: usize) -> PathLog {
        PathLog {
            zones: Vec::new(),
            arrows: Vec::new(),
            synchronized: Vec::new(),
            names: HashMap::new(),
            last: [None; 2],
            most,
            forgotten_until_ns: i64::MIN,
        }
    }

    /// Adds a zone on a stream or a thread, and its launch. Its end may be earlier by `early_by_ns`.
    pub fn passed(
        &mut self,
        (on, on_name): (Track, &str),
        name: Name,
        (span, early_by_ns): (Span, i64),
        launch: Option<(Track, &str, Span)>,
    ) {
        self.forget_names();
        self.know(on, on_name);
        if let Some((from, from_name, _)) = launch {
            self.know(from, from_name);
        }
        let launch = launch.map(|(from, _, host)| (from, host));
        self.push_zone(Passed { on, name, span, early_by_ns: tail(span, early_by_ns), launch });
    }

    /// Adds a wait that ended because of a signal at `at_ns`. Its end may be earlier by `early_by_ns`.
    pub fn waited(
        &mut self,
        (on, on_name): (Track, &str),
        (span, early_by_ns): (Span, i64),
        (from, from_name): (Track, &str),
        at_ns: i64,
    ) {
        if at_ns <= span.begin_ns {
            return;
        }
        self.forget_names();
        self.know(on, on_name);
        self.know(from, from_name);
        let early_by_ns = tail(span, early_by_ns);
        self.push_arrow(Arrow { on, end_ns: span.end_ns, early_by_ns, from, at_ns: at_ns.min(span.end_ns) });
    }

    /// Adds a call with which a thread waited for the device. Where there is one, all of them are known: a thread that made none did not wait.
    pub fn synchronized(&mut self, (on, on_name): (Track, &str), span: Span) {
        self.forget_names();
        self.know(on, on_name);
        self.push_call(Synchronized { on, span });
    }

    fn know(&mut self, place: Track, name: &str) {
        self.names.entry(place).or_insert_with(|| name.to_owned());
    }

    fn push_zone(&mut self, zone: Passed) {
        self.zones.push(zone);
        trim(&mut self.zones, self.most, &mut self.forgotten_until_ns, |zone| zone.span.end_ns);
    }

    fn push_call(&mut self, call: Synchronized) {
        self.synchronized.push(call);
        trim(&mut self.synchronized, self.most, &mut self.forgotten_until_ns, |call| call.span.end_ns);
    }

    fn push_arrow(&mut self, arrow: Arrow) {
        self.arrows.push(arrow);
        trim(&mut self.arrows, self.most, &mut self.forgotten_until_ns, |arrow| arrow.end_ns);
    }

    /// Discards names if there are too many: a program may create ever more streams and threads. The most recently used ones keep
    /// their names.
    fn forget_names(&mut self) {
        if self.names.len() < NAMES || self.most == usize::MAX {
            return;
        }
        let newest = NAMES / 8;
        let zones = self.zones.iter().rev().take(newest);
        let of_zones = zones.flat_map(|zone| [Some(zone.on), zone.launch.map(|(from, _)| from)]).flatten();
        let of_arrows = self.arrows.iter().rev().take(newest).flat_map(|arrow| [arrow.on, arrow.from]);
        let used: HashSet<Track> = of_zones.chain(of_arrows).collect();
        self.names.retain(|place, _| used.contains(place));
        self.last = [None; 2];
    }
}

impl PathLog {
    /// Adds a zone of a session, with its name.
    pub fn zone(&mut self, zone: &ZoneRecord, name: Name) {
        // The entries of a batch repeat the batch.
        if zone.entry.is_some() {
            return;
        }
        self.forget_names();
        let on = self.place(zone.stream.as_ref(), &zone.thread);
        let launch = zone.gpu.map(|_| (self.place(None, &zone.thread), zone.host));
        let (span, early_by_ns) = zone.gpu.map_or((zone.host, 0), |gpu| (gpu, tail(gpu, zone.end_early_by_ns)));
        self.push_zone(Passed { on, name, span, early_by_ns, launch });
    }

    /// Adds a wait of a session.
    pub fn wait(&mut self, wait: &WaitRecord) {
        let Some(SignalInfo { stream, thread, at_ns, .. }) = &wait.signal else { return };
        let span = wait.span();
        if *at_ns <= span.begin_ns {
            return;
        }
        self.forget_names();
        let on = self.place(wait.stream.as_ref(), &wait.thread);
        let from = self.place(stream.as_ref(), thread);
        let early_by_ns = tail(span, wait.early_by_ns());
        self.push_arrow(Arrow { on, end_ns: span.end_ns, early_by_ns, from, at_ns: (*at_ns).min(span.end_ns) });
    }

    /// Adds a call with which a thread or a stream waited for the device. Only the waits of threads count.
    pub fn synchronization(&mut self, call: &SyncRecord) {
        if call.kind.is_on_thread() {
            let on = self.place(None, &call.thread);
            self.push_call(Synchronized { on, span: call.host });
        }
    }

    fn place(&mut self, stream: Option<&Arc<StreamInfo>>, thread: &ThreadInfo) -> Track {
        let place = stream.map_or(Track::Thread(thread.id), |stream| Track::Stream(stream.id));
        let last = &mut self.last[usize::from(stream.is_none())];
        if last.replace(place) != Some(place) {
            self.names.entry(place).or_insert_with(|| match (stream, &thread.name) {
                (Some(stream), _) => stream.name.clone(),
                (None, Some(name)) => name.clone(),
                (None, None) => place.to_string(),
            });
        }
        place
    }
}

/// Forgets the records that ended first, if there are a quarter more than `most`. Their times are not in the order of the records.
fn trim<T>(records: &mut Vec<T>, most: usize, forgotten_until_ns: &mut i64, end_ns: impl Fn(&T) -> i64) {
    if records.len() <= most.saturating_add(most / 4) {
        return;
    }
    // The times alone are sorted: records are ten times as large.
    let mut ends: Vec<i64> = records.iter().map(&end_ns).collect();
    let (earlier, last_ns, _) = ends.select_nth_unstable(records.len() - most - 1);
    let last_ns = *last_ns;
    // Of those that ended at this time, the first ones go.
    let mut ties = 1 + earlier.iter().filter(|ns| **ns == last_ns).count();
    records.retain(|record| match end_ns(record).cmp(&last_ns) {
        Ordering::Less => false,
        Ordering::Equal => ties.checked_sub(1).map(|left| ties = left).is_none(),
        Ordering::Greater => true,
    });
    *forgotten_until_ns = last_ns.max(*forgotten_until_ns);
}

/// Returns the time in which a zone may have ended, if its length is only a bound.
fn tail(span: Span, early_by_ns: i64) -> i64 {
    if is_bound(span.duration_ns(), early_by_ns) { early_by_ns } else { 0 }
}
