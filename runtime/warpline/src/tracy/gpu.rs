//! The calls that show zones of streams: a trait, so that a test can observe their order, and its implementation by Tracy's client.
//!
//! All of them use Tracy's single serial queue, not the queues of threads, because a context outlives the collector's
//! thread of one session, and its events must stay in order across two sessions. Only the collector's thread calls them.

use std::mem;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tracy_client::sys;

use super::launch::{self, ZoneEmission};
use super::names::{self, Name};
use super::{Location, TEXT_BYTES, location};
use warpline_core::catalog::{RangeSpec, catalog};
use warpline_core::clock::now_ns;
use warpline_core::fields;

/// `GpuContextType::CUDA`, which `tracy-client` does not name.
const CUDA: u8 = 8;

/// Zones of a build with `ondemand` contain the number of the connection; those of a build without it do not.
const ON_DEMAND: bool = size_of::<sys::___tracy_c_zone_context>() == size_of::<OnDemandZone>();

const _: () = assert!(ON_DEMAND || size_of::<sys::___tracy_c_zone_context>() == 8);

/// `___tracy_c_zone_context` in a build with `ondemand`.
#[repr(C)]
struct OnDemandZone {
    id: u32,
    active: i32,
    connection: u64,
}

/// Tracy announces every context to a viewer while it connects. A context that is created during that time would be announced twice.
const INTRODUCTION: Duration = Duration::from_millis(200);

/// The shortest time in which one viewer can leave and another can connect.
const NO_CHANGE: Duration = Duration::from_micros(5);

/// Without `ondemand`, everything waits in memory for the first viewer: at most this many events of 32 bytes, 256 MiB.
const MOST_WAITING: u64 = 1 << 23;

/// The clocks are paired again until two readings of one of them are at most this far apart, and a limited number of times.
const CLOSE_NS: i64 = 1_000;
const TRIES: usize = 16;

/// A count of a session that is plotted over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plot {
    /// The fill level of the fullest ring, in percent.
    Ring,
    /// The number of dropped zones.
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

/// The calls that the sink makes.
pub(crate) trait Calls: Send {
    /// Returns the source location of a range, or none if Tracy can hold no more.
    fn location(&self, range: &'static RangeSpec) -> Option<Location>;

    /// Returns the source location of a name that is no range's, or none if Tracy can hold no more.
    fn named(&mut self, name: &Name<'_>) -> Option<Location>;

    /// Returns the number of the connection that receives the calls from now on, or none without a viewer.
    fn listener(&mut self) -> Option<u64>;

    /// Returns whether the connection is still the same. The sink checks this before every event of a zone, because a viewer that
    /// connects in the middle of a zone crashes on the rest of it.
    fn is_still(&mut self, listener: u64) -> bool;

    /// Creates a context whose times are ns of the records' clock.
    fn new_context(&mut self, context: u8, name: &str);

    /// Pairs the context's clock with Tracy's at this moment.
    fn sync(&mut self, context: u8);

    /// Begins a zone; its time follows under the same `query`.
    fn begin(&mut self, context: u8, query: u16, location: Location);

    /// Ends the zone that began last; its time follows under the same `query`.
    fn end(&mut self, context: u8, query: u16);

    /// Sends the time of a begin or an end, in ns.
    fn time(&mut self, context: u8, query: u16, ns: i64);

    /// Plots a value at this moment.
    fn plot(&mut self, plot: Plot, value: i64);
}

/// Tracy's client.
pub(crate) struct Live {
    /// The connection, and the time when it was first seen.
    connection: Option<(u64, Instant)>,
    looked: Instant,
}

/// Whether a viewer has connected, in this session or an earlier one.
static WAS_CONNECTED: AtomicBool = AtomicBool::new(false);

/// The number of events of zones so far, of all sessions: without `ondemand`, they wait for the first viewer.
static WAITING: AtomicU64 = AtomicU64::new(0);

impl Live {
    /// Starts the client, and lets threads show their zones.
    pub(crate) fn start() -> Live {
        super::start();
        launch::take_not_shown();
        launch::set(ZoneEmission::On);
        Live { connection: None, looked: Instant::now() }
    }

    /// Returns the viewer without `ondemand`. There can be only one, which gets everything from the start.
    fn first_viewer() -> Option<u64> {
        // SAFETY: the client is started.
        #[allow(unsafe_code)]
        let is_connected = unsafe { sys::___tracy_connected() } != 0;
        let was_connected = WAS_CONNECTED.fetch_or(is_connected, Ordering::Relaxed);
        let is_heard = is_connected || (!was_connected && WAITING.load(Ordering::Relaxed) < MOST_WAITING);
        launch::set(if is_heard { ZoneEmission::On } else { ZoneEmission::Paused });
        is_heard.then_some(0)
    }

    /// Returns the viewer that is connected now, with `ondemand`. Only a zone of this thread contains its number.
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
        launch::set(ZoneEmission::Off);
    }
}

#[allow(unsafe_code)]
impl Calls for Live {
    fn location(&self, range: &'static RangeSpec) -> Option<Location> {
        location(range)
    }

