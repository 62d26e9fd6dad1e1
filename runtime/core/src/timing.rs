//! The user's choices of how zones and graphs are timed: plain values that settings hold and backends follow.

/// The method by which the end of a zone on a GPU stream is found.
///
/// An event right after the zone's work is exact, but makes streams that share one of the device's hardware queues wait for one
/// another. By default a device has eight queues (`CUDA_DEVICE_MAX_CONNECTIONS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndMode {
    /// Eager while at most half of the device's hardware queues have streams with zones, otherwise lazy.
    #[default]
    Auto,
    /// A timed event after each zone.
    Eager,
    /// A marker without a time after each zone. The end is taken from the next begin on the stream, or from the collector's check
    /// of the marker: it is an upper bound. It costs no overlap, and less time on the launching thread.
    Lazy,
}

/// The clock of zones on GPU streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Timing {
    /// CUDA events on the zone's stream, as [`EndMode`] specifies.
    #[default]
    Events,
    /// CUPTI's records of kernels, copies and memory sets. Nothing is put on a stream, and a zone lasts from the begin of its
    /// first work to the end of its last.
    Kernels,
}

/// The timing of zones that are captured into CUDA graphs, in each replay, without a profiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GraphTiming {
    /// No timing: nothing is added to a graph.
    #[default]
    Off,
    /// By stamps: kernels of one thread that are captured where zones begin and end, and write the device's time. Each stamp
    /// makes a replay about a microsecond longer. The cost of the launch does not change.
    Stamps,
    /// By stamps, where the kernel after the stamp of a begin waits only until the stamp has begun. Each stamp makes a replay
    /// about 0.6 µs longer on an H100. During a capture, right after such a stamp, CUDA does not report a stream's dependencies
    /// to a caller that queries them without edge data (`cuStreamGetCaptureInfo_v2`, `CUDA_ERROR_LOSSY_QUERY`), so no library
    /// that does so may be captured in a zone. For devices of compute capability 9.0 and newer with a driver for CUDA 12.3 or
    /// newer; elsewhere the same as [`Stamps`](Self::Stamps).
    LaunchOrderStamps,
}
