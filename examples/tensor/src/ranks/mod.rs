//! Ranks that work together: the collectives of their group, marked where they are queued.
//!
//! Between GPUs NCCL moves the data. Between in-process streams the reference implementation does: `meeting` brings what all
//! ranks have to each of them, through memory that threads share or through sockets between processes, and `reference` says
//! what a collective makes of it. How ranks find each other is `rendezvous`, and the same for both.

mod meeting;
mod reference;
mod rendezvous;

use std::sync::{Arc, Mutex, PoisonError};

use warpline::collective;
use warpline::collective::{CollectiveKind, DataType, Message, ProcessGroup, ReduceOp};

use crate::cuda;
use crate::device::{self, Device};
use crate::error::Error;
use crate::matrix::Matrix;
use crate::stream::{On, Stream};

pub use rendezvous::Rendezvous;

warpline::range! {
    EACH = "tensor.all_reduce_each": "Sums several matrices over the ranks, as one launch.", kind = collective;
    ONE = "tensor.all_reduce_one": "Sums one of several matrices over the ranks.", kind = collective;
}

/// One rank's end of a group. All ranks queue the same collectives in the same order.
#[derive(Debug)]
pub struct Comm {
    group: ProcessGroup,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Host(Arc<reference::Ranks>),
    /// NCCL wants one thread at a time.
    Gpu(Mutex<cuda::Ranks>),
}

impl Comm {
    /// A group of all ranks of the rendezvous, for matrices and streams of `device`. It waits until all ranks have come, and
    /// then sums once, so that the first collective of the program does not pay for the connection.
    ///
    /// # Errors
    /// A rank does not come, there is no NCCL for a GPU, or what NCCL says.
    pub fn new(name: &str, device: &Device, rendezvous: Rendezvous) -> Result<Comm, Error> {
        let (rank, ranks) = (rendezvous.rank(), rendezvous.ranks());
        let meeting = rendezvous.meet()?;
        let is_gpu = matches!(device.0, device::Kind::Gpu(_));
        // The first rank's id is everybody's; of a group of the reference, a number of its own.
        let mine = match (rank, is_gpu) {
            (0, true) => cuda::Ranks::new_id()?.to_vec(),
            (0, false) => std::process::id().to_le_bytes().to_vec(),
            _ => Vec::new(),
        };
        let id = meeting.exchange(mine)?.swap_remove(0);
        let (group, kind) = match &device.0 {
            device::Kind::Host => {
                let group = ProcessGroup::new(name, 0..ranks, rank);
                (group, Kind::Host(Arc::new(reference::Ranks::new(meeting, rank))))
            }
            device::Kind::Gpu(gpu) => {
                let bytes = id.as_slice().try_into();
                let bytes = bytes.map_err(|_| Error::Ranks("rank 0 is not on a GPU; this one is".to_owned()))?;
                let comm = cuda::Ranks::new(gpu, bytes, ranks, rank)?;
                (comm.group(name)?, Kind::Gpu(Mutex::new(comm)))
            }
        };
        // By it two traces of one run are told from those of another.
        let comm = Comm { group: group.with_comm_id(fingerprint(&id)), kind };
        let (stream, warm) = (device.stream("connect")?, Matrix::zeros(device, 1, 1)?);
        comm.sum(&stream, &[&warm])?;
        stream.synchronize()?;
        comm.failure()?;
        Ok(comm)
    }

    /// The group, as the marks of collectives want it.
    pub fn group(&self) -> &ProcessGroup {
        &self.group
    }

    /// What has failed in a collective that was queued. Synchronise the stream first.
    ///
    /// # Errors
    /// That: another rank is gone, or the network between.
    pub fn failure(&self) -> Result<(), Error> {
        match &self.kind {
            Kind::Host(ranks) => ranks.failure(),
            Kind::Gpu(ranks) => ranks.lock().unwrap_or_else(PoisonError::into_inner).failure(),
        }
    }

