//! The library: its symbols, its groups of calls, its errors.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::sync::OnceLock;

use libloading::Symbol;

/// As distributions and wheels name it, and as a toolkit's folder for linking does.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// Why NCCL did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no library.
    #[error("there is no NCCL (`libnccl.so.2`): install it, or add its folder to LD_LIBRARY_PATH")]
    Absent,
    /// It lacks a function.
    #[error("the NCCL library has no `{0}`: install NCCL 2.10 or newer")]
    Lacks(&'static str),
    /// It refused a call.
    #[error("{call} gave {text}; run with NCCL_DEBUG=WARN to see why")]
    Refused {
        /// The function.
        call: &'static str,
        /// What NCCL says of its code.
        text: String,
    },
}

/// `ncclUniqueId`: by it the ranks of a communicator find each other.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct UniqueId([u8; UniqueId::BYTES]);

impl UniqueId {
    /// Its size.
    pub const BYTES: usize = 128;

    /// As another rank has sent it.
    pub fn from_bytes(bytes: [u8; UniqueId::BYTES]) -> UniqueId {
        UniqueId(bytes)
    }

    /// As other ranks need it.
    pub fn as_bytes(&self) -> &[u8; UniqueId::BYTES] {
        &self.0
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UniqueId(..)")
    }
}

type Comm = *mut c_void;
type Stream = *mut c_void;

/// Buffers are addresses of the device, hence numbers here.
type Reduction = unsafe extern "C" fn(u64, u64, usize, c_int, c_int, Comm, Stream) -> c_int;
type Exchange = unsafe extern "C" fn(u64, u64, usize, c_int, Comm, Stream) -> c_int;
type Rooted = unsafe extern "C" fn(u64, u64, usize, c_int, c_int, Comm, Stream) -> c_int;
type RootedReduction = unsafe extern "C" fn(u64, u64, usize, c_int, c_int, c_int, Comm, Stream) -> c_int;
type OneWay = unsafe extern "C" fn(u64, usize, c_int, c_int, Comm, Stream) -> c_int;

/// NCCL, opened.
#[derive(Debug)]
pub struct Library {
    get_version: unsafe extern "C" fn(*mut c_int) -> c_int,
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    get_error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    pub(crate) comm_init_rank: unsafe extern "C" fn(*mut Comm, c_int, UniqueId, c_int) -> c_int,
    pub(crate) comm_init_all: unsafe extern "C" fn(*mut Comm, c_int, *const c_int) -> c_int,
    pub(crate) comm_get_async_error: unsafe extern "C" fn(Comm, *mut c_int) -> c_int,
    pub(crate) comm_destroy: unsafe extern "C" fn(Comm) -> c_int,
    pub(crate) comm_abort: Option<unsafe extern "C" fn(Comm) -> c_int>,
    pub(crate) all_reduce: Reduction,
    pub(crate) all_gather: Exchange,
    pub(crate) reduce_scatter: Reduction,
    pub(crate) broadcast: Rooted,
    pub(crate) reduce: RootedReduction,
    pub(crate) send: OneWay,
    pub(crate) recv: OneWay,
    /// Since NCCL 2.28, as the next two.
    pub(crate) all_to_all: Option<Exchange>,
    pub(crate) gather: Option<Rooted>,
    pub(crate) scatter: Option<Rooted>,
}

