//! NCCL, as far as warpline asks it, and what the examples call: a communicator is a number that says its ranks and its rank.
//!
//! Nothing is moved. A collective leaves a line with its arguments, under the names that they have in nccl.h.

use std::ffi::{c_char, c_int, c_void};
use std::fmt::Write as _;

use crate::driver;

const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 4;
const IN_PROGRESS: c_int = 7;

/// A communicator that is still being made.
const UNFINISHED: usize = 1;

fn answer(comm: usize, out: *mut c_int, number: usize) -> c_int {
    match comm {
        0 => INVALID_ARGUMENT,
        UNFINISHED => IN_PROGRESS,
        _ => {
            // SAFETY: the caller passes a valid out-pointer.
            unsafe { *out = number as c_int };
            SUCCESS
        }
    }
}

/// `comm` is `ranks << 16 | rank`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommCount(comm: usize, count: *mut c_int) -> c_int {
    answer(comm, count, comm >> 16)
}

/// `comm` is `ranks << 16 | rank`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommUserRank(comm: usize, rank: *mut c_int) -> c_int {
    answer(comm, rank, comm & 0xffff)
}

/// The text of the one error that there is.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(_: c_int) -> *const c_char {
    c"invalid argument".as_ptr()
}

/// `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UniqueId {
    internal: [c_char; 128],
}

/// 2.28.3.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller passes a valid out-pointer.
    unsafe { *version = 22_803 };
    SUCCESS
}

/// The bytes 0 to 127.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    // SAFETY: the caller passes a valid out-pointer.
    unsafe { (*id).internal = std::array::from_fn(|at| at as c_char) };
    SUCCESS
}

/// Refuses an id that `ncclGetUniqueId` did not make.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommInitRank(comm: *mut usize, ranks: c_int, id: UniqueId, rank: c_int) -> c_int {
    if id.internal != std::array::from_fn(|at| at as c_char) {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller passes a valid out-pointer.
    unsafe { *comm = (ranks as usize) << 16 | rank as usize };
    SUCCESS
}

/// The ranks in order; the devices are not looked at.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommInitAll(comms: *mut usize, ranks: c_int, _: *const c_int) -> c_int {
    for rank in 0..ranks as usize {
        // SAFETY: the caller passes as many places as there are ranks.
        unsafe { *comms.add(rank) = (ranks as usize) << 16 | rank };
    }
    SUCCESS
}

/// There is none.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommGetAsyncError(_: usize, error: *mut c_int) -> c_int {
    // SAFETY: the caller passes a valid out-pointer.
    unsafe { *error = SUCCESS };
    SUCCESS
}

/// What a line says of an argument.
trait Argument {
    fn number(self) -> usize;
}

impl Argument for usize {
    fn number(self) -> usize {
        self
    }
}

impl Argument for c_int {
    fn number(self) -> usize {
        self as usize
    }
}

impl<T> Argument for *const T {
    fn number(self) -> usize {
        self.addr()
    }
}

impl<T> Argument for *mut T {
    fn number(self) -> usize {
        self.addr()
    }
}

/// Leaves the line. A root or a peer beyond the ranks is refused.
fn note(call: &str, arguments: &[(&str, usize)]) -> c_int {
    let mut line = call.to_owned();
    for (name, value) in arguments {
        let _ = write!(line, " {name}={value}");
    }
    driver::lock().journal.mark(line);
    let value = |wanted: &str| arguments.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
    let other = value("root").or(value("peer"));
    if other.is_some_and(|other| value("comm").is_some_and(|comm| other >= comm >> 16)) {
        return INVALID_ARGUMENT;
    }
    SUCCESS
}

macro_rules! collectives {
    ($($(#[$attribute:meta])* fn $symbol:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            pub extern "C" fn $symbol($($argument: $type),*) -> c_int {
                note(stringify!($symbol), &[$((stringify!($argument), Argument::number($argument))),*])
            }
        )*
    };
}

// As nccl.h declares them; `int` stands for its enums.
collectives! {
    fn ncclGroupStart();
    fn ncclGroupEnd();
    fn ncclCommDestroy(comm: usize);
    fn ncclCommAbort(comm: usize);
    fn ncclReduce(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, op: c_int, root: c_int, comm: usize, stream: *mut c_void);
    fn ncclBroadcast(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: usize, stream: *mut c_void);
    fn ncclAllReduce(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: usize, stream: *mut c_void);
    fn ncclReduceScatter(sendbuff: *const c_void, recvbuff: *mut c_void, recvcount: usize, datatype: c_int, op: c_int, comm: usize, stream: *mut c_void);
    fn ncclAllGather(sendbuff: *const c_void, recvbuff: *mut c_void, sendcount: usize, datatype: c_int, comm: usize, stream: *mut c_void);
    fn ncclSend(sendbuff: *const c_void, count: usize, datatype: c_int, peer: c_int, comm: usize, stream: *mut c_void);
    fn ncclRecv(recvbuff: *mut c_void, count: usize, datatype: c_int, peer: c_int, comm: usize, stream: *mut c_void);
    /// Since 2.28, as the next two.
    #[cfg(not(feature = "old"))]
    fn ncclAlltoAll(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, comm: usize, stream: *mut c_void);
    #[cfg(not(feature = "old"))]
    fn ncclGather(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: usize, stream: *mut c_void);
    #[cfg(not(feature = "old"))]
    fn ncclScatter(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: usize, stream: *mut c_void);
}
