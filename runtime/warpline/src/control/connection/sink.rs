//! The sink of a recording client: it writes a Perfetto trace to the connection's pipe. The collector calls it, and it never blocks.

use std::io;
use std::sync::Arc;

use crate::control::pipe::{Pipe, Writer};
use warpline_report::Report;
use warpline_report::sink::{Batch, SessionInfo, Sink};
use warpline_trace::write::perfetto::PerfettoSink;

pub(super) struct RecordSink {
    sink: PerfettoSink,
    pipe: Arc<Pipe>,
}

impl RecordSink {
    pub(super) fn new(pipe: &Arc<Pipe>) -> RecordSink {
        RecordSink { sink: PerfettoSink::new(Writer(Arc::clone(pipe))), pipe: Arc::clone(pipe) }
    }
}

impl Sink for RecordSink {
    fn start(&mut self, session: &SessionInfo) -> io::Result<()> {
        self.sink.start(session)
    }

    fn write(&mut self, batch: Batch<'_>) -> io::Result<()> {
        self.sink.write(batch)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        self.pipe.end();
        self.sink.finish(report)
    }
}
