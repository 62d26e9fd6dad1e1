//! What a session lets its streams have, and what they share.
//!
//! A recorder makes it, and backends keep there what belongs to a GPU context and not to one stream.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::timing::Ends;

/// What a session may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Zones of one stream that wait.
    pub(crate) zones: usize,
    /// Events in one GPU context.
    pub(crate) events: usize,
    /// How zones find their ends before the session knows how many streams there are.
    pub(crate) ends: Ends,
    /// What is open can be seen while it is.
    pub(crate) watch: bool,
}

/// What the streams of one session share among themselves, by backend and GPU context.
pub(crate) struct Scope {
    pub(crate) limits: Limits,
    /// None once the session is over: what is met then is not made.
    pub(crate) shared: Mutex<Option<HashMap<u64, Arc<dyn Shared>>>>,
}

/// What the streams of one GPU context share. A backend downcasts it to its own type.
pub(crate) trait Shared: Any + Send + Sync {
    /// The session is over: it is given back, as soon as nothing uses it.
    fn close(&self);
}
