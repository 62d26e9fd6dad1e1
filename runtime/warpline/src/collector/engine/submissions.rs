//! CUPTI for requests for submissions, where no session has started it.
//!
//! The first request starts CUPTI on its own thread, because the submission may follow at once. Another thread reads CUPTI until no request
//! has waited for a while, and ends CUPTI as a session does.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use warpline_core::backend::StreamRef;
use warpline_core::fork::PerProcess;
use warpline_core::kernel::CUPTI_STAYS;
use warpline_core::lock::lock;
use warpline_core::profile::PendingSubmission;
use warpline_core::profile::error::ProfileError;
use warpline_core::record::{DeviceInfo, DeviceKind, StreamInfo, ThreadInfo};
use warpline_core::stderr;
use warpline_core::stream::thread;
use warpline_core::threads;
use warpline_cuda::cupti::{self, Kernels, Names, Wanted};

/// The idle time before the end, so that successive requests find CUPTI running.
const LINGER: Duration = Duration::from_millis(250);

/// The time between two looks at CUPTI's buffers.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The lock that a thread holds while it makes a request, and while it ends CUPTI.
static TURN: PerProcess<Mutex<()>> = PerProcess::new(Mutex::default);

/// Requests the next submission of this thread on a stream.
pub(crate) fn next_submission(stream: &StreamRef<'_>) -> PendingSubmission {
    let _turn = lock(&TURN);
    let thread = thread::with(|thread| ThreadInfo { id: thread.id(), name: thread.name() });
    let started = if cupti::is_recording() { Ok(()) } else { start() };
    let asked = started.and_then(|()| cupti::next_submission(stream, thread).map_err(ProfileError::NoKernels));
    asked.unwrap_or_else(PendingSubmission::failed)
}

fn start() -> Result<(), ProfileError> {
    let wanted = Wanted { records: false, times: false, syncs: false, submissions: true };
    let kernels = Kernels::start(wanted).map_err(ProfileError::NoKernels)?;
    let thread = threads::spawn("warpline-cupti", move || read(kernels));
    thread.map(drop).map_err(|error| ProfileError::NoThread(error.to_string()))
}

fn read(mut kernels: Kernels) {
    let mut asked = Instant::now();
    loop {
        std::thread::park_timeout(LOOK_EVERY);
        kernels.collect(true, &mut Nameless);
        if cupti::has_requests() {
            asked = Instant::now();
        } else if asked.elapsed() >= LINGER {
            let _turn = lock(&TURN);
            if !cupti::has_requests() {
                kernels.finish(&mut Nameless);
                kernels.notes().iter().filter(|note| note.starts_with(CUPTI_STAYS)).for_each(stderr::line);
                return;
            }
        }
    }
}

/// Nothing is handed to sinks, so nothing needs a name.
struct Nameless;

impl Names for Nameless {
    fn stream(&mut self, device: u32, _context: u32, stream: u32) -> Arc<StreamInfo> {
        let device = DeviceInfo { ordinal: device, name: String::new(), kind: DeviceKind::Cuda };
        Arc::new(StreamInfo { id: stream, name: String::new(), device })
    }

    fn known_stream(&self, _context: u32, _stream: u32) -> Option<Arc<StreamInfo>> {
        None
    }

    fn name_stream(&mut self, _context: u32, _stream: u32, _name: String) {}

    fn begun(&mut self, _stream: u32) -> u64 {
        0
    }

    fn thread(&mut self, id: u64) -> Arc<ThreadInfo> {
        Arc::new(ThreadInfo { id, name: None })
    }

    fn no_stream(&mut self, device: u32) -> Arc<StreamInfo> {
        self.stream(device, 0, 0)
    }
}
