//! A CUPTI without a GPU, which a test names in `WARPLINE_CUPTI`.
//!
//! It keeps what is enabled, each thread's external correlation ids and the buffers that it was lent; it writes the records
//! of what `stub_cupti_launch` says was launched, as the headers lay them out; it counts
//! every call and fails on demand. `api` has CUPTI's own functions, `control` the tests', `record` the layouts.
#![cfg(target_os = "linux")]

mod api;
mod control;
mod launch;
mod record;
mod state;
