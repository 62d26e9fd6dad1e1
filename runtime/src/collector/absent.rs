//! What the collector does for features that the program was built without: nothing.
//!
//! Its rooms for them are not compiled then, and the loop calls these in their place, so that it reads the same with every feature.

/// No timelines.
#[cfg(not(feature = "timeline"))]
impl super::Collector {
    pub(super) fn pass_waits(&mut self, _: bool) -> usize {
        0
    }

    pub(super) fn holds_waits(&self) -> bool {
        false
    }

    pub(super) fn forget_stream(&mut self, _: &super::Stream) {}
}

/// No kernels.
#[cfg(not(feature = "cupti"))]
impl super::Collector {
    pub(super) fn pass_kernels(&mut self) -> usize {
        0
    }

    pub(super) fn end_kernels(&mut self) {}

    pub(super) fn has_kernels_of(&self, _since: std::time::Instant) -> bool {
        true
    }
}

/// No flight recorder.
#[cfg(not(unix))]
impl super::Collector {
    pub(super) fn watch(&mut self) {}

    pub(super) fn watch_last(&mut self) {}

    pub(super) fn tell_failure(&mut self, _: &mut super::Stream, _: &crate::backend::BackendError) {}
}

/// No replays of graphs.
#[cfg(not(feature = "cuda"))]
impl super::Collector {
    pub(super) fn pass_stamps(&mut self, _last: bool) -> usize {
        0
    }
}

/// No spans.
#[cfg(not(feature = "tracing"))]
impl super::Collector {
    pub(super) fn has_new_spans(&self) -> bool {
        false
    }

    pub(super) fn pass_spans(&mut self) -> usize {
        0
    }
}
