//! The figures that a program sends at the end of a recording: the ranges that took longest, and the coverage of the figures.
//!
//! The program derives them from its report, and the command `warpline` shows them. Received values are not trusted: invalid values
//! are left out.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Value, json};

use warpline_core::work::WorkRates;
use warpline_report::work::WorkStats;
use warpline_report::{LeftOut, MoreRanges, RANGES, RangeStats, RangeTables, Report};

/// The ranges that took longest, and a summary of the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The ranges, with the largest total first.
    pub ranges: Vec<RangeStats>,
    /// The summary of the other ranges.
    pub more: MoreRanges,
    /// What settings and filters left out.
    pub left_out: LeftOut,
    /// The number of zones that ran and were not chosen for the sample.
    pub not_sampled: u64,
    /// The number of dropped zones.
    pub dropped: u64,
}

impl Figures {
    /// Takes as many ranges from the report as a report shows.
    pub fn from_report(report: &Report) -> Figures {
        let (shown, more) = report.ranges.split_at(report.ranges.len().min(RANGES));
        Figures {
            ranges: shown.to_vec(),
            more: MoreRanges::new(more),
            left_out: report.left_out,
            not_sampled: report.not_sampled,
            dropped: report.dropped.total(),
        }
    }

    /// Returns the figures in the form in which they are sent.
    pub fn to_json(&self) -> Value {
        let ranges = self.ranges.iter().map(|range| {
            json!({
                "name": range.name,
                "on_stream": range.on_stream,
                "in_replays": range.in_replays,
                "count": range.count,
                "seen": range.seen,
                "failed": range.failed,
                "total_ns": range.total_ns,
                "total_error_ns": range.total_error_ns,
                "recorded_ns": range.recorded_ns,
                "self_ns": range.self_ns,
                "self_early_ns": range.self_early_ns,
                "share": range.share,
                "first_ns": range.first_ns,
                "mean_ns": range.mean_ns,
                "min_ns": range.min_ns,
                "p50_ns": range.p50_ns,
                "p99_ns": range.p99_ns,
                "max_ns": range.max_ns,
                "mean_launch_ns": range.mean_launch_ns,
                "bounded": range.bounded,
                "bounded_total_ns": range.bounded_total_ns,
                "bounded_least_ns": range.bounded_least_ns,
                "bounded_max_ns": range.bounded_max_ns,
                "work": range.work.as_ref().map(|work| json!({
                    "bytes_per_s": work.rates.bytes_per_s,
                    "flops_per_s": work.rates.flops_per_s,
                    "device": work.device,
                })),
            })
        });
        let LeftOut { ranges: left_out, of_ranges, while_stopped } = self.left_out;
        json!({
            "ranges": ranges.collect::<Value>(),
            "more_ranges": {"count": self.more.count, "share": self.more.share, "is_bound": self.more.is_bound},
            "left_out": {"ranges": left_out, "of_ranges": of_ranges, "while_stopped": while_stopped},
            "not_sampled": self.not_sampled,
            "dropped": self.dropped,
        })
    }

    /// Reads the figures in the form in which they were sent.
    pub fn from_json(value: &Value) -> Figures {
        let ranges = value["ranges"].as_array().into_iter().flatten().filter_map(range);
        let (more, left_out) = (&value["more_ranges"], &value["left_out"]);
        Figures {
            ranges: ranges.collect(),
            more: MoreRanges {
                count: count(&more["count"]),
                share: more["share"].as_f64().unwrap_or(0.0),
                is_bound: more["is_bound"].as_bool().unwrap_or(false),
            },
            left_out: LeftOut {
                ranges: count(&left_out["ranges"]),
                of_ranges: count(&left_out["of_ranges"]),
                while_stopped: left_out["while_stopped"].as_bool().unwrap_or(false),
            },
            not_sampled: count(&value["not_sampled"]),
            dropped: count(&value["dropped"]),
        }
    }
}

/// The figures as a report shows them.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { ranges, more, left_out, not_sampled, dropped } = self;
        let (more, left_out, not_sampled, dropped) = (*more, *left_out, *not_sampled, *dropped);
        RangeTables { ranges, more, left_out, not_sampled, dropped }.fmt(f)
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn range(value: &Value) -> Option<RangeStats> {
    let ns = |key: &str| value[key].as_i64();
    Some(RangeStats {
        name: Cow::Owned(value["name"].as_str()?.to_owned()),
        on_stream: value["on_stream"].as_bool()?,
        in_replays: value["in_replays"].as_bool().unwrap_or(false),
        count: value["count"].as_u64()?,
        seen: value["seen"].as_u64()?,
        failed: count(&value["failed"]),
        total_ns: ns("total_ns")?,
        total_error_ns: ns("total_error_ns")?,
        recorded_ns: ns("recorded_ns")?,
        // A program of an older version does not send it.
        self_ns: ns("self_ns").or_else(|| ns("recorded_ns"))?,
        self_early_ns: ns("self_early_ns").unwrap_or(0),
        share: value["share"].as_f64()?,
        first_ns: ns("first_ns"),
        mean_ns: ns("mean_ns")?,
        min_ns: ns("min_ns")?,
        p50_ns: ns("p50_ns")?,
        p99_ns: ns("p99_ns")?,
        max_ns: ns("max_ns")?,
        mean_launch_ns: ns("mean_launch_ns")?,
        work: work(&value["work"]),
        // An older version does not send these.
        bounded: count(&value["bounded"]),
        bounded_total_ns: ns("bounded_total_ns").unwrap_or(0),
        bounded_least_ns: ns("bounded_least_ns").unwrap_or(0),
        bounded_max_ns: ns("bounded_max_ns").unwrap_or(0),
    })
}

fn work(value: &Value) -> Option<WorkStats> {
    let device = value["device"].as_str()?.to_owned();
    Some(WorkStats::on(device, WorkRates::new(value["bytes_per_s"].as_f64(), value["flops_per_s"].as_f64())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_as_they_were_sent_and_what_is_none_is_left_out() {
        let range = RangeStats {
            name: "demo.step".into(),
            on_stream: true,
            in_replays: true,
            count: 3,
            seen: 30,
            failed: 1,
            total_ns: 1_000,
            total_error_ns: 100,
            recorded_ns: 90,
            self_ns: 70,
            self_early_ns: 6,
            share: 0.25,
            first_ns: Some(50),
            mean_ns: 20,
            min_ns: 10,
            p50_ns: 20,
            p99_ns: 50,
            max_ns: 50,
            mean_launch_ns: 5,
            work: Some(WorkStats::on("NVIDIA H200".to_owned(), WorkRates::new(Some(2.4e12), None))),
            bounded: 1,
            bounded_total_ns: 40,
            bounded_least_ns: 10,
            bounded_max_ns: 40,
        };
        let figures = Figures {
            ranges: vec![range],
            more: MoreRanges { count: 2, share: 0.5, is_bound: true },
            left_out: LeftOut { ranges: 4, of_ranges: 9, while_stopped: true },
            not_sampled: 27,
            dropped: 5,
        };
        let mut sent = figures.to_json();
        assert_eq!(Figures::from_json(&sent), figures);
        sent["ranges"].as_array_mut().expect("a list").push(json!({"name": "demo.odd", "count": -1}));
        assert_eq!(Figures::from_json(&sent).ranges, figures.ranges);
        assert_eq!(Figures::from_json(&Value::Null), Figures::default());
    }
}
