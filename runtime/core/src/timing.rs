//! How zones and graphs are timed, as far as a user chooses: plain values that settings hold and backends follow.

/// How the end of a zone on a GPU stream is found.
///
/// An event right behind the work it waits for is exact, and makes streams that share one of the device's hardware queues
/// wait for one another: with CUDA's defaults, more than eight streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndMode {
    /// Eager where the device's streams have a hardware queue each, otherwise lazy.
    #[default]
    Auto,
    /// A timed event behind each zone.
    Eager,
    /// A marker without time behind each zone; the next begin on the stream says when it ended, or the collector's look at
    /// the marker does. It costs no overlap and less of the launching thread.
    Lazy,
}

/// The clock of zones on GPU streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Timing {
    /// CUDA events on the zone's stream; [`EndMode`] says which.
    #[default]
    Events,
    /// CUPTI's records of kernels, copies and memory sets. Nothing is put on a stream, and a zone lasts from the begin of its first work
    /// to the end of its last.
    Kernels,
}

/// How zones that are captured into CUDA graphs are timed in each replay, without a profiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GraphTiming {
    /// Not at all: nothing is added to a graph.
    #[default]
    Off,
    /// By stamps: kernels of one thread that are captured where zones begin and end, and write the device's time. Each makes a
    /// replay about a microsecond longer; the launch costs what it costs without.
    Stamps,
    /// By stamps, where the kernel behind the stamp of a begin waits only until the stamp has begun. Each makes a replay about 0.6 µs
    /// longer on an H100. During a capture, right behind such a stamp, CUDA does not tell a stream's dependencies to a caller that
    /// asks without edge data (`cuStreamGetCaptureInfo_v2`, `CUDA_ERROR_LOSSY_QUERY`), so no library that asks so may be captured in
    /// a zone. Devices of compute capability 9.0 and newer with a driver for CUDA 12.3 or newer; elsewhere as [`Stamps`](Self::Stamps).
    LaunchOrderStamps,
}
