//! NVTX 3 as NVIDIA's headers declare it, under the same names: nvToolsExt.h, nvtxTypes.h, nvToolsExtPayload.h and nvtxExtTypes.h of the
//! package `nvidia-nvtx` 13.
//!
//! This module contains only the parts that the mirror uses or a tool needs. The checks at the end compare sizes and offsets with the
//! headers'.
#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    reason = "who compares this with the headers finds each name there"
)]

use std::ffi::{c_char, c_int, c_uint, c_void};

pub const NVTX_VERSION: u16 = 3;

/// The symbols that a tool exports, and the variable that names a tool.
pub const INITIALIZE: &[u8] = b"InitializeInjectionNvtx2\0";
pub const INITIALIZE_EXTENSION: &[u8] = b"InitializeInjectionNvtxExtension\0";
pub const INJECTION_PATH: &str =
    if cfg!(target_pointer_width = "64") { "NVTX_INJECTION64_PATH" } else { "NVTX_INJECTION32_PATH" };

/// Handles that are opaque to all code except the tool.
pub type nvtxDomainHandle_t = *mut c_void;
pub type nvtxStringHandle_t = *mut c_void;
pub type nvtxRangeId_t = u64;

pub type NvtxGetExportTableFunc_t = unsafe extern "C" fn(u32) -> *const c_void;
pub type NvtxInitializeInjectionNvtxFunc_t = unsafe extern "C" fn(NvtxGetExportTableFunc_t) -> c_int;
pub type NvtxExtInitializeInjectionFunc_t = unsafe extern "C" fn(*mut nvtxExtModuleInfo_t) -> c_int;
/// `void (**)(void)`: a pointer to a function pointer.
pub type NvtxFunctionPlace = *mut *mut c_void;

pub const NVTX_ETID_CALLBACKS: u32 = 1;
pub const NVTX_ETID_VERSIONINFO: u32 = 3;

pub const NVTX_CB_MODULE_CORE: usize = 1;
pub const NVTX_CB_MODULE_CUDA: usize = 2;
pub const NVTX_CB_MODULE_OPENCL: usize = 3;
pub const NVTX_CB_MODULE_CUDART: usize = 4;
pub const NVTX_CB_MODULE_CORE2: usize = 5;
pub const NVTX_CB_MODULE_SYNC: usize = 6;
pub const NVTX_CB_MODULE_SIZE: usize = 7;

pub const NVTX_CBID_CORE_NameOsThreadA: usize = 14;
pub const NVTX_CBID_CORE_SIZE: usize = 16;
pub const NVTX_CBID_CUDA_NameCuStreamA: usize = 5;
pub const NVTX_CBID_CUDA_SIZE: usize = 9;
pub const NVTX_CBID_OPENCL_SIZE: usize = 15;
pub const NVTX_CBID_CUDART_SIZE: usize = 7;
pub const NVTX_CBID_CORE2_DomainMarkEx: usize = 1;
pub const NVTX_CBID_CORE2_DomainRangeStartEx: usize = 2;
pub const NVTX_CBID_CORE2_DomainRangeEnd: usize = 3;
pub const NVTX_CBID_CORE2_DomainRangePushEx: usize = 4;
pub const NVTX_CBID_CORE2_DomainRangePop: usize = 5;
pub const NVTX_CBID_CORE2_DomainNameCategoryA: usize = 8;
pub const NVTX_CBID_CORE2_DomainRegisterStringA: usize = 10;
pub const NVTX_CBID_CORE2_DomainCreateA: usize = 12;
pub const NVTX_CBID_CORE2_SIZE: usize = 16;
pub const NVTX_CBID_SYNC_SIZE: usize = 7;

#[repr(C)]
pub struct NvtxExportTableCallbacks {
    pub struct_size: usize,
    pub GetModuleFunctionTable: unsafe extern "C" fn(c_int, *mut *const NvtxFunctionPlace, *mut c_uint) -> c_int,
}

