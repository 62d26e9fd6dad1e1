//! Converts kernels and copies to events, with the names that PyTorch's profiler gives them.

use std::io;

use serde_json::json;

use super::document::Events;
use super::json::Args;
use super::rows::{Owner, Whose};
use super::trace::Trace;
use warpline_core::kernel::{KernelRecord, KernelWork};

impl Trace {
    pub(super) fn kernel(&mut self, record: &KernelRecord, out: &mut Events) -> io::Result<()> {
        let stream = &record.stream;
        let place = self.rows.place((Owner::Kernels(stream.id), None), Whose::stream(stream), record.gpu, out)?;
        let category = match record.work {
            KernelWork::Memcpy { .. } => "gpu_memcpy",
            KernelWork::Memset { .. } => "gpu_memset",
            _ => "kernel",
        };
        self.named_slice(category, &record.name, record.gpu, place, out)?;
        let mut args = Args::open(out)?;
        args.add("device", stream.device.ordinal)?;
        args.add("context", record.context)?;
        args.add("stream", stream.id)?;
        args.add("correlation", record.correlation)?;
        match &record.work {
            KernelWork::Kernel { grid, block, registers_per_thread, .. } => {
                args.add("registers per thread", *registers_per_thread)?;
                args.add("shared memory", record.work.shared_bytes())?;
                args.add("grid", json!(grid))?;
                args.add("block", json!(block))?;
            }
            KernelWork::Memcpy { bytes, kind, .. } => {
                args.add("bytes", *bytes)?;
                args.add("kind", *kind)?;
            }
            KernelWork::Memset { bytes, .. } => args.add("bytes", *bytes)?,
            _ => {}
        }
        args.add_some("memory bandwidth (GB/s)", record.bytes_per_second().map(|speed| speed * 1e-9))?;
        if let Some(node) = record.graph {
            args.add("graph id", node.graph)?;
            args.add("graph node id", node.node)?;
        }
        if let Some(zone) = record.zone {
            args.add("zone", zone.range.name())?;
            args.add("zone sequence", zone.sequence)?;
            args.add_some("zone stream", zone.stream)?;
        }
        args.close()
    }
}
