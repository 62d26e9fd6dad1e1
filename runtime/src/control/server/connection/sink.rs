//! A trace for a connection: what a session records goes into the pipe to it.

use std::io;
use std::sync::Arc;

use crate::control::server::pipe::{Pipe, Writer};
use crate::kernel::KernelRecord;
use crate::record::{SpanRecord, ZoneRecord};
use crate::replay::ReplayRecord;
use crate::session::Report;
use crate::sink::{PerfettoSink, SessionChange, SessionInfo, Sink};
use crate::wait::{QueueDepth, WaitRecord};

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

    fn records(&mut self, batch: &[ZoneRecord]) -> io::Result<()> {
        self.sink.records(batch)
    }

    fn spans(&mut self, batch: &[SpanRecord]) -> io::Result<()> {
        self.sink.spans(batch)
    }

    fn kernels(&mut self, batch: &[KernelRecord]) -> io::Result<()> {
        self.sink.kernels(batch)
    }

    fn replays(&mut self, batch: &[ReplayRecord]) -> io::Result<()> {
        self.sink.replays(batch)
    }

    fn waits(&mut self, batch: &[WaitRecord]) -> io::Result<()> {
        self.sink.waits(batch)
    }

    fn depths(&mut self, batch: &[QueueDepth]) -> io::Result<()> {
        self.sink.depths(batch)
    }

    fn changes(&mut self, batch: &[SessionChange]) -> io::Result<()> {
        self.sink.changes(batch)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    fn finish(&mut self, report: &Report) -> io::Result<()> {
        self.pipe.end();
        self.sink.finish(report)
    }
}
