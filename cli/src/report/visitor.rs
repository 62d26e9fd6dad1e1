//! Receives the slices of a trace, and adds each to the figures of its kind.

use warpline_report::builder::Place;
use warpline_report::path::Track;

use super::figures::{Figures, track};
use super::shown::is_in;
use super::steps::Step;
use crate::trace::{Arrow, Fact, Kind, Names, Rows, Slice, Visitor};

fn works_on_a_stream(slice: &Slice<'_>, rows: &Rows) -> bool {
    let is_work = matches!(slice.kind, Kind::Zone | Kind::Collective | Kind::Kernel | Kind::Copy | Kind::Wait);
    is_work && rows.stream_of(slice.row).is_some()
}

impl Visitor for Figures {
    fn wants_fields(&self) -> bool {
        self.by.is_some()
    }

    fn slice(&mut self, slice: &Slice<'_>, rows: &Rows, names: &mut Names) {
        let Figures { only, other_work, .. } = self;
        if let Some(only) = only {
            let is_own = is_in(slice, only);
            if works_on_a_stream(slice, rows) {
                if is_own { other_work.own(slice.span) } else { other_work.other(slice.span, only) }
            }
            if !is_own {
                return;
            }
        }
        let slice = &self.split(slice, names);
        if slice.kind != Kind::BatchEntry || !self.messages.continues(slice) {
            let batch = self.messages.take_batch();
            if !batch.is_empty() {
                self.add_entries(batch, names);
            }
        }
        let ns = slice.span.duration_ns();
        match slice.kind {
            Kind::Zone | Kind::Collective if slice.args.has_correlation => {
                self.zone(slice, Place::Replays, rows, None);
                self.in_replay(slice, rows, names);
            }
            Kind::Zone | Kind::Collective => {
                self.zone(slice, Place::Streams, rows, None);
                self.on_stream(slice, rows, names);
                self.follow(slice, rows);
                if slice.args.is_kernel {
                    self.kernel_slices.add((slice.name, slice.args.zone), ns, 0);
                }
            }
            Kind::HostZone => {
                self.zone(slice, Place::Threads, rows, None);
                self.follow(slice, rows);
            }
            Kind::BatchEntry => self.messages.add(slice, rows, names),
            Kind::Kernel | Kind::Copy => {
                let of_stages = slice.row == usize::MAX;
                let table = if of_stages { &mut self.builder.kernels } else { &mut self.kernel_slices };
                table.add((slice.name, slice.args.zone), ns, 0);
                if !of_stages {
                    self.on_stream(slice, rows, names);
                }
                // A session's zones have the launches of their kernels.
                if slice.launch.is_some() {
                    self.follow(slice, rows);
                }
            }
            Kind::Wait => {
                if let Some(semaphore) = slice.args.semaphore {
                    self.builder.semaphores.add(semaphore, ns, slice.early_by_ns());
                }
                self.on_stream(slice, rows, names);
            }
            Kind::Sync => {
                if let Some((on @ Track::Thread(_), thread)) = track(slice.row, rows) {
                    self.builder.path().synchronized((on, &thread), slice.span);
                    self.builder.host_waits.add((thread, slice.name, slice.args.zone), ns, 0);
                }
            }
            Kind::Step => {
                self.builder.step(slice.span);
                if let Some(steps) = &mut self.steps {
                    let trace = self.builder.recording();
                    steps.add(Step { trace, number: slice.args.step, span: slice.span });
                }
            }
            _ => {}
        }
    }

    fn arrow(&mut self, arrow: &Arrow, rows: &Rows) {
        if let (Some(on), Some(from)) = (track(arrow.on, rows), track(arrow.from, rows)) {
            let wait = (arrow.wait, arrow.early_by_ns);
            self.builder.path().waited((on.0, &on.1), wait, (from.0, &from.1), arrow.at_ns);
        }
    }

    fn memory(&mut self, counter: &str, at_ns: i64, bytes: u64) {
        self.memory.counter(counter, at_ns, bytes);
    }

    fn fact(&mut self, fact: Fact) {
        self.account.fact(fact);
    }
}
