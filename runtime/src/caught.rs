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

/// Calls `work`. A panic in it is an error with the panic's message; none gets out, whatever its payload does when it is dropped.
///
/// # Errors
/// `work` panicked.
pub(crate) fn told<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = text(payload.as_ref());
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => text,
            Err(second) => {
                // Its drop might panic as well, and so on without an end.
                std::mem::forget(second);
                format!("{text}; the panic's payload panicked when it was dropped")
            }
        }
    })
}

fn text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Twice;

    impl Drop for Twice {
        fn drop(&mut self) {
            std::panic::panic_any(Twice);
        }
    }

    #[test]
    fn a_payload_that_panics_in_its_drop_is_said_and_goes_no_further() {
        assert_eq!(told(|| 7), Ok(7));
        assert_eq!(told(|| panic!("as it is")), Err::<(), _>("as it is".to_owned()));
        let said = told(|| std::panic::panic_any(Twice)).expect_err("it panics");
        assert_eq!(said, "no message; the panic's payload panicked when it was dropped");
    }
}
