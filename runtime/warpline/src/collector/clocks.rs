//! The clocks of the devices whose zones a session records: one for each space of streams whose times compare.
//!
//! The collector meets a clock with the first stream of its space, measures it anew while zones come by, and places each zone by
//! it. Where a device gives none, that is said once, and its zones are dropped for that reason. Launching threads never come here.

use super::SessionStats;
use warpline_core::backend::{Backend, BackendError, Clock};
use warpline_core::lock::lock;
use warpline_core::record::{DeviceInfo, StreamInfo};
use warpline_core::report::figures::ClockFigures;

#[derive(Default)]
pub(super) struct Clocks(Vec<SpaceClock>);

/// The clock of the streams of one space.
struct SpaceClock {
    space: u64,
    device: DeviceInfo,
    clock: Result<Box<dyn Clock>, BackendError>,
    /// Its place in the report's figures.
    figures: usize,
}

impl Clocks {
    /// The place of a stream's clock here.
    pub(super) fn place(&mut self, info: &StreamInfo, backend: &dyn Backend, tally: &SessionStats) -> usize {
        let space = backend.clock_space();
        let same = |known: &SpaceClock| known.space == space && known.device.kind == info.device.kind;
        if let Some(known) = self.0.iter().position(same) {
            return known;
        }
        let clock = backend.clock();
        let mut figures = lock(&tally.clocks);
        let place = figures.len();
        match &clock {
            Ok(clock) => {
                figures.push(figures_of(&info.device.name, clock.as_ref()));
                let known = &mut *lock(&tally.notes);
                known.extend(clock.note().filter(|note| !known.contains(note)));
            }
            Err(error) => lock(&tally.notes)
                .push(format!("device `{}` has no usable clock, so its zones are dropped: {error}", info.device.name)),
        }
        drop(figures);
        self.0.push(SpaceClock { space, device: info.device.clone(), clock, figures: place });
        self.0.len() - 1
    }

    /// The clock at a place, or why its device gave none.
    pub(super) fn get(&mut self, place: usize) -> Option<Result<&mut dyn Clock, &BackendError>> {
        match &mut self.0.get_mut(place)?.clock {
            Ok(clock) => Some(Ok(clock.as_mut())),
            Err(error) => Some(Err(error)),
        }
    }

    /// What a zone costs its thread, on the device where it is most; none before a device is known.
    pub(super) fn zone_ns(&self) -> Option<i64> {
        (0..self.0.len()).filter_map(|place| self.zone_ns_at(place)).max()
    }

    /// What a zone costs its thread, by the clock at a place.
    pub(super) fn zone_ns_at(&self, place: usize) -> Option<i64> {
        Some(self.0.get(place)?.clock.as_ref().ok()?.zone_ns())
    }

    /// Measures those that are old and in use; one that cannot be measured keeps what it knows.
    pub(super) fn renew(&mut self, tally: &SessionStats, is_used: impl Fn(usize) -> bool) {
        for (_, space) in self.0.iter_mut().enumerate().filter(|(place, _)| is_used(*place)) {
            if let Ok(clock) = &mut space.clock {
                let _ = clock.renew();
                if let Some(figures) = lock(&tally.clocks).get_mut(space.figures) {
                    *figures = figures_of(&space.device.name, clock.as_ref());
                }
            }
        }
    }
}

fn figures_of(device: &str, clock: &dyn Clock) -> ClockFigures {
    let bound = clock.bracket_bound();
    let bracket = bound.unwrap_or_else(|| clock.bracket());
    ClockFigures {
        device: device.to_owned(),
        uncertainty_ns: clock.uncertainty_ns(),
        bracket_ns: bracket.idle_ns,
        busy_bracket_ns: bracket.busy_ns,
        bracket_is_bound: bound.is_some(),
    }
}
