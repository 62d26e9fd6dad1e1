//! What a running program and the command `warpline` say to each other, and where they meet.

pub mod figures;
#[cfg(unix)]
pub mod place;
pub mod protocol;
