//! NCCL by its C interface, opened at run time: what the examples, the GPU tests and the GPU benches call.
//!
//! cudarc has NCCL, too, but panics where the library is absent, and does not look for it by the name that it has in
//! distributions and in Python's wheels, `libnccl.so.2`. Here a library that is not there is an `Err`. Each function is one
//! call of NCCL's and no more; the types are those of `nccl.h`.
#![allow(unsafe_code)]

mod library;

use std::ffi::{c_int, c_void};

pub use library::{Error, Library, UniqueId};

/// `ncclFloat32`: the type of all elements here.
const FLOAT32: c_int = 7;

/// `ncclSum`: the one reduction here.
const SUM: c_int = 0;

/// A communicator: this rank's end of it. All counts are of `f32`, all reductions are sums.
///
/// It may go from thread to thread. As NCCL says, two threads do not call it at once, and all ranks call the same collectives
/// in the same order. Addresses are of the device that was current when it was made; streams are of it, too. Calls queue and
/// return, but for the first of a kind, which may wait until the other ranks have called it.
#[derive(Debug)]
pub struct Comm {
    library: &'static Library,
    handle: *mut c_void,
    ranks: u32,
    rank: u32,
}

// SAFETY: NCCL binds a communicator to a device and not to a thread.
unsafe impl Send for Comm {}
// SAFETY: calls that race are the caller's fault, as every unsafe function here says; the safe ones only read.
unsafe impl Sync for Comm {}

impl Comm {
    /// This rank's end of a communicator of so many ranks, on the device that is current on this thread. It waits until all
    /// ranks have come.
    ///
    /// # Errors
    /// NCCL's own.
    pub fn new(library: &'static Library, ranks: u32, id: UniqueId, rank: u32) -> Result<Comm, Error> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place for the handle is valid; the rest are plain values.
        let code = unsafe { (library.comm_init_rank)(&raw mut handle, ranks as c_int, id, rank as c_int) };
        library.check("ncclCommInitRank", code)?;
        Ok(Comm { library, handle, ranks, rank })
    }

    /// One communicator for all of these devices, held by one thread: its collectives stand in one [`Library::group`].
    ///
    /// # Errors
    /// NCCL's own.
    pub fn all(library: &'static Library, devices: &[c_int]) -> Result<Vec<Comm>, Error> {
        let mut handles = vec![std::ptr::null_mut(); devices.len()];
        // SAFETY: as many places as devices.
        let code = unsafe { (library.comm_init_all)(handles.as_mut_ptr(), devices.len() as c_int, devices.as_ptr()) };
        library.check("ncclCommInitAll", code)?;
        let ranks = devices.len() as u32;
        Ok(handles.into_iter().zip(0..).map(|(handle, rank)| Comm { library, handle, ranks, rank }).collect())
    }

    /// The `ncclComm_t`.
    pub fn as_ptr(&self) -> *mut c_void {
        self.handle
    }

    /// The library that made it.
    pub fn library(&self) -> &'static Library {
        self.library
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// This rank's number.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// What has failed in a collective after its call returned.
    ///
    /// # Errors
    /// That.
    pub fn async_error(&self) -> Result<(), Error> {
        let mut failed = 0;
        // SAFETY: the communicator lives; the place is valid.
        let code = unsafe { (self.library.comm_get_async_error)(self.handle, &raw mut failed) };
        self.library.check("ncclCommGetAsyncError", code)?;
        self.library.check("a collective", failed)
    }

    /// `ncclCommAbort`: ends what runs and waits for other ranks, and gives the communicator back. The data of its collectives is lost.
    ///
    /// # Errors
    /// This NCCL has no such call, and the communicator is given back as by dropping it; or NCCL's own.
    pub fn abort(self) -> Result<(), Error> {
        let Some(abort) = self.library.comm_abort else { return Err(Error::Lacks("ncclCommAbort")) };
        let comm = std::mem::ManuallyDrop::new(self);
        // SAFETY: the handle is ours, and it is not used any more.
        let code = unsafe { abort(comm.handle) };
        comm.library.check("ncclCommAbort", code)
    }

