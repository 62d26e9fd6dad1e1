//! The calls that show zones of streams: one trait, so that a test can see them in order, and Tracy's client behind it.
//!
//! All of them go through Tracy's one serial queue, never its queues a thread, because a context outlives the collector's
//! thread of one session and its events must stay in order across two. Only the collector's thread calls them.

use std::mem;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tracy_client::sys;

use super::launch::{self, State};
use super::{Location, location};
use warpline_core::catalog::{RangeSpec, catalog};
use warpline_core::clock::now_ns;
use warpline_core::fields;

/// `GpuContextType::CUDA`, which `tracy-client` does not name.
const CUDA: u8 = 8;

/// A build with `ondemand` hands out zones with the number of the connection in them, one without does not.
const ON_DEMAND: bool = size_of::<sys::___tracy_c_zone_context>() == size_of::<OnDemandZone>();

const _: () = assert!(ON_DEMAND || size_of::<sys::___tracy_c_zone_context>() == 8);

/// What `___tracy_c_zone_context` is in a build with `ondemand`.
#[repr(C)]
struct OnDemandZone {
    id: u32,
    active: i32,
    connection: u64,
}

/// A viewer is told of every context while it connects. Until then, a context that is made would be told twice.
const INTRODUCTION: Duration = Duration::from_millis(200);

/// No viewer goes and another comes within so short a time.
const NO_CHANGE: Duration = Duration::from_micros(5);

/// Without `ondemand` everything waits in memory for the first viewer: at most so many events of 32 bytes, 256 MB.
const MOST_WAITING: u64 = 1 << 23;

/// The clocks are paired again until so little time lies between two readings of one of them, but not forever.
const CLOSE_NS: i64 = 1_000;
const TRIES: usize = 16;

/// The most bytes of one text; older viewers misread longer ones.
const TEXT: usize = 32 << 10;

/// Something that a session counts, plotted over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plot {
    /// How full the fullest ring is, in percent.
    Ring,
    /// Zones that were dropped.
    Dropped,
}

impl Plot {
    fn name(self) -> *const std::ffi::c_char {
        match self {
            Plot::Ring => c"warpline: fullest ring".as_ptr(),
            Plot::Dropped => c"warpline: zones dropped".as_ptr(),
        }
    }
}

/// What the sink says to Tracy.
pub(crate) trait Calls: Send {
    /// The place of a range; none where Tracy can hold no more.
    fn location(&self, range: &'static RangeSpec) -> Option<Location>;

    /// Who gets what is said from now on: the number of the connection; none while that is nobody.
    fn listener(&mut self) -> Option<u64>;

    /// Whether it is still the same one. Asked before every event of a zone: a viewer that comes in the middle of one
    /// would not survive its rest.
    fn is_still(&mut self, listener: u64) -> bool;

    /// Makes a context whose times are ns of the records' clock.
    fn new_context(&mut self, context: u8, name: &str);

    /// Ties the context's clock to Tracy's, as they are now.
    fn sync(&mut self, context: u8);

    /// A zone begins; its time follows under the same `query`.
    fn begin(&mut self, context: u8, query: u16, location: Location);

    /// The zone that began last ends; its time follows under the same `query`.
    fn end(&mut self, context: u8, query: u16);

    /// The time of a begin or an end, in ns.
    fn time(&mut self, context: u8, query: u16, ns: i64);

    /// A value, as of now.
    fn plot(&mut self, plot: Plot, value: i64);
}

/// Tracy's client.
pub(crate) struct Live {
    /// The connection, and when it was seen first.
    connection: Option<(u64, Instant)>,
    looked: Instant,
}

/// A viewer has been there, in this session or an earlier one.
static WAS_CONNECTED: AtomicBool = AtomicBool::new(false);

/// Events of zones until now, of all sessions: without `ondemand` they wait for the first viewer.
static WAITING: AtomicU64 = AtomicU64::new(0);

impl Live {
    /// Starts the client, and lets threads show their zones.
    pub(crate) fn start() -> Live {
        super::start();
        launch::take_not_shown();
        launch::set(State::On);
        Live { connection: None, looked: Instant::now() }
    }

    /// Without `ondemand`, the one viewer that there can be gets everything from the start; once it is gone, nobody does.
    fn first_viewer() -> Option<u64> {
        // SAFETY: the client is started.
        #[allow(unsafe_code)]
        let is_connected = unsafe { sys::___tracy_connected() } != 0;
        let was_connected = WAS_CONNECTED.fetch_or(is_connected, Ordering::Relaxed);
        let is_heard = is_connected || (!was_connected && WAITING.load(Ordering::Relaxed) < MOST_WAITING);
        launch::set(if is_heard { State::On } else { State::Paused });
        is_heard.then_some(0)
    }

    /// With `ondemand`, the viewer that is there now. Only a zone of this thread tells its number.
    fn present_viewer(&mut self) -> Option<u64> {
        let now = Instant::now();
        self.looked = now;
        let Some(number) = connection() else {
            self.connection = None;
            return None;
        };
        let since = match self.connection {
            Some((known, since)) if known == number => since,
            _ => {
                self.connection = Some((number, now));
                now
            }
        };
        (now.duration_since(since) >= INTRODUCTION).then_some(number)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        launch::set(State::Off);
    }
}

#[allow(unsafe_code)]
impl Calls for Live {
    fn location(&self, range: &'static RangeSpec) -> Option<Location> {
        location(range)
    }

