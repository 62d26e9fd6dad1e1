//! The fallback without masks of signals: for systems other than Unix, and for builds that record nothing and therefore link no C library
//! of their own.

/// Runs `write`.
pub fn without_signals<T>(write: impl FnOnce() -> T) -> T {
    write()
}

/// Runs `work`.
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    work()
}
