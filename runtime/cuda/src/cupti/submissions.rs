//! Requests for the next submission of a thread on a stream, answered from CUPTI's records.
//!
//! Any thread asks ([`ask`]) while CUPTI records, for a session or for requests alone. The collector that reads CUPTI offers what it reads
//! ([`Submissions`]). CUPTI delivers work when it is complete, so an earlier submission can be read after a later one: a request is answered
//! only when no earlier call can be the one. Everything is behind one lock, under which neither CUPTI nor user code is called.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::clock::Clock;
use super::records::{IS_ASKED, Raw, Records};
use super::syncs::RawSync;
use warpline_core::fork::PerProcess;
use warpline_core::kernel::KernelLaunch;
use warpline_core::lock::lock;
use warpline_core::profile::answers::Shared;
use warpline_core::profile::error::ProfileError;
use warpline_core::profile::submission::{SubmissionRecord, SubmittedWork};
use warpline_core::record::ThreadInfo;
use warpline_core::synchronization::SyncKind;

/// The number of flushes after which all earlier work of a stream has been delivered, and all work of a graph.
const QUIET_FLUSHES: u32 = 2;

/// The maximum number of submissions that are kept for one request: the earliest.
const MOST: usize = 16;

static REQUESTS: PerProcess<Mutex<Vec<SubmissionRequest>>> = PerProcess::new(Mutex::default);

struct SubmissionRequest {
    thread: Arc<ThreadInfo>,
    /// CUPTI's numbers of the context and the stream.
    stream: (u32, u32),
    asked: Asked,
    shared: Arc<Shared<SubmissionRecord>>,
    /// The submissions that match, by their calls.
    found: Vec<Found>,
}

/// The time of a request: a call that began later on either clock is after it.
///
/// The conversion between the clocks has an uncertainty that is longer than a call, and CUPTI's own clock may be set back.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) host_ns: i64,
    pub(super) cupti_ns: u64,
}

/// A submission of the thread on the stream.
struct Found {
    /// The middle of the call, on the host's clock.
    called_ns: i64,
    correlation: u32,
    call: (u64, u64),
    name: Arc<str>,
    work: SubmittedWork,
    /// Begin and end on CUPTI's clock; none for a barrier.
    gpu: Option<(u64, u64)>,
    /// The number of flushes before its last record came.
    flush: u32,
}

/// Adds a request of the calling thread.
pub(super) fn ask(thread: ThreadInfo, stream: (u32, u32), asked: Asked) -> Arc<Shared<SubmissionRecord>> {
    let shared = Shared::one();
    let request =
        SubmissionRequest { thread: Arc::new(thread), stream, asked, shared: Arc::clone(&shared), found: Vec::new() };
    let mut requests = lock(&REQUESTS);
    requests.push(request);
    IS_ASKED.store(true, Ordering::Release);
    shared
}

/// Removes the request of a handle that was dropped.
pub(super) fn take_back(shared: &Shared<SubmissionRecord>) {
    let taken = remove(|request| std::ptr::eq(Arc::as_ptr(&request.shared), shared));
    // Without the lock.
    drop(taken);
}

/// Returns whether there are requests.
pub(super) fn are_pending() -> bool {
    IS_ASKED.load(Ordering::Acquire)
}

/// Fails all requests, because CUPTI stops.
pub(super) fn fail_all() {
    for request in remove(|_| true) {
        request.shared.answer(Err(ProfileError::Unfinished));
    }
}

fn remove(which: impl Fn(&SubmissionRequest) -> bool) -> Vec<SubmissionRequest> {
    let mut requests = lock(&REQUESTS);
    let removed = requests.extract_if(.., |request| which(request)).collect();
    IS_ASKED.store(!requests.is_empty(), Ordering::Release);
    removed
}

/// What a collector has read of CUPTI's records, as requests need it.
pub(super) struct Submissions<'a> {
    pub(super) records: &'a Records,
    pub(super) clock: &'a Clock,
    /// The number of flushes so far.
    pub(super) flush: u32,
    /// Every call before this time has been read.
    pub(super) delivered_ns: Option<i64>,
}

