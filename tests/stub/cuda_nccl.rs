//! Process groups of NCCL communicators, and the calls that the examples and the GPU benches make, on a library that stands
//! in for NCCL; and what the records of collectives have of cudarc's buffers.
#![allow(unused_variables, reason = "a mark reads the parameters")]

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut};
use nccl::{Comm, Error, Library};
use warpline::collective::{DataType, ProcessGroup};
use warpline::nccl::NcclError;
use warpline::sink::MemorySink;
use warpline::{Session, collective};
use warpline_tests::this_test;

use crate::harness::driver::{Driver, Stub, in_child, on_stub};

/// In place.
#[collective("stub.nccl.in_place", kind = "all_reduce")]
fn in_place(stream: &Arc<CudaStream>, group: &ProcessGroup, gradients: &mut CudaSlice<f32>) {}

/// From one buffer into another.
#[collective("stub.nccl.gathered", kind = "all_gather")]
fn gathered(stream: &Arc<CudaStream>, part: &CudaView<'_, u8>, whole: &mut CudaViewMut<'_, u8>) {}

/// From the host's memory into the device's, which may be anything.
#[collective("stub.nccl.mixed", kind = "all_reduce")]
fn mixed(stream: &Arc<CudaStream>, from: &[f64], to: &mut CudaSlice<f64>) {}

#[test]
fn a_record_has_the_elements_of_cudarcs_buffers() {
    on_stub(this_test!(), |_| {
        let stream = CudaContext::new(0).and_then(|context| context.new_stream()).expect("a stream");
        let (zones, group) = (MemorySink::new(10), ProcessGroup::new("tp0", [0, 1], 0));
        let session = Session::builder().sink(zones.clone()).start().expect("no other session");
        // SAFETY: nothing reads or frees the memory, which is not there.
        let mut floats = ManuallyDrop::new(unsafe { stream.upgrade_device_ptr::<f32>(0x1000, 64) });
        // SAFETY: as before.
        let mut bytes = ManuallyDrop::new(unsafe { stream.upgrade_device_ptr::<u8>(0x2000, 32) });
        // SAFETY: as before.
        let part = ManuallyDrop::new(unsafe { stream.upgrade_device_ptr::<u8>(0x3000, 16) });
        // SAFETY: as before.
        let mut doubles = ManuallyDrop::new(unsafe { stream.upgrade_device_ptr::<f64>(0x4000, 8) });
        in_place(&stream, &group, &mut floats);
        gathered(&stream, &part.slice(0..10), &mut bytes.slice_mut(0..20));
        mixed(&stream, &[0.0; 8], &mut doubles);
        stream.synchronize().expect("the stub's streams end");
        let report = session.finish();
        assert_eq!((report.recorded, report.begun), (3, 3), "{report}");
        let elements: Vec<_> = zones
            .take()
            .into_iter()
            .map(|zone| zone.message.map(|message| (message.count, message.dtype, message.bytes())))
            .collect();
        assert_eq!(
            elements,
            [
                Some((Some(64), Some(DataType::F32), Some(256))),
                Some((Some(10), Some(DataType::U8), None)),
                Some((None, None, None))
            ]
        );
    });
}

fn group(comm: usize) -> Result<ProcessGroup, NcclError> {
    // SAFETY: the library that stands in for NCCL takes communicators for numbers.
    unsafe { warpline::nccl::process_group("tp0", comm as *mut c_void) }
}

#[test]
fn a_communicator_says_its_ranks() {
    in_child(this_test!(), Driver::Current, || {
        let group = group(4 << 16 | 3).expect("there is an NCCL");
        assert_eq!((group.ranks(), group.rank(), group.lane()), (&[0, 1, 2, 3][..], 3, "comm: tp0 [0,1,2,3]"));
    });
}

#[test]
fn what_nccl_refuses_is_an_error_that_says_why() {
    in_child(this_test!(), Driver::Current, || {
        let text = |comm| group(comm).expect_err("no communicator").to_string();
        assert_eq!(text(0), "`ncclCommCount` gave invalid argument");
        assert!(text(1).contains("still being made; ask again once `ncclCommGetAsyncError`"), "{}", text(1));
    });
}

#[test]
fn no_nccl_is_an_error_with_a_remedy() {
    in_child(this_test!(), Driver::Unloadable, || {
        let text = group(2 << 16).expect_err("there is no NCCL").to_string();
        assert!(text.starts_with("there is no NCCL: /") && text.contains("install it, or add its folder"), "{text}");
    });
}

