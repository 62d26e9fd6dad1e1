//! Where the server listens: the first address of the setting that is free.

use std::io;
use std::net::TcpListener;

use crate::settings::addresses::ServeAt;

/// Opens the first address that is free.
///
/// # Errors
/// None is free. The text says what to write instead.
pub(super) fn bind(at: ServeAt) -> io::Result<TcpListener> {
    let mut last = None;
    for port in at.first_port..=at.last_port {
        match TcpListener::bind((at.ip, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| io::ErrorKind::InvalidInput.into());
    let what = if at.first_port == at.last_port { "is" } else { "are all" };
    let text = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "`{at}` {what} taken by other sockets; name another port, a range of ports (`9464-9471`) or `0` for any free port"
        ),
        io::ErrorKind::AddrNotAvailable => format!("`{}` is not an address of this host; name one of its own", at.ip),
        io::ErrorKind::PermissionDenied => {
            format!("`{at}` needs privileges that this program lacks; name a port of 1024 or higher")
        }
        _ => format!("`{at}` cannot be opened: {error}"),
    };
    Err(io::Error::new(error.kind(), text))
}
