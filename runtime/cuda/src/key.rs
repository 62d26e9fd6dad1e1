//! The keys of CUDA streams: the driver's ids, which it never reuses.
//!
//! A thread remembers the ids of the streams that it used last, by the addresses of the values that own them. It holds each address, so
//! that no other stream gets it, and keeps no stream alive. A default stream is not remembered, because its handle means another stream in
//! another context.

use std::cell::RefCell;
use std::sync::Weak;

use super::driver::{CudaError, Driver, is_default};
use warpline_core::backend::device::{DeviceStream, KeepAlive, RawParts};
use warpline_core::backend::{NoKey, StreamKey};

/// A stream's key, or why it has none.
pub(crate) type Key = Result<StreamKey, NoKey>;

/// The number of streams that a thread remembers.
const REMEMBERED: usize = 8;

/// A stream that a thread remembers.
struct Remembered {
    address: usize,
    id: u64,
    _held: Weak<dyn KeepAlive>,
}

/// The streams that a thread used last.
struct Ids {
    places: [Option<Remembered>; REMEMBERED],
    /// The place that the next new stream takes.
    next: usize,
}

thread_local! {
    static IDS: RefCell<Ids> = const { RefCell::new(Ids { places: [const { None }; REMEMBERED], next: 0 }) };
}

/// Returns a key that distinguishes the stream from every other. The capture status is queried first, because only that query does not
/// break a capture.
#[inline]
pub(super) fn of_stream(stream: &dyn DeviceStream) -> Key {
    let parts = stream.parts().map_err(|_| NoKey::Unknown)?;
    let driver = Driver::get().map_err(|_| NoKey::Unknown)?;
    match id(driver, stream, parts) {
        // SAFETY: this is the driver's backend, and the driver gave the id for this stream.
        #[allow(unsafe_code)]
        Ok(Some(stream)) => Ok(unsafe { StreamKey::of_driver(stream) }),
        Ok(None) => Err(NoKey::Captured),
        Err(_) => Err(NoKey::Unknown),
    }
}

/// Returns the stream's id; none while it is being captured.
#[inline]
pub(super) fn id(driver: &Driver, of: &dyn DeviceStream, parts: RawParts) -> Result<Option<u64>, CudaError> {
    let RawParts { stream, context } = parts;
    let address = of.address().filter(|_| !is_default(stream));
    let ask = || {
        if driver.is_capturing(stream)? {
            return Ok(None);
        }
        if let Some(id) = address.and_then(remembered) {
            return Ok(Some(id));
        }
        let id = driver.stream_id(stream)?;
        if let (Some(address), Some(held)) = (address, of.hold_address()) {
            remember(Remembered { address, id, _held: held });
        }
        Ok(Some(id))
    };
    driver.in_context(context.filter(|_| is_default(stream)), ask)
}

#[inline]
fn remembered(address: usize) -> Option<u64> {
    let find = |ids: &RefCell<Ids>| {
        let ids = ids.try_borrow().ok()?;
        ids.places.iter().flatten().find(|known| known.address == address).map(|known| known.id)
    };
    // A thread whose thread-local values are destroyed asks the driver each time.
    IDS.try_with(find).ok()?
}

#[cold]
fn remember(stream: Remembered) {
    // The replaced entry is dropped after the borrow ends.
    let _made_room = IDS.try_with(|ids| {
        let mut ids = ids.try_borrow_mut().ok()?;
        let next = ids.next;
        ids.next = (next + 1) % REMEMBERED;
        ids.places[next].replace(stream)
    });
}
