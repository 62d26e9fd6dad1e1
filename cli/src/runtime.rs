//! What the command takes from `warpline` that is not part of its public API: the text that is safe to print, the names of files,
//! and the protocol of programs that listen. No other file of this crate names `warpline::__private`.

pub(crate) use warpline::__private::{counted, counted_as, file_name, printable, printable_json, printable_lines};
#[cfg(target_os = "linux")]
pub(crate) use warpline::__private::{figures, peer, place, protocol};
