//! The limits of a session's streams, and the state that they share.
//!
//! A recorder creates it. Backends keep the state of a GPU context here, but not the state of a single stream.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use crate::timing::EndMode;

/// The limits of a session.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of waiting zones of one stream.
    pub zones: usize,
    /// The maximum number of events in one GPU context.
    pub events: usize,
    /// The method by which zone ends are found before the session knows the number of streams.
    pub ends: EndMode,
    /// Whether open zones can be observed.
    pub watch: bool,
}

/// State that the streams of one session share, by backend and GPU context.
pub struct Scope {
    pub limits: Limits,
    /// Whether the session times zones on GPU streams by CUPTI's records. Backends then put nothing on a stream.
    pub by_kernels: AtomicBool,
    /// The shared state; none after the end of the session, when no state is created.
    pub shared: Mutex<Option<HashMap<u64, Arc<dyn Shared>>>>,
}

/// State that the streams of one GPU context share. A backend downcasts it to its own type.
pub trait Shared: Any + Send + Sync {
    /// Closes the state at the end of the session. It is released when nothing uses it.
    fn close(&self);
}