    fn named(&mut self, name: &Name<'_>) -> Option<Location> {
        names::location(name)
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
        // SAFETY: the context has been made, the location is valid as long as the process, and the query waits for no time.
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
        // SAFETY: the name is valid as long as the process.
        unsafe { sys::___tracy_emit_plot_int(plot.name(), value) }
    }
}

/// Returns the number of the current connection.
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
    // SAFETY: the client is started, the location is static, and this thread ends the zone at once.
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

/// Sends the formats of the plots and the catalog of ranges. Tracy passes them to every viewer.
#[allow(unsafe_code)]
fn introduce() {
    for (plot, format) in [
        (Plot::Ring, sys::TracyPlotFormatEnum_TracyPlotFormatPercentage),
        (Plot::Dropped, sys::TracyPlotFormatEnum_TracyPlotFormatNumber),
    ] {
        // SAFETY: the client is started, and the name is valid as long as the process.
        unsafe { sys::___tracy_emit_plot_config(plot.name(), format as i32, 1, 1, 0) }
    }
    for text in catalog_texts(catalog().hash(), catalog()) {
        // SAFETY: the client is started, and the text is copied and shorter than 64 KiB.
        unsafe { sys::___tracy_emit_message_appinfo(text.as_ptr().cast(), text.len()) }
    }
}

/// Returns the catalog as text, with a line for each range.
fn catalog_texts(hash: u64, ranges: impl IntoIterator<Item = &'static RangeSpec>) -> Vec<String> {
    let mut texts = vec![format!("warpline's catalog ({hash:#018x})\n")];
    for range in ranges {
        let line = format!("{} ({}): {}\n", range.name(), range.kind().as_str(), range.description());
        let line = cut(&line);
        match texts.last_mut() {
            Some(text) if text.len() + line.len() <= TEXT_BYTES => text.push_str(line),
            _ => texts.push(line.to_owned()),
        }
    }
    texts
}

/// Cuts a text to the length that Tracy accepts.
fn cut(text: &str) -> &str {
    fields::cut(text, TEXT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpline_core::catalog::Kind;
    use warpline_core::catalog::spec::RangeMeta;
    use warpline_report::fixture::{LOAD, RANGES, STEP, range};

    #[test]
    fn the_introduction_has_a_line_for_each_range() {
        let texts = catalog_texts(0x12, RANGES);
        let lines: Vec<_> = texts.concat().lines().map(str::to_owned).collect();
        let line = |range: &RangeSpec, kind| format!("{} ({kind}): What the gate looks at.", range.name());
        assert_eq!((texts.len(), lines.len()), (1, 1 + RANGES.len()));
        assert_eq!(lines[0], "warpline's catalog (0x0000000000000012)");
        assert_eq!((&lines[1], &lines[4]), (&line(&STEP, "gpu"), &line(&LOAD, "host")));
    }

    #[test]
    fn a_large_catalog_is_introduced_in_texts_that_tracy_accepts() {
        let ranges: Vec<&'static RangeSpec> = (0..2_000)
            .map(|n| &*Box::leak(Box::new(range(format!("demo.{n}\0").leak(), Kind::Gpu, None, n))))
            .collect();
        let texts = catalog_texts(0, ranges.iter().copied());
        assert!(texts.len() > 1 && texts.iter().all(|text| text.len() <= TEXT_BYTES));
        let all = texts.concat();
        let names: Vec<_> = all.lines().skip(1).map(|line| line.split(' ').next().unwrap_or_default()).collect();
        assert_eq!(names, ranges.iter().map(|range| range.name()).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_description_is_cut_between_two_characters() {
        let facts = RangeMeta {
            namespace: "demo",
            label: "demo.long\0",
            description: "ß".repeat(TEXT_BYTES).leak(),
            kind: Kind::Host,
            level: warpline_core::catalog::Level::Fine,
            lane: None,
            color: None,
            fields: &[],
            undescribed: &[],
            module: "demo",
            version: "",
            file: "",
            line: 1,
        };
        let texts = catalog_texts(0, [&*Box::leak(Box::new(RangeSpec::new(facts)))]);
        assert_eq!(texts.len(), 2);
        assert!(
            (TEXT_BYTES - 1..=TEXT_BYTES).contains(&texts[1].len()) && texts[1].ends_with('ß'),
            "{} bytes",
            texts[1].len()
        );
    }
}
