//! All figures of a session that metrics show.

use super::bandwidths::Bandwidths;
use super::histogram::Histogram;
use super::own::OwnTimes;
use super::ranges::{Chosen, Place, Ranges};
use crate::settings::Config;
use warpline_core::record::ZoneRecord;
use warpline_report::Report;
use warpline_report::sink::{Batch, Progress};

/// What the settings of a session say of its figures.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) chosen: Chosen,
    pub(super) is_sampled: bool,
}

impl Plan {
    pub(super) fn new(config: &Config) -> Plan {
        let is_sampled = config.sample < 1.0 || config.budget.is_some_and(|share| share < 1.0);
        Plan { chosen: Chosen::new(config), is_sampled }
    }
}

/// The figures.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) ranges: Ranges,
    pub(super) bandwidths: Bandwidths,
    /// Of steps, in seconds.
    pub(super) steps: Histogram,
    pub(super) own: OwnTimes,
    /// Of waits of streams and of threads, in seconds. A wait whose length is only a bound is in none, and counted.
    pub(super) waits: [Histogram; 2],
    zones: Progress,
    /// Zones that were added, without those in replays.
    added: u64,
    /// Whether zones were recorded by chance: the figures are then those of the recorded zones.
    pub(super) is_sampled: bool,
    pub(super) begin_unix_ns: i64,
    /// Records that were added.
    pub(super) records: u64,
}

impl Figures {
    pub(super) fn new(plan: Plan, begin_unix_ns: i64) -> Figures {
        let Plan { chosen, is_sampled } = plan;
        Figures { ranges: Ranges::new(chosen), is_sampled, begin_unix_ns, ..Figures::default() }
    }

    /// Adds a batch of records.
    pub(super) fn add(&mut self, batch: Batch<'_>, now_ns: i64) {
        match batch {
            Batch::Zones(zones) => {
                for zone in zones {
                    self.zone(zone, if zone.gpu.is_some() { Place::Stream } else { Place::Thread }, now_ns);
                    self.own.times.zone(zone);
                }
                self.added += zones.len() as u64;
            }
            Batch::Replays(replays) => {
                for zone in replays.iter().flat_map(|replay| &replay.zones).map(|replayed| &replayed.zone) {
                    self.zone(zone, Place::Replay, now_ns);
                    if let Some(gpu) = zone.gpu {
                        self.own.times.work(zone, gpu);
                    }
                }
            }
            Batch::Waits(waits) => {
                for wait in waits {
                    self.own.times.wait(wait);
                    if wait.is_bounded() {
                        self.ranges.bounded += 1;
                    } else {
                        self.waits[usize::from(wait.gpu.is_none())].add_ns(wait.duration_ns());
                    }
                }
            }
            Batch::Steps(steps) => {
                for step in steps {
                    self.steps.add_ns(step.duration_ns());
                    self.own.step(step.host);
                }
            }
            _ => return,
        }
        self.records += batch.records() as u64;
    }

    fn zone(&mut self, zone: &ZoneRecord, place: Place, now_ns: i64) {
        self.is_sampled |= zone.sample_share < 1.0;
        self.ranges.add(zone, place);
        self.bandwidths.add(zone, now_ns);
    }

    /// Takes the counts of the running session.
    pub(super) fn progress(&mut self, progress: &Progress, now_ns: i64) {
        self.zones = *progress;
        self.own.settle(now_ns);
    }

    /// Takes the counts of the finished session.
    pub(super) fn finish(&mut self, report: &Report) {
        let Report { begun, recorded, captured, ref dropped, .. } = *report;
        self.progress(&Progress { begun, recorded, captured, dropped: dropped.total(), fullest_ring: 0.0 }, i64::MAX);
    }

    /// Returns how many zones ended, by what became of them. Zones are added before the session's counts say so, and are never more than
    /// this says.
    pub(super) fn outcomes(&self) -> [(&'static str, u64); 3] {
        let Progress { recorded, captured, dropped, .. } = self.zones;
        [("recorded", recorded.max(self.added)), ("captured", captured), ("dropped", dropped)]
    }

    /// Returns the number of ranges, and of groups, kinds and sizes of collectives, without series of their own.
    pub(super) fn left_out(&self) -> u64 {
        self.ranges.left_out() + self.bandwidths.left_out()
    }

    /// Returns the waits that were recorded, by what waited.
    pub(super) fn waits(&self) -> impl Iterator<Item = (Place, &Histogram)> {
        [Place::Stream, Place::Thread].into_iter().zip(&self.waits).filter(|(_, waits)| waits.count > 0)
    }
}
