//! Process groups of NCCL communicators, on a library that stands in for NCCL.
#![cfg(target_os = "linux")]

#[path = "stub-driver/harness.rs"]
mod stub;

use std::ffi::c_void;

use stub::{Driver, in_child};
use warpline::{NcclError, ProcessGroup};

fn group(comm: usize) -> Result<ProcessGroup, NcclError> {
    // SAFETY: the library that stands in for NCCL takes communicators for numbers.
    unsafe { ProcessGroup::from_nccl("tp0", comm as *mut c_void) }
}

#[test]
fn a_communicator_says_its_ranks() {
    in_child("a_communicator_says_its_ranks", Driver::Current, || {
        let group = group(4 << 16 | 3).expect("there is an NCCL");
        assert_eq!((group.ranks(), group.rank(), group.lane()), (&[0, 1, 2, 3][..], 3, "comm: tp0 [0,1,2,3]"));
    });
}

#[test]
fn what_nccl_refuses_is_an_error_that_says_why() {
    in_child("what_nccl_refuses_is_an_error_that_says_why", Driver::Current, || {
        let text = |comm| group(comm).expect_err("no communicator").to_string();
        assert_eq!(text(0), "`ncclCommCount` gave invalid argument");
        assert!(text(1).contains("still being made; ask again once `ncclCommGetAsyncError`"), "{}", text(1));
    });
}

#[test]
fn no_nccl_is_an_error_with_a_remedy() {
    in_child("no_nccl_is_an_error_with_a_remedy", Driver::Unloadable, || {
        let text = group(2 << 16).expect_err("there is no NCCL").to_string();
        assert!(text.starts_with("there is no NCCL: ") && text.contains("install it, or add its folder"), "{text}");
    });
}
