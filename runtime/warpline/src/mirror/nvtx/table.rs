//! The function slots of NVTX, which a tool fills with its functions, and the calls through them.
//!
//! A tool gets the slots from the export tables while it starts, and may write to them until the program ends. Each call therefore loads
//! its slot again, as NVIDIA's own client does. An empty slot is a function that the tool does not implement.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::abi::*;

/// The number of slots in a module's table. It exceeds all sizes in the headers, so a tool that assumes a larger table than the reported
/// one writes to slots that are never read.
const PLACES: usize = 48;

type FunctionSlot = AtomicPtr<c_void>;

/// The slots that tools write to, by module and number.
static PLACES_OF: [[FunctionSlot; PLACES]; NVTX_CB_MODULE_SIZE] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; PLACES] }; NVTX_CB_MODULE_SIZE];

/// The slots of the payload extension.
static PAYLOAD: [FunctionSlot; NVTX_EXT_PAYLOAD_SLOT_COUNT] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; NVTX_EXT_PAYLOAD_SLOT_COUNT];

/// The addresses of the slots, as a tool reads them. The entries for slot 0 and after the last slot are null.
struct Tables([[NvtxFunctionPlace; PLACES + 1]; NVTX_CB_MODULE_SIZE]);

// SAFETY: no code writes to the tables, and the slots that they point to are atomics.
unsafe impl Sync for Tables {}

static TABLES: Tables = {
    let mut tables = [[std::ptr::null_mut(); PLACES + 1]; NVTX_CB_MODULE_SIZE];
    let mut module = 1;
    while module < NVTX_CB_MODULE_SIZE {
        let mut slot = 1;
        while slot < PLACES {
            tables[module][slot] = PLACES_OF[module][slot].as_ptr();
            slot += 1;
        }
        module += 1;
    }
    Tables(tables)
};

/// The number of slots of each module in the headers, including the empty first one.
const SIZES: [usize; NVTX_CB_MODULE_SIZE] = {
    let mut sizes = [0; NVTX_CB_MODULE_SIZE];
    sizes[NVTX_CB_MODULE_CORE] = NVTX_CBID_CORE_SIZE;
    sizes[NVTX_CB_MODULE_CUDA] = NVTX_CBID_CUDA_SIZE;
    sizes[NVTX_CB_MODULE_OPENCL] = NVTX_CBID_OPENCL_SIZE;
    sizes[NVTX_CB_MODULE_CUDART] = NVTX_CBID_CUDART_SIZE;
    sizes[NVTX_CB_MODULE_CORE2] = NVTX_CBID_CORE2_SIZE;
    sizes[NVTX_CB_MODULE_SYNC] = NVTX_CBID_SYNC_SIZE;
    sizes
};

static CALLBACKS: NvtxExportTableCallbacks = NvtxExportTableCallbacks {
    struct_size: size_of::<NvtxExportTableCallbacks>(),
    GetModuleFunctionTable: module_function_table,
};

static VERSION_INFO: NvtxExportTableVersionInfo = NvtxExportTableVersionInfo {
    struct_size: size_of::<NvtxExportTableVersionInfo>(),
    version: NVTX_VERSION as u32,
    reserved0: 0,
    SetInjectionNvtxVersion: set_injection_version,
};

/// Returns an export table. A tool's `InitializeInjectionNvtx2` gets this function.
unsafe extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        NVTX_ETID_CALLBACKS => (&raw const CALLBACKS).cast(),
        NVTX_ETID_VERSIONINFO => (&raw const VERSION_INFO).cast(),
        _ => std::ptr::null(),
    }
}

unsafe extern "C" fn module_function_table(
    module: c_int,
    table: *mut *const NvtxFunctionPlace,
    size: *mut c_uint,
) -> c_int {
    let module = usize::try_from(module).unwrap_or(0);
    let Some(places) = TABLES.0.get(module).filter(|_| module > 0) else { return 0 };
    // SAFETY: the tool passes pointers that are valid for writes, or null.
    unsafe {
        if !size.is_null() {
            *size = SIZES[module] as c_uint;
        }
        if !table.is_null() {
            *table = places.as_ptr();
        }
    }
    1
}

/// Does nothing: the headers reserve it.
extern "C" fn set_injection_version(_: u32) {}

/// Starts a tool, which fills in its slots. Returns false if the tool refuses.
pub(super) fn start(initialize: NvtxInitializeInjectionNvtxFunc_t) -> bool {
    // SAFETY: the export tables live as long as the program.
    let accepted = unsafe { initialize(export_table) } != 0;
    if !accepted {
        PLACES_OF.as_flattened().iter().for_each(|place| place.store(std::ptr::null_mut(), Ordering::Relaxed));
    }
    accepted
}

/// Passes the slots of the payload extension to a tool. Without them, zones have no payload.
pub(super) fn extend(initialize: NvtxExtInitializeInjectionFunc_t) {
    let mut segment = nvtxExtModuleSegment_t {
        segmentId: 0,
        slotCount: NVTX_EXT_PAYLOAD_SLOT_COUNT,
        functionSlots: (&raw const PAYLOAD).cast::<*mut c_void>().cast_mut(),
    };
    let mut module = nvtxExtModuleInfo_t {
        nvtxVer: NVTX_VERSION,
        structSize: size_of::<nvtxExtModuleInfo_t>() as u16,
        moduleId: NVTX_EXT_PAYLOAD_MODULEID,
        compatId: NVTX_EXT_PAYLOAD_COMPATID,
        segmentsCount: 1,
        segments: &raw mut segment,
        getExportFunction: None,
        extInfo: TYPE_INFO.as_ptr().cast(),
    };
    // SAFETY: the module and its segment are as nvtxExtTypes.h declares them and outlive the call, as with NVIDIA's client; the slots live
    // as long as the program.
    let accepted = unsafe { initialize(&raw mut module) };
    if accepted == 0 {
        PAYLOAD.iter().for_each(|place| place.store(std::ptr::null_mut(), Ordering::Relaxed));
    }
}

