//! Records kept in memory, for tests and for analysis inside the program.

use std::io;
use std::sync::{Arc, Mutex};

use super::{Batch, Sink};
use warpline_core::kernel::KernelRecord;
use warpline_core::lock::lock;
use warpline_core::memory::MemoryRecord;
use warpline_core::record::{SpanRecord, ZoneRecord};
use warpline_core::replay::ReplayRecord;
use warpline_core::step::StepRecord;
use warpline_core::synchronization::SyncRecord;
use warpline_core::wait::{QueueDepth, WaitRecord};

/// Keeps the records of a session. A clone shares them: give one to the session and keep the other.
///
/// ```
/// use warpline::Session;
/// use warpline::sink::MemorySink;
///
/// let zones = MemorySink::new(1_000);
/// let session = Session::builder().sink(zones.clone()).start()?;
/// session.finish();
/// for zone in zones.take() {
///     println!("{} {} ns", zone.range.name(), zone.duration_ns());
/// }
/// # Ok::<(), warpline::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemorySink {
    records: Arc<Mutex<Vec<ZoneRecord>>>,
    spans: Arc<Mutex<Vec<SpanRecord>>>,
    kernels: Arc<Mutex<Vec<KernelRecord>>>,
    synchronizations: Arc<Mutex<Vec<SyncRecord>>>,
    replays: Arc<Mutex<Vec<ReplayRecord>>>,
    waits: Arc<Mutex<Vec<WaitRecord>>>,
    depths: Arc<Mutex<Vec<QueueDepth>>>,
    steps: Arc<Mutex<Vec<StepRecord>>>,
    memory: Arc<Mutex<Vec<MemoryRecord>>>,
    capacity: usize,
}

impl MemorySink {
    /// Keeps at most `capacity` records of each kind, such as zones, spans, kernels and waits, until they are taken. A batch
    /// beyond that is refused, and the report counts it as lost by this sink.
    pub fn new(capacity: usize) -> MemorySink {
        MemorySink {
            records: Arc::default(),
            spans: Arc::default(),
            kernels: Arc::default(),
            synchronizations: Arc::default(),
            replays: Arc::default(),
            waits: Arc::default(),
            depths: Arc::default(),
            steps: Arc::default(),
            memory: Arc::default(),
            capacity,
        }
    }

    /// Takes the zones that were recorded so far, in order of arrival.
    pub fn take(&self) -> Vec<ZoneRecord> {
        std::mem::take(&mut *lock(&self.records))
    }

    /// Takes the spans and events of `tracing` that were recorded so far, in order of arrival.
    pub fn take_spans(&self) -> Vec<SpanRecord> {
        std::mem::take(&mut *lock(&self.spans))
    }

    /// Takes the kernels, copies and memory sets that were recorded so far, in order of arrival.
    pub fn take_kernels(&self) -> Vec<KernelRecord> {
        std::mem::take(&mut *lock(&self.kernels))
    }

    /// Takes the synchronisations of threads and streams that were recorded so far, in order of arrival.
    pub fn take_synchronizations(&self) -> Vec<SyncRecord> {
        std::mem::take(&mut *lock(&self.synchronizations))
    }

    /// Takes the launches of CUDA graphs that were recorded so far, in order of arrival.
    pub fn take_replays(&self) -> Vec<ReplayRecord> {
        std::mem::take(&mut *lock(&self.replays))
    }

    /// Takes the waits that were recorded so far, in order of arrival.
    pub fn take_waits(&self) -> Vec<WaitRecord> {
        std::mem::take(&mut *lock(&self.waits))
    }

    /// Takes the queue lengths that were recorded so far.
    pub fn take_depths(&self) -> Vec<QueueDepth> {
        std::mem::take(&mut *lock(&self.depths))
    }

    /// Takes the steps that were recorded so far, in order of arrival.
    pub fn take_steps(&self) -> Vec<StepRecord> {
        std::mem::take(&mut *lock(&self.steps))
    }

    /// Takes the allocations and frees of device memory that were recorded so far, in the order of time.
    pub fn take_memory(&self) -> Vec<MemoryRecord> {
        std::mem::take(&mut *lock(&self.memory))
    }

    fn keep<T: Clone>(&self, kept: &Mutex<Vec<T>>, batch: &[T]) -> io::Result<()> {
        let mut kept = lock(kept);
        if kept.len() + batch.len() > self.capacity {
            let text = format!("full at {} records: take them, or give it more capacity", self.capacity);
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        kept.extend_from_slice(batch);
        Ok(())
    }
}

impl Sink for MemorySink {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        match batch {
            Batch::Zones(zones) => self.keep(&self.records, zones),
            Batch::Spans(spans) => self.keep(&self.spans, spans),
            Batch::Kernels(kernels) => self.keep(&self.kernels, kernels),
            Batch::Synchronizations(calls) => self.keep(&self.synchronizations, calls),
            Batch::Replays(replays) => self.keep(&self.replays, replays),
            Batch::Waits(waits) => self.keep(&self.waits, waits),
            Batch::Depths(depths) => self.keep(&self.depths, depths),
            Batch::Steps(steps) => self.keep(&self.steps, steps),
            Batch::Memory(memory) => self.keep(&self.memory, memory),
            Batch::Changes(_) => Ok(()),
        }
    }
}
