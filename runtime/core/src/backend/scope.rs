//! What a session lets its streams have, and what they share.
//!
//! A recorder makes it, and backends keep there what belongs to a GPU context and not to one stream.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::timing::EndMode;

/// What a session may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Zones of one stream that wait.
    pub zones: usize,
    /// Events in one GPU context.
    pub events: usize,
    /// How zones find their ends before the session knows how many streams there are.
    pub ends: EndMode,
    /// What is open can be seen while it is.
    pub watch: bool,
}

/// What the streams of one session share among themselves, by backend and GPU context.
pub struct Scope {
    pub limits: Limits,
    /// None once the session is over: what is met then is not made.
    pub shared: Mutex<Option<HashMap<u64, Arc<dyn Shared>>>>,
}

/// What the streams of one GPU context share. A backend downcasts it to its own type.
pub trait Shared: Any + Send + Sync {
    /// The session is over: it is given back, as soon as nothing uses it.
    fn close(&self);
}
