//! Zones of what burn launches on a CUDA device. Copy this file.
//!
//! burn launches kernels on a thread of the device, not on the thread that calls a module, and on streams that it does not show. `run`
//! therefore begins and ends a zone on that thread, in order with the launches, and the setting `timing=kernels` gives the zone the time
//! of the kernels that were launched in between, whatever stream they ran on.

use std::cell::RefCell;
use std::ptr::null_mut;
use std::sync::Arc;

use cubecl_common::device::{DeviceId, DeviceService, ServerUtilitiesHandle};
use cubecl_common::device_handle::DeviceHandle;
use warpline::{RangeSpec, RawStream, Zone};

/// Runs one module: `zoned!("demo.mlp", "What it does.", self.mlp.forward(x))`.
#[macro_export]
macro_rules! zoned {
    ($name:literal, $description:literal, $work:expr) => {{
        warpline::range! { RANGE = $name: $description; }
        $crate::zones::run(&RANGE, || $work)
    }};
}

/// Runs `work` as a zone of `range`. Queues two closures for the device's thread, and waits for nothing.
pub fn run<T>(range: &'static RangeSpec, work: impl FnOnce() -> T) -> T {
    let queue = DeviceHandle::<OpenZones>::new(DeviceId { type_id: 0, index_id: 0 }); // the first CUDA device
    queue.submit(move |zones| zones.begin(range));
    let _end = End(queue);
    work()
}

/// Ends the zone, also where the work panics.
struct End(DeviceHandle<OpenZones>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.submit(OpenZones::end);
    }
}

/// The stream that stands for burn's own ones: the default stream, on which nothing is put.
fn stream() -> RawStream {
    // SAFETY: a default stream lives as long as its context, which is the primary one and lives as long as the process.
    unsafe { RawStream::from_ptr(null_mut()) }
}

/// The zones that are open on the device's thread.
struct OpenZones;

thread_local! {
    static OPEN: RefCell<Vec<Zone>> = const { RefCell::new(Vec::new()) };
}

impl OpenZones {
    fn begin(&mut self, range: &'static RangeSpec) {
        OPEN.with_borrow_mut(|open| open.push(range.zone(&stream())));
    }

    fn end(&mut self) {
        drop(OPEN.with_borrow_mut(Vec::pop));
    }
}

/// cubecl runs the closures of a service on the thread that launches.
impl DeviceService for OpenZones {
    fn init(_: DeviceId) -> OpenZones {
        let _ = stream().named("burn");
        OpenZones
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        Arc::new(())
    }
}
