//! The state that the streams of one CUDA context share in one session: events, device, and the device's queues.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::driver::{ContextPtr, CudaError, Driver};
use super::owner::Keeper;
use super::pool::Pool;
use super::queues::Queues;
use super::stamps;
use warpline_core::backend::BackendError;
use warpline_core::backend::device::KeepAlive;
use warpline_core::backend::{Scope, Shared};
use warpline_core::lock::lock;
use warpline_core::record::{DeviceInfo, DeviceKind};

pub(super) struct Context {
    pub(super) driver: &'static Driver,
    pub(super) ptr: ContextPtr,
    pub(super) id: u64,
    pub(super) device: DeviceInfo,
    pub(super) pool: Pool,
    /// Whether CUPTI's records time the zones. Nothing is then put on a stream.
    pub(super) is_timed_by_kernels: bool,
    /// The hardware queues of the device, which decide how zones end.
    pub(super) queues: Arc<Queues>,
    /// Whether the context is the primary context of its device, which the session retains.
    retained: AtomicBool,
    /// Keeps a context alive that is not a primary one, if safe code could destroy it.
    owner: Mutex<Option<Arc<dyn KeepAlive>>>,
}

// SAFETY: the driver takes a context from any thread; everything else is `Send` and `Sync`.
#[allow(unsafe_code)]
unsafe impl Send for Context {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Context {}

impl Context {
    /// Returns the session's object for a context, and creates it on the session's first use of the context. `owner` keeps the context
    /// alive if it is not a primary one.
    pub(super) fn get_or_create(
        driver: &'static Driver,
        ptr: ContextPtr,
        owner: impl FnOnce() -> Option<Arc<dyn KeepAlive>>,
        scope: &Scope,
    ) -> Result<Arc<Context>, BackendError> {
        let told = |error: CudaError| driver.describe(error);
        let id = driver.context_id(ptr).map_err(told)?;
        let mut shared = scope.shared.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing would release an object that is created now.
        let over = || BackendError("the session is over: begin the zone in the next one".to_owned());
        let shared = shared.as_mut().ok_or_else(over)?;
        if let Some(known) =
            shared.get(&id).cloned().and_then(|known| (known as Arc<dyn Any + Send + Sync>).downcast::<Context>().ok())
        {
            return Ok(known);
        }
        let (ordinal, name) = driver
            .with_context(ptr, || {
                let ordinal = driver.device()?;
                Ok((ordinal, driver.device_name(ordinal)?))
            })
            .map_err(told)?;
        let device = DeviceInfo { ordinal: ordinal.unsigned_abs(), name, kind: DeviceKind::Cuda };
        // The driver crashes on a call in a context that another thread is destroying.
        let is_retained = driver.retain_primary(ordinal, ptr).map_err(told)?;
        let owner = if is_retained { None } else { owner() };
        let keeper = owner.as_ref().map(|owner| Keeper::Owner(Arc::downgrade(owner)));
        let retained = AtomicBool::new(is_retained);
        let pool = Pool::new(driver, ptr, id, scope.limits.events);
        // Contexts of one device share its queues.
        let known =
            shared.values().filter_map(|known| (Arc::clone(known) as Arc<dyn Any + Send + Sync>).downcast().ok());
        let same = known.into_iter().find(|known: &Arc<Context>| known.device.ordinal == device.ordinal);
        let queues = same.map_or_else(|| Arc::new(Queues::new(scope.limits.ends)), |same| Arc::clone(&same.queues));
        let context = Arc::new(Context {
            driver,
            ptr,
            id,
            device,
            pool,
            is_timed_by_kernels: scope.by_kernels.load(Ordering::Acquire),
            queues,
            retained,
            owner: Mutex::new(owner),
        });
        shared.insert(id, Arc::clone(&context) as Arc<_>);
        // This precedes the first capture, so that the collector can create the objects for stamps in this context.
        if stamps::is_on() {
            stamps::want(ptr, id, keeper);
        }
        Ok(context)
    }

    /// Returns whether zones that end now have a marker instead of an event with a time.
    #[inline]
    pub(super) fn is_lazy(&self) -> bool {
        self.queues.is_lazy()
    }
}

impl Shared for Context {
    fn close(&self) {
        self.pool.close();
        // The application may now destroy the context. A primary context is released even if it was reset in the meantime.
        if self.retained.swap(false, Ordering::AcqRel) {
            self.driver.release_primary(self.device.ordinal.cast_signed());
        }
        let owner = lock(&self.owner).take();
        if let Some(owner) = owner {
            owner.release_owner();
        }
    }
}
