//! The members of NCCL communicators, queried through a symbol table of our own. NCCL is opened at the first query.
//!
//! Nothing here communicates, and nothing is called while collectives run.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use warpline_core::collective::ProcessGroup;
use warpline_core::library::{loaded_first, open_first, reason};

/// The reason why a communicator could not be queried, with a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NcclError(String);

/// `ncclSuccess` and `ncclInProgress`.
const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;

/// The library's name in distributions and wheels, and its name in a toolkit's folder for linking.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

struct Nccl {
    comm_count: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int,
    comm_user_rank: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int,
    get_error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// Returns the group of a communicator, whose ranks are 0 to n - 1.
///
/// # Safety
/// `comm` must be a live `ncclComm_t` of the NCCL library that this process has loaded, or finds, as `libnccl.so.2` (or
/// `libnccl.so`). Another NCCL, such as a statically linked one, has its own layout.
///
/// # Errors
/// There is no NCCL (`libnccl.so.2`), the communicator is still being created, or NCCL returns an error.
pub unsafe fn process_group(name: impl Into<String>, comm: *mut c_void) -> Result<ProcessGroup, NcclError> {
    // SAFETY: the caller vouches for the communicator.
    let (size, rank) = unsafe { ask(comm) }?;
    Ok(ProcessGroup::new(name, 0..size, rank))
}

/// Returns a communicator's number of ranks, and this rank's number.
///
/// # Safety
/// `comm` must be a live `ncclComm_t` of the NCCL library that this process finds as `libnccl.so.2`.
///
/// # Errors
/// There is no NCCL, or it returns an error.
unsafe fn ask(comm: *mut c_void) -> Result<(u32, u32), NcclError> {
    static NCCL: OnceLock<Result<Nccl, NcclError>> = OnceLock::new();
    let nccl = NCCL.get_or_init(Nccl::open).as_ref().map_err(Clone::clone)?;
    let ask = |call: &str, function: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int| {
        let mut number = 0;
        // SAFETY: the caller vouches for the communicator; the other argument is a valid out-pointer.
        match unsafe { function(comm, &raw mut number) } {
            SUCCESS => u32::try_from(number).map_err(|_| NcclError(format!("`{call}` returned {number}"))),
            IN_PROGRESS => Err(NcclError(format!(
                "`{call}`: the communicator is still being made; ask again once `ncclCommGetAsyncError` says that it is ready"
            ))),
            code => Err(NcclError(format!("`{call}` gave {}", nccl.text(code)))),
        }
    };
    Ok((ask("ncclCommCount", nccl.comm_count)?, ask("ncclCommUserRank", nccl.comm_user_rank)?))
}

impl Nccl {
    fn open() -> Result<Nccl, NcclError> {
        // SAFETY: the library's initialisers run, as in any program that uses NCCL.
        let open = |name: &&str| unsafe { libloading::Library::new(*name) }.map_err(|error| reason(&error));
        // The library that has created the communicator is loaded.
        let opened = open_first(loaded_first(NAMES), open);
        let (_, library) = opened.map_err(|why| {
            NcclError(format!("there is no NCCL: {why}; install it, or add its folder to LD_LIBRARY_PATH"))
        })?;
        // The library is never closed, because communicators use it.
        Nccl::load(&ManuallyDrop::new(library))
    }

    fn load(library: &libloading::Library) -> Result<Nccl, NcclError> {
        // SAFETY: the types are those of NCCL's header for these symbols since NCCL 2.0.
        unsafe {
            Ok(Nccl {
                comm_count: *library.get(b"ncclCommCount\0").map_err(|_| missing("ncclCommCount"))?,
                comm_user_rank: *library.get(b"ncclCommUserRank\0").map_err(|_| missing("ncclCommUserRank"))?,
                get_error_string: *library.get(b"ncclGetErrorString\0").map_err(|_| missing("ncclGetErrorString"))?,
            })
        }
    }

    fn text(&self, code: c_int) -> String {
        // SAFETY: the function takes any number; its texts are static.
        let text = unsafe { (self.get_error_string)(code) };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: the text is not null, NUL-terminated and static.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

fn missing(symbol: &str) -> NcclError {
    NcclError(format!("the NCCL library has no `{symbol}`: install NCCL 2 or newer"))
}