/// Rank 1 of 2 makes every call, with sizes and addresses that tell the arguments apart; and what of it NCCL sees.
fn every_call() -> Vec<String> {
    const STREAM: usize = 9;
    let library = Library::open().expect("there is an NCCL");
    let id = library.unique_id().expect("NCCL gives ids");
    let comm = Comm::new(library, 2, id, 1).expect("the id goes through as it is");
    assert_eq!((comm.rank(), comm.ranks(), comm.as_ptr() as usize), (1, 2, 2 << 16 | 1));
    let (from, to, count, stream) = (1_000, 2_000, 30, STREAM as *mut c_void);
    // SAFETY: the library that stands in for NCCL takes addresses, communicators and streams for numbers.
    unsafe {
        comm.all_reduce(from, to, count, stream).expect("taken");
        comm.all_gather(from, to, count, stream).expect("taken");
        comm.reduce_scatter(from, to, count, stream).expect("taken");
        comm.broadcast(from, to, count, 1, stream).expect("taken");
        comm.reduce(from, to, count, 1, stream).expect("taken");
        comm.all_to_all(from, to, count, stream).expect("taken");
        comm.gather(from, to, count, 1, stream).expect("taken");
        comm.gather(from, to, count, 0, stream).expect("taken");
        comm.scatter(from, to, count, 1, stream).expect("taken");
        comm.scatter(from, to, count, 0, stream).expect("taken");
        comm.send(from, count, 0, stream).expect("taken");
        comm.recv(to, count, 0, stream).expect("taken");
        // Also a group that fails ends.
        let refused = library.group(|| comm.broadcast(from, to, count, 5, stream)).expect_err("there is no rank 5");
        let text = "ncclBroadcast gave invalid argument; run with NCCL_DEBUG=WARN to see why";
        assert_eq!(refused.to_string(), text);
    }
    comm.async_error().expect("nothing failed");
    drop(comm);
    let both = Comm::all(library, &[0, 1]).expect("taken");
    assert_eq!(both.iter().map(Comm::rank).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(library.version().as_deref(), Ok("2.28.3"));
    // `comm` and `stream` are the same in all, and said once.
    let all = Stub::of_nccl().log();
    let same = format!(" comm={} stream={STREAM}", 2 << 16 | 1);
    let said = all.iter().map(|line| line.trim_start_matches("# ").trim_start_matches("nccl").replace(&same, ""));
    said.map(|line| line.replace("datatype=7", "f32").replace("op=0", "sum")).collect()
}

const SAME: [&str; 5] = [
    "AllReduce sendbuff=1000 recvbuff=2000 count=30 f32 sum",
    "AllGather sendbuff=1000 recvbuff=2000 sendcount=30 f32",
    "ReduceScatter sendbuff=1000 recvbuff=2000 recvcount=30 f32 sum",
    "Broadcast sendbuff=1000 recvbuff=2000 count=30 f32 root=1",
    "Reduce sendbuff=1000 recvbuff=2000 count=30 f32 sum root=1",
];

const END: [&str; 6] = [
    "Send sendbuff=1000 count=30 f32 peer=0",
    "Recv recvbuff=2000 count=30 f32 peer=0",
    "GroupStart",
    "Broadcast sendbuff=1000 recvbuff=2000 count=30 f32 root=5",
    "GroupEnd",
    "CommDestroy comm=131073",
];

#[test]
fn nccl_gets_every_argument_in_its_place() {
    in_child(this_test!(), Driver::Current, || {
        let own = [
            "AlltoAll sendbuff=1000 recvbuff=2000 count=30 f32",
            "Gather sendbuff=1000 recvbuff=2000 count=30 f32 root=1",
            "Gather sendbuff=1000 recvbuff=2000 count=30 f32 root=0",
            "Scatter sendbuff=1000 recvbuff=2000 count=30 f32 root=1",
            "Scatter sendbuff=1000 recvbuff=2000 count=30 f32 root=0",
        ];
        assert_eq!(every_call(), [&SAME[..], &own, &END].concat());
        assert!(Library::open().is_ok_and(Library::has_all_to_all));
    });
}

#[test]
fn an_nccl_before_2_28_gets_sends_and_receives() {
    in_child(this_test!(), Driver::Old, || {
        // A part of 30 elements has 120 bytes.
        let made_of = [
            "GroupStart",
            "Send sendbuff=1000 count=30 f32 peer=0",
            "Recv recvbuff=2000 count=30 f32 peer=0",
            "Send sendbuff=1120 count=30 f32 peer=1",
            "Recv recvbuff=2120 count=30 f32 peer=1",
            "GroupEnd",
            // Gathered at this rank, then at the other.
            "GroupStart",
            "Send sendbuff=1000 count=30 f32 peer=1",
            "Recv recvbuff=2000 count=30 f32 peer=0",
            "Recv recvbuff=2120 count=30 f32 peer=1",
            "GroupEnd",
            "GroupStart",
            "Send sendbuff=1000 count=30 f32 peer=0",
            "GroupEnd",
            // Scattered by this rank, then by the other.
            "GroupStart",
            "Send sendbuff=1000 count=30 f32 peer=0",
            "Send sendbuff=1120 count=30 f32 peer=1",
            "Recv recvbuff=2000 count=30 f32 peer=1",
            "GroupEnd",
            "GroupStart",
            "Recv recvbuff=2000 count=30 f32 peer=0",
            "GroupEnd",
        ];
        assert_eq!(every_call(), [&SAME[..], &made_of, &END].concat());
    });
}

#[test]
fn the_examples_say_what_to_do_where_there_is_no_nccl() {
    in_child(this_test!(), Driver::Unloadable, || {
        let error = Library::open().expect_err("there is none");
        assert_eq!(error, Error::Absent);
        assert!(error.to_string().ends_with("install it, or add its folder to LD_LIBRARY_PATH"));
    });
}