/// Stores a function in a slot, as a tool does.
pub(super) fn put(module: usize, slot: usize, function: *mut c_void) {
    PLACES_OF[module][slot].store(function, Ordering::Relaxed);
}

/// Returns whether a zone can reach the tool now.
pub(super) fn takes_ranges() -> bool {
    domain_range_push_ex().is_some() || domain_range_start_ex().is_some()
}

macro_rules! functions {
    ($($(#[$attribute:meta])* $name:ident: $module:ident[$slot:ident] fn($($argument:ty),*) $(-> $returned:ty)?;)*) => {
        $(
            $(#[$attribute])*
            /// Returns the tool's function of this name, if the tool implements it.
            #[inline]
            pub(super) fn $name() -> Option<unsafe extern "C" fn($($argument),*) $(-> $returned)?> {
                const { assert!($slot > 0 && $slot < SIZES[$module]) };
                let function = PLACES_OF[$module][$slot].load(Ordering::Relaxed);
                // SAFETY: null is `None`. The tool has written any other value as the headers declare the slot.
                unsafe { std::mem::transmute(function) }
            }
        )*
    };
}

functions! {
    name_os_thread: NVTX_CB_MODULE_CORE[NVTX_CBID_CORE_NameOsThreadA] fn(u32, *const c_char);
    name_cu_stream: NVTX_CB_MODULE_CUDA[NVTX_CBID_CUDA_NameCuStreamA] fn(*mut c_void, *const c_char);
    domain_mark_ex: NVTX_CB_MODULE_CORE2[NVTX_CBID_CORE2_DomainMarkEx]
        fn(nvtxDomainHandle_t, *const nvtxEventAttributes_t);
    domain_range_start_ex: NVTX_CB_MODULE_CORE2[NVTX_CBID_CORE2_DomainRangeStartEx]
        fn(nvtxDomainHandle_t, *const nvtxEventAttributes_t) -> nvtxRangeId_t;
    domain_range_end: NVTX_CB_MODULE_CORE2[NVTX_CBID_CORE2_DomainRangeEnd] fn(nvtxDomainHandle_t, nvtxRangeId_t);
    domain_range_push_ex: NVTX_CB_MODULE_CORE2[NVTX_CBID_CORE2_DomainRangePushEx]
        fn(nvtxDomainHandle_t, *const nvtxEventAttributes_t) -> c_int;
    domain_range_pop: NVTX_CB_MODULE_CORE2[NVTX_CBID_CORE2_DomainRangePop] fn(nvtxDomainHandle_t) -> c_int;
    domain_name_category: NVTX_CB_MODULE_CORE2[NVTX_CBID_CORE2_DomainNameCategoryA]
        fn(nvtxDomainHandle_t, u32, *const c_char);
    domain_register_string: NVTX_CB_MODULE_CORE2[NVTX_CBID_CORE2_DomainRegisterStringA]
        fn(nvtxDomainHandle_t, *const c_char) -> nvtxStringHandle_t;
    domain_create: NVTX_CB_MODULE_CORE2[NVTX_CBID_CORE2_DomainCreateA] fn(*const c_char) -> nvtxDomainHandle_t;
}

/// Returns the tool's `nvtxPayloadSchemaRegister`, if the tool accepts payloads.
pub(super) fn payload_schema_register()
-> Option<unsafe extern "C" fn(nvtxDomainHandle_t, *const nvtxPayloadSchemaAttr_t) -> u64> {
    let function = PAYLOAD[NVTX3EXT_CBID_nvtxPayloadSchemaRegister].load(Ordering::Relaxed);
    // SAFETY: values that are not addresses are excluded. The tool has written any other value as the headers declare the slot.
    (function.addr() > NVTX_EXTENSION_DISABLED).then(|| unsafe { std::mem::transmute(function) })
}

/// Creates a domain. A null handle is the default domain, as with NVIDIA's client.
pub(super) fn create_domain(name: &CStr) -> nvtxDomainHandle_t {
    // SAFETY: the name outlives the call.
    domain_create().map_or(std::ptr::null_mut(), |create| unsafe { create(name.as_ptr()) })
}

/// Names a category of a domain. The handle is the tool's own.
pub(super) fn name_category(domain: nvtxDomainHandle_t, category: u32, name: &CStr) {
    if let Some(call) = domain_name_category() {
        // SAFETY: the name outlives the call; the handle is the tool's own.
        unsafe { call(domain, category, name.as_ptr()) };
    }
}

/// Names a thread of the operating system.
pub(super) fn name_thread(id: u32, name: &CStr) {
    if let Some(call) = name_os_thread() {
        // SAFETY: the name outlives the call.
        unsafe { call(id, name.as_ptr()) };
    }
}

/// Names a stream of the CUDA driver. The tool treats the handle as a number.
pub(super) fn name_stream(stream: *mut c_void, name: &CStr) {
    if let Some(call) = name_cu_stream() {
        // SAFETY: the name outlives the call.
        unsafe { call(stream, name.as_ptr()) };
    }
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Calls into the tool, unless this thread is already inside it. A tool that runs marked functions must not get their zones.
#[inline]
pub(super) fn enter<T>(call: impl FnOnce() -> T) -> Option<T> {
    INSIDE.with(|inside| {
        if inside.replace(true) {
            return None;
        }
        let result = call();
        inside.set(false);
        Some(result)
    })
}