    /// One launch for all of them.
    fn sum(&self, stream: &Stream, matrices: &[&Matrix]) -> Result<(), Error> {
        match &self.kind {
            Kind::Host(ranks) => {
                for matrix in matrices {
                    let On::Host(stream, [elements]) = stream.with("all_reduce", [matrix])? else {
                        return Err(Error::OtherDevice("all_reduce"));
                    };
                    let ranks = Arc::clone(ranks);
                    stream.launch(move || ranks.sum(&mut elements.write()));
                }
                Ok(())
            }
            Kind::Gpu(ranks) => {
                let mut memory = Vec::with_capacity(matrices.len());
                let mut queue = None;
                for matrix in matrices {
                    let On::Gpu(on, [of_matrix]) = stream.with("all_reduce", [matrix])? else {
                        return Err(Error::OtherDevice("all_reduce"));
                    };
                    memory.push(of_matrix);
                    queue = Some(on);
                }
                let ranks = ranks.lock().unwrap_or_else(PoisonError::into_inner);
                match queue {
                    Some(queue) if ranks.is_on(queue) => ranks.sum(queue, &memory),
                    Some(_) => Err(Error::OtherDevice("all_reduce")),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Sums `x` over all ranks, in place.
///
/// # Errors
/// `x` or the stream are of another device than the group, or what NCCL says.
#[collective("tensor.all_reduce", kind = "all_reduce", count = x.len(), dtype = f32, group = comm.group, op = "sum", err)]
pub fn all_reduce(stream: &Stream, comm: &Comm, x: &Matrix) -> Result<(), Error> {
    comm.sum(stream, &[x])
}

/// Sums each matrix over all ranks, in place, as one launch: a batch with an entry for each, as gradients go in buckets.
///
/// # Errors
/// As for [`all_reduce`].
pub fn all_reduce_each(stream: &Stream, comm: &Comm, matrices: &[Matrix]) -> Result<(), Error> {
    let mut batch = EACH.batch(stream);
    for matrix in matrices {
        batch.add(&ONE, || {
            let message = Message::new(CollectiveKind::AllReduce).count(matrix.len()).dtype(DataType::F32);
            message.group(&comm.group).op(ReduceOp::Sum)
        });
    }
    let outcome = comm.sum(stream, &matrices.iter().collect::<Vec<_>>());
    batch.end(&outcome);
    outcome
}

/// Gives every rank what the root has in `x`, in place.
///
/// # Errors
/// As for [`all_reduce`]; or there is no such root.
#[collective("tensor.broadcast", kind = "broadcast", count = x.len(), dtype = f32, group = comm.group, root = root, err)]
pub fn broadcast(stream: &Stream, comm: &Comm, x: &Matrix, root: u32) -> Result<(), Error> {
    if root as usize >= comm.group.size() {
        return Err(Error::Ranks(format!(
            "there is no rank {root} in {}; name one below {}",
            comm.group.name(),
            comm.group.size()
        )));
    }
    match (&comm.kind, stream.with("broadcast", [x])?) {
        (Kind::Host(ranks), On::Host(stream, [elements])) => {
            let ranks = Arc::clone(ranks);
            stream.launch(move || ranks.broadcast(&mut elements.write(), root));
            Ok(())
        }
        (Kind::Gpu(ranks), On::Gpu(queue, [memory])) => {
            let ranks = ranks.lock().unwrap_or_else(PoisonError::into_inner);
            if ranks.is_on(queue) { ranks.broadcast(queue, memory, root) } else { Err(Error::OtherDevice("broadcast")) }
        }
        _ => Err(Error::OtherDevice("broadcast")),
    }
}

/// The version of the NCCL that collectives between GPUs use; or why there is none, in words.
///
/// # Errors
/// That.
pub fn nccl_version() -> Result<String, String> {
    cuda::Ranks::version().map_err(|error| error.to_string())
}

/// FNV-1a, and positive as a signed number too.
fn fingerprint(bytes: &[u8]) -> u64 {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    hash >> 1
}

#[cfg(test)]
mod tests;
