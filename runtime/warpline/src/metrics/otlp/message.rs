//! The message of an export: every figure as a metric of OTLP.
//!
//! All are cumulative: a lost export then costs a point and no count, nothing has to be kept for a retry, and
//! Prometheus, which takes nothing else, gets the figures unchanged.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::resource::{attribute, text};
use crate::buckets::SCALE;
use crate::metrics::figures::Figures;
use crate::metrics::histogram::Histogram;
use crate::metrics::inspector;
use crate::metrics::job::Job;

/// Returns the encoded message.
pub(super) fn encode(figures: &Figures, job: &Job, resource: Resource, now_unix_ns: i64) -> Vec<u8> {
    let metrics = Points { figures, job, now: nanos(now_unix_ns) }.metrics();
    let scope = InstrumentationScope {
        name: "warpline".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }];
    let resource_metrics =
        vec![ResourceMetrics { resource: Some(resource), scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
}

/// What makes data points of figures.
struct Points<'a> {
    figures: &'a Figures,
    job: &'a Job,
    now: u64,
}

impl Points<'_> {
    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![self.zones(), self.bounded(), self.left_out(), self.ranges()];
        let about = "Duration of the program's steps, without open communication and waits: the rank's own time.";
        for (name, about, lengths) in [
            ("warpline.step.duration", "Duration of the program's steps.", &self.figures.steps),
            ("warpline.step.own_time", about, &self.figures.own.lengths),
        ] {
            if lengths.count > 0 {
                metrics.push(histograms(name, about, "s", vec![self.lengths(lengths, Vec::new())]));
            }
        }
        let waits = self
            .figures
            .waits()
            .map(|(place, waits)| self.lengths(waits, vec![text("warpline.place", place.as_str())]));
        let waits: Vec<_> = waits.collect();
        if !waits.is_empty() {
            metrics.push(histograms("warpline.wait.duration", "Duration of waits of streams and threads.", "s", waits));
        }
        metrics.extend(self.collectives());
        metrics
    }

    fn zones(&self) -> Metric {
        let points = self
            .figures
            .outcomes()
            .map(|(outcome, count)| self.since_begin(count, vec![text("warpline.outcome", outcome)]));
        counter("warpline.zones", "Zones that ended, by outcome.", "{zone}", points.into())
    }

    fn bounded(&self) -> Metric {
        let about = "Zones and waits whose length is only a bound, because the end is not timed: in no other series.";
        counter("warpline.bounded", about, "{record}", vec![self.since_begin(self.figures.ranges.bounded, Vec::new())])
    }

    /// Returns a count since the session began.
    fn since_begin(&self, count: u64, attributes: Vec<KeyValue>) -> NumberDataPoint {
        let value = number_data_point::Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX));
        NumberDataPoint { start_time_unix_nano: nanos(self.figures.begin_unix_ns), ..self.number(value, attributes) }
    }

    fn left_out(&self) -> Metric {
        let value = number_data_point::Value::AsInt(i64::try_from(self.figures.left_out()).unwrap_or(i64::MAX));
        let about = "Ranges, and kinds of collectives, without series of their own.";
        gauge("warpline.series.left_out", about, "{series}", vec![self.number(value, Vec::new())])
    }

    fn ranges(&self) -> Metric {
        let points = self.figures.ranges.series().iter().map(|range| {
            let attributes = vec![text("warpline.range", range.name), text("warpline.place", range.place.as_str())];
            self.lengths(&range.lengths, attributes)
        });
        histograms("warpline.range.duration", "Duration of zones, by range.", "s", points.collect())
    }

    /// Bus bandwidths, and their means under the names of NCCL's Inspector.
    fn collectives(&self) -> Vec<Metric> {
        let mut bandwidths = Vec::new();
        let mut aliases: [Vec<NumberDataPoint>; inspector::ALIASES.len()] = Default::default();
        for series in self.figures.bandwidths.series() {
            let key = &series.key;
            let attributes = vec![
                text("warpline.group", &key.group),
                text("warpline.collective", key.kind.as_str()),
                text("warpline.message_size", &key.message_size()),
            ];
            bandwidths.push(self.lengths(&series.bus, attributes));
            let Some(means) = series.means() else { continue };
            for (alias, points) in inspector::ALIASES.iter().zip(&mut aliases) {
                if let Some(value) = alias.value(key, means) {
                    let labels = inspector::labels(key, self.job);
                    let labels = labels.iter().map(|(name, value)| text(name, value)).collect();
                    points.push(self.number(number_data_point::Value::AsDouble(value), labels));
                }
            }
        }
        if bandwidths.is_empty() {
            return Vec::new();
        }
        let about = "Bus bandwidth of collectives, as NCCL's tests define it.";
        let own = histograms("warpline.collective.bus_bandwidth", about, "By/s", bandwidths);
        let aliases = inspector::ALIASES.iter().zip(aliases).filter(|(_, points)| !points.is_empty());
        let aliases = aliases.map(|(alias, points)| gauge(alias.name, alias.about, alias.unit, points));
        std::iter::once(own).chain(aliases).collect()
    }

    fn lengths(&self, of: &Histogram, attributes: Vec<KeyValue>) -> ExponentialHistogramDataPoint {
        ExponentialHistogramDataPoint {
            attributes: self.with_sampled(attributes),
            start_time_unix_nano: nanos(self.figures.begin_unix_ns),
            time_unix_nano: self.now,
            count: of.count,
            sum: Some(of.sum),
            scale: SCALE,
            zero_count: of.zeros,
            positive: Some(Buckets { offset: of.buckets.first(), bucket_counts: of.buckets.counts().to_vec() }),
            min: Some(of.min).filter(|_| of.count > 0),
            max: Some(of.max).filter(|_| of.count > 0),
            ..ExponentialHistogramDataPoint::default()
        }
    }

    fn number(&self, value: number_data_point::Value, attributes: Vec<KeyValue>) -> NumberDataPoint {
        NumberDataPoint { attributes, time_unix_nano: self.now, value: Some(value), ..NumberDataPoint::default() }
    }

    /// Says that figures are those of a sample.
    fn with_sampled(&self, mut attributes: Vec<KeyValue>) -> Vec<KeyValue> {
        if self.figures.is_sampled {
            attributes.push(attribute("warpline.sampled", Value::BoolValue(true)));
        }
        attributes
    }
}

fn nanos(unix_ns: i64) -> u64 {
    u64::try_from(unix_ns).unwrap_or(0)
}

fn metric(name: &str, description: &str, unit: &str, data: metric::Data) -> Metric {
    let [name, description, unit] = [name, description, unit].map(str::to_owned);
    Metric { name, description, unit, metadata: Vec::new(), data: Some(data) }
}

fn counter(name: &str, description: &str, unit: &str, data_points: Vec<NumberDataPoint>) -> Metric {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let sum = Sum { data_points, aggregation_temporality, is_monotonic: true };
    metric(name, description, unit, metric::Data::Sum(sum))
}

fn gauge(name: &str, description: &str, unit: &str, data_points: Vec<NumberDataPoint>) -> Metric {
    metric(name, description, unit, metric::Data::Gauge(Gauge { data_points }))
}

fn histograms(name: &str, description: &str, unit: &str, data_points: Vec<ExponentialHistogramDataPoint>) -> Metric {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let histogram = ExponentialHistogram { data_points, aggregation_temporality };
    metric(name, description, unit, metric::Data::ExponentialHistogram(histogram))
}
