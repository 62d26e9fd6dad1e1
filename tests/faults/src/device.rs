//! What a rank works with, on a GPU or in-process: queues, work of a fixed amount, an order between queues, and communicators.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaStream};
use gpu::{DeviceMemory, Event, Gpu};
use nccl::{Library, UniqueId};
use warpline::stream::StreamRef;
use warpline::{AsStream, HostStream};

use crate::case::COUNT;
use crate::hub::Seat;

pub type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// In process, the other program's work takes so many times as much of the device's time as ours: a delay that shows beside those that a
/// machine with other work has anyway.
const SHARE: u64 = 8;

/// A GPU, or something like it in this process.
pub enum Device {
    Gpu(Gpu),
    /// The work of others that it still has to do, in µs: it shares the device's time with ours.
    Host(Arc<AtomicU64>),
}

/// A stream.
pub enum Queue {
    Gpu(Arc<CudaStream>),
    Host(HostStream),
}

/// A point of a queue, for the host to wait for.
pub enum Mark {
    Gpu(Event),
    Host(Arc<AtomicBool>),
}

/// How many GPUs there are, and NCCL's version.
pub fn gpus() -> Result<(u32, String)> {
    gpu::require_driver()?;
    let count = CudaContext::device_count()?;
    Ok((count.max(0) as u32, Library::open()?.version()?))
}

impl Device {
    pub fn new(host: bool, ordinal: usize) -> Result<Device> {
        if host {
            return Ok(Device::Host(Arc::default()));
        }
        let gpu = Gpu::new(ordinal)?;
        gpu.context.bind_to_thread()?;
        Ok(Device::Gpu(gpu))
    }

    pub fn is_host(&self) -> bool {
        matches!(self, Device::Host(_))
    }

    pub fn queue(&self, name: &str) -> Result<Queue> {
        Ok(match self {
            Device::Gpu(gpu) => Queue::Gpu(gpu.stream()?),
            Device::Host(_) => Queue::Host(HostStream::new(name)),
        })
    }

