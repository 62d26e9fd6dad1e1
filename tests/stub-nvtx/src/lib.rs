//! An NVTX tool for tests: it writes down every call, or behaves as badly as `STUB_NVTX` tells it to.
//!
//! | `STUB_NVTX` | |
//! |---|---|
//! | `record` | takes every call |
//! | `refuse` | does not want to start, after it has filled in its functions |
//! | `empty` | starts, and takes no call |
//! | `poor` | takes pushes and pops alone |
//! | `large` | believes that the tables are larger than they are |
//! | `mute` | takes every call and answers each with 0 |
//! | `no-payload` | does not want the payload extension |
//! | `reenter` | calls the program back from each of its functions |
//! | `unload` | closes itself, more often than it was opened, in its tenth push |
//! | `leave` | takes its functions back in its tenth push |
//! | `deny` | refuses each push of a range with a color |
//! | `deny-text` | refuses each push of a range whose name is no registered string |
//! | `levels` | counts no levels of pushes, and says so, as CUPTI does |
//! | `minus-one` | takes each push and returns an error, as Nsight Systems does |
//!
//! It also is an old `libnvToolsExt`: it exports the functions themselves. With feature `older` it has no functions of domains, and with `simple`
//! it has those of simple ranges.
#![allow(missing_docs, non_snake_case, reason = "the names of NVIDIA's headers, which say what they are")]
#![allow(clippy::missing_safety_doc, reason = "the headers say what NVTX's functions may be given")]

mod log;
mod payload;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use log::{line, text};

const CORE: c_int = 1;
const CUDA: c_int = 2;
const CORE2: c_int = 5;

/// `NVTX_FAIL`.
const FAIL: c_int = -1;
const NO_PUSH_POP_TRACKING: c_int = -2;

type Table = *const *mut *const c_void;

#[repr(C)]
pub struct Callbacks {
    size: usize,
    get_table: unsafe extern "C" fn(c_int, *mut Table, *mut c_uint) -> c_int,
}

#[repr(C)]
pub struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set: extern "C" fn(u32),
}

#[repr(C)]
pub struct EventAttributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    payload_count: i32,
    payload: *const payload::Data,
    message_type: i32,
    message: *const c_char,
}

fn mode() -> String {
    std::env::var("STUB_NVTX").unwrap_or_else(|_| "record".to_owned())
}

fn is(name: &str) -> bool {
    mode() == name
}

/// The function that a test wants to be called back.
static BACK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Sets the function that `reenter` calls from each function of the tool.
#[unsafe(no_mangle)]
pub extern "C" fn stub_nvtx_call_back(back: extern "C" fn()) {
    BACK.store(back as *mut c_void, Ordering::SeqCst);
}

fn call_back() {
    let back = BACK.load(Ordering::SeqCst);
    if is("reenter") && !back.is_null() {
        // SAFETY: only `stub_nvtx_call_back` sets it.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(back)() };
    }
}

/// The entry point of every NVTX 3 tool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get: unsafe extern "C" fn(u32) -> *const c_void) -> c_int {
    // SAFETY: the client gives the tables of these numbers these types; a test reads what they say.
    unsafe {
        let callbacks = get(1).cast::<Callbacks>();
        let version = get(3).cast::<VersionInfo>();
        assert!((*callbacks).size >= 16 && (*version).size >= 24 && (*version).version == 3);
        assert!(get(0).is_null() && get(99).is_null());
        ((*version).set)(3);
        let sizes = [0, 1, 2, 3, 4, 5, 6, 7].map(|module| table(&*callbacks, module).map_or(0, |(_, size)| size));
        line("start", &[format!("{sizes:?}")]);
        fill(&*callbacks);
    }
    call_back();
    c_int::from(!is("refuse"))
}

unsafe fn table(callbacks: &Callbacks, module: c_int) -> Option<(Table, c_uint)> {
    let (mut table, mut size) = (ptr::null(), 0);
    // SAFETY: the places outlive the call.
    let found = unsafe { (callbacks.get_table)(module, &raw mut table, &raw mut size) };
    (found != 0).then_some((table, size))
}

