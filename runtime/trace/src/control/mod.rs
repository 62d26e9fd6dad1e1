//! The protocol between a running program and the command `warpline`, and the path of the program's socket.

#[cfg(target_os = "linux")]
pub mod ask;
pub mod figures;
pub mod protocol;
#[cfg(unix)]
pub mod socket;
