//! The library: its search path, and the table of its symbols.
//!
//! It is opened when the first session that needs it starts. It is never closed, because CUPTI keeps threads, and the
//! driver calls into it until the process ends. A missing library or symbol is an error with a remedy, never a panic.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::Library;

use super::abi::*;
use crate::driver::Driver;
use crate::symbols::readable;
use warpline_core::environment;
use warpline_core::library::{loaded_first, open_first, reason};

/// The variable that names the library.
const PATH: &str = "WARPLINE_CUPTI";

const NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];

/// The variables that name a toolkit, its usual folder, and the library's folders in it.
const TOOLKITS: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];
const USUAL: &str = "/usr/local/cuda";
const FOLDERS: [&str; 2] = ["lib64", "extras/CUPTI/lib64"];

macro_rules! table {
    (
        required { $($field:ident: $symbol:literal fn($($argument:ty),*);)* }
        optional { $($option:ident: $option_symbol:literal fn($($option_argument:ty),*);)* }
    ) => {
        /// The functions. Callers must pass valid pointers of the right types.
        pub(super) struct Symbols {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> Code,)*
            /// Missing in some versions.
            $(pub(super) $option: Option<unsafe extern "C" fn($($option_argument),*) -> Code>,)*
        }

        impl Symbols {
            fn load(library: &Library, name: &str) -> Result<Symbols, String> {
                Ok(Symbols {
                    $($field: {
                        // SAFETY: the type is the one that CUPTI's headers declare for this symbol since CUDA 12.0.
                        let symbol = unsafe { library.get($symbol) };
                        *symbol.map_err(|_| missing(name, $symbol))?
                    },)*
                    $($option: {
                        // SAFETY: the type is the one of the headers of the versions that have it.
                        let symbol = unsafe { library.get($option_symbol) };
                        symbol.ok().map(|symbol| *symbol)
                    },)*
                })
            }
        }
    };
}

table! {
    required {
        get_version: b"cuptiGetVersion\0" fn(*mut u32);
        subscribe: b"cuptiSubscribe\0" fn(*mut Subscriber, Callback, *mut c_void);
        unsubscribe: b"cuptiUnsubscribe\0" fn(Subscriber);
        register_callbacks: b"cuptiActivityRegisterCallbacks\0" fn(BufferRequestedCallback, BufferCompletedCallback);
        enable: b"cuptiActivityEnable\0" fn(u32);
        disable: b"cuptiActivityDisable\0" fn(u32);
        flush_all: b"cuptiActivityFlushAll\0" fn(u32);
        next_record: b"cuptiActivityGetNextRecord\0" fn(*mut u8, usize, *mut *mut u8);
        dropped_records: b"cuptiActivityGetNumDroppedRecords\0" fn(*mut c_void, u32, *mut usize);
        get_timestamp: b"cuptiGetTimestamp\0" fn(*mut u64);
        push_id: b"cuptiActivityPushExternalCorrelationId\0" fn(u32, u64);
        pop_id: b"cuptiActivityPopExternalCorrelationId\0" fn(u32, *mut u64);
    }
    optional {
        enable_driver_call: b"cuptiActivityEnableDriverApi\0" fn(u32, u8);
        enable_runtime_call: b"cuptiActivityEnableRuntimeApi\0" fn(u32, u8);
        set_attribute: b"cuptiActivitySetAttribute\0" fn(c_int, *mut usize, *mut c_void);
        enable_all_syncs: b"cuptiActivityEnableAllSyncRecords\0" fn(u8);
        enable_callback: b"cuptiEnableCallback\0" fn(u32, Subscriber, u32, u32);
        finalize: b"cuptiFinalize\0" fn();
        get_thread_id: b"cuptiGetThreadIdType\0" fn(*mut c_int);
        set_thread_id: b"cuptiSetThreadIdType\0" fn(c_int);
        context_id: b"cuptiGetContextId\0" fn(*mut c_void, *mut u32);
        stream_id: b"cuptiGetStreamIdEx\0" fn(*mut c_void, *mut c_void, u8, *mut u32);
        graph_node_id: b"cuptiGetGraphNodeId\0" fn(*mut c_void, *mut u64);
        graph_id: b"cuptiGetGraphId\0" fn(*mut c_void, *mut u32);
        graph_exec_id: b"cuptiGetGraphExecId\0" fn(*mut c_void, *mut u32);
        result_string: b"cuptiGetResultString\0" fn(Code, *mut *const c_char);
    }
}

fn missing(name: &str, symbol: &[u8]) -> String {
    let symbol = readable(symbol);
    format!("`{name}` has no `{symbol}`: install CUPTI of CUDA 12.0 or newer, or name its library in {PATH}")
}

/// The CUPTI of this process.
pub(super) struct Cupti {
    pub(super) symbols: Symbols,
    pub(super) version: u32,
    /// The name or path under which it was found.
    pub(super) name: String,
}

