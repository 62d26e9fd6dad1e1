//! Without the feature `enable`: nobody looks, and what is called here is gone when it is compiled.

use std::sync::Arc;
use std::time::Duration;

use super::Edge;
use warpline_core::backend::StreamRef;
use crate::state::Core;
use crate::error::Error;
use crate::point::Timepoint;
use crate::semaphore::Semaphore;

/// Nothing is remembered.
pub(crate) struct History;

impl History {
    #[inline(always)]
    pub(crate) fn new(_initial: u64) -> History {
        History
    }

    #[inline(always)]
    pub(crate) fn reached(&self, _value: u64) {}
}

/// When a call began.
#[derive(Clone, Copy)]
pub(in crate) struct Called;

#[inline(always)]
pub(in crate) fn called() -> Called {
    Called
}

#[inline(always)]
pub(in crate) fn signalling(
    _core: &Core<Timepoint>,
    _value: u64,
    _stream: Option<(&StreamRef<'_>, Called)>,
    _queue: Option<&Arc<str>>,
    signal: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    signal()
}

#[inline(always)]
pub(in crate) fn waiting(
    _stream: &StreamRef<'_>,
    _edge: Edge<'_>,
    hold: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    hold()
}

#[inline(always)]
pub(in crate) fn passed<'a>(_stream: impl FnOnce() -> StreamRef<'a>, _edge: Edge<'_>) {}

#[inline(always)]
pub(in crate) fn depth(_queue: &Arc<str>, _depth: usize) {}

/// A thread's wait.
#[derive(Debug)]
pub(in crate) struct HostWait;

impl HostWait {
    #[inline(always)]
    pub(in crate) fn begin(_edges: usize, _timeout: Duration) -> HostWait {
        HostWait
    }

    #[inline(always)]
    pub(in crate) fn end(self, _list: &[(&Semaphore, u64)], _failed: Option<&Error>) {}
}
