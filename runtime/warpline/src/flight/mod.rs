//! The flight recorder of a session: its file, and the traces that are written from it.
//!
//! `panic` and `signal` request a trace, and so does the collector when a stream stalls or fails. `writer` is the
//! thread that writes those traces, and `failures` logs write errors. A caller that wants a trace asks the collector to
//! flush to the file, waits for a bounded time, and then copies the ring itself, so a collector that hangs with its
//! device does not prevent a trace. Nothing here waits for a device, or for a lock that a launching thread could hold.

mod failures;
mod panic;
mod signal;
mod writer;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::settings::Config;
use crate::settings::values::{FlightSettings, LEAST_FLIGHT, MOST_FLIGHT};
use warpline_core::clock::now_ns;
use warpline_core::lock::{lock, lock_within};
use warpline_core::process::Process;
use warpline_core::recovered::{RecoverError, Recovered};
use warpline_core::signals::without_signals;
use warpline_core::stderr;
use warpline_core::threads;
use warpline_report::sink::{SessionInfo, Sink};
use warpline_trace::files::claim::notice;
use warpline_trace::flight::file::RingFile;
use warpline_trace::flight::format::{
    AREA_BYTES, AREAS, INCIDENT_AREA, LEAST_BYTES, Layout, MOST_BYTES, PIECE_HEADER, PieceHeader, checksum,
};
use warpline_trace::flight::open::{Incident, OpenZone, Reason};
use warpline_trace::flight::recover;
use warpline_trace::write::perfetto::FlightSink;
use warpline_trace::write::perfetto::open::OpenTrace;

use failures::Failures;
use writer::Writer;

const _: () =
    assert!(LEAST_FLIGHT == LEAST_BYTES && MOST_FLIGHT == MOST_BYTES, "the settings know the sizes of a file");

/// How long a caller waits for the collector to flush. The collector polls its rings far more often.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a panicking thread waits for the trace of another thread's panic.
const UNTIL_TOLD: Duration = Duration::from_secs(2);

/// The minimum interval between two traces for one reason. Requests by signal or by a caller are not limited.
const REST: Duration = Duration::from_secs(60);

/// The flight recorder of a session.
pub(crate) struct Flight {
    pub(crate) ring: Arc<RingFile>,
    notice: Option<String>,
    is_temporary: bool,
    pub(crate) stall: Option<Duration>,
    open: Mutex<Areas>,
    requests: Mutex<Vec<FlushRequest>>,
    collector: OnceLock<Thread>,
    /// When a trace was last written for each reason.
    written: Mutex<Vec<(Reason, Instant)>>,
    writer: Writer,
    /// Write failures.
    failures: Failures,
    /// Whether the trace of a panic is being written.
    panics: Mutex<bool>,
    panic_is_told: Condvar,
    /// The process that owns the file.
    process: Process,
    /// Whether the session is over.
    is_over: AtomicBool,
    signal: Option<signal::Handler>,
}

struct Areas {
    trace: OpenTrace,
    incident: OpenTrace,
    sequence: u64,
    /// Whether the last write had open zones.
    had_some: bool,
}

/// A request for the collector to flush to the file.
pub(crate) struct FlushRequest {
    pub(crate) incident: Option<Incident>,
    done: Sender<()>,
}

impl Flight {
    /// Creates the flight recorder if the settings ask for one: creates its file and allocates its space.
    ///
    /// # Errors
    /// [`Error::Flight`], with the cause and the remedy.
    pub(crate) fn open(config: &Config, info: &SessionInfo) -> Result<Option<Arc<Flight>>, Error> {
        let Some(settings) = &config.flight else { return Ok(None) };
        let flight = Flight::create(settings, config, info);
        flight.map(Some).map_err(|(path, problem)| Error::Flight { path, problem })
    }

