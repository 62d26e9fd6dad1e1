//! The fallback without protection from the signals that a write raises: for systems other than Unix, and for builds that record
//! nothing and therefore link no C library of their own.

/// Runs `write`.
pub fn without_signals<T>(write: impl FnOnce() -> T) -> T {
    write()
}
