//! Finds the tool that receives the zones, in the places where NVIDIA's client looks on Linux: the environment variable, the program
//! itself, and the CUDA driver.
#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
mod system;

use std::ffi::{OsStr, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;

use libloading::Library;

use super::abi::*;
use warpline_core::environment;
use warpline_core::library::reason;

/// A tool that was found and has not been started.
pub(super) struct Tool {
    /// The description of the tool in messages.
    pub(super) name: String,
    pub(super) initialize: NvtxInitializeInjectionNvtxFunc_t,
    /// None if the tool has no payload extension.
    pub(super) extend: Option<NvtxExtInitializeInjectionFunc_t>,
}

/// The reason why no tool was found.
pub(super) enum NoTool {
    /// `NVTX_INJECTION64_PATH=./.` turns tools off.
    Refused,
    /// No tool is requested.
    None,
    /// A requested tool cannot be used: the cause and the remedy.
    Broken(String),
}

/// The value of the variable that turns tools off.
const NO_INJECTION: &str = "./.";

/// The kinds of entry points that the CUDA driver returns (`NvtxInjectionInitializerKind`).
const FROM_DRIVER: &[u8] = b"cuNvtxGetInjectionInitializer\0";
const DRIVER: &str = "libcuda.so.1";
const INITIALIZER_CORE: c_int = 1;
const INITIALIZER_EXTENSION: c_int = 2;

/// Returns the tool of this process.
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
        let why = reason(&error);
        format!(
            "{name}, which {INJECTION_PATH} names, cannot be opened ({why}): correct the path, or unset the variable"
        )
    })?;
    let initialize = symbol::<NvtxInitializeInjectionNvtxFunc_t>(&library, INITIALIZE).ok_or_else(|| {
        format!(
            "{name}, which {INJECTION_PATH} names, has no InitializeInjectionNvtx2: name the library of an NVTX tool"
        )
    })?;
    Ok(Tool { name, initialize, extend: symbol(&library, INITIALIZE_EXTENSION) })
}

/// Returns the tool that the program was linked with, if it exports its entry points.
#[cfg(unix)]
fn in_program() -> Option<Tool> {
    /// The symbols of a tool that is part of the program: variables that contain the entry points.
    const STATIC: &[u8] = b"InitializeInjectionNvtx2_fnptr\0";
    const STATIC_EXTENSION: &[u8] = b"InitializeInjectionNvtxExtension_fnptr\0";
    let this = &Library::from(libloading::os::unix::Library::this());
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

/// Returns the tool that the CUDA driver provides. The driver is opened only if a file shows that a tool requests this.
fn in_driver() -> Option<Tool> {
    type GetInitializer = unsafe extern "C" fn(c_int, *mut *mut c_void) -> c_int;
    if !system::advertisements().iter().any(|file| file.exists()) {
        return None;
    }
    let driver = open(OsStr::new(DRIVER)).ok()?;
    let get = symbol::<GetInitializer>(&driver, FROM_DRIVER)?;
    let initializer = |kind| {
        let mut function = std::ptr::null_mut();
        // SAFETY: the function is as nvtxTypes.h declares it, and the variable outlives the call.
        let code = unsafe { get(kind, &raw mut function) };
        Some(function).filter(|function| code == 0 && !function.is_null())
    };
    let (core, extension) = (initializer(INITIALIZER_CORE)?, initializer(INITIALIZER_EXTENSION));
    // SAFETY: the driver returns functions of these types for these kinds.
    let (initialize, extend) = unsafe {
        (
            std::mem::transmute::<*mut c_void, NvtxInitializeInjectionNvtxFunc_t>(core),
            extension.map(|function| std::mem::transmute::<*mut c_void, NvtxExtInitializeInjectionFunc_t>(function)),
        )
    };
    Some(Tool { name: "the tool in the CUDA driver".to_owned(), initialize, extend })
}

/// Opens a library that is never closed, because it may contain functions that the tool has passed on.
pub(super) fn open(path: &OsStr) -> Result<ManuallyDrop<Library>, libloading::Error> {
    system::open(path).map(ManuallyDrop::new)
}

/// Returns the symbol that the library exports under this name. The caller passes the type that the headers declare.
pub(super) fn symbol<T: Copy>(library: &Library, name: &[u8]) -> Option<T> {
    // SAFETY: the caller's type is that of the headers.
    unsafe { library.get::<T>(name) }.ok().map(|symbol| *symbol)
}

#[cfg(not(target_os = "linux"))]
mod system {
    //! The part of finding a tool that is specific to other systems than Linux.

    use std::ffi::OsStr;
    use std::path::PathBuf;

    /// Returns no files, because the driver provides no tool.
    pub(super) fn advertisements() -> Vec<PathBuf> {
        Vec::new()
    }

    /// Opens a library.
    pub(super) fn open(path: &OsStr) -> Result<libloading::Library, libloading::Error> {
        // SAFETY: loading runs only code of NVIDIA's toolkit, or of a library that the user names.
        unsafe { libloading::Library::new(path) }
    }
}
