//! NCCL, as far as warpline asks it: a communicator is a number that says its ranks and its rank.

use std::ffi::{c_char, c_int};

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
