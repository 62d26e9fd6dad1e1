//! A backend of one's own: a small thread pool whose streams are ordered queues, with a clock that is not the host's.
//!
//! It stands for an API that warpline does not know, such as Vulkan, Level Zero or wgpu, and uses nothing of warpline but the public
//! modules of the crate `warpline`. [`pool`] is the API itself and knows nothing of zones; [`backend`] implements warpline's traits
//! for it. A crate that adds a real device has the same two parts.
#![forbid(unsafe_code)]

pub mod backend;
pub mod pool;

pub use backend::{PoolDevice, PoolStream};
pub use pool::{Pool, PoolError, ReadClock, drifting_clock};
