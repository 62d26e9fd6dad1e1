//! Calls of the program's code that must not take warpline's threads with them: sinks, errors, wakers, `Debug` of values.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What the program's code returns; none where it panics.
pub(crate) fn caught<T>(code: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(code)).map_err(forget).ok()
}

/// The payload of a panic may panic in its `Drop`: it is not dropped.
fn forget(payload: Box<dyn Any + Send>) {
    std::mem::forget(payload);
}
