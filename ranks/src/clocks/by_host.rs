//! How well the clocks of hosts are known, for the report and for `warpline-ranks clocks`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::pretty::pretty_format_batches;
use serde::Serialize;
use warpline_judge::clocks::Clock;

use super::Clocks;
use crate::error::Error;

/// A host whose bounds contradict each other: a clock was stepped, drifts by more than stated, or a collective did not
/// synchronise.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Inconsistent {
    /// The host.
    pub host: Arc<str>,
    /// The minutes since the run's begin.
    pub minutes: Vec<i64>,
}

impl fmt::Display for Inconsistent {
    /// A sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, minutes } = self;
        write!(
            f,
            "the bounds of the clock of {host} contradict each other in minute {}",
            minutes.first().unwrap_or(&0)
        )?;
        if minutes.len() > 1 {
            write!(f, " and {} more", minutes.len() - 1)?;
        }
        write!(f, ": it was stepped, or drifts by more than `--max-drift-ppm`")
    }
}

/// How well the clocks are known.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ClockSummary {
    /// Hosts.
    pub hosts: usize,
    /// The worst error of an estimate.
    pub worst_err_ns: f64,
    /// Half of the widest certified interval.
    pub worst_certified_ns: Option<f64>,
    /// Intervals without a certified one.
    pub not_certified: usize,
    /// Hosts whose bounds contradict each other, and in which minutes of the run.
    pub inconsistent: Vec<Inconsistent>,
    /// Groups of hosts that never met, by their first host.
    pub apart: Vec<Arc<str>>,
    /// Each host that met another one.
    pub by_host: Vec<ClockOfHost>,
}

/// How well the clock of a host is known, over all minutes in which it met others.
#[derive(Debug, Clone, Serialize)]
pub struct ClockOfHost {
    /// The host.
    pub host: Arc<str>,
    /// The host that it is compared with.
    pub beside: Arc<str>,
    /// In how many minutes.
    pub minutes: usize,
    /// Collectives in which it met others.
    pub meetings: usize,
    /// How far it is ahead, on average.
    pub offset_ns: f64,
    /// By how much it is faster, on average, in parts per million.
    pub drift_ppm: f64,
    /// The estimate's error in the worst minute, 99 of 100 times.
    pub err_ns: f64,
    /// Half the certified interval of the worst minute; none if a minute is not certified.
    pub certified_ns: Option<f64>,
    /// Its bounds contradict each other in some minute.
    pub is_inconsistent: bool,
}

impl Clocks {
    /// How well they are known.
    pub fn summary(&self) -> ClockSummary {
        ClockSummary {
            hosts: self.hosts.len(),
            worst_err_ns: self.worst_err_ns(),
            worst_certified_ns: self
                .clocks
                .iter()
                .filter(|clock| clock.meetings > 1 && !clock.is_inconsistent)
                .filter_map(|clock| clock.certified.map(|(least, most)| (most - least) / 2.0))
                .max_by(f64::total_cmp),
            not_certified: self.clocks.iter().filter(|clock| clock.meetings > 0 && clock.certified.is_none()).count(),
            inconsistent: self.inconsistent(),
            apart: match self.apart() {
                one if one.len() < 2 => Vec::new(),
                many => many.iter().map(|hosts| self.hosts[hosts[0]].clone()).collect(),
            },
            by_host: self.by_host(),
        }
    }

    /// A table with a line for each host, and a sentence for each host whose bounds contradict each other.
    pub fn to_text(&self) -> Result<String, Error> {
        let mut text = table(&self.by_host()).map_err(|error| Error::query("clocks", error.into()))?;
        for host in self.inconsistent() {
            text += &format!("\n{host}");
        }
        Ok(text + "\n")
    }

    fn inconsistent(&self) -> Vec<Inconsistent> {
        let mut minutes: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
        for clock in self.clocks.iter().filter(|clock| clock.is_inconsistent) {
            minutes.entry(clock.host).or_default().push(clock.segment);
        }
        minutes.into_iter().map(|(host, minutes)| Inconsistent { host: self.hosts[host].clone(), minutes }).collect()
    }

    fn by_host(&self) -> Vec<ClockOfHost> {
        let mut of_host: BTreeMap<usize, Vec<&Clock>> = BTreeMap::new();
        for clock in self.clocks.iter().filter(|clock| clock.meetings > 0) {
            of_host.entry(clock.host).or_default().push(clock);
        }
        let one = |(host, clocks): (usize, Vec<&Clock>)| {
            let minutes = clocks.len();
            let mean =
                |of: fn(&Clock) -> f64| clocks.iter().map(|clock| of(clock)).sum::<f64>() / minutes.max(1) as f64;
            let half = clocks.iter().map(|clock| clock.certified.map(|(least, most)| (most - least) / 2.0));
            let certified: Option<Vec<f64>> = half.collect();
            ClockOfHost {
                host: self.hosts[host].clone(),
                beside: clocks
                    .first()
                    .map_or_else(|| self.hosts[host].clone(), |clock| self.hosts[clock.beside].clone()),
                minutes,
                meetings: clocks.iter().map(|clock| clock.meetings).sum(),
                offset_ns: mean(|clock| clock.offset_ns),
                drift_ppm: mean(|clock| clock.drift * 1e6),
                err_ns: clocks.iter().map(|clock| clock.err_ns).fold(0.0, f64::max),
                certified_ns: certified.map(|all| all.into_iter().fold(0.0, f64::max)),
                is_inconsistent: clocks.iter().any(|clock| clock.is_inconsistent),
            }
        };
        of_host.into_iter().map(one).collect()
    }
}

fn table(hosts: &[ClockOfHost]) -> Result<String, ArrowError> {
    let text =
        |of: &dyn Fn(&ClockOfHost) -> String| Arc::new(StringArray::from_iter_values(hosts.iter().map(of))) as ArrayRef;
    let count = |of: fn(&ClockOfHost) -> usize| {
        Arc::new(UInt64Array::from_iter_values(hosts.iter().map(|host| of(host) as u64))) as ArrayRef
    };
    let rounded = |value: f64, digits: f64| (value * digits).round() / digits;
    let number =
        |of: &dyn Fn(&ClockOfHost) -> f64| Arc::new(Float64Array::from_iter_values(hosts.iter().map(of))) as ArrayRef;
    let certified = |host: &ClockOfHost| match host.certified_ns {
        _ if host.is_inconsistent => "contradict".to_owned(),
        Some(ns) => rounded(ns / 1000.0, 10.0).to_string(),
        None => "none".to_owned(),
    };
    let batch = RecordBatch::try_from_iter([
        ("host", text(&|host| host.host.to_string())),
        ("beside", text(&|host| host.beside.to_string())),
        ("minutes", count(|host| host.minutes)),
        ("meetings", count(|host| host.meetings)),
        ("offset_us", number(&|host| rounded(host.offset_ns / 1000.0, 10.0))),
        ("drift_ppm", number(&|host| rounded(host.drift_ppm, 100.0))),
        ("err_us", number(&|host| rounded(host.err_ns / 1000.0, 10.0))),
        ("certified_us", text(&certified)),
    ])?;
    Ok(pretty_format_batches(&[batch])?.to_string())
}
