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
//! What it leaves out: other kernels, memory, and that the legacy default stream waits for the others.
#![cfg(target_os = "linux")]

mod abi;
mod call;
mod capture;
mod clock;
mod code;
mod control;
mod cublas;
mod driver;
mod faults;
mod graph;
mod journal;
mod module;
mod moment;
mod nccl;
mod page;
mod table;
mod thread;