    fn listener(&mut self) -> Option<u64> {
        let listener = if ON_DEMAND { self.present_viewer() } else { Live::first_viewer() };
        if listener.is_some() {
            static INTRODUCED: Once = Once::new();
            INTRODUCED.call_once(introduce);
        }
        listener
    }

    #[inline]
    fn is_still(&mut self, listener: u64) -> bool {
        if !ON_DEMAND {
            return true;
        }
        let now = Instant::now();
        if now.duration_since(self.looked) < NO_CHANGE {
            return true;
        }
        self.present_viewer() == Some(listener)
    }

    fn new_context(&mut self, context: u8, name: &str) {
        let data =
            sys::___tracy_gpu_new_context_data { gpuTime: now_ns(), period: 1.0, context, flags: 0, type_: CUDA };
        let name = cut(name);
        let named = sys::___tracy_gpu_context_name_data { context, name: name.as_ptr().cast(), len: name.len() as u16 };
        // SAFETY: the client is started, the id is used for the first time in this process, and the name is copied.
        unsafe {
            sys::___tracy_emit_gpu_new_context_serial(data);
            sys::___tracy_emit_gpu_context_name_serial(named);
        }
    }

    fn sync(&mut self, context: u8) {
        for _ in 0..TRIES {
            let before = now_ns();
            // SAFETY: the context has been made.
            unsafe {
                sys::___tracy_emit_gpu_time_sync_serial(sys::___tracy_gpu_time_sync_data { gpuTime: before, context });
            }
            if now_ns() - before <= CLOSE_NS {
                break;
            }
        }
    }

    #[inline]
    fn begin(&mut self, context: u8, query: u16, location: Location) {
        WAITING.fetch_add(4, Ordering::Relaxed);
        let data = sys::___tracy_gpu_zone_begin_data { srcloc: location.0, queryId: query, context };
        // SAFETY: the context has been made, the place holds as long as the process, and the query waits for no time.
        unsafe { sys::___tracy_emit_gpu_zone_begin_serial(data) }
    }

    #[inline]
    fn end(&mut self, context: u8, query: u16) {
        let data = sys::___tracy_gpu_zone_end_data { queryId: query, context };
        // SAFETY: a zone is open on the context, and the query waits for no time.
        unsafe { sys::___tracy_emit_gpu_zone_end_serial(data) }
    }

    #[inline]
    fn time(&mut self, context: u8, query: u16, ns: i64) {
        let data = sys::___tracy_gpu_time_data { gpuTime: ns, queryId: query, context };
        // SAFETY: the query waits for its time.
        unsafe { sys::___tracy_emit_gpu_time_serial(data) }
    }

    fn plot(&mut self, plot: Plot, value: i64) {
        // SAFETY: the name holds as long as the process.
        unsafe { sys::___tracy_emit_plot_int(plot.name(), value) }
    }
}

/// The number of the connection that is there now.
#[allow(unsafe_code)]
fn connection() -> Option<u64> {
    if !ON_DEMAND {
        return None;
    }
    struct Look(sys::___tracy_source_location_data);
    // SAFETY: the pointers lead to text in the binary.
    unsafe impl Sync for Look {}
    static LOOK: Look = Look(sys::___tracy_source_location_data {
        name: c"warpline: a viewer?".as_ptr(),
        function: c"warpline".as_ptr(),
        file: c"warpline".as_ptr(),
        line: 0,
        color: 0,
    });
    // SAFETY: the client is started, the place is static, and this thread ends the zone at once.
    let zone = unsafe { sys::___tracy_emit_zone_begin(&raw const LOOK.0, 1) };
    if zone.active == 0 {
        return None;
    }
    // SAFETY: in a build with `ondemand` the zone is that struct, and an active one has all its fields.
    let OnDemandZone { id: _, active: _, connection } = unsafe { mem::transmute_copy(&zone) };
    // SAFETY: this thread began the zone, and it is the innermost one that is open.
    unsafe { sys::___tracy_emit_zone_end(zone) };
    Some(connection)
}

/// Tells what the plots and the ranges are. Tracy tells it to every viewer.
#[allow(unsafe_code)]
fn introduce() {
    for (plot, format) in [
        (Plot::Ring, sys::TracyPlotFormatEnum_TracyPlotFormatPercentage),
        (Plot::Dropped, sys::TracyPlotFormatEnum_TracyPlotFormatNumber),
    ] {
        // SAFETY: the client is started, and the name holds as long as the process.
        unsafe { sys::___tracy_emit_plot_config(plot.name(), format as i32, 1, 1, 0) }
    }
    for text in catalog_texts() {
        // SAFETY: the client is started, and the text is copied and shorter than 64 KiB.
        unsafe { sys::___tracy_emit_message_appinfo(text.as_ptr().cast(), text.len()) }
    }
}

/// The catalog as text, a range a line.
fn catalog_texts() -> Vec<String> {
    let mut texts = vec![format!("warpline's catalog ({:#018x})\n", catalog().hash())];
    for range in catalog() {
        let line = format!("{} ({}): {}\n", range.name(), range.kind().as_str(), range.description());
        let line = cut(&line);
        match texts.last_mut() {
            Some(text) if text.len() + line.len() <= TEXT => text.push_str(line),
            _ => texts.push(line.to_owned()),
        }
    }
    texts
}

/// As much of a text as Tracy takes.
fn cut(text: &str) -> &str {
    fields::cut(text, TEXT)
}
