//! A CUDA driver without a GPU, which a test loads in place of `libcuda.so.1`.
//!
//! It keeps contexts, streams, events and captures as the real driver does, as far as warpline can tell; it counts and
//! logs every call with its thread; it fails on demand. So a test can say what nobody can see on a GPU: which calls a
//! launching thread makes, that none comes after a session, that nothing leaks and no handle is used after its end.
//!
//! A call takes this way: `abi` (the exported symbol) → `call` (journal, then faults) → `driver` and what it keeps. The
//! tests' own exports, `stub_…`, are in `control`.
//!
//! The same library stands in for NCCL and for cuBLAS, as far as warpline asks them: `nccl`, `cublas`.
//!
//! It knows warpline's own kernels by their names and does what they do; a graph that is replayed does it again.
//!
//! What it leaves out: other kernels, the bytes of memory, and that the legacy default stream waits for the others.
#![cfg(target_os = "linux")]

#[cfg(not(feature = "free"))]
mod abi;
#[cfg(not(feature = "free"))]
mod call;
#[cfg(not(feature = "free"))]
mod capture;
#[cfg(not(feature = "free"))]
mod clock;
#[cfg(not(feature = "free"))]
mod code;
#[cfg(not(feature = "free"))]
mod control;
#[cfg(not(feature = "free"))]
mod cublas;
#[cfg(not(feature = "free"))]
mod driver;
#[cfg(not(feature = "free"))]
mod faults;
#[cfg(feature = "free")]
mod free;
#[cfg(not(feature = "free"))]
mod graph;
#[cfg(not(feature = "free"))]
mod journal;
#[cfg(not(feature = "free"))]
mod module;
#[cfg(not(feature = "free"))]
mod moment;
#[cfg(not(feature = "free"))]
mod nccl;
#[cfg(not(feature = "free"))]
mod orders;
#[cfg(not(feature = "free"))]
mod page;
#[cfg(not(feature = "free"))]
mod table;
#[cfg(not(feature = "free"))]
mod thread;
