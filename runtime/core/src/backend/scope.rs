//! The limits of a session's streams, and the state that they share.
//!
//! A recorder creates it. Backends keep the state of a GPU context here, but not the state of a single stream.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use super::BackendError;
use crate::lock::lock;
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
    /// The session's limits, which a backend observes.
    pub limits: Limits,
    /// Whether the session times zones on GPU streams by CUPTI's records. Backends then put nothing on a stream.
    #[doc(hidden)]
    pub by_kernels: AtomicBool,
    /// The shared state; none after the end of the session, when no state is created.
    #[doc(hidden)]
    pub shared: Mutex<Option<HashMap<u64, Arc<dyn Shared>>>>,
}

impl Scope {
    /// Returns the state that the streams of a space share in this session. If there is none yet, `make` creates it. Two threads
    /// may create it at once; then one of the two is closed at once.
    ///
    /// # Errors
    /// That of `make`; the session is over; or the space holds state of another type.
    pub fn shared<T: Shared>(
        &self,
        space: u64,
        make: impl FnOnce() -> Result<T, BackendError>,
    ) -> Result<Arc<T>, BackendError> {
        let over = || BackendError::new("the session is over: begin the zone in the next one");
        let known = lock(&self.shared).as_ref().ok_or_else(over)?.get(&space).cloned();
        // Without the lock, because this calls a driver.
        let (shared, surplus) = match known {
            Some(known) => (known, None),
            None => {
                let made: Arc<dyn Shared> = Arc::new(make()?);
                match lock(&self.shared)
                    .as_mut()
                    .map(|shared| Arc::clone(shared.entry(space).or_insert(Arc::clone(&made))))
                {
                    Some(known) if Arc::ptr_eq(&known, &made) => (made, None),
                    Some(known) => (known, Some(made)),
                    None => {
                        made.close();
                        return Err(over());
                    }
                }
            }
        };
        if let Some(surplus) = surplus {
            surplus.close();
        }
        let foreign = |_| BackendError::new("the space's state is of another type: take its id from `new_space`");
        (shared as Arc<dyn Any + Send + Sync>).downcast().map_err(foreign)
    }
}

/// State that the streams of one space share in a session, such as a pool of events. A backend gets it from [`Scope::shared`].
pub trait Shared: Any + Send + Sync {
    /// Closes the state at the end of the session, on the thread that ends it. Zones may still be open then. The state is dropped when
    /// nothing uses it.
    fn close(&self) {}
}
