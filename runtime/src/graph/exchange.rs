//! Gives each launch of a graph events of its own, with `graph_timing=events`: [`GraphZones::before_launch`](super::GraphZones)
//! calls [`before_launch`], and the collector reads the [`rings`].
//!
//! The driver is only given handles of graphs that the caller holds. A ring stays with its executable graph's handle until another
//! graph has that; nobody tells when an executable graph is gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::label::GraphError;
use super::plan::Plan;
use super::registered::Registered;
use crate::backend::cuda::driver::{CudaError, Driver};
use crate::backend::cuda::graphs::Handle;
use crate::backend::cuda::stamps::{self, Ring};

static RINGS: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The ring of an executable graph.
#[derive(Clone)]
pub(crate) struct Known {
    exec: Handle,
    graph: Arc<Registered>,
    pub(crate) ring: Arc<Ring>,
    /// The handle is another executable graph's by now.
    is_over: bool,
}

impl Known {
    /// How its events time the graph's zones.
    pub(crate) fn plan(&self) -> Arc<Plan> {
        self.graph.plan()
    }
}

pub(super) fn before_launch(
    driver: &'static Driver,
    registered: &Arc<Registered>,
    graph: Handle,
    exec: Handle,
) -> Result<(), GraphError> {
    let known = {
        let rings = lock();
        let is_it = |known: &&Known| known.exec == exec && Arc::ptr_eq(&known.graph, registered) && !known.is_over;
        rings.iter().find(is_it).map(|known| Arc::clone(&known.ring))
    };
    let Some(session) = stamps::session_by_events() else {
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
            rings.push(Known { exec, graph: Arc::clone(registered), ring: Arc::clone(&ring), is_over: false });
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

/// The rings that there are, without those that are over and read. Their events stay, since nobody can say whether a driver's
/// handle is still in a node; there are never more than so many.
pub(crate) fn rings() -> Vec<Known> {
    let mut rings = lock();
    rings.retain(|known| !known.is_over || !known.ring.is_empty());
    rings.clone()
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