#[repr(C)]
pub struct NvtxExportTableVersionInfo {
    pub struct_size: usize,
    pub version: u32,
    pub reserved0: u32,
    pub SetInjectionNvtxVersion: extern "C" fn(u32),
}

pub const NVTX_COLOR_UNKNOWN: i32 = 0;
pub const NVTX_COLOR_ARGB: i32 = 1;

/// The result of a push whose level the tool does not count, and of one without a tool.
pub const NVTX_NO_PUSH_POP_TRACKING: c_int = -2;

pub const NVTX_MESSAGE_TYPE_ASCII: i32 = 1;
pub const NVTX_MESSAGE_TYPE_REGISTERED: i32 = 3;
pub const NVTX_PAYLOAD_UNKNOWN: i32 = 0;
pub const NVTX_PAYLOAD_TYPE_EXT: i32 = 0xDFBD_0009_u32 as i32;

#[repr(C)]
pub struct nvtxEventAttributes_t {
    pub version: u16,
    pub size: u16,
    pub category: u32,
    pub colorType: i32,
    pub color: u32,
    pub payloadType: i32,
    /// With `NVTX_PAYLOAD_TYPE_EXT`: the number of `nvtxPayloadData_t`.
    pub reserved0: i32,
    /// With `NVTX_PAYLOAD_TYPE_EXT`: a pointer to them.
    pub payload: *const nvtxPayloadData_t,
    pub messageType: i32,
    pub message: *const c_void,
}

pub const NVTX_EXT_PAYLOAD_MODULEID: u16 = 2;
pub const NVTX_EXT_PAYLOAD_COMPATID: u16 = 0x0104;
pub const NVTX_EXT_PAYLOAD_SLOT_COUNT: usize = 63;
pub const NVTX3EXT_CBID_nvtxPayloadSchemaRegister: usize = 0;
/// The value of an extension's slot whose function the tool does not implement. 0 means the same.
pub const NVTX_EXTENSION_DISABLED: usize = 1;

#[repr(C)]
pub struct nvtxExtModuleSegment_t {
    pub segmentId: usize,
    pub slotCount: usize,
    pub functionSlots: *mut *mut c_void,
}

#[repr(C)]
pub struct nvtxExtModuleInfo_t {
    pub nvtxVer: u16,
    pub structSize: u16,
    pub moduleId: u16,
    pub compatId: u16,
    pub segmentsCount: usize,
    pub segments: *mut nvtxExtModuleSegment_t,
    pub getExportFunction: Option<unsafe extern "C" fn(u32) -> isize>,
    pub extInfo: *const c_void,
}

#[repr(C)]
pub struct nvtxPayloadEntryTypeInfo_t {
    pub size: u16,
    pub align: u16,
}

#[repr(C)]
pub struct nvtxPayloadData_t {
    pub schemaId: u64,
    pub size: usize,
    pub payload: *const c_void,
}

pub const NVTX_PAYLOAD_ENTRY_TYPE_UINT8: u64 = 12;
pub const NVTX_PAYLOAD_ENTRY_TYPE_INT64: u64 = 17;
pub const NVTX_PAYLOAD_ENTRY_TYPE_UINT64: u64 = 18;
pub const NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE: u64 = 20;
pub const NVTX_PAYLOAD_ENTRY_TYPE_INFO_ARRAY_SIZE: usize = 28;
pub const NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF8: u64 = 76;

#[repr(C)]
pub struct nvtxPayloadSchemaEntry_t {
    pub flags: u64,
    pub r#type: u64,
    pub name: *const c_char,
    pub description: *const c_char,
    /// The number of bytes of a string in the payload.
    pub arrayOrUnionDetail: u64,
    pub offset: u64,
    pub semantics: *const c_void,
    pub reserved: *const c_void,
}

pub const NVTX_PAYLOAD_SCHEMA_TYPE_STATIC: u64 = 1;
pub const NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME: u64 = 1 << 1;
pub const NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE: u64 = 1 << 2;
pub const NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES: u64 = 1 << 4;
pub const NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES: u64 = 1 << 5;
pub const NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE: u64 = 1 << 6;

