//! The mirror to NVTX with a real tool: CUPTI's marker records of zones on eight threads and of zones that change threads,
//! held against the catalog.
//!
//! The layouts are those of cupti_activity.h (CUDA 13): `CUpti_ActivityMarker2`, `CUpti_ActivityMarkerData2` and
//! `CUpti_NvtxExtPayloadAttr`; schemas are those of nvToolsExtPayload.h.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, Barrier, Mutex, OnceLock};

use cudarc::driver::CudaStream;
use libloading::Library;
use warpline::catalog::Kind;
use warpline::{catalog, gpu_zone, host_zone};

use super::{CHILD, US, child_with, device};

warpline::range! {
    WHOLE = "cuda_tests.nvtx_whole": "A zone around a thread's work.", color = 0x76_b9_00;
    MOVED = "cuda_tests.nvtx_moved": "A zone that another thread ends.";
}

/// A kernel.
#[gpu_zone("cuda_tests.nvtx_kernel", fields(n = n, by = -3_i32, part = 0.25, full = true, kind = "spin"), label = name(n))]
fn kernel(stream: &Arc<CudaStream>, n: u64) {
    device().spin(stream, US, None).expect("launched");
}

/// Work of the host.
#[host_zone("cuda_tests.nvtx_host", fields(depth = depth), color = 0x01_02_03)]
fn host(stream: &Arc<CudaStream>, depth: u64) {
    match depth {
        0 => kernel(stream, depth),
        _ => host(stream, depth - 1),
    }
}

fn name(n: u64) -> String {
    format!("item {n}")
}

const THREADS: usize = 8;
const ROUNDS: u64 = 20;

/// What each round of a thread begins, with what was open around it.
const ROUND: [&str; 4] = ["nvtx_kernel", "nvtx_host", "nvtx_host/nvtx_host", "nvtx_host/nvtx_host/nvtx_kernel"];

/// One record of a marker that begins.
#[derive(Clone, Debug, Default)]
struct Marker {
    name: String,
    domain: String,
    thread: u32,
    begin_ns: u64,
    end_ns: u64,
    category: u32,
    color: Option<u32>,
    payload: String,
    has_data: bool,
}

/// By CUPTI's number.
static MARKERS: Mutex<BTreeMap<u32, Marker>> = Mutex::new(BTreeMap::new());

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cupti_receives_every_range_as_the_catalog_has_it() {
    let tool = gpu::cupti_name().expect("this test needs libcupti.so.13; add its folder to LD_LIBRARY_PATH");
    if std::env::var_os(CHILD).is_some() {
        // A tool is looked for once, so the variable is there from the start.
        assert_eq!(std::env::var("NVTX_INJECTION64_PATH").as_deref(), Ok(tool));
        return receive(tool);
    }
    child_with("nvtx::cupti_receives_every_range_as_the_catalog_has_it", "cupti", &[("NVTX_INJECTION64_PATH", tool)]);
}

fn receive(tool: &str) {
    let cupti = Cupti::start(tool);
    work();
    device().context.synchronize().expect("no error");
    cupti.flush();
    let mut markers: Vec<Marker> = MARKERS.lock().unwrap().values().cloned().collect();
    // Stable: of equal times, CUPTI's numbers stay in order.
    markers.sort_by_key(|marker| marker.begin_ns);
    let of =
        |name: &str| markers.iter().filter(|marker| marker.name == format!("cuda_tests.{name}")).collect::<Vec<_>>();
    let each = THREADS * ROUNDS as usize;
    let counts = ["nvtx_whole", "nvtx_host", "nvtx_kernel", "nvtx_moved"].map(|name| of(name).len());
    assert_eq!(counts, [THREADS, 2 * each, 2 * each, THREADS], "{markers:?}");
    assert_eq!(markers.len(), counts.iter().sum::<usize>(), "and no other");
    for marker in &markers {
        let range = catalog().find(&marker.name).expect("in the catalog");
        let category = if range.kind() == Kind::Gpu { 1 } else { 2 };
        let color = range.color().map(|rgb| 0xff00_0000 | rgb);
        assert_eq!((marker.domain.as_str(), marker.category, marker.color), (range.namespace(), category, color));
        assert!(marker.begin_ns > 0 && marker.begin_ns <= marker.end_ns, "{marker:?}");
    }
    for thread in of("nvtx_whole").into_iter().map(|whole| whole.thread) {
        assert_eq!(nesting(&markers, thread), ROUND.repeat(ROUNDS as usize));
    }
    assert!(of("nvtx_whole").iter().chain(&of("nvtx_moved")).all(|marker| marker.payload.is_empty()));
    let mut payloads: Vec<&str> = of("nvtx_kernel").iter().map(|marker| marker.payload.as_str()).collect();
    payloads.sort_unstable();
    payloads.dedup();
    let mut expected: Vec<String> = (0..ROUNDS)
        .map(|n| format!("n=18:{n} by=17:-3 part=20:0.25 full=12:1 kind=76:spin label=76:item {n}"))
        .collect();
    expected.sort_unstable();
    assert_eq!(payloads, expected);
    assert!(of("nvtx_host").iter().all(|marker| ["depth=18:0", "depth=18:1"].contains(&marker.payload.as_str())));
}

