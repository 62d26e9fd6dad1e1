//! Names that the application gives its streams.
//!
//! The table of names is in `warpline_core::backend::names`. A session reads it when it first sees a stream.

use warpline_core::backend::AsStream;

/// Names a stream. Traces, reports, NVTX and `warpline top` show the name in place of a number such as `stream 3`.
///
/// Name a stream before its first zone: a session that has already recorded zones on the stream keeps the name that it used first, and
/// later sessions use the new one. The last name wins, also over the name of a [`HostStream`](crate::HostStream). Two streams may have
/// the same name. Names of 16,384 streams are kept; beyond that, the older half is forgotten.
///
/// Returns whether the stream has the name: false while the stream is being captured into a CUDA graph, if the driver does not identify
/// the stream, if there is no stream, and without the feature `enable`. This call asks the driver for the stream's id, and never breaks a
/// capture.
///
/// ```
/// use warpline::HostStream;
///
/// let stream = HostStream::new("worker");
/// assert_eq!(warpline::name_stream(&stream, "copy"), cfg!(feature = "enable"));
/// ```
pub fn name_stream(stream: &(impl AsStream + ?Sized), name: &str) -> bool {
    warpline_core::if_feature!(
        "enable",
        {
            if warpline_core::switch::is_unknown() {
                crate::mirror::attach(None, None);
            }
            warpline_core::backend::names::name(&crate::profile::asking::stream_ref(stream), name)
        },
        {
            let _ = (stream, name);
            false
        }
    )
}
