//! `libnvToolsExt` of old toolkits, as a fallback where a user asks for NVTX and there is no tool. A library with the functions of domains gets
//! zones as a tool does. One with simple ranges alone (`nvtxRangePushA`) gets their names.
#![allow(unsafe_code)]

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libloading::Library;

use super::abi::*;
use super::find::{open, symbol};
use super::table;
use warpline_core::library::{loaded_first, open_first, reason};

/// The names of the library: that of its package, and that of a toolkit's folder for linking.
const LIBRARIES: [&str; 2] = ["libnvToolsExt.so.1", "libnvToolsExt.so"];

/// The functions of domains, and where a tool would store its own.
const FUNCTIONS: [(usize, usize, &[u8]); 10] = [
    (NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_NameOsThreadA, b"nvtxNameOsThreadA\0"),
    (NVTX_CB_MODULE_CUDA, NVTX_CBID_CUDA_NameCuStreamA, b"nvtxNameCuStreamA\0"),
    (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainMarkEx, b"nvtxDomainMarkEx\0"),
    (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangeStartEx, b"nvtxDomainRangeStartEx\0"),
    (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangeEnd, b"nvtxDomainRangeEnd\0"),
    (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePushEx, b"nvtxDomainRangePushEx\0"),
    (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePop, b"nvtxDomainRangePop\0"),
    (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainNameCategoryA, b"nvtxDomainNameCategoryA\0"),
    (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRegisterStringA, b"nvtxDomainRegisterStringA\0"),
    (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainCreateA, b"nvtxDomainCreateA\0"),
];

/// Stores the library's functions where a tool would store its own.
///
/// # Errors
/// There is none that takes ranges: the reason, and the remedy.
pub(super) fn attach() -> Result<(), String> {
    let remedy = format!("start the program under `nsys profile` or `ncu --nvtx`, or set {INJECTION_PATH}");
    let names = loaded_first(LIBRARIES);
    let is_absent = |why: &str| why.ends_with("No such file or directory");
    match open_first(names, |name| open(OsStr::new(name)).map_err(|error| reason(&error))) {
        Err(why) if is_absent(&why) => Err(format!("there is no NVTX tool: {remedy}")),
        Err(why) => {
            Err(format!("there is no NVTX tool, and the library of old toolkits does not open ({why}): {remedy}"))
        }
        Ok((_, library)) if put_domains(&library) || put_simple(&library) => Ok(()),
        Ok((name, _)) => Err(format!(
            "there is no NVTX tool, and `{name}` has neither nvtxDomainRangePushEx nor nvtxRangePushA and nvtxRangePop: {remedy}"
        )),
    }
}

/// Stores the functions of domains. Returns whether the library has those that zones need.
fn put_domains(library: &Library) -> bool {
    for (module, slot, name) in FUNCTIONS {
        if let Some(function) = symbol::<*mut c_void>(library, name) {
            table::put(module, slot, function);
        }
    }
    table::takes_ranges()
}

/// `nvtxRangePushA` and `nvtxRangePop`, which the functions below call.
static PUSH: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static POP: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Stores functions that call those of simple ranges, of the default domain. Returns false if the library lacks them.
fn put_simple(library: &Library) -> bool {
    let of_library = |name| symbol::<*mut c_void>(library, name);
    let (Some(push), Some(pop)) = (of_library(b"nvtxRangePushA\0"), of_library(b"nvtxRangePop\0")) else {
        return false;
    };
    PUSH.store(push, Ordering::Relaxed);
    POP.store(pop, Ordering::Relaxed);
    table::put(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePushEx, push_simple as *mut c_void);
    table::put(NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePop, pop_simple as *mut c_void);
    true
}

/// Begins a range of the default domain with the name in the attributes, which is a text because such a library registers none.
unsafe extern "C" fn push_simple(_domain: nvtxDomainHandle_t, attributes: *const nvtxEventAttributes_t) -> c_int {
    type Push = unsafe extern "C" fn(*const c_char) -> c_int;
    // SAFETY: `put_simple` has stored the function before this one, as nvToolsExt.h declares it. The caller passes attributes whose message is a
    // text that outlives the call.
    unsafe {
        let push = std::mem::transmute::<*mut c_void, Push>(PUSH.load(Ordering::Relaxed));
        push((*attributes).message.cast())
    }
}

/// Ends the range that this thread began last.
unsafe extern "C" fn pop_simple(_domain: nvtxDomainHandle_t) -> c_int {
    type Pop = unsafe extern "C" fn() -> c_int;
    // SAFETY: `put_simple` has stored the function before this one, as nvToolsExt.h declares it.
    unsafe { std::mem::transmute::<*mut c_void, Pop>(POP.load(Ordering::Relaxed))() }
}