/// Zones on eight threads with a stream each, and on each one zone that another thread ends.
fn work() {
    let streams = device().streams(THREADS).expect("streams");
    let together = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for stream in &streams {
            let together = &together;
            scope.spawn(move || {
                device();
                together.wait();
                let _whole = WHOLE.zone(stream);
                let moved = MOVED.async_zone(stream);
                for n in 0..ROUNDS {
                    kernel(stream, n);
                    host(stream, 1);
                }
                std::thread::spawn(move || drop(moved)).join().expect("no panic");
            });
        }
    });
}

/// What began on a thread, in order, each with what was open around it; without the whole and what changed threads.
fn nesting(markers: &[Marker], thread: u32) -> Vec<String> {
    let short = |marker: &Marker| marker.name.trim_start_matches("cuda_tests.").to_owned();
    let (mut open, mut seen) = (Vec::<&Marker>::new(), Vec::new());
    let mine = markers.iter().filter(|marker| marker.thread == thread && short(marker) != "nvtx_moved");
    for marker in mine {
        while open.last().is_some_and(|last| last.end_ns <= marker.begin_ns) {
            open.pop();
        }
        assert!(open.iter().all(|around| marker.end_ns <= around.end_ns), "{marker:?} is not inside {open:?}");
        open.push(marker);
        if open.len() > 1 {
            seen.push(open[1..].iter().map(|marker| short(marker)).collect::<Vec<_>>().join("/"));
        }
    }
    seen
}

const MARKER: u32 = 12;
const MARKER_DATA: u32 = 13;
const FLAG_START: u32 = 1 << 1;
const FLAG_END: u32 = 1 << 2;
const FLAG_COLOR_ARGB: u32 = 1 << 1;
const KIND_EXTENDED_PAYLOAD: u32 = 6;
const BUFFER_BYTES: usize = 4 << 20;
const FLUSH_FORCED: u32 = 1;

type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = extern "C" fn(*mut u8, u32, *mut u8, usize, usize);
type NextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> c_int;
type PayloadAttributes = unsafe extern "C" fn(u32, u64, *mut PayloadAttribute) -> c_int;

#[repr(C)]
struct PayloadAttribute {
    size: u32,
    kind: u32,
    schema: *const u8,
}

static NEXT_RECORD: OnceLock<NextRecord> = OnceLock::new();
static ATTRIBUTES: OnceLock<PayloadAttributes> = OnceLock::new();