#[repr(C)]
pub struct nvtxPayloadSchemaAttr_t {
    pub fieldMask: u64,
    pub name: *const c_char,
    pub r#type: u64,
    pub flags: u64,
    pub entries: *const nvtxPayloadSchemaEntry_t,
    pub numEntries: usize,
    pub payloadStaticSize: usize,
    pub packAlign: usize,
    pub schemaId: u64,
    pub extension: *mut c_void,
}

macro_rules! type_info {
    ($($type:ty),*) => {
        [
            // The first entry contains the number of entries and the size of one.
            nvtxPayloadEntryTypeInfo_t {
                size: NVTX_PAYLOAD_ENTRY_TYPE_INFO_ARRAY_SIZE as u16,
                align: size_of::<nvtxPayloadEntryTypeInfo_t>() as u16,
            },
            $(nvtxPayloadEntryTypeInfo_t { size: size_of::<$type>() as u16, align: align_of::<$type>() as u16 },)*
        ]
    };
}

/// `long double`, which has no equivalent in Rust.
#[repr(C, align(16))]
struct LongDouble([u8; 16]);

/// `wchar_t`.
type WideChar = libc::wchar_t;

/// `nvtxExtPayloadTypeInfo`: sizes and alignments, by `NVTX_PAYLOAD_ENTRY_TYPE_…` from `CHAR` to `CHAR32`.
pub static TYPE_INFO: [nvtxPayloadEntryTypeInfo_t; NVTX_PAYLOAD_ENTRY_TYPE_INFO_ARRAY_SIZE] = {
    use std::ffi::{c_long, c_longlong, c_short, c_uchar, c_ulong, c_ulonglong, c_ushort};
    type_info![
        c_char,
        c_uchar,
        c_short,
        c_ushort,
        c_int,
        c_uint,
        c_long,
        c_ulong,
        c_longlong,
        c_ulonglong,
        i8,
        u8,
        i16,
        u16,
        i32,
        u32,
        i64,
        u64,
        f32,
        f64,
        LongDouble,
        usize,
        *mut c_void,
        WideChar,
        u8,
        u16,
        u32
    ]
};

#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<NvtxExportTableCallbacks>() == 16);
    assert!(size_of::<NvtxExportTableVersionInfo>() == 24);
    assert!(size_of::<nvtxEventAttributes_t>() == 48);
    assert!(offset_of!(nvtxEventAttributes_t, category) == 4 && offset_of!(nvtxEventAttributes_t, color) == 12);
    assert!(offset_of!(nvtxEventAttributes_t, reserved0) == 20 && offset_of!(nvtxEventAttributes_t, payload) == 24);
    assert!(offset_of!(nvtxEventAttributes_t, messageType) == 32 && offset_of!(nvtxEventAttributes_t, message) == 40);
    assert!(size_of::<nvtxExtModuleSegment_t>() == 24);
    assert!(size_of::<nvtxExtModuleInfo_t>() == 40 && offset_of!(nvtxExtModuleInfo_t, segments) == 16);
    assert!(size_of::<nvtxPayloadEntryTypeInfo_t>() == 4);
    assert!(size_of::<nvtxPayloadData_t>() == 24);
    assert!(size_of::<nvtxPayloadSchemaEntry_t>() == 64 && offset_of!(nvtxPayloadSchemaEntry_t, offset) == 40);
    assert!(size_of::<nvtxPayloadSchemaAttr_t>() == 80 && offset_of!(nvtxPayloadSchemaAttr_t, entries) == 32);
    // The index is an `NVTX_PAYLOAD_ENTRY_TYPE_…`.
    assert!(TYPE_INFO[NVTX_PAYLOAD_ENTRY_TYPE_UINT8 as usize].size == 1);
    assert!(TYPE_INFO[NVTX_PAYLOAD_ENTRY_TYPE_INT64 as usize].size == 8);
    assert!(TYPE_INFO[NVTX_PAYLOAD_ENTRY_TYPE_UINT64 as usize].align == 8);
    assert!(TYPE_INFO[NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE as usize].size == 8);
};
