//! The flight recorder of a session: whoever writes to its file or asks it for a trace comes here.
//!
//! `panic` and `signal` ask for a trace, and so does the collector where a stream stands still or fails. `writer` is the thread that
//! writes those traces, and `failures` what could not be written. Whoever asks for a trace has the collector write down what it knows, for
//! a bounded time, and then copies the ring itself: a collector that hangs with its device keeps no trace from being written. Nothing
//! here waits for a device, or for a lock that a launching thread could hold.

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

use warpline_core::clock::now_ns;
use warpline_core::lock::lock;
use warpline_core::process::Process;
use warpline_core::recovered::{RecoverError, Recovered};
use warpline_core::signals::without_signals;
use warpline_core::sink::SessionInfo;
use warpline_core::stderr;
use warpline_trace::files::claim::notice;
use warpline_trace::flight::file::RingFile;
use warpline_trace::flight::format::{AREA_BYTES, AREAS, INCIDENT_AREA, Layout, PIECE_HEADER, PieceHeader, checksum};
use warpline_trace::flight::open::{Incident, OpenZone, Reason};
use warpline_trace::flight::recover;
use warpline_trace::perfetto::open::OpenTrace;

use failures::Failures;
use writer::Writer;

/// So long somebody who asks waits for the collector, which looks at its rings far more often.
const PATIENCE: Duration = Duration::from_secs(1);

/// So long a thread that panics waits for the trace of another one's panic.
const UNTIL_TOLD: Duration = Duration::from_secs(2);

/// Between two traces for one reason, but for those that somebody asks for.
const REST: Duration = Duration::from_secs(60);

/// The flight recorder of a session.
pub(crate) struct Flight {
    ring: Arc<RingFile>,
    /// What the user must know, where the file is not the one that was asked for.
    pub(crate) notice: Option<String>,
    /// The file goes with the session.
    pub(crate) is_temporary: bool,
    pub(crate) stall: Option<Duration>,
    open: Mutex<Areas>,
    requests: Mutex<Vec<Request>>,
    collector: OnceLock<Thread>,
    /// When a trace was last written for each reason.
    written: Mutex<Vec<(Reason, Instant)>>,
    writer: Writer,
    /// What could not be written.
    failures: Failures,
    /// The trace of a panic is being written.
    panics: Mutex<bool>,
    panic_is_told: Condvar,
    /// Whose file it is.
    process: Process,
    /// The session is over.
    is_over: AtomicBool,
    signal: Option<signal::Handler>,
}

struct Areas {
    trace: OpenTrace,
    incident: OpenTrace,
    sequence: u64,
    /// There were open zones in the last look.
    had_some: bool,
}

/// Somebody wants what the collector knows to be in the file.
pub(crate) struct Request {
    pub(crate) incident: Option<Incident>,
    done: Sender<()>,
}

/// What a session's flight recorder is made of.
pub(crate) struct FlightPlan<'a> {
    pub(crate) bytes: u64,
    pub(crate) path: Option<&'a Path>,
    pub(crate) stall: Option<Duration>,
    pub(crate) on_signal: bool,
}

