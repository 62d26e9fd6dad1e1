//! The terminal that a report is printed on.
#![allow(unsafe_code)]

/// Returns the width of the terminal that standard output is connected to, in columns; none if it is not a terminal.
pub fn columns() -> Option<usize> {
    #[cfg(all(unix, feature = "runtime"))]
    {
        let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the request writes one `winsize`, which is valid for the call.
        let failed = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
        Some(usize::from(size.ws_col)).filter(|columns| failed == 0 && *columns > 0)
    }
    #[cfg(not(all(unix, feature = "runtime")))]
    None
}
