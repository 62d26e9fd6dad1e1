//! Finds the tool that is to be told of the zones, where NVIDIA's own client looks on Linux: the variable, a tool in the
//! program itself, the CUDA driver.
#![allow(unsafe_code)]

#[cfg_attr(not(target_os = "linux"), path = "find/other_system.rs")]
mod system;

use std::ffi::{OsStr, c_int, c_void};
use std::path::Path;

use libloading::Library;

use super::abi::*;
use super::table;
use warpline_core::environment;

/// A tool that was found and has not been started.
pub(super) struct Tool {
    /// What it is to a person.
    pub(super) name: String,
    pub(super) initialize: NvtxInitializeInjectionNvtxFunc_t,
    /// None for a tool without the payload extension.
    pub(super) extend: Option<NvtxExtInitializeInjectionFunc_t>,
}

/// What was looked for and not found.
pub(super) enum NoTool {
    /// `NVTX_INJECTION64_PATH=./.` says that there shall be none.
    Refused,
    /// Nobody asks for one.
    None,
    /// One is asked for and cannot be had: what is wrong, and what to do.
    Broken(String),
}

/// The name of a tool that stands for none.
const NO_INJECTION: &str = "./.";

/// A symbol of a tool that is part of the program: a place with the entry point in it.
const STATIC: &[u8] = b"InitializeInjectionNvtx2_fnptr\0";
const STATIC_EXTENSION: &[u8] = b"InitializeInjectionNvtxExtension_fnptr\0";

/// How the CUDA driver hands out a tool's entry points (`NvtxInjectionInitializerKind`).
const FROM_DRIVER: &[u8] = b"cuNvtxGetInjectionInitializer\0";
const DRIVER: &str = "libcuda.so.1";
const INITIALIZER_CORE: c_int = 1;
const INITIALIZER_EXTENSION: c_int = 2;

/// What old toolkits have instead.
const LEGACY: &str = "libnvToolsExt.so.1";

/// The tool of this process.
pub(super) fn tool() -> Result<Tool, NoTool> {
    environment::tell_if_ignored(INJECTION_PATH);
    match environment::var_os(INJECTION_PATH) {
        Some(path) if path == NO_INJECTION => Err(NoTool::Refused),
        Some(path) if !path.is_empty() => injected(&path).map_err(NoTool::Broken),
        _ => in_program().or_else(in_driver).ok_or(NoTool::None),
    }
}

fn injected(path: &OsStr) -> Result<Tool, String> {
    let name = format!("`{}`", Path::new(path).display());
    let library = open(path).map_err(|error| {
        format!(
            "{name}, which {INJECTION_PATH} names, cannot be opened ({error}): correct the path, or unset the variable"
        )
    })?;
    let initialize = symbol::<NvtxInitializeInjectionNvtxFunc_t>(library, INITIALIZE).ok_or_else(|| {
        format!(
            "{name}, which {INJECTION_PATH} names, has no InitializeInjectionNvtx2: name the library of an NVTX tool"
        )
    })?;
    Ok(Tool { name, initialize, extend: symbol(library, INITIALIZE_EXTENSION) })
}

/// A tool that the program was linked with, if it exports where its entry points are.
#[cfg(unix)]
fn in_program() -> Option<Tool> {
    let this: &'static Library = Box::leak(Box::new(libloading::os::unix::Library::this().into()));
    // SAFETY: nvtxInit.h and nvtxExtInit.h declare both symbols as function pointers, null without a tool.
    let (initialize, extend) = unsafe {
        let initialize = symbol::<*const Option<NvtxInitializeInjectionNvtxFunc_t>>(this, STATIC)?.read()?;
        let extend = symbol::<*const Option<NvtxExtInitializeInjectionFunc_t>>(this, STATIC_EXTENSION);
        (initialize, extend.and_then(|place| place.read()))
    };
    Some(Tool { name: "the tool in the program".to_owned(), initialize, extend })
}

#[cfg(not(unix))]
fn in_program() -> Option<Tool> {
    None
}

/// A tool that the CUDA driver brings. The driver is opened only where a file says that a tool wants this.
fn in_driver() -> Option<Tool> {
    type GetInitializer = unsafe extern "C" fn(c_int, *mut *mut c_void) -> c_int;
    if !system::advertisements().iter().any(|file| file.exists()) {
        return None;
    }
    let driver = open(OsStr::new(DRIVER)).ok()?;
    let get = symbol::<GetInitializer>(driver, FROM_DRIVER)?;
    let initializer = |kind| {
        let mut function = std::ptr::null_mut();
        // SAFETY: the function is as nvtxTypes.h declares it, and the place outlives the call.
        let code = unsafe { get(kind, &raw mut function) };
        Some(function).filter(|function| code == 0 && !function.is_null())
    };
    let (core, extension) = (initializer(INITIALIZER_CORE)?, initializer(INITIALIZER_EXTENSION));
    // SAFETY: the driver gives functions of these types for these kinds.
    let (initialize, extend) = unsafe {
        (
            std::mem::transmute::<*mut c_void, NvtxInitializeInjectionNvtxFunc_t>(core),
            extension.map(|function| std::mem::transmute::<*mut c_void, NvtxExtInitializeInjectionFunc_t>(function)),
        )
    };
    Some(Tool { name: "the tool in the CUDA driver".to_owned(), initialize, extend })
}

/// Puts the functions of `libnvToolsExt`, if it is there, in the places that a tool would fill.
pub(super) fn legacy() -> bool {
    const FUNCTIONS: [(usize, usize, &[u8]); 9] = [
        (NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_NameOsThreadA, b"nvtxNameOsThreadA\0"),
        (NVTX_CB_MODULE_CUDA, NVTX_CBID_CUDA_NameCuStreamA, b"nvtxNameCuStreamA\0"),
        (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangeStartEx, b"nvtxDomainRangeStartEx\0"),
        (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangeEnd, b"nvtxDomainRangeEnd\0"),
        (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePushEx, b"nvtxDomainRangePushEx\0"),
        (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePop, b"nvtxDomainRangePop\0"),
        (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainNameCategoryA, b"nvtxDomainNameCategoryA\0"),
        (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRegisterStringA, b"nvtxDomainRegisterStringA\0"),
        (NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainCreateA, b"nvtxDomainCreateA\0"),
    ];
    let Ok(library) = open(OsStr::new(LEGACY)) else { return false };
    for (module, slot, name) in FUNCTIONS {
        if let Some(function) = symbol::<*mut c_void>(library, name) {
            table::put(module, slot, function);
        }
    }
    table::takes_ranges()
}

/// Opens a library for good: it may hold functions that the tool has handed out, whoever closes it how often.
fn open(path: &OsStr) -> Result<&'static Library, libloading::Error> {
    system::open(path).map(|library| &*Box::leak(Box::new(library)))
}

/// What the library exports under this name. The caller names the type that the headers give it.
fn symbol<T: Copy>(library: &'static Library, name: &[u8]) -> Option<T> {
    // SAFETY: the caller's type is that of the headers.
    unsafe { library.get::<T>(name) }.ok().map(|symbol| *symbol)
}
