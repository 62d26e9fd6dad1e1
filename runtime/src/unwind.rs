//! Panics of the application's code that warpline calls: they end there.
//!
//! A payload is the application's as well, and may panic when it is dropped.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `work`. A panic in it is an error with the panic's message; none gets out, whatever its payload does when it is dropped.
///
/// # Errors
/// `work` panicked.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
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
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught(|| panic!("as it is")), Err::<(), _>("as it is".to_owned()));
        let said = caught(|| std::panic::panic_any(Twice)).expect_err("it panics");
        assert_eq!(said, "no message; the panic's payload panicked when it was dropped");
    }
}