/// What `leave` empties again.
static FILLED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

unsafe fn fill(callbacks: &Callbacks) {
    let put = |module, slot: usize, function: *const c_void| {
        // SAFETY: the slot is one of the table, or the test wants to know what happens.
        unsafe {
            let Some((table, _)) = table(callbacks, module) else { return };
            let place = *table.add(slot);
            *place = function;
            FILLED.lock().unwrap().push(place as usize);
        }
    };
    if is("empty") {
        return;
    }
    if is("large") {
        (1..=6).for_each(|module| (1..40).for_each(|slot| put(module, slot, nothing as *const c_void)));
    }
    put(CORE2, 4, nvtxDomainRangePushEx as *const c_void);
    put(CORE2, 5, nvtxDomainRangePop as *const c_void);
    if is("poor") {
        return;
    }
    put(CORE, 14, nvtxNameOsThreadA as *const c_void);
    put(CUDA, 5, nvtxNameCuStreamA as *const c_void);
    put(CORE2, 1, nvtxDomainMarkEx as *const c_void);
    put(CORE2, 2, nvtxDomainRangeStartEx as *const c_void);
    put(CORE2, 3, nvtxDomainRangeEnd as *const c_void);
    put(CORE2, 8, nvtxDomainNameCategoryA as *const c_void);
    put(CORE2, 10, nvtxDomainRegisterStringA as *const c_void);
    put(CORE2, 12, nvtxDomainCreateA as *const c_void);
}

extern "C" fn nothing() {}

/// The names behind the handles: each handle is a place in here, from 1.
static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn handle(name: &str) -> *const c_void {
    if is("mute") {
        return ptr::null();
    }
    let mut names = NAMES.lock().unwrap();
    names.push(name.to_owned());
    ptr::without_provenance(names.len())
}

fn name(handle: *const c_void) -> String {
    match handle.addr() {
        0 => "-".to_owned(),
        place => NAMES.lock().unwrap()[place - 1].clone(),
    }
}

#[cfg_attr(not(feature = "older"), unsafe(no_mangle))]
pub unsafe extern "C" fn nvtxDomainCreateA(domain: *const c_char) -> *const c_void {
    call_back();
    // SAFETY: the client gives a string.
    let domain = unsafe { text(domain) };
    line("domain", std::slice::from_ref(&domain));
    handle(&domain)
}

#[cfg_attr(not(feature = "older"), unsafe(no_mangle))]
pub unsafe extern "C" fn nvtxDomainRegisterStringA(domain: *const c_void, string: *const c_char) -> *const c_void {
    call_back();
    // SAFETY: the client gives a string.
    let string = unsafe { text(string) };
    line("string", &[name(domain), string.clone()]);
    handle(&string)
}

#[cfg_attr(not(feature = "older"), unsafe(no_mangle))]
pub unsafe extern "C" fn nvtxDomainNameCategoryA(domain: *const c_void, category: u32, word: *const c_char) {
    call_back();
    // SAFETY: the client gives a string.
    line("category", &[name(domain), category.to_string(), unsafe { text(word) }]);
}

#[cfg_attr(not(feature = "older"), unsafe(no_mangle))]
pub unsafe extern "C" fn nvtxNameOsThreadA(thread: u32, word: *const c_char) {
    call_back();
    // SAFETY: the client gives a string.
    line("thread", &[thread.to_string(), unsafe { text(word) }]);
}

#[cfg_attr(not(feature = "older"), unsafe(no_mangle))]
pub unsafe extern "C" fn nvtxNameCuStreamA(stream: *const c_void, word: *const c_char) {
    call_back();
    // SAFETY: the client gives a string.
    line("stream", &[stream.addr().to_string(), unsafe { text(word) }]);
}

#[cfg_attr(not(feature = "older"), unsafe(no_mangle))]
pub unsafe extern "C" fn nvtxDomainMarkEx(domain: *const c_void, event: *const EventAttributes) {
    call_back();
    // SAFETY: the client gives an event.
    line("mark", &unsafe { describe(domain, event) });
}