    /// `ncclAllReduce`: `to` gets the sum of all ranks' `from`; they may be the same.
    ///
    /// # Safety
    /// Both have `count` elements, on the communicator's device, until `stream`, of that device, has run it. No other thread
    /// calls the communicator now. (The same holds for the collectives below.)
    ///
    /// # Errors
    /// NCCL's own.
    pub unsafe fn all_reduce(&self, from: u64, to: u64, count: usize, stream: *mut c_void) -> Result<(), Error> {
        // SAFETY: as the caller says.
        let code = unsafe { (self.library.all_reduce)(from, to, count, FLOAT32, SUM, self.handle, stream) };
        self.library.check("ncclAllReduce", code)
    }

    /// `ncclAllGather`: `to`, of `count` elements a rank, gets all ranks' `from`, of `count`.
    ///
    /// # Safety
    /// As for [`all_reduce`](Self::all_reduce), with these sizes.
    ///
    /// # Errors
    /// NCCL's own.
    pub unsafe fn all_gather(&self, from: u64, to: u64, count: usize, stream: *mut c_void) -> Result<(), Error> {
        // SAFETY: as the caller says.
        let code = unsafe { (self.library.all_gather)(from, to, count, FLOAT32, self.handle, stream) };
        self.library.check("ncclAllGather", code)
    }

    /// `ncclReduceScatter`: `to`, of `count`, gets this rank's part of the sum of all `from`, of `count` elements a rank.
    ///
    /// # Safety
    /// As for [`all_reduce`](Self::all_reduce), with these sizes.
    ///
    /// # Errors
    /// NCCL's own.
    pub unsafe fn reduce_scatter(&self, from: u64, to: u64, count: usize, stream: *mut c_void) -> Result<(), Error> {
        // SAFETY: as the caller says.
        let code = unsafe { (self.library.reduce_scatter)(from, to, count, FLOAT32, SUM, self.handle, stream) };
        self.library.check("ncclReduceScatter", code)
    }

    /// `ncclBroadcast`: every `to` gets the root's `from`.
    ///
    /// # Safety
    /// As for [`all_reduce`](Self::all_reduce); `from` matters at the root alone.
    ///
    /// # Errors
    /// NCCL's own.
    pub unsafe fn broadcast(
        &self,
        from: u64,
        to: u64,
        count: usize,
        root: u32,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        // SAFETY: as the caller says.
        let code = unsafe { (self.library.broadcast)(from, to, count, FLOAT32, root as c_int, self.handle, stream) };
        self.library.check("ncclBroadcast", code)
    }

    /// `ncclReduce`: the root's `to` gets the sum of all ranks' `from`.
    ///
    /// # Safety
    /// As for [`all_reduce`](Self::all_reduce); `to` matters at the root alone.
    ///
    /// # Errors
    /// NCCL's own.
    pub unsafe fn reduce(&self, from: u64, to: u64, count: usize, root: u32, stream: *mut c_void) -> Result<(), Error> {
        // SAFETY: as the caller says.
        let code = unsafe { (self.library.reduce)(from, to, count, FLOAT32, SUM, root as c_int, self.handle, stream) };
        self.library.check("ncclReduce", code)
    }

    /// `ncclAlltoAll`: every rank gets `count` elements of each rank's `from`. Where NCCL has none (before 2.28) it is made of
    /// sends and receives.
    ///
    /// # Safety
    /// As for [`all_reduce`](Self::all_reduce), with `count` elements a rank in both.
    ///
    /// # Errors
    /// NCCL's own.
    pub unsafe fn all_to_all(&self, from: u64, to: u64, count: usize, stream: *mut c_void) -> Result<(), Error> {
        if let Some(all_to_all) = self.library.all_to_all {
            // SAFETY: as the caller says.
            let code = unsafe { all_to_all(from, to, count, FLOAT32, self.handle, stream) };
            return self.library.check("ncclAlltoAll", code);
        }
        self.library.group(|| {
            (0..self.ranks).try_for_each(|peer| {
                // SAFETY: as the caller says, part by part.
                unsafe {
                    self.send(part(from, peer, count), count, peer, stream)?;
                    self.recv(part(to, peer, count), count, peer, stream)
                }
            })
        })
    }

