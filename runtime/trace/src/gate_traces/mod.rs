//! The traces that the trace gate checks, built from hand-made records.
//!
//! `cargo xtask gate --self-test` runs [`write_gate_traces`] with `WARPLINE_GATE_DIR` set, and compares what Perfetto's trace
//! processor reads with the rows in `tests/gate`.

mod docs;

use warpline_report::fixture::{depths, memory, records, report, session, spans, waits};
use warpline_report::sink::{Batch, Sink};

use crate::write::chrome::ChromeSink;
use crate::write::perfetto::PerfettoSink;

#[test]
fn write_gate_traces() -> std::io::Result<()> {
    let Some(folder) = std::env::var_os("WARPLINE_GATE_DIR").map(std::path::PathBuf::from) else { return Ok(()) };
    fn write<S: Sink>(mut sink: S) -> std::io::Result<S> {
        sink.start(&session())?;
        for batch in records() {
            sink.write(Batch::Zones(&batch))?;
        }
        sink.write(Batch::Spans(&spans()))?;
        sink.write(Batch::Waits(&waits()))?;
        sink.write(Batch::Depths(&depths()))?;
        sink.write(Batch::Memory(&memory()))?;
        sink.flush()?;
        Ok(sink)
    }
    write(PerfettoSink::create(folder.join("good.pftrace"))?)?.finish(&report())?;
    write(ChromeSink::create(folder.join("good.json"))?)?.finish(&report())?;
    write(ChromeSink::create(folder.join("unfinished.json"))?).map(drop)
}
