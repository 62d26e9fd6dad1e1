//! A handwritten session for the tests of warpline's crates, around the records of [`warpline_core::fixture`]. Only tests enable the feature `fixture`.

use std::time::Duration;

pub use warpline_core::fixture::*;

use crate::figures::{ClockFigures, SemaphoreStats};
use crate::sink::{Batch, SessionInfo, Sink};
use crate::{Dropped, FieldCounts, Report, SpanCounts, WaitCounts};
use warpline_core::record::ZoneRecord;

pub fn session() -> SessionInfo {
    SessionInfo {
        begin_ns: BEGIN_NS,
        begin_unix_ns: 1_700_000_000_000_000_000,
        process_id: 4242,
        process_name: "demo".to_owned(),
        rank: None,
        host: "host7".to_owned(),
        boot_id: Some("db8385a1".to_owned()),
        hash: Some(0x0123_4567_89ab_cdef),
        ranges: Some(&RANGES),
        kernels: false,
    }
}

pub fn report() -> Report {
    let mut fields = FieldCounts::default();
    fields.cut = 1;
    Report {
        begun: 12,
        recorded: 9,
        dropped: Dropped { ring_full: 2, unfinished: 1, ..Dropped::default() },
        fields,
        spans: SpanCounts { begun: 9, recorded: 7, buffer_full: 2, unfinished: 0 },
        waits: WaitCounts {
            begun: 6,
            recorded: 5,
            dropped: Dropped { unfinished: 1, ..Dropped::default() },
            ..WaitCounts::default()
        },
        semaphores: vec![SemaphoreStats {
            name: "weights \"loaded\"".to_owned(),
            waits: 1,
            waited_ns: 850,
            waited_early_ns: 50,
        }],
        duration: Duration::from_micros(20),
        clocks: vec![ClockFigures {
            device: "host".to_owned(),
            uncertainty_ns: 40,
            worst_uncertainty_ns: 40,
            bracket_ns: 64,
            busy_bracket_ns: 96,
            bracket_is_bound: false,
        }],
        notes: vec!["a note".to_owned()],
        ..Report::default()
    }
}

/// Runs a session with these batches through a sink.
pub fn run(sink: &mut impl Sink, batches: &[Vec<ZoneRecord>]) -> std::io::Result<()> {
    sink.start(&session())?;
    for batch in batches {
        sink.write(Batch::Zones(batch))?;
        sink.flush()?;
    }
    sink.finish(&report())
}
