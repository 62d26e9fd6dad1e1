//! Without the feature `enable`: nobody looks, and what is called here is gone when it is compiled.

use std::sync::Arc;
use std::time::Duration;

use super::Edge;
use crate::error::Error;
use crate::point::Timepoint;
use crate::state::Core;
use warpline_core::backend::StreamRef;

/// When a call began.
#[derive(Clone, Copy)]
pub(crate) struct Called;

#[inline(always)]
pub(crate) fn called() -> Called {
    Called
}

#[inline(always)]
pub(crate) fn signalling(
    _core: &Core<Timepoint>,
    _value: u64,
    _stream: Option<(&StreamRef<'_>, Called)>,
    _queue: Option<&Arc<str>>,
    signal: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    signal()
}

#[inline(always)]
pub(crate) fn waiting(
    _stream: &StreamRef<'_>,
    _edge: Edge<'_>,
    hold: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    hold()
}

#[inline(always)]
pub(crate) fn passed<'a>(_stream: impl FnOnce() -> StreamRef<'a>, _edge: Edge<'_>) {}

#[inline(always)]
pub(crate) fn depth(_queue: &Arc<str>, _depth: usize) {}

/// A thread's wait.
#[derive(Debug)]
pub(crate) struct HostWait;

impl HostWait {
    #[inline(always)]
    pub(crate) fn begin(_edges: usize, _timeout: Duration) -> HostWait {
        HostWait
    }

    #[inline(always)]
    pub(crate) fn end<'a>(
        self,
        _list: impl Iterator<Item = (&'a Core<Timepoint>, u64)> + Clone,
        _failed: Option<&Error>,
    ) {
    }
}
