//! What a host has for warpline: the driver with its symbols and devices, and CUPTI.
//!
//! `warpline doctor` calls it, in a process of its own, because a driver can crash or hang. It opens the libraries that a session opens,
//! under the same names. It creates no context, subscribes to nothing, and initialises nothing of CUPTI: it reads the version.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::mem::ManuallyDrop;

use warpline_core::library::reason;

use crate::driver::{Code, LIBRARY, OLDEST, REQUIRED, SUCCESS};
use crate::symbols::readable;

/// The driver of this host.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DriverProbe {
    /// The name under which the loader was asked for the library.
    pub library: &'static str,
    /// The loader's message, where it finds no library. The other fields are empty then.
    pub not_loaded: Option<String>,
    /// The CUDA version of the driver, as 1000 × major + 10 × minor.
    pub version: Option<i32>,
    /// The symbols that a session needs and the driver lacks.
    pub missing: Vec<String>,
    /// The optional symbols that warpline uses, and whether the driver has them.
    pub optional: Vec<(&'static str, bool)>,
    /// The driver's word for the error, where it does not initialise. There are no devices then.
    pub not_initialised: Option<String>,
    /// The names of the devices, in the driver's order.
    pub devices: Vec<String>,
}

impl DriverProbe {
    /// The oldest driver that a session uses, as 1000 × major + 10 × minor.
    pub const OLDEST: i32 = OLDEST;

    /// The oldest driver that tells the ids of graph nodes.
    pub const TELLS_IDS: i32 = 13_010;

    /// Whether the driver has an optional symbol.
    pub fn has(&self, symbol: &str) -> bool {
        self.optional.iter().any(|(name, is_there)| *name == symbol && *is_there)
    }

    /// Whether the driver itself tells the ids of graph nodes that profilers' records carry.
    pub fn tells_ids(&self) -> bool {
        self.version.is_some_and(|version| version >= DriverProbe::TELLS_IDS)
            && TELL_IDS.iter().all(|name| self.has(name))
    }
}

/// What tells ids of graph nodes.
const TELL_IDS: [&str; 3] = ["cuGraphNodeGetToolsId", "cuGraphGetId", "cuGraphExecGetId"];

/// The optional symbols, in the order in which they are shown.
const OPTIONAL: [&CStr; 11] = [
    c"cuEventElapsedTime_v2",
    c"cuStreamGetCaptureInfo_v2",
    c"cuStreamGetCaptureInfo_v3",
    c"cuStreamUpdateCaptureDependencies_v2",
    c"cuFuncGetName",
    c"cuKernelGetName",
    c"cuGraphNodeGetToolsId",
    c"cuGraphGetId",
    c"cuGraphExecGetId",
    c"cuMemAllocAsync",
    c"cuMemFreeAsync",
];

// No session needs all of them, so each may be missing.
table! {
    optional
    init: b"cuInit\0" fn(c_uint);
    version: b"cuDriverGetVersion\0" fn(*mut c_int);
    device_count: b"cuDeviceGetCount\0" fn(*mut c_int);
    device_name: b"cuDeviceGetName\0" fn(*mut c_char, c_int, c_int);
    error_name: b"cuGetErrorName\0" fn(Code, *mut *const c_char);
}

/// Asks the driver. It initialises the driver (`cuInit`), which makes no context.
pub fn driver() -> DriverProbe {
    let mut found = DriverProbe { library: LIBRARY, ..DriverProbe::default() };
    // SAFETY: opening the driver runs its initialisers, as every CUDA program does.
    let library = match unsafe { libloading::Library::new(LIBRARY) } {
        // Never closed: the driver runs code at process exit.
        Ok(library) => &ManuallyDrop::new(library),
        Err(error) => {
            found.not_loaded = Some(reason(&error));
            return found;
        }
    };
    let has = |name: &[u8]| {
        // SAFETY: the address is only compared with null.
        unsafe { library.get::<*const ()>(name) }.is_ok()
    };
    found.missing = REQUIRED.iter().filter(|name| !has(name)).map(|name| readable(name).into_owned()).collect();
    if !has(b"cuEventElapsedTime\0") && !has(b"cuEventElapsedTime_v2\0") {
        found.missing.push("cuEventElapsedTime".to_owned());
    }
    found.optional =
        OPTIONAL.iter().filter_map(|name| Some((name.to_str().ok()?, has(name.to_bytes_with_nul())))).collect();
    let symbols = Symbols::load(library);
    let number = |get: unsafe extern "C" fn(*mut c_int) -> Code| {
        let mut number = 0;
        // SAFETY: a valid out-pointer.
        let code = unsafe { get(&raw mut number) };
        if code == SUCCESS { Ok(number) } else { Err(symbols.describe(code)) }
    };
    found.version = symbols.version.and_then(|get| number(get).ok());
    let (Some(init), Some(count)) = (symbols.init, symbols.device_count) else { return found };
    // SAFETY: it takes flags, of which there are none.
    let code = unsafe { init(0) };
    if code != SUCCESS {
        found.not_initialised = Some(format!("`cuInit` gave {}", symbols.describe(code)));
        return found;
    }
    match number(count) {
        Ok(count) => found.devices = (0..count).map(|device| symbols.name_of(device)).collect(),
        Err(error) => found.not_initialised = Some(format!("`cuDeviceGetCount` gave {error}")),
    }
    found
}

impl Symbols {
    /// The name of a device, or its number if the driver does not tell the name.
    fn name_of(&self, device: c_int) -> String {
        let mut name = [0_u8; 256];
        // SAFETY: the buffer is as long as it is said to be.
        let code = self.device_name.map(|get| unsafe { get(name.as_mut_ptr().cast(), 255, device) });
        let text = CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned());
        match (code, text) {
            (Some(SUCCESS), Ok(text)) if !text.is_empty() => text,
            _ => format!("device {device}"),
        }
    }

    /// The driver's word for an error.
    fn describe(&self, code: Code) -> String {
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: a valid out-pointer.
        let found = self.error_name.map(|get| unsafe { get(code, &raw mut name) });
        if found == Some(SUCCESS) && !name.is_null() {
            // SAFETY: not null, NUL-terminated and static, says the driver.
            return unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        }
        format!("error {code}")
    }
}

#[cfg(feature = "cupti")]
pub use crate::cupti::{CuptiProbe, cupti};
