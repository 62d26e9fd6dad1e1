//! The clocks of the devices whose zones a session records: one for each space of streams with comparable times.
//!
//! The collector adds a clock with the first stream of its space, measures it again while zones arrive, and places each zone by it. A
//! device without a usable clock is reported once, and its zones are dropped for that reason. Launching threads never use this module.

use super::SessionStats;
use warpline_core::backend::{Backend, BackendError, Clock};
use warpline_core::clock::YEAR_NS;
use warpline_core::lock::lock;
use warpline_core::record::{DeviceInfo, StreamInfo};
use warpline_report::figures::ClockFigures;

#[derive(Default)]
pub(super) struct Clocks(Vec<SpaceClock>);

/// The clock of the streams of one space.
struct SpaceClock {
    space: u64,
    device: DeviceInfo,
    clock: Result<Box<dyn Clock>, BackendError>,
    /// The index of its figures in the report.
    figures: usize,
}

impl Clocks {
    /// Returns whether a stream's clock is known.
    pub(super) fn has(&self, info: &StreamInfo, backend: &dyn Backend) -> bool {
        self.position(info, backend).is_some()
    }

    fn position(&self, info: &StreamInfo, backend: &dyn Backend) -> Option<usize> {
        let space = backend.clock_space();
        self.0.iter().position(|known| known.space == space && known.device.kind == info.device.kind)
    }

    /// Returns the index of a stream's clock; adds a new one.
    pub(super) fn place(&mut self, info: &StreamInfo, backend: &dyn Backend, stats: &SessionStats) -> usize {
        if let Some(known) = self.position(info, backend) {
            return known;
        }
        let space = backend.clock_space();
        let clock = backend.clock();
        let mut figures = lock(&stats.clocks);
        let place = figures.len();
        match &clock {
            Ok(clock) => {
                figures.push(figures_of(&info.device.name, clock.as_ref()));
                let known = &mut *lock(&stats.notes);
                known.extend(clock.note().filter(|note| !known.contains(note)));
            }
            Err(error) => lock(&stats.notes)
                .push(format!("device `{}` has no usable clock, so its zones are dropped: {error}", info.device.name)),
        }
        drop(figures);
        self.0.push(SpaceClock { space, device: info.device.clone(), clock, figures: place });
        self.0.len() - 1
    }

    /// Returns the clock at an index, or the reason why its device has none.
    pub(super) fn get(&mut self, place: usize) -> Option<Result<&mut dyn Clock, &BackendError>> {
        match &mut self.0.get_mut(place)?.clock {
            Ok(clock) => Some(Ok(clock.as_mut())),
            Err(error) => Some(Err(error)),
        }
    }

    /// Returns the cost of a zone for its thread, on the device with the highest cost; none before a device is known.
    pub(super) fn zone_ns(&self) -> Option<i64> {
        (0..self.0.len()).filter_map(|place| self.zone_ns_at(place)).max()
    }

    /// Returns the cost of a zone for its thread, according to the clock at an index.
    pub(super) fn zone_ns_at(&self, place: usize) -> Option<i64> {
        Some(self.0.get(place)?.clock.as_ref().ok()?.zone_ns().clamp(0, YEAR_NS))
    }

    /// Measures the clocks that are old and in use. A clock that cannot be measured keeps its values.
    pub(super) fn renew(&mut self, stats: &SessionStats, is_used: impl Fn(usize) -> bool) {
        for (_, space) in self.0.iter_mut().enumerate().filter(|(place, _)| is_used(*place)) {
            if let Ok(clock) = &mut space.clock {
                let _ = clock.renew();
                if let Some(figures) = lock(&stats.clocks).get_mut(space.figures) {
                    *figures = figures_of(&space.device.name, clock.as_ref());
                }
            }
        }
    }
}

fn figures_of(device: &str, clock: &dyn Clock) -> ClockFigures {
    let bound = clock.bracket_bound();
    let bracket = bound.unwrap_or_else(|| clock.bracket()).checked();
    ClockFigures {
        device: device.to_owned(),
        uncertainty_ns: clock.uncertainty_ns().clamp(0, YEAR_NS),
        worst_uncertainty_ns: clock.worst_uncertainty_ns().clamp(0, YEAR_NS),
        bracket_ns: bracket.idle_ns,
        busy_bracket_ns: bracket.busy_ns,
        bracket_is_bound: bound.is_some(),
    }
}