    /// Queues work that takes about so long if the device does nothing else.
    pub fn work(&self, queue: &Queue, us: u64) -> Result {
        match (self, queue) {
            (Device::Gpu(gpu), Queue::Gpu(stream)) => gpu.churn(stream, us),
            (Device::Host(burden), Queue::Host(stream)) => {
                let burden = Arc::clone(burden);
                stream.launch(move || {
                    // Programs that share a device take turns.
                    let mut others = 0;
                    let _ = burden.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                        others = left.min(SHARE * us);
                        Some(left - others)
                    });
                    thread::sleep(Duration::from_micros(us + others));
                });
                Ok(())
            }
            _ => Err("the queue is of another device".into()),
        }
    }

    /// Queues work that takes so long whatever else the device does, and on every device.
    pub fn wait(&self, queue: &Queue, us: u64) -> Result {
        match (self, queue) {
            (Device::Gpu(gpu), Queue::Gpu(stream)) => gpu.spin(stream, us * 1000, None),
            (Device::Host(_), Queue::Host(stream)) => {
                stream.launch(move || thread::sleep(Duration::from_micros(us)));
                Ok(())
            }
            _ => Err("the queue is of another device".into()),
        }
    }

    /// Gives the device as much work beside ours, of another program.
    pub fn burden(&self, queue: &Queue, us: u64) -> Result {
        match self {
            Device::Gpu(_) => self.work(queue, us),
            Device::Host(burden) => {
                burden.store(SHARE * us, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// A point behind what is queued now.
    pub fn mark(&self, queue: &Queue) -> Result<Mark> {
        Ok(match queue {
            Queue::Gpu(stream) => {
                let event = Event::new()?;
                event.record(stream)?;
                Mark::Gpu(event)
            }
            Queue::Host(stream) => {
                let reached = Arc::new(AtomicBool::new(false));
                let its = Arc::clone(&reached);
                stream.launch(move || its.store(true, Ordering::Release));
                Mark::Host(reached)
            }
        })
    }
}

impl Mark {
    pub fn is_reached(&self) -> Result<bool> {
        match self {
            Mark::Gpu(event) => Ok(event.is_complete()?),
            Mark::Host(reached) => Ok(reached.load(Ordering::Acquire)),
        }
    }
}

impl Queue {
    /// Lets what comes on this queue wait for what is on the other one now.
    pub fn after(&self, first: &Queue) -> Result {
        match (self, first) {
            (Queue::Gpu(then), Queue::Gpu(first)) => Ok(then.wait(&first.record_event(None)?)?),
            (Queue::Host(then), Queue::Host(first)) => {
                let gate = Arc::new((Mutex::new(false), Condvar::new()));
                let its = Arc::clone(&gate);
                first.launch(move || {
                    *its.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
                    its.1.notify_all();
                });
                then.launch(move || {
                    let open = gate.0.lock().unwrap_or_else(PoisonError::into_inner);
                    drop(gate.1.wait_while(open, |open| !*open));
                });
                Ok(())
            }
            _ => Err("the queues are of two devices".into()),
        }
    }

    pub fn synchronize(&self) -> Result {
        match self {
            Queue::Gpu(stream) => Ok(stream.synchronize()?),
            Queue::Host(stream) => Ok(stream.synchronize()?),
        }
    }
}

impl AsStream for Queue {
    fn as_stream(&self) -> StreamRef<'_> {
        match self {
            Queue::Gpu(stream) => stream.as_stream(),
            Queue::Host(stream) => stream.as_stream(),
        }
    }
}

/// A rank's end of a communicator, and what it sums.
pub enum Comm {
    Gpu { comm: nccl::Comm, elements: DeviceMemory },
    Host(Seat),
}

impl Comm {
    /// The id of a new communicator, which one rank makes for all, as text.
    pub fn id(device: &Device) -> Result<String> {
        let Device::Gpu(_) = device else { return Ok("-".to_owned()) };
        Ok(Library::open()?.unique_id()?.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Waits until all ranks have come. `number` is the communicator's own in the job.
    pub fn new(device: &Device, hub: &str, number: u64, id: &str, ranks: u32, rank: u32) -> Result<Comm> {
        let Device::Gpu(gpu) = device else { return Ok(Comm::Host(Seat::new(hub, number)?)) };
        gpu.context.bind_to_thread()?;
        let bytes: Vec<u8> =
            (0..id.len() / 2).filter_map(|at| u8::from_str_radix(id.get(2 * at..2 * at + 2)?, 16).ok()).collect();
        let bytes = bytes.try_into().map_err(|_| "the id of the communicator is damaged")?;
        let comm = nccl::Comm::new(Library::open()?, ranks, UniqueId::from_bytes(bytes), rank)?;
        let elements = DeviceMemory::zeroed(COUNT * size_of::<f32>())?;
        // Streams of our own do not wait for the default stream, on which the zeros are written.
        gpu.context.synchronize()?;
        Ok(Comm::Gpu { comm, elements })
    }

    /// Queues a sum over the ranks.
    pub fn all_reduce(&self, queue: &Queue) -> Result {
        match (self, queue) {
            (Comm::Gpu { comm, elements }, Queue::Gpu(stream)) => {
                // SAFETY: there are `COUNT` elements, which live until the queue is synchronised; the rank's one thread calls.
                unsafe { comm.all_reduce(elements.0, elements.0, COUNT, stream.cu_stream().cast()) }?;
                Ok(())
            }
            (Comm::Host(seat), Queue::Host(stream)) => {
                seat.meet(stream);
                Ok(())
            }
            _ => Err("the queue is of another device than the communicator".into()),
        }
    }

    /// Ends what runs, whether other ranks come or not.
    pub fn abort(self) -> Result {
        match self {
            Comm::Gpu { comm, elements } => {
                comm.abort()?;
                drop(elements);
                Ok(())
            }
            Comm::Host(seat) => {
                seat.abort();
                Ok(())
            }
        }
    }

    /// What has failed behind the calls' backs.
    pub fn check(&self) -> Result {
        match self {
            Comm::Gpu { comm, .. } => Ok(comm.async_error()?),
            Comm::Host(_) => Ok(()),
        }
    }
}