impl Flight {
    /// Makes the file and takes its room.
    ///
    /// # Errors
    /// The file, what is in the way, and the remedy.
    pub(crate) fn create(plan: &FlightPlan<'_>, info: &SessionInfo) -> Result<Arc<Flight>, (PathBuf, String)> {
        let path = match plan.path {
            Some(path) => path.to_owned(),
            None => PathBuf::from(format!("warpline-{}.flight", info.process_id)),
        };
        // The program may go to another folder, and the file is asked for by its path until the end.
        let path = std::path::absolute(&path).map_err(|error| (path, format!("{error}; name another place")))?;
        // Before the file, so that a signal that cannot be handled leaves what an earlier session wrote.
        let signal = plan.on_signal.then(signal::Handler::install).transpose();
        let no_signal = |error| (path.clone(), format!("SIGUSR2 cannot be handled: {error}; leave out `dump_on`"));
        let signal = signal.map_err(no_signal)?;
        let layout = Layout::with_size(plan.bytes, info.process_id, &info.process_name);
        let ring = RingFile::create(&path, layout).map_err(|problem| (path.clone(), problem))?;
        let notice = (ring.path != path).then(|| notice(&path, &ring.path));
        Ok(Arc::new(Flight {
            ring: Arc::new(ring),
            notice,
            is_temporary: plan.path.is_none(),
            stall: plan.stall,
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

    pub(crate) fn ring(&self) -> &Arc<RingFile> {
        &self.ring
    }

    /// Tells whom to ask, and listens for panics from now on.
    pub(crate) fn begin(self: &Arc<Self>, collector: Thread) {
        let _ = self.collector.set(collector);
        panic::listen(self);
    }

    fn collector_id(&self) -> Option<ThreadId> {
        self.collector.get().map(Thread::id)
    }

    /// What is asked of the collector now.
    pub(crate) fn take_requests(&self) -> Vec<Request> {
        let mut requests = std::mem::take(&mut *lock(&self.requests));
        if self.signal.as_ref().is_some_and(signal::Handler::has_come) {
            let (done, _) = mpsc::channel();
            let title = "SIGUSR2 came".to_owned();
            let incident = Incident { reason: Reason::Signal, ns: now_ns(), title, args: Vec::new() };
            requests.push(Request { incident: Some(incident), done });
        }
        requests
    }

    /// Has the collector write down what it knows, and says so when it has; nobody waits for it here.
    #[cfg(target_os = "linux")]
    pub(crate) fn ask_for_all(&self) -> mpsc::Receiver<()> {
        let (done, is_done) = mpsc::channel();
        if let (Some(collector), false) = (self.collector.get(), self.is_over.load(Ordering::Acquire)) {
            lock(&self.requests).push(Request { incident: None, done });
            collector.unpark();
        }
        is_done
    }

    /// Has the collector write down what it knows, with the incident; false where it does not come to that in time.
    fn ask(&self, incident: Option<Incident>) -> bool {
        let Some(collector) = self.collector.get() else { return false };
        if std::thread::current().id() == collector.id() || self.is_over.load(Ordering::Acquire) {
            return false;
        }
        let (done, is_done) = mpsc::channel();
        lock(&self.requests).push(Request { incident, done });
        collector.unpark();
        is_done.recv_timeout(PATIENCE).is_ok()
    }

    /// Writes open zones into the file: `more` are open besides. The collector calls it ten times a second.
    ///
    /// # Errors
    /// What keeps the file from being written.
    pub(crate) fn write_open(&self, zones: &[OpenZone], more: u64) -> io::Result<()> {
        self.ring.look();
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

    /// Writes what has happened, and what is open meanwhile, into the file.
    pub(crate) fn write_incident(&self, incident: &Incident, zones: &[OpenZone], more: u64) -> io::Result<()> {
        let mut areas = lock(&self.open);
        let (content, count) = areas.incident.write(now_ns(), zones, more, Some(incident));
        self.write_area(INCIDENT_AREA, 1, count, &content)
    }

    fn write_area(&self, area: u32, sequence: u64, zones: u64, content: &[u8]) -> io::Result<()> {
        let at = self.ring.layout.area_at(area);
        let room = AREA_BYTES as usize - PIECE_HEADER;
        if content.len() > room {
            return Err(io::Error::other("there is no room for what is open"));
        }
        self.ring.clear(at)?;
        self.ring.write_at(at + PIECE_HEADER as u64, content)?;
        let (len, checksum) = (content.len() as u32, checksum(content));
        self.ring.commit(at, PieceHeader { sequence, before: zones, zones: 0, len, checksum })
    }

    /// Writes a trace there, with all that is known by now, and says what could not be written before, or was not in time.
    pub(crate) fn dump(&self, to: &Path) -> Result<Recovered, RecoverError> {
        let is_fresh = self.ask(None);
        let found = self.copy(to)?;
        let late = (!is_fresh).then(|| {
            "the trace may lack what happened last: a slow sink or a loaded machine kept the collector from writing it within \
             1 s; dump again"
                .to_owned()
        });
        let problems = self.problems().into_iter().chain(late).collect();
        Ok(Recovered { problems, ..found })
    }

    /// Copies the ring: to a file of another name first, so that a trace is whole or not there.
    fn copy(&self, to: &Path) -> Result<Recovered, RecoverError> {
        // To rename a file to a device or a pipe would replace it.
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

    /// Whether a trace is to be written for this reason now, which the caller then does. Whoever sends a signal asks for
    /// each. One that waits for its turn is enough for its reason.
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

    /// Writes a trace beside the ring and says where on standard error: the session's report may never be made.
    pub(crate) fn write_out(&self, incident: &Incident) {
        let mut to = self.ring.path.as_os_str().to_owned();
        to.push(format!(".{}.pftrace", incident.reason.name()));
        let (title, path) = (&incident.title, Path::new(&to).display());
        match self.copy(Path::new(&to)) {
            Ok(_) => stderr::line(format!("{title}; the last zones are in `{path}`")),
            Err(error) => {
                let failure = format!("no trace of the last zones is in `{path}`: {error}");
                stderr::line(format!("{title}; {failure}"));
                self.failures.note(failure);
            }
        }
    }

    /// The same on a thread of its own: the collector has zones to read. While it writes another one, this one waits.
    pub(crate) fn write_out_aside(self: &Arc<Self>, incident: Incident) {
        if !self.writer.add(incident) {
            return;
        }
        let its = Arc::clone(self);
        let write = move || {
            warpline_core::inside::stay();
            its.writer.write_all(|incident| its.write_out(incident));
        };
        if std::thread::Builder::new().name("warpline-flight".to_owned()).spawn(write).is_err() {
            self.writer.write_all(|incident| self.write_out(incident));
        }
    }

    /// What a thread does that has panicked: it may be the last one that the program does.
    pub(super) fn panicked(&self, title: String, args: Vec<(&'static str, String)>) {
        // Of a forked process the parent's file says nothing.
        if !self.process.is_this()
            || self.is_over.load(Ordering::Acquire)
            || self.collector_id() == Some(std::thread::current().id())
        {
            return;
        }
        let mut is_being_told = lock(&self.panics);
        if !self.is_due(Reason::Panic) {
            // What this thread does next may end the program, and with it the trace of the first panic.
            drop(is_being_told.wait_while(&self.panic_is_told, UNTIL_TOLD, |is_being_told| *is_being_told));
            return;
        }
        *is_being_told = true;
        drop(is_being_told);
        let incident = Incident { reason: Reason::Panic, ns: now_ns(), title, args };
        if !self.ask(Some(incident.clone())) {
            // The collector hangs. What was open a moment ago is in the file.
            let _ = self.write_incident(&incident, &[], 0);
        }
        self.write_out(&incident);
        *lock(&self.panics) = false;
        self.panic_is_told.notify_all();
    }

    /// The session is over: nothing happens any more, and the file goes or stays. Waits so long for a trace that is being written.
    pub(crate) fn end(&self, within: Duration) {
        self.is_over.store(true, Ordering::Release);
        if !self.writer.finish(within) {
            let failure = "a trace of the flight recorder was not written in time; the disk may hang";
            stderr::line(failure);
            self.failures.note(failure.to_owned());
        }
        lock(&self.requests).clear();
        if self.is_temporary {
            self.ring.remove();
        }
    }

    /// The session does not start: what was there before its file is there again.
    pub(crate) fn undo(&self) {
        self.ring.undo();
    }

    /// What somebody had done to the file when the collector looked last.
    pub(crate) fn harm(&self) -> impl Iterator<Item = String> {
        self.ring.harm()
    }

    /// What the user must know of what was to be written: of the file itself, as the collector saw it last, and of traces. It
    /// asks no disk.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.harm().chain(self.ring.problem()).chain(self.failures.texts()).collect()
    }
}

/// Makes a file beside this one that nobody else has: not another thread, and not a link that somebody has put there.
fn create_unfinished(to: &Path) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    for _ in 0..100 {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut path = to.as_os_str().to_owned();
        path.push(format!(".unfinished-{}-{number}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            // One that a killed process of the same number has left.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (PathBuf::from(path), file)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

impl Request {
    /// All is in the file.
    pub(crate) fn answer(self) {
        // Who asked may wait no more.
        let _ = self.done.send(());
    }
}