impl Cupti {
    /// Returns the library, which the first call opens.
    pub(super) fn get() -> Result<&'static Cupti, String> {
        static CUPTI: OnceLock<Result<Cupti, String>> = OnceLock::new();
        CUPTI.get_or_init(Cupti::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Cupti, String> {
        let (name, library) = find()?;
        // The library is never closed.
        let library = ManuallyDrop::new(library);
        let mut cupti = Cupti { symbols: Symbols::load(&library, &name)?, version: 0, name };
        let mut version = 0;
        // SAFETY: a valid out-pointer.
        let code = unsafe { (cupti.symbols.get_version)(&raw mut version) };
        let name = &cupti.name;
        if let Err(error) = cupti.check("cuptiGetVersion", code) {
            return Err(format!(
                "`{name}` returns no version, {}: install a CUDA driver, which CUPTI of CUDA 13.3 or newer needs for that, or name another library \
                 in {PATH}",
                cupti.describe(error)
            ));
        }
        if version < OLDEST {
            return Err(format!(
                "`{name}` is CUPTI of an old toolkit (it reports version {version}): install CUPTI of CUDA 12.0 or newer, \
                 or name its library in {PATH}"
            ));
        }
        cupti.version = version;
        Ok(cupti)
    }

    /// Returns an error with the call's name and its code if the call failed.
    pub(super) fn check(&self, call: &'static str, code: Code) -> Result<(), CuptiError> {
        if code == SUCCESS { Ok(()) } else { Err(CuptiError { call, code }) }
    }

    /// Returns an error as text.
    pub(super) fn describe(&self, error: CuptiError) -> String {
        let CuptiError { call, code } = error;
        let mut text = std::ptr::null();
        // SAFETY: a valid out-pointer; CUPTI's texts are static.
        let word = unsafe {
            let found = self.symbols.result_string.map(|ask| ask(code, &raw mut text)) == Some(SUCCESS);
            (found && !text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        format!("{call} returned {code} ({})", word.as_deref().unwrap_or("no name"))
    }
}

/// The error of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CuptiError {
    pub(super) call: &'static str,
    pub(super) code: Code,
}

/// Opens the library that the variable names, or else the first of the candidates that exists.
fn find() -> Result<(String, Library), String> {
    environment::tell_if_ignored(PATH);
    if let Some(path) = environment::var_os(PATH).filter(|path| !path.is_empty()) {
        let name = PathBuf::from(&path).display().to_string();
        // SAFETY: every program that profiles itself runs CUPTI's initialisers; the user names the library.
        let library = unsafe { Library::new(&path) };
        let library = library.map_err(|error| {
            let why = reason(&error);
            format!("`{name}`, which {PATH} names, cannot be opened ({why}): correct the path, or unset the variable")
        })?;
        return Ok((name, library));
    }
    let driver = Driver::get().ok().and_then(|driver| driver.version().ok());
    // SAFETY: as above; these are CUPTI's own names.
    let open = |candidate: &OsString| unsafe { Library::new(candidate) }.map_err(|error| reason(&error));
    match open_first(candidates(driver), open) {
        Ok((name, library)) => Ok((name.to_string_lossy().into_owned(), library)),
        Err(why) => Err(format!(
            "there is no CUPTI ({why}): install it (it is part of the CUDA toolkit), add its folder to LD_LIBRARY_PATH, or name the \
             library in {PATH}"
        )),
    }
}

/// Returns the names that the loader may know and the paths in toolkits' folders. A library that the process has loaded
/// comes first, because a process has one CUPTI. The others are in the order of [`rank`] for a driver of this version.
fn candidates(driver: Option<c_int>) -> Vec<OsString> {
    let toolkits = TOOLKITS.iter().filter_map(|name| environment::var_os(name)).filter(|folder| !folder.is_empty());
    let toolkits = toolkits.map(PathBuf::from).chain([PathBuf::from(USUAL)]);
    let folders: Vec<_> = toolkits
        .flat_map(|toolkit| FOLDERS.map(|folder| toolkit.join(folder)))
        .filter(|folder| folder.is_dir())
        .collect();
    let in_folders = folders.iter().flat_map(|folder| NAMES.map(|name| folder.join(name).into_os_string()));
    let mut candidates: Vec<_> = NAMES.iter().map(OsString::from).chain(in_folders).collect();
    candidates.sort_by_key(|candidate| rank(candidate, driver));
    loaded_first(candidates)
}

/// Returns the place of a library among others for a driver of this version: those of the driver's CUDA or an older
/// one, then those whose name has no version, then newer ones, which the driver may not serve. Without a driver, all
/// are alike.
fn rank(library: &OsStr, driver: Option<c_int>) -> u8 {
    let Some(driver) = driver else { return 0 };
    let major = library.to_str().and_then(|library| library.rsplit_once(".so.")?.1.parse::<c_int>().ok());
    match major {
        Some(major) if major <= driver / 1000 => 0,
        Some(_) => 2,
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_of_cuda_12_gets_no_newer_cupti_while_there_is_another() {
        let sorted = |driver| {
            let mut names = [
                "libcupti.so.13",
                "libcupti.so.12",
                "libcupti.so",
                "/opt/cuda/libcupti.so.13",
                "/opt/cuda/libcupti.so.12",
            ];
            names.sort_by_key(|name| rank(name.as_ref(), driver));
            names
        };
        let of_12 =
            ["libcupti.so.12", "/opt/cuda/libcupti.so.12", "libcupti.so", "libcupti.so.13", "/opt/cuda/libcupti.so.13"];
        assert_eq!(sorted(Some(12_090)), of_12);
        let of_13 =
            ["libcupti.so.13", "libcupti.so.12", "/opt/cuda/libcupti.so.13", "/opt/cuda/libcupti.so.12", "libcupti.so"];
        assert_eq!(sorted(Some(13_000)), of_13);
        assert_eq!(sorted(None)[..3], NAMES);
    }
}
