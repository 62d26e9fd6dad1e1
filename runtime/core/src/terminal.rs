//! The terminal that a report is printed on.

/// Returns how many columns standard output has; none if it is no terminal, or one that does not tell.
pub fn columns() -> Option<usize> {
    #[cfg(all(unix, feature = "runtime"))]
    {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
    }
    #[cfg(not(all(unix, feature = "runtime")))]
    None
}