    fn create(
        settings: &FlightSettings,
        config: &Config,
        info: &SessionInfo,
    ) -> Result<Arc<Flight>, (PathBuf, String)> {
        let own = || PathBuf::from(format!("warpline-{}.flight", info.process_id));
        let path = settings.path.clone().unwrap_or_else(own);
        // The path must stay valid if the program changes its working directory.
        let path = std::path::absolute(&path).map_err(|error| (path, format!("{error}; name another place")))?;
        // The handler is installed before the file is created, so that a failure keeps the file of an earlier session.
        let signal = config.dump_on_sigusr2.then(signal::Handler::install).transpose();
        let no_signal = |error| (path.clone(), format!("SIGUSR2 cannot be handled: {error}; leave out `dump_on`"));
        let signal = signal.map_err(no_signal)?;
        let layout = Layout::with_size(settings.bytes, info.process_id, &info.process_name);
        let ring = RingFile::create(&path, layout).map_err(|problem| (path.clone(), problem))?;
        let notice = (ring.path != path).then(|| notice(&path, &ring.path));
        Ok(Arc::new(Flight {
            ring: Arc::new(ring),
            notice,
            is_temporary: settings.path.is_none(),
            stall: config.stall,
            open: Mutex::new(Areas {
                trace: OpenTrace::new(info, "open zones"),
                incident: OpenTrace::new(info, "open when it happened"),
                sequence: 0,
                had_some: false,
            }),
            requests: Mutex::default(),
            collector: OnceLock::new(),
            written: Mutex::default(),
            writer: Writer::default(),
            failures: Failures::default(),
            panics: Mutex::default(),
            panic_is_told: Condvar::new(),
            process: Process::this(),
            is_over: AtomicBool::new(false),
            signal,
        }))
    }

    /// Returns the sink that writes zones to the file.
    pub(crate) fn sink(&self) -> Box<dyn Sink> {
        Box::new(FlightSink::new(Arc::clone(&self.ring)))
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.ring.path
    }

    /// Returns a notice for the user if the file has another name than requested.
    pub(crate) fn notice(&self) -> Option<String> {
        self.notice.clone()
    }

    /// Returns whether the file is removed at the end of the session.
    pub(crate) fn is_temporary(&self) -> bool {
        self.is_temporary
    }

    /// Registers the running collector to receive requests, and the panic hook. A panic uses the recorder that
    /// `current` returns then.
    pub(crate) fn begin(&self, collector: Thread, current: fn() -> Option<Arc<Flight>>) {
        let _ = self.collector.set(collector);
        panic::listen(current);
    }

    fn collector_id(&self) -> Option<ThreadId> {
        self.collector.get().map(Thread::id)
    }

    /// Returns the pending requests for the collector, including one for a signal.
    pub(crate) fn take_requests(&self) -> Vec<FlushRequest> {
        let mut requests = std::mem::take(&mut *lock(&self.requests));
        if self.signal.as_ref().is_some_and(signal::Handler::has_come) {
            let (done, _) = mpsc::channel();
            let title = "SIGUSR2 came".to_owned();
            let incident = Incident { reason: Reason::Signal, ns: now_ns(), title, args: Vec::new() };
            requests.push(FlushRequest { incident: Some(incident), done });
        }
        requests
    }

    /// Asks the collector to flush to the file, with the incident, without waiting. The receiver reports completion.
    pub(crate) fn request(&self, incident: Option<Incident>) -> mpsc::Receiver<()> {
        let (done, is_done) = mpsc::channel();
        if let (Some(collector), false) = (self.collector.get(), self.is_over.load(Ordering::Acquire)) {
            lock(&self.requests).push(FlushRequest { incident, done });
            collector.unpark();
        }
        is_done
    }

    /// Makes the same request and waits. Returns false on timeout, or if no collector can answer.
    fn ask(&self, incident: Option<Incident>) -> bool {
        self.collector_id() != Some(std::thread::current().id())
            && self.request(incident).recv_timeout(PATIENCE).is_ok()
    }