/// CUPTI, recording markers.
struct Cupti(&'static Library);

impl Cupti {
    fn start(name: &str) -> Cupti {
        // SAFETY: CUPTI's initialisers are those of every program that profiles itself; the types are those of
        // cupti_activity.h.
        unsafe {
            let library: &'static Library = Box::leak(Box::new(Library::new(name).expect("it was loaded before")));
            let cupti = Cupti(library);
            NEXT_RECORD.get_or_init(|| *library.get(b"cuptiActivityGetNextRecord\0").expect("a symbol"));
            ATTRIBUTES.get_or_init(|| *library.get(b"cuptiActivityGetNvtxExtPayloadAttr\0").expect("a symbol"));
            let register: libloading::Symbol<unsafe extern "C" fn(Request, Completed) -> c_int> =
                library.get(b"cuptiActivityRegisterCallbacks\0").expect("a symbol");
            assert_eq!(register(request, completed), 0, "cuptiActivityRegisterCallbacks");
            cupti.call(b"cuptiActivityEnable\0", MARKER);
            cupti.call(b"cuptiActivityEnable\0", MARKER_DATA);
            cupti
        }
    }

    fn flush(&self) {
        self.call(b"cuptiActivityFlushAll\0", FLUSH_FORCED);
    }

    fn call(&self, symbol: &[u8], argument: u32) {
        // SAFETY: the type is that of cupti_activity.h.
        let code = unsafe { self.0.get::<unsafe extern "C" fn(u32) -> c_int>(symbol).expect("a symbol")(argument) };
        assert_eq!(code, 0, "{}; see CUptiResult in cupti_result.h", String::from_utf8_lossy(symbol));
    }
}

extern "C" fn request(buffer: *mut *mut u8, bytes: *mut usize, records: *mut usize) {
    // Never freed: the strings of its records are looked at until the test ends.
    let memory = Vec::leak(vec![0_u64; BUFFER_BYTES / 8]);
    // SAFETY: CUPTI gives three places to write to.
    unsafe {
        *buffer = memory.as_mut_ptr().cast();
        *bytes = BUFFER_BYTES;
        *records = 0;
    }
}

extern "C" fn completed(_context: *mut u8, _stream: u32, buffer: *mut u8, _bytes: usize, valid: usize) {
    let Some(next) = NEXT_RECORD.get() else { return };
    let mut markers = MARKERS.lock().unwrap();
    let mut record = std::ptr::null_mut();
    // SAFETY: the buffer came from `request` and holds `valid` bytes of records, through which CUPTI leads.
    unsafe {
        while valid > 0 && next(buffer, valid, &mut record) == 0 {
            match read::<u32>(record, 0) {
                MARKER => marker(&mut markers, record),
                MARKER_DATA => data(&mut markers, record),
                _ => {}
            }
        }
    }
}

/// # Safety
/// It is a `CUpti_ActivityMarker2`.
unsafe fn marker(markers: &mut BTreeMap<u32, Marker>, record: *const u8) {
    // SAFETY: the caller says so.
    unsafe {
        let marker = markers.entry(read(record, 16)).or_default();
        let flags: u32 = read(record, 4);
        if flags & FLAG_START != 0 {
            marker.begin_ns = read(record, 8);
            marker.thread = read(record, 28);
            (marker.name, marker.domain) = (text(read(record, 40)), text(read(record, 48)));
        }
        if flags & FLAG_END != 0 {
            marker.end_ns = read(record, 8);
        }
    }
}

/// # Safety
/// It is a `CUpti_ActivityMarkerData2`.
unsafe fn data(markers: &mut BTreeMap<u32, Marker>, record: *const u8) {
    // SAFETY: the caller says so; a payload is an `nvtxPayloadData_t`.
    unsafe {
        let marker = markers.entry(read(record, 8)).or_default();
        if std::mem::replace(&mut marker.has_data, true) {
            return;
        }
        marker.category = read(record, 28);
        marker.color = (read::<u32>(record, 4) & FLAG_COLOR_ARGB != 0).then(|| read(record, 24));
        if read::<u32>(record, 12) == KIND_EXTENDED_PAYLOAD {
            let data = read::<*const u8>(record, 16);
            let (schema, size, bytes) = (read(data, 0), read::<usize>(data, 8), read::<*const u8>(data, 16));
            marker.payload = payload(read(record, 32), schema, std::slice::from_raw_parts(bytes, size));
        }
    }
}

/// A payload as `name=type:value`, by the schema that CUPTI has of it.
fn payload(domain: u32, schema: u64, bytes: &[u8]) -> String {
    let mut attribute = PayloadAttribute { size: 16, kind: 0, schema: std::ptr::null() };
    let attributes = ATTRIBUTES.get().expect("a symbol");
    // SAFETY: the place outlives the call.
    let code = unsafe { attributes(domain, schema, &raw mut attribute) };
    assert_eq!((code, attribute.kind), (0, 1), "the schema {schema} of domain {domain}");
    // SAFETY: it is an `nvtxPayloadSchemaAttr_t` with as many entries as it says.
    let entries = unsafe {
        let (first, count) = (read::<*const u8>(attribute.schema, 32), read::<usize>(attribute.schema, 40));
        (0..count)
            .map(|index| {
                let entry = first.add(index * 64);
                (
                    read::<u64>(entry, 8),
                    text(read(entry, 16)),
                    read::<u64>(entry, 32) as usize,
                    read::<u64>(entry, 40) as usize,
                )
            })
            .collect::<Vec<_>>()
    };
    let values = entries.into_iter().map(|(kind, name, len, offset)| {
        let number = || u64::from_ne_bytes(bytes[offset..offset + 8].try_into().expect("8 bytes"));
        let value = match kind {
            12 => bytes[offset].to_string(),
            17 => (number() as i64).to_string(),
            18 => number().to_string(),
            20 => f64::from_bits(number()).to_string(),
            76 => {
                CStr::from_bytes_until_nul(&bytes[offset..offset + len]).expect("a NUL").to_string_lossy().into_owned()
            }
            _ => "?".to_owned(),
        };
        format!("{name}={kind}:{value}")
    });
    values.collect::<Vec<_>>().join(" ")
}

/// # Safety
/// It is a string, or null.
unsafe fn text(string: *const c_char) -> String {
    // SAFETY: the caller says so.
    if string.is_null() { String::new() } else { unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned() }
}

/// A field of a record.
///
/// # Safety
/// The record has a `T` at `offset`.
unsafe fn read<T>(record: *const u8, offset: usize) -> T {
    // SAFETY: the caller says so.
    unsafe { record.add(offset).cast::<T>().read_unaligned() }
}
