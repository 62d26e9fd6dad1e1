//! Zones of ranges that are named at run time (`crate::dynamic`).

use super::{Zone, is_off};
use crate::backend::AsStream;
use crate::dynamic::range;

/// Begins a zone of a range that is named here. Without a session, a request or a tool, the name is not looked up.
#[track_caller]
pub fn zone(stream: &(impl AsStream + ?Sized), name: &str, file: &str, line: u32, function: &str) -> Zone {
    if is_off() { Zone::none() } else { range(name, file, line, function).zone(stream) }
}

/// Begins a zone of a range that is named here, on this thread, without a stream.
#[track_caller]
pub fn host(name: &str, file: &str, line: u32, function: &str) -> Zone {
    if is_off() { Zone::none() } else { range(name, file, line, function).host() }
}