    /// `ncclGather`: the root's `to` gets `count` elements of every rank's `from`. Where NCCL has none (before 2.28) it is made
    /// of sends and receives.
    ///
    /// # Safety
    /// As for [`all_reduce`](Self::all_reduce); the root's `to` has `count` elements a rank.
    ///
    /// # Errors
    /// NCCL's own.
    pub unsafe fn gather(&self, from: u64, to: u64, count: usize, root: u32, stream: *mut c_void) -> Result<(), Error> {
        if let Some(gather) = self.library.gather {
            // SAFETY: as the caller says.
            let code = unsafe { gather(from, to, count, FLOAT32, root as c_int, self.handle, stream) };
            return self.library.check("ncclGather", code);
        }
        self.library.group(|| {
            let peers = if self.rank == root { 0..self.ranks } else { 0..0 };
            // SAFETY: as the caller says, part by part.
            unsafe { self.send(from, count, root, stream) }?;
            // SAFETY: as above.
            peers.into_iter().try_for_each(|peer| unsafe { self.recv(part(to, peer, count), count, peer, stream) })
        })
    }

    /// `ncclScatter`: every rank's `to` gets its `count` elements of the root's `from`. Where NCCL has none (before 2.28) it is
    /// made of sends and receives.
    ///
    /// # Safety
    /// As for [`all_reduce`](Self::all_reduce); the root's `from` has `count` elements a rank.
    ///
    /// # Errors
    /// NCCL's own.
    pub unsafe fn scatter(
        &self,
        from: u64,
        to: u64,
        count: usize,
        root: u32,
        stream: *mut c_void,
    ) -> Result<(), Error> {
        if let Some(scatter) = self.library.scatter {
            // SAFETY: as the caller says.
            let code = unsafe { scatter(from, to, count, FLOAT32, root as c_int, self.handle, stream) };
            return self.library.check("ncclScatter", code);
        }
        self.library.group(|| {
            let peers = if self.rank == root { 0..self.ranks } else { 0..0 };
            peers.into_iter().try_for_each(|peer| {
                // SAFETY: as the caller says, part by part.
                unsafe { self.send(part(from, peer, count), count, peer, stream) }
            })?;
            // SAFETY: as above.
            unsafe { self.recv(to, count, root, stream) }
        })
    }

    /// `ncclSend`: to one rank, which receives.
    ///
    /// # Safety
    /// As for [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// NCCL's own.
    pub unsafe fn send(&self, from: u64, count: usize, peer: u32, stream: *mut c_void) -> Result<(), Error> {
        // SAFETY: as the caller says.
        let code = unsafe { (self.library.send)(from, count, FLOAT32, peer as c_int, self.handle, stream) };
        self.library.check("ncclSend", code)
    }

    /// `ncclRecv`: from one rank, which sends.
    ///
    /// # Safety
    /// As for [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// NCCL's own.
    pub unsafe fn recv(&self, to: u64, count: usize, peer: u32, stream: *mut c_void) -> Result<(), Error> {
        // SAFETY: as the caller says.
        let code = unsafe { (self.library.recv)(to, count, FLOAT32, peer as c_int, self.handle, stream) };
        self.library.check("ncclRecv", code)
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and nobody uses it any more. What fails here, there is nobody to tell.
        let _ = unsafe { (self.library.comm_destroy)(self.handle) };
    }
}

/// The address of a rank's part.
fn part(address: u64, rank: u32, count: usize) -> u64 {
    address + u64::from(rank) * count as u64 * size_of::<f32>() as u64
}
