//! Records kept in memory, for tests and for analysis inside the program.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::Sink;
use crate::record::ZoneRecord;

/// Keeps the records of a session. A clone shares them: give one to the session and keep the other.
///
/// ```
/// use warpline::{MemorySink, Session};
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
    capacity: usize,
}

impl MemorySink {
    /// Keeps at most `capacity` records until they are taken; a batch beyond that is refused, which the report counts as
    /// lost by this sink.
    pub fn new(capacity: usize) -> MemorySink {
        MemorySink { records: Arc::default(), capacity }
    }

    /// Takes what was recorded so far, in the order of its arrival.
    pub fn take(&self) -> Vec<ZoneRecord> {
        std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for MemorySink {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn records(&mut self, batch: &[ZoneRecord]) -> io::Result<()> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if records.len() + batch.len() > self.capacity {
            let text = format!("full at {} records: take them, or give it more capacity", self.capacity);
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        records.extend_from_slice(batch);
        Ok(())
    }
}
