//! Gives each launch of a graph events of its own, with `graph_timing=events`: [`GraphZones::before_launch`](super::GraphZones)
//! calls [`before_launch`], and the collector reads the rings that are [`waiting`].
//!
//! The driver is only given handles of graphs that the caller holds. A ring stays with its executable graph's handle until another
//! graph has that, or until nobody holds the graph's zones any more; nobody tells when an executable graph is gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::label::GraphError;
use super::plan::Plan;
use super::registered::Registered;
use super::registry::Held;
use crate::backend::cuda::driver::{CudaError, Driver};
use crate::backend::cuda::graphs::Handle;
use crate::backend::cuda::stamps::{self, Ring};
use crate::switch;

static RINGS: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The ring of an executable graph.
#[derive(Clone)]
pub(crate) struct Known {
    exec: Handle,
    graph: Arc<Registered>,
    held: Weak<Held>,
    pub(crate) ring: Arc<Ring>,
    /// The handle is another executable graph's by now.
    is_over: bool,
}

impl Known {
    /// How its events time the graph's zones.
    pub(crate) fn plan(&self) -> Arc<Plan> {
        self.graph.plan()
    }

    /// Whether it is to be read, or the program may tell of another launch of it.
    fn is_needed(&self) -> bool {
        !self.ring.is_empty() || (!self.is_over && self.held.strong_count() > 0)
    }
}

pub(super) fn before_launch(
    driver: &'static Driver,
    held: &Arc<Held>,
    graph: Handle,
    exec: Handle,
) -> Result<(), GraphError> {
    let registered = &held.0;
    let known = {
        let rings = lock();
        let is_it = |known: &&Known| known.exec == exec && Arc::ptr_eq(&known.graph, registered) && !known.is_over;
        rings.iter().find(is_it).map(|known| Arc::clone(&known.ring))
    };
    // A session that is stopped takes no launch, and is over for this one.
    let Some(session) = stamps::session_by_events().filter(|_| switch::epoch().is_some()) else {
        return known.map_or(Ok(()), |ring| ring.park(exec)).map_err(|error| failed(driver, error));
    };
    let borders = registered.borders(graph).ok_or_else(|| {
        GraphError(
            "the graph is another than its zones are of: give the one that `GraphZones::of` was given".to_owned(),
        )
    })?;
    if borders.is_empty() || exec == 0 {
        return Ok(());
    }
    let ring = match known.filter(|ring| ring.is_of(&borders)) {
        Some(ring) => ring,
        None => {
            let Some(ring) = Ring::new(driver, &borders).map(Arc::new) else {
                // Captured in pieces that do not go together; one that is timed by stamps alone has nothing to exchange.
                if Ring::has_events(&borders) {
                    stamps::loses_launch();
                }
                return Ok(());
            };
            let mut rings = lock();
            rings.iter_mut().filter(|known| known.exec == exec).for_each(|known| known.is_over = true);
            rings.retain(Known::is_needed);
            let (graph, held) = (Arc::clone(registered), Arc::downgrade(held));
            rings.push(Known { exec, graph, held, ring: Arc::clone(&ring), is_over: false });
            ring
        }
    };
    match ring.exchange(exec, session) {
        Ok(true) => Ok(()),
        Ok(false) => {
            stamps::loses_launch();
            Ok(())
        }
        Err(error) => {
            stamps::loses_launch();
            Err(failed(driver, error))
        }
    }
}

/// The rings with launches that were not read. Events of rings that are forgotten stay, since nobody can say whether a driver's
/// handle is still in a node; there are never more than so many.
pub(crate) fn waiting() -> Vec<Known> {
    if !stamps::are_launches_waiting() {
        return Vec::new();
    }
    lock().iter().filter(|known| !known.ring.is_empty()).cloned().collect()
}

/// The context of a ring is gone: what waits in it is never recorded.
pub(crate) fn forget(ring: &Arc<Ring>) {
    lock().retain(|known| !Arc::ptr_eq(&known.ring, ring));
}

fn failed(driver: &Driver, error: CudaError) -> GraphError {
    let why = driver.told(error).0;
    GraphError(format!(
        "the events of the next launch could not be exchanged: {why}; give the graph that the executable one was made of"
    ))
}

/// No driver is called under this lock.
fn lock() -> MutexGuard<'static, Vec<Known>> {
    RINGS.lock().unwrap_or_else(PoisonError::into_inner)
}