impl Submissions<'_> {
    /// Offers what was read, and answers the requests that can be answered. At the end, nothing more is read.
    pub(super) fn offer(&self, work: &[Raw], syncs: &[RawSync], is_last: bool) {
        if !are_pending() {
            return;
        }
        let mut answers = Vec::new();
        let mut requests = lock(&REQUESTS);
        for request in requests.iter_mut() {
            work.iter().for_each(|raw| self.add_work(request, raw));
            syncs.iter().for_each(|raw| self.add_sync(request, raw));
        }
        for request in requests.extract_if(.., |request| self.is_decided(request, is_last)) {
            answers.push((self.answer(&request), request.shared));
        }
        IS_ASKED.store(!requests.is_empty(), Ordering::Release);
        drop(requests);
        // Without the lock, because this may wake waiters.
        for (answer, shared) in answers {
            shared.answer(answer);
        }
    }

    fn add_work(&self, request: &mut SubmissionRequest, raw: &Raw) {
        if request.stream != (raw.context, raw.stream) {
            return;
        }
        if let Some(node) = raw.graph
            && let Some(found) = request.found.iter_mut().find(|found| found.correlation == raw.correlation)
            && let SubmittedWork::Graph { first, nodes } = &mut found.work
        {
            *nodes += 1;
            found.flush = self.flush;
            if let Some((start, end)) = &mut found.gpu {
                if raw.start < *start {
                    (*start, *first, found.name) = (raw.start, node, Arc::clone(&raw.name));
                }
                *end = (*end).max(raw.end);
            }
            return;
        }
        let work = match raw.graph {
            Some(first) => SubmittedWork::Graph { first, nodes: 1 },
            None => SubmittedWork::Single(raw.work.clone()),
        };
        self.add(request, raw.correlation, Arc::clone(&raw.name), work, Some((raw.start, raw.end)));
    }

    fn add_sync(&self, request: &mut SubmissionRequest, raw: &RawSync) {
        if raw.stream == Some(request.stream.1) && raw.context == request.stream.0 {
            let work = SubmittedWork::Barrier(raw.kind);
            self.add(request, raw.correlation, raw.kind.as_str().into(), work, None);
        }
    }

    fn add(
        &self,
        request: &mut SubmissionRequest,
        correlation: u32,
        name: Arc<str>,
        work: SubmittedWork,
        gpu: Option<(u64, u64)>,
    ) {
        let Some((thread, start, end)) = self.records.launch_of(correlation).call else { return };
        let called_ns = self.clock.called_ns(start, end);
        if !self.is_after(request, (thread, start, end)) {
            return;
        }
        let at = request.found.partition_point(|found| found.called_ns <= called_ns);
        if at < MOST {
            let found = Found { called_ns, correlation, call: (start, end), name, work, gpu, flush: self.flush };
            request.found.insert(at, found);
            request.found.truncate(MOST);
        }
    }

    /// Returns whether the request's thread made a call after the request.
    fn is_after(&self, request: &SubmissionRequest, (thread, start, end): (u32, u64, u64)) -> bool {
        let Asked { host_ns, cupti_ns } = request.asked;
        u64::from(thread) == request.thread.id && (start >= cupti_ns || self.clock.called_ns(start, end) >= host_ns)
    }

    /// Returns whether the first submission that was found is the request's.
    fn is_decided(&self, request: &SubmissionRequest, is_last: bool) -> bool {
        let is_quiet = |found: &Found| self.flush >= found.flush + QUIET_FLUSHES;
        let Some(first) = request.found.first() else { return is_last };
        if is_last {
            return true;
        }
        if matches!(first.work, SubmittedWork::Graph { .. }) && !is_quiet(first) {
            return false;
        }
        // A stream completes its work in order.
        let shows_earlier = |found: &Found| {
            let is_complete = !matches!(found.work, SubmittedWork::Barrier(SyncKind::StreamWaitEvent));
            is_complete && is_quiet(found)
        };
        request.found.iter().any(shows_earlier) || self.are_earlier_known(request, first)
    }

    /// Returns whether all work of the thread's calls between the request and this submission has been read.
    fn are_earlier_known(&self, request: &SubmissionRequest, first: &Found) -> bool {
        let is_between = |&call: &(u32, u64, u64)| {
            self.is_after(request, call) && self.clock.called_ns(call.1, call.2) < first.called_ns
        };
        self.delivered_ns.is_some_and(|ns| ns > first.called_ns)
            && !self.records.calls_at_work().any(|call| is_between(&call))
    }

    fn answer(&self, request: &SubmissionRequest) -> Result<SubmissionRecord, ProfileError> {
        let Some(found) = request.found.first() else { return Err(ProfileError::Unfinished) };
        let span = |(start, end): (u64, u64)| self.clock.span(start, end);
        Ok(SubmissionRecord {
            name: Arc::clone(&found.name),
            work: found.work.clone(),
            gpu: found.gpu.map(span),
            launch: KernelLaunch { thread: Arc::clone(&request.thread), host: span(found.call) },
            correlation: found.correlation,
        })
    }
}