impl Library {
    /// The library, opened by whoever asks first. It is never closed: threads of its own run its code.
    ///
    /// # Errors
    /// There is none, or it is too old.
    pub fn open() -> Result<&'static Library, Error> {
        static LIBRARY: OnceLock<Result<Library, Error>> = OnceLock::new();
        LIBRARY.get_or_init(Library::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Library, Error> {
        // SAFETY: NCCL's initialisers are those of every program that uses it.
        let opened = NAMES.into_iter().find_map(|name| unsafe { libloading::Library::new(name) }.ok());
        let library: &'static libloading::Library = Box::leak(Box::new(opened.ok_or(Error::Absent)?));
        // SAFETY: each type above is that of its function in nccl.h, of NCCL 2.10 to 2.30.
        unsafe {
            Ok(Library {
                get_version: need(library, "ncclGetVersion")?,
                get_unique_id: need(library, "ncclGetUniqueId")?,
                get_error_string: need(library, "ncclGetErrorString")?,
                group_start: need(library, "ncclGroupStart")?,
                group_end: need(library, "ncclGroupEnd")?,
                comm_init_rank: need(library, "ncclCommInitRank")?,
                comm_init_all: need(library, "ncclCommInitAll")?,
                comm_get_async_error: need(library, "ncclCommGetAsyncError")?,
                comm_destroy: need(library, "ncclCommDestroy")?,
                comm_abort: find(library, "ncclCommAbort"),
                all_reduce: need(library, "ncclAllReduce")?,
                all_gather: need(library, "ncclAllGather")?,
                reduce_scatter: need(library, "ncclReduceScatter")?,
                broadcast: need(library, "ncclBroadcast")?,
                reduce: need(library, "ncclReduce")?,
                send: need(library, "ncclSend")?,
                recv: need(library, "ncclRecv")?,
                all_to_all: find(library, "ncclAlltoAll"),
                gather: find(library, "ncclGather"),
                scatter: find(library, "ncclScatter"),
            })
        }
    }

    /// Its version, as in `2.28.3`.
    ///
    /// # Errors
    /// NCCL's own.
    pub fn version(&self) -> Result<String, Error> {
        let mut version = 0;
        // SAFETY: the place is valid.
        let code = unsafe { (self.get_version)(&raw mut version) };
        self.check("ncclGetVersion", code)?;
        Ok(format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100))
    }

    /// Whether it has `ncclAlltoAll`, `ncclGather` and `ncclScatter`, as it does since 2.28.
    pub fn has_all_to_all(&self) -> bool {
        self.all_to_all.is_some() && self.gather.is_some() && self.scatter.is_some()
    }

    /// A new id. The rank that makes it tells the others.
    ///
    /// # Errors
    /// NCCL's own.
    pub fn unique_id(&self) -> Result<UniqueId, Error> {
        let mut id = UniqueId([0; UniqueId::BYTES]);
        // SAFETY: the place is valid, and of the size that nccl.h says.
        let code = unsafe { (self.get_unique_id)(&raw mut id) };
        self.check("ncclGetUniqueId", code)?;
        Ok(id)
    }

    /// Makes `calls` one launch: `ncclGroupStart`, they, `ncclGroupEnd`. Also where one of them fails, the group ends.
    ///
    /// # Errors
    /// The calls', or else NCCL's own.
    pub fn group<E: From<Error>>(&self, calls: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        // SAFETY: it takes nothing, and counts on this thread.
        let code = unsafe { (self.group_start)() };
        self.check("ncclGroupStart", code)?;
        let called = calls();
        // SAFETY: as above; one was begun.
        let code = unsafe { (self.group_end)() };
        called?;
        Ok(self.check("ncclGroupEnd", code)?)
    }

    pub(crate) fn check(&self, call: &'static str, code: c_int) -> Result<(), Error> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: it takes any number.
        let text = unsafe { (self.get_error_string)(code) };
        let text = if text.is_null() {
            format!("error {code}")
        } else {
            // SAFETY: its texts are NUL-terminated and static.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(Error::Refused { call, text })
    }
}

/// # Safety
/// `T` is the type of the function.
unsafe fn need<T: Copy + 'static>(library: &'static libloading::Library, name: &'static str) -> Result<T, Error> {
    // SAFETY: as the caller says.
    unsafe { find(library, name) }.ok_or(Error::Lacks(name))
}

/// # Safety
/// `T` is the type of the function.
unsafe fn find<T: Copy + 'static>(library: &'static libloading::Library, name: &'static str) -> Option<T> {
    // SAFETY: as the caller says.
    unsafe { library.get(name.as_bytes()) }.ok().map(|symbol: Symbol<'static, T>| *symbol)
}
