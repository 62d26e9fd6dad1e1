//! The limits of a session's streams, and the state that they share.
//!
//! A recorder creates it. Backends keep the state of a GPU context here, as opposed to that of one stream.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use crate::timing::EndMode;

/// The limits of a session.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Waiting zones of one stream.
    pub zones: usize,
    /// Events in one GPU context.
    pub events: usize,
    /// How zone ends are found before the session knows how many streams there are.
    pub ends: EndMode,
    /// Open zones can be observed.
    pub watch: bool,
}

/// State that the streams of one session share, by backend and GPU context.
pub struct Scope {
    pub limits: Limits,
    /// The session times zones on GPU streams by CUPTI's records: backends put nothing on a stream.
    pub by_kernels: AtomicBool,
    /// None after the end of the session: no state is created then.
    pub shared: Mutex<Option<HashMap<u64, Arc<dyn Shared>>>>,
}

/// State that the streams of one GPU context share. A backend downcasts it to its own type.
pub trait Shared: Any + Send + Sync {
    /// The session has ended: the state is released when nothing uses it.
    fn close(&self);
}