#[cfg_attr(not(feature = "older"), unsafe(no_mangle))]
pub unsafe extern "C" fn nvtxDomainRangePushEx(domain: *const c_void, event: *const EventAttributes) -> c_int {
    static PUSHES: AtomicU64 = AtomicU64::new(1);
    call_back();
    // SAFETY: the client gives an event.
    let event = unsafe { describe(domain, event) };
    if is("deny") && event[4] != "-" || is("deny-text") && event[1] == "ascii" {
        line("refused", &event);
        return FAIL;
    }
    line("push", &event);
    if PUSHES.fetch_add(1, Ordering::SeqCst) == 10 {
        if is("unload") {
            unload();
        }
        if is("leave") {
            for place in FILLED.lock().unwrap().iter() {
                // SAFETY: `fill` has written to the place.
                unsafe { *ptr::with_exposed_provenance_mut::<*const c_void>(*place) = ptr::null() };
            }
        }
    }
    match mode().as_str() {
        "levels" => NO_PUSH_POP_TRACKING,
        "minus-one" => FAIL,
        _ => 0,
    }
}

#[cfg_attr(not(feature = "older"), unsafe(no_mangle))]
pub extern "C" fn nvtxDomainRangePop(domain: *const c_void) -> c_int {
    call_back();
    line("pop", &[name(domain)]);
    0
}

#[cfg_attr(not(feature = "older"), unsafe(no_mangle))]
pub unsafe extern "C" fn nvtxDomainRangeStartEx(domain: *const c_void, event: *const EventAttributes) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    call_back();
    let id = if is("mute") { 0 } else { LAST.fetch_add(1, Ordering::SeqCst) + 1 };
    // SAFETY: the client gives an event.
    let mut fields = unsafe { describe(domain, event) };
    fields.push(id.to_string());
    line("start-range", &fields);
    id
}

#[cfg_attr(not(feature = "older"), unsafe(no_mangle))]
pub extern "C" fn nvtxDomainRangeEnd(domain: *const c_void, id: u64) {
    call_back();
    line("end-range", &[name(domain), id.to_string()]);
}

#[cfg(feature = "simple")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvtxRangePushA(message: *const c_char) -> c_int {
    // SAFETY: the client gives a string.
    line("simple-push", &[unsafe { text(message) }]);
    0
}

#[cfg(feature = "simple")]
#[unsafe(no_mangle)]
pub extern "C" fn nvtxRangePop() -> c_int {
    line("simple-pop", &[]);
    0
}

/// Domain, how the message came, message, category, color, payload.
unsafe fn describe(domain: *const c_void, event: *const EventAttributes) -> Vec<String> {
    // SAFETY: the caller has an event.
    let event = unsafe { &*event };
    assert_eq!((event.version, event.size), (3, 48));
    let (how, message) = match event.message_type {
        // SAFETY: the client gives a string.
        1 => ("ascii", unsafe { text(event.message) }),
        3 => ("registered", name(event.message.cast())),
        _ => ("none", String::new()),
    };
    let color = if event.color_type == 1 { format!("{:08x}", event.color) } else { "-".to_owned() };
    let payload = match event.payload_type as u32 {
        0 => "-".to_owned(),
        // SAFETY: the client gives as many payloads as it says.
        0xDFBD_0009 => unsafe { payload::read(event.payload, event.payload_count) },
        other => format!("payload type {other}"),
    };
    vec![name(domain), how.to_owned(), message, event.category.to_string(), color, payload]
}

/// Closes this library as often as it takes, were it not kept.
fn unload() {
    // SAFETY: the library's own path; a library that is kept stays, however often it is closed.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        assert!(libc::dladdr(unload as *const c_void, &raw mut info) != 0);
        let path = CStr::from_ptr(info.dli_fname).to_owned();
        for _ in 0..8 {
            let this = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if !this.is_null() {
                libc::dlclose(this);
                libc::dlclose(this);
            }
        }
    }
}
