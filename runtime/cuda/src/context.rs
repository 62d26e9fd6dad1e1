//! What the streams of one CUDA context share in one session: its events, its device, and how ends are found.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::driver::{ContextPtr, CudaError, Driver};
use super::owner::Keeper;
use super::pool::Pool;
use super::stamps;
use warpline_core::backend::BackendError;
use warpline_core::backend::device::KeepAlive;
use warpline_core::backend::{Scope, Shared};
use warpline_core::environment;
use warpline_core::lock::lock;
use warpline_core::record::{DeviceInfo, DeviceKind};
use warpline_core::timing::EndMode;

/// How many hardware queues a device's streams share, unless the environment says otherwise.
const DEFAULT_CONNECTIONS: usize = 8;

pub(super) struct Context {
    pub(super) driver: &'static Driver,
    pub(super) ptr: ContextPtr,
    pub(super) id: u64,
    pub(super) device: DeviceInfo,
    pub(super) pool: Pool,
    /// CUPTI's records time the zones: nothing is put on a stream.
    pub(super) is_timed_by_kernels: bool,
    /// The device's hardware queues.
    connections: usize,
    lazy: AtomicBool,
    /// The context is its device's primary one, and the session keeps it alive.
    retained: AtomicBool,
    /// Keeps a context alive that is not a primary one, where safe code could destroy it.
    owner: Mutex<Option<Arc<dyn KeepAlive>>>,
}

// SAFETY: the driver takes a context from any thread; everything else is `Send` and `Sync`.
#[allow(unsafe_code)]
unsafe impl Send for Context {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Context {}

impl Context {
    /// The context's object in a session, made when the session meets the context for the first time. `owner` keeps the context
    /// alive, where it is not a primary one.
    pub(super) fn get_or_create(
        driver: &'static Driver,
        ptr: ContextPtr,
        owner: impl FnOnce() -> Option<Arc<dyn KeepAlive>>,
        scope: &Scope,
    ) -> Result<Arc<Context>, BackendError> {
        let told = |error: CudaError| driver.describe(error);
        let id = driver.context_id(ptr).map_err(told)?;
        let mut shared = scope.shared.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody would let go of what is made now.
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
        // The driver does not stand a call in a context that another thread destroys at that moment.
        let is_retained = driver.retain_primary(ordinal, ptr).map_err(told)?;
        let owner = if is_retained { None } else { owner() };
        let keeper = owner.as_ref().map(|owner| Keeper::Owner(Arc::downgrade(owner)));
        let retained = AtomicBool::new(is_retained);
        let pool = Pool::new(driver, ptr, id, scope.limits.events);
        // Until the collector has counted the streams: what costs no overlap, unless the user wants it otherwise.
        let lazy = AtomicBool::new(scope.limits.ends != EndMode::Eager);
        let context = Arc::new(Context {
            driver,
            ptr,
            id,
            device,
            pool,
            is_timed_by_kernels: scope.by_kernels.load(Ordering::Acquire),
            connections: connections(),
            lazy,
            retained,
            owner: Mutex::new(owner),
        });
        shared.insert(id, Arc::clone(&context) as Arc<_>);
        // Ahead of the first capture: the collector makes what its stamps need.
        if stamps::is_on() {
            stamps::want(ptr, id, keeper);
        }
        Ok(context)
    }

    /// Whether zones that end now get a marker instead of an event with a time.
    #[inline]
    pub(super) fn is_lazy(&self) -> bool {
        self.lazy.load(Ordering::Relaxed)
    }

    /// Eager ends cost overlap as soon as two streams share a hardware queue. The application may have streams that no mark
    /// names, so half of the queues are left to them.
    pub(super) fn choose_ends(&self, ends: EndMode, streams: Option<usize>) {
        if self.is_timed_by_kernels {
            return;
        }
        let lazy = match ends {
            EndMode::Lazy => true,
            EndMode::Eager => false,
            _ => streams.is_none_or(|streams| streams * 2 > self.connections),
        };
        if self.lazy.load(Ordering::Relaxed) != lazy {
            self.pool.complete(lazy);
            self.lazy.store(lazy, Ordering::Relaxed);
        }
    }
}

impl Shared for Context {
    fn close(&self) {
        self.pool.close();
        // The context may go when the application lets go of it. One that was reset meanwhile is not what was retained.
        if self.retained.swap(false, Ordering::AcqRel) && self.pool.look() {
            self.driver.release_primary(self.device.ordinal.cast_signed());
        }
        let owner = lock(&self.owner).take();
        if let Some(owner) = owner {
            owner.release_owner();
        }
    }
}

/// `CUDA_DEVICE_MAX_CONNECTIONS`, as the driver read it.
fn connections() -> usize {
    let said = environment::var("CUDA_DEVICE_MAX_CONNECTIONS").ok().and_then(|text| text.trim().parse().ok());
    said.filter(|count| (1..=32).contains(count)).unwrap_or(DEFAULT_CONNECTIONS)
}
