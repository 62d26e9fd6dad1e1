//! The parts that the command uses of the crates below `warpline`: text that is safe to print, the names of files, and
//! the protocol of programs that listen.

pub(crate) use warpline_core::file_name;
pub(crate) use warpline_core::plural::{counted, counted_as};
#[cfg(target_os = "linux")]
pub(crate) use warpline_core::socket_peer;
pub(crate) use warpline_core::text::{printable, printable_json, printable_lines};
#[cfg(target_os = "linux")]
pub(crate) use warpline_trace::control::{figures, protocol, socket};
