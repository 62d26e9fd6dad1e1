//! Calls of the program's code whose panics must not end warpline's threads: sinks, errors, wakers, `Debug` of values.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `code` and returns its result; none if it panics.
#[inline]
pub fn caught<T>(code: impl FnOnce() -> T) -> Option<T> {
    caught_or_text(code).ok()
}

/// Runs `code` and returns its result, or the message of its panic. The panic does not propagate, even if its payload panics when
/// it is dropped.
///
/// # Errors
/// The code panicked.
#[inline]
pub fn caught_or_text<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(drop_payload)
}

/// Drops the payload of a panic and returns its message.
#[cold]
fn drop_payload(payload: Box<dyn Any + Send>) -> String {
    let text = text(payload.as_ref());
    match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        Ok(()) => text,
        Err(second) => {
            // Dropping this payload could panic as well, and so on without end.
            std::mem::forget(second);
            format!("{text}; the panic's payload panicked when it was dropped")
        }
    }
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
    fn a_payload_that_panics_in_its_drop_is_reported_and_goes_no_further() {
        assert_eq!(caught_or_text(|| 7), Ok(7));
        assert_eq!(caught_or_text(|| panic!("as it is")), Err::<(), _>("as it is".to_owned()));
        let said = caught_or_text(|| std::panic::panic_any(Twice)).expect_err("it panics");
        assert_eq!(said, "no message; the panic's payload panicked when it was dropped");
    }
}