    /// Writes open zones to the file; `more` is the number of further open zones. The collector calls it ten times a
    /// second.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write_open(&self, zones: &[OpenZone], more: u64) -> io::Result<()> {
        self.ring.check();
        let mut areas = lock(&self.open);
        if zones.is_empty() && !areas.had_some && areas.sequence > 0 {
            return Ok(());
        }
        let (content, count) = areas.trace.write(now_ns(), zones, more, None);
        areas.sequence += 1;
        areas.had_some = !zones.is_empty();
        let (area, sequence) = ((areas.sequence % u64::from(AREAS - 1)) as u32, areas.sequence);
        self.write_area(area, sequence, count, &content)
    }

    /// Writes an incident and the zones open at that time to the file.
    pub(crate) fn write_incident(&self, incident: &Incident, zones: &[OpenZone], more: u64) -> io::Result<()> {
        // A panicking thread does not wait for a collector that hangs with its disk.
        let Some(mut areas) = lock_within(&self.open, PATIENCE) else {
            return Err(io::ErrorKind::TimedOut.into());
        };
        let (content, count) = areas.incident.write(now_ns(), zones, more, Some(incident));
        self.write_area(INCIDENT_AREA, 1, count, &content)
    }

    fn write_area(&self, area: u32, sequence: u64, zones: u64, content: &[u8]) -> io::Result<()> {
        let at = self.ring.layout.area_at(area);
        let room = AREA_BYTES as usize - PIECE_HEADER;
        if content.len() > room {
            return Err(io::Error::other("there is no room for the open zones"));
        }
        self.ring.clear(at)?;
        self.ring.write_at(at + PIECE_HEADER as u64, content)?;
        let (len, checksum) = (content.len() as u32, checksum(content));
        self.ring.commit(at, PieceHeader { sequence, before: zones, zones: 0, len, checksum })
    }

    /// Writes a trace of everything known so far. The result lists earlier write failures and a collector that missed
    /// the deadline.
    pub(crate) fn dump(&self, to: &Path) -> Result<Recovered, RecoverError> {
        let is_fresh = self.ask(None);
        let found = self.copy(to)?;
        let late = (!is_fresh).then(|| {
            "the trace may lack the last zones: a slow sink or a loaded machine kept the collector from writing it within \
             1 s; dump again"
                .to_owned()
        });
        let problems = self.problems().into_iter().chain(late).collect();
        Ok(Recovered { problems, ..found })
    }

    /// Copies the ring to a temporary file and renames it, so that the trace is complete or missing.
    fn copy(&self, to: &Path) -> Result<Recovered, RecoverError> {
        // A rename would replace a device or a pipe.
        if fs::metadata(to).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            return Err(RecoverError::Write(io::Error::other(
                "it is a device or a pipe, and a dump needs a regular file",
            )));
        }
        let (unfinished, file) = create_unfinished(to).map_err(RecoverError::Write)?;
        let write = || {
            let found = recover(&mut self.ring.reader(), &mut BufWriter::new(file))?;
            fs::rename(&unfinished, to).map_err(RecoverError::Write)?;
            Ok(found)
        };
        without_signals(write).inspect_err(|_| drop(fs::remove_file(&unfinished)))
    }

    /// Returns whether the caller must write a trace for this reason now. It is false while one for the same reason is
    /// queued, or if one was due less than [`REST`] ago.
    pub(crate) fn is_due(&self, reason: Reason) -> bool {
        if self.writer.has(reason) {
            return false;
        }
        let mut written = lock(&self.written);
        let last = written.iter_mut().find(|(known, _)| *known == reason);
        match last {
            Some((_, at)) if at.elapsed() < REST => return false,
            Some((_, at)) => *at = Instant::now(),
            None => written.push((reason, Instant::now())),
        }
        true
    }

    /// Writes a trace beside the ring, and prints its path to standard error because the session's report may never be
    /// printed.
    pub(crate) fn write_out(&self, incident: &Incident) {
        let mut to = self.ring.path.as_os_str().to_owned();
        to.push(format!(".{}.pftrace", incident.reason.name()));
        let (title, path) = (&incident.title, Path::new(&to).display());
        match self.copy(Path::new(&to)) {
            Ok(_) => stderr::line(format!("{title}; the last zones are in `{path}`")),
            Err(error) => {
                let failure = format!("the trace of the last zones was not written to `{path}`: {error}");
                stderr::line(format!("{title}; {failure}"));
                self.failures.note(failure);
            }
        }
    }

    /// Writes a trace on a separate thread, so that the collector goes on. Queues it while another trace is being
    /// written.
    pub(crate) fn write_out_aside(self: &Arc<Self>, incident: Incident) {
        if !self.writer.add(incident) {
            return;
        }
        let its = Arc::clone(self);
        let write = move || {
            warpline_core::reentrancy::stay();
            its.writer.write_all(|incident| its.write_out(incident));
        };
        if threads::spawn("warpline-flight", write).is_err() {
            self.writer.write_all(|incident| self.write_out(incident));
        }
    }

    /// Writes a trace for a panic on the thread that panicked, because the process may end right after it.
    pub(super) fn panicked(&self, title: String, args: Vec<(&'static str, String)>) {
        // The file belongs to the parent of a forked process.
        if !self.process.is_this()
            || self.is_over.load(Ordering::Acquire)
            || self.collector_id() == Some(std::thread::current().id())
        {
            return;
        }
        let mut is_being_told = lock(&self.panics);
        if !self.is_due(Reason::Panic) {
            // This thread may end the process next, which would interrupt the trace of the first panic.
            drop(is_being_told.wait_while(&self.panic_is_told, UNTIL_TOLD, |is_being_told| *is_being_told));
            return;
        }
        *is_being_told = true;
        drop(is_being_told);
        let incident = Incident { reason: Reason::Panic, ns: now_ns(), title, args };
        if !self.ask(Some(incident.clone())) {
            // The collector hangs. The file has the zones that were open at its last flush.
            if let Err(error) = self.write_incident(&incident, &[], 0) {
                self.failures.note(format!("the panic is not marked in the trace: {error}"));
            }
        }
        self.write_out(&incident);
        *lock(&self.panics) = false;
        self.panic_is_told.notify_all();
    }

    /// Ends the recorder with its session. Waits up to `within` for a trace that is being written, gives the signal
    /// back although a thread may still hold the recorder, and removes a temporary file.
    pub(crate) fn end(&self, within: Duration) {
        self.is_over.store(true, Ordering::Release);
        if !self.writer.finish(within) {
            let failure = "a trace of the flight recorder was not written in time; the disk may hang";
            stderr::line(failure);
            self.failures.note(failure.to_owned());
        }
        if let Some(signal) = &self.signal {
            signal.end();
        }
        lock(&self.requests).clear();
        if self.is_temporary {
            self.ring.remove();
        }
    }

    /// Restores the file that the recorder replaced, because the session does not start.
    pub(crate) fn undo(&self) {
        self.ring.undo();
    }

    /// Returns outside changes to the file that the collector's last check found.
    pub(crate) fn harm(&self) -> impl Iterator<Item = String> {
        self.ring.harm()
    }

    /// Returns the problems of the file, as of the collector's last check, and of the traces. Makes no file-system
    /// call.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.harm().chain(self.ring.problem()).chain(self.failures.texts()).collect()
    }
}

/// Creates a new temporary file beside this path. It is never shared with another thread, and never follows a link.
fn create_unfinished(to: &Path) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    for _ in 0..100 {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut path = to.as_os_str().to_owned();
        path.push(format!(".unfinished-{}-{number}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            // A killed process with the same id left this file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (PathBuf::from(path), file)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

impl FlushRequest {
    /// Reports that the flush is complete.
    pub(crate) fn answer(self) {
        // The caller may have stopped waiting.
        let _ = self.done.send(());
    }
}

#[cfg(test)]
mod tests;
