//! Receives the slices of a trace, and adds each to the figures of its kind.

use warpline_report::lengths::Length;
use warpline_report::path::Track;

use super::super::steps::Step;
use super::{Figures, Spot, track};
use crate::trace::{Arrow, Fact, Kind, Name, Names, Rows, Slice, Visitor};

impl Visitor for Figures {
    fn slice(&mut self, slice: &Slice<'_>, rows: &Rows, names: &Names) {
        if slice.kind != Kind::BatchEntry || !self.current.messages.continues(slice) {
            let batch = self.current.messages.take_batch();
            if !batch.is_empty() {
                self.add_entries(batch, names);
            }
        }
        let ns = slice.span.duration_ns();
        match slice.kind {
            Kind::Zone | Kind::Collective if slice.args.has_correlation => {
                self.zone(slice, Spot::Replays, rows, 1.0);
                self.in_replay(slice, rows, names);
            }
            Kind::Zone | Kind::Collective => {
                self.zone(slice, Spot::Streams, rows, 1.0);
                self.on_stream(slice, rows, names);
                self.follow(slice, rows, names);
                if slice.args.is_kernel {
                    let table = &mut self.kernel_slices;
                    Self::count_in(table, (slice.name, slice.args.zone), || (Name::MORE, None), slice);
                }
            }
            Kind::HostZone => {
                self.zone(slice, Spot::Threads, rows, 1.0);
                self.follow(slice, rows, names);
            }
            Kind::BatchEntry => self.current.messages.add(slice, rows, names),
            Kind::Kernel | Kind::Copy => {
                let of_stages = slice.row == usize::MAX;
                let table = if of_stages { &mut self.kernels } else { &mut self.kernel_slices };
                Self::count_in(table, (slice.name, slice.args.zone), || (Name::MORE, None), slice);
                if !of_stages {
                    self.on_stream(slice, rows, names);
                }
            }
            Kind::Wait => {
                if let Some(semaphore) = slice.args.semaphore {
                    Self::count_in(&mut self.semaphores, semaphore, || Name::MORE, slice);
                }
                self.on_stream(slice, rows, names);
            }
            Kind::Sync => {
                if let Some((Track::Thread(_), thread)) = track(slice.row, rows) {
                    let key = (slice.name, thread, slice.args.zone);
                    Self::count_in(&mut self.host_waits, key, || (Name::MORE, "(more)".into(), None), slice);
                }
            }
            Kind::Step => {
                self.current.per_step.step(slice.span);
                if let Some(page) = &mut self.for_page {
                    page.steps.add(Step { trace: self.traces, number: slice.args.step, span: slice.span });
                }
                let zone = Length {
                    ns,
                    early_by_ns: 0,
                    launch_ns: None,
                    begin_ns: slice.span.begin_ns,
                    weight: 1.0,
                    window: 0,
                    device: None,
                    has_failed: false,
                };
                // No first step is set apart: the mean and the percentiles of steps are those of all.
                self.steps.add(&zone, || true);
            }
            _ => {}
        }
    }

    fn arrow(&mut self, arrow: &Arrow, rows: &Rows) {
        if let (Some(on), Some(from)) = (track(arrow.on, rows), track(arrow.from, rows)) {
            let wait = (arrow.wait, arrow.early_by_ns);
            self.current.path.waited((on.0, &on.1), wait, (from.0, &from.1), arrow.at_ns);
        }
    }

    fn memory(&mut self, counter: &str, at_ns: i64, bytes: u64) {
        self.memory.counter(counter, at_ns, bytes);
    }

    fn fact(&mut self, fact: Fact) {
        self.account.fact(fact);
    }
}
