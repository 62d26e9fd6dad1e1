//! The symbols that the real driver exports, with its C ABI: handles are as wide as pointers, results are `CUresult`.
#![allow(non_snake_case, reason = "the driver's names")]

mod capture;
mod context;
mod device;
mod event;
mod graph;
#[cfg(not(feature = "old"))]
mod green;
mod memory;
mod module;
mod stream;
