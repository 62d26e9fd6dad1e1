//! Events on in-process streams: what a session times a [`HostStream`](super::host::HostStream) with.
//!
//! An event is a stamp that the stream's worker sets when it reaches it, on the same clock as every host time, so that
//! positions on a host stream are exact.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::host::{HostStream, Op, Queue};
use super::{Anchor, Backend, BackendError, Event};
use crate::clock::now_ns;
use crate::record::{DeviceInfo, DeviceKind};
use crate::stream::{StreamKey, StreamSource};

/// A time that is not known yet, until the worker sets it.
pub(super) struct Stamp(AtomicI64);

/// Before any time of the clock.
const PENDING: i64 = i64::MIN;

impl Stamp {
    fn new(ns: i64) -> Arc<Stamp> {
        Arc::new(Stamp(AtomicI64::new(ns)))
    }

    pub(super) fn set_now(&self) {
        self.0.store(now_ns(), Ordering::Release);
    }

    fn get(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Acquire)).filter(|ns| *ns != PENDING)
    }
}

struct HostEvent {
    stamp: Arc<Stamp>,
    queue: Arc<Queue>,
}

impl Event for HostEvent {
    fn record(&self) -> Result<(), BackendError> {
        self.queue.faults.before_record().map_err(BackendError)?;
        self.stamp.0.store(PENDING, Ordering::Relaxed);
        self.queue.push(Op::Stamp(Arc::clone(&self.stamp)));
        Ok(())
    }

    fn is_complete(&self) -> Result<bool, BackendError> {
        if self.stamp.get().is_some() {
            return Ok(true);
        }
        self.queue.faults.stream().map_err(BackendError)?;
        Ok(false)
    }

    fn elapsed_ns(&self, since: &dyn Event) -> Result<Option<i64>, BackendError> {
        let Some(since) = since.as_any().downcast_ref::<HostEvent>() else {
            return Err(BackendError("an event of another device".to_owned()));
        };
        Ok(self.stamp.get().zip(since.stamp.get()).map(|(end, begin)| end - begin))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct HostBackend(Arc<Queue>);

impl HostBackend {
    fn event(&self, ns: i64) -> Box<dyn Event> {
        Box::new(HostEvent { stamp: Stamp::new(ns), queue: Arc::clone(&self.0) })
    }
}

impl Backend for HostBackend {
    fn name(&self) -> Option<String> {
        Some(self.0.name.clone())
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo { ordinal: 0, name: "host".to_owned(), kind: DeviceKind::Host }
    }

    fn create_event(&self) -> Result<Box<dyn Event>, BackendError> {
        self.0.faults.before_create().map_err(BackendError)?;
        Ok(self.event(PENDING))
    }

    fn anchor(&self) -> Result<Anchor, BackendError> {
        // One clock for both sides: the anchor is exact, at any time.
        let now = now_ns();
        Ok(Anchor { event: self.event(now), host_ns: now, uncertainty_ns: 0 })
    }

    fn bracket_ns(&self) -> i64 {
        // A stream of its own, so that nothing is added to the application's.
        const PAIRS: usize = 33;
        let stream = HostStream::new("warpline-bracket");
        let mut lengths: Vec<i64> = (0..PAIRS)
            .filter_map(|_| {
                let (begin, end) = (Stamp::new(PENDING), Stamp::new(PENDING));
                stream.queue().push(Op::Stamp(Arc::clone(&begin)));
                stream.queue().push(Op::Stamp(Arc::clone(&end)));
                stream.synchronize().ok()?;
                Some(end.get()? - begin.get()?)
            })
            .collect();
        lengths.sort_unstable();
        lengths.get(lengths.len() / 2).copied().unwrap_or(0)
    }
}

impl StreamSource for Arc<Queue> {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(HostBackend(Arc::clone(self)))
    }
}

impl Queue {
    pub(super) fn key(&self) -> StreamKey {
        StreamKey { space: 0, stream: self.id }
    }
}
