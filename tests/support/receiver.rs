//! A receiver of OTLP over HTTP: it answers as a test says, and decodes what it got with the types of OpenTelemetry's protos.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogramDataPoint, Metric, NumberDataPoint, number_data_point,
};
use prost::Message;

/// A request: its first line, its headers and its body.
#[derive(Clone, Debug)]
pub struct Got {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub at: Instant,
}

/// What to do with a connection.
pub enum Answer {
    /// A response, from its status line on.
    Response(Vec<u8>),
    /// Nothing, and the connection is closed.
    Close,
    /// Nothing is read or answered for this long.
    Stall(Duration),
}

/// The response of a collector that took everything.
pub fn taken() -> Answer {
    Answer::Response(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n".to_vec())
}

/// A receiver that runs until it is dropped.
pub struct Receiver {
    pub address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    is_over: Arc<AtomicBool>,
}

impl Receiver {
    /// Starts one that answers the n-th request, from 0, as `answer` says.
    pub fn start(answer: impl Fn(usize) -> Answer + Send + 'static) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (got, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (its, over) = (Arc::clone(&got), Arc::clone(&is_over));
        thread::spawn(move || {
            for (number, connection) in listener.incoming().enumerate() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(mut connection) = connection else { continue };
                match answer(number) {
                    Answer::Stall(time) => thread::sleep(time),
                    Answer::Close => its.lock().expect("no panic").extend(read(&connection)),
                    Answer::Response(bytes) => {
                        its.lock().expect("no panic").extend(read(&connection));
                        let _ = connection.write_all(&bytes);
                    }
                }
            }
        });
        Receiver { address, got, is_over }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn got(&self) -> Vec<Got> {
        self.got.lock().expect("no panic").clone()
    }

    /// Waits until there are so many requests.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Got> {
        let since = Instant::now();
        loop {
            let got = self.got();
            if got.len() >= count {
                return got;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "{} of {count} requests came", got.len());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn read(connection: &TcpStream) -> Option<Got> {
    connection.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    let mut reader = BufReader::new(connection);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let headers: Vec<_> = (lines.iter().skip(1))
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Got { line: lines.first()?.clone(), headers, body, at: Instant::now() })
}

/// A decoded message.
pub struct Export(ExportMetricsServiceRequest);

impl Got {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn decoded(&self) -> Export {
        Export(ExportMetricsServiceRequest::decode(&*self.body).expect("a message of OTLP"))
    }
}

/// The attributes as texts.
pub fn attributes(attributes: &[KeyValue]) -> Vec<(String, String)> {
    let text = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(is)) => is.to_string(),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

fn has(of: &[KeyValue], wanted: &[(&str, &str)]) -> bool {
    let all = attributes(of);
    wanted.iter().all(|(key, value)| all.iter().any(|(known, is)| known == key && is == value))
}

impl Export {
    pub fn resource(&self) -> Vec<(String, String)> {
        let [one] = &self.0.resource_metrics[..] else { panic!("one resource") };
        attributes(&one.resource.as_ref().expect("a resource").attributes)
    }

    pub fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.0.resource_metrics.iter().flat_map(|of| &of.scope_metrics).flat_map(|scope| &scope.metrics)
    }

    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics().find(|metric| metric.name == name)
    }

    /// The number of series.
    pub fn series(&self) -> usize {
        let points = |metric: &Metric| match metric.data.as_ref().expect("data") {
            Data::Gauge(gauge) => gauge.data_points.len(),
            Data::Sum(sum) => sum.data_points.len(),
            Data::ExponentialHistogram(histogram) => histogram.data_points.len(),
            other => panic!("{other:?}"),
        };
        self.metrics().map(points).sum()
    }

    pub fn histograms(&self, name: &str) -> Vec<&ExponentialHistogramDataPoint> {
        match self.metric(name).and_then(|metric| metric.data.as_ref()) {
            Some(Data::ExponentialHistogram(histogram)) => {
                assert_eq!(histogram.aggregation_temporality, 2, "cumulative");
                histogram.data_points.iter().collect()
            }
            None => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    /// The histogram with these attributes.
    #[track_caller]
    pub fn histogram(&self, name: &str, wanted: &[(&str, &str)]) -> &ExponentialHistogramDataPoint {
        let mut found = self.histograms(name).into_iter().filter(|point| has(&point.attributes, wanted));
        let point = found.next().unwrap_or_else(|| panic!("no {name} with {wanted:?}"));
        assert!(found.next().is_none(), "{name} with {wanted:?} is there twice");
        point
    }

    pub fn numbers(&self, name: &str) -> Vec<&NumberDataPoint> {
        match self.metric(name).and_then(|metric| metric.data.as_ref()) {
            Some(Data::Gauge(gauge)) => gauge.data_points.iter().collect(),
            Some(Data::Sum(sum)) => {
                assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
                sum.data_points.iter().collect()
            }
            None => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    /// The number with these attributes.
    #[track_caller]
    pub fn number(&self, name: &str, wanted: &[(&str, &str)]) -> f64 {
        let mut found = self.numbers(name).into_iter().filter(|point| has(&point.attributes, wanted));
        match found.next().and_then(|point| point.value) {
            Some(number_data_point::Value::AsInt(number)) => number as f64,
            Some(number_data_point::Value::AsDouble(number)) => number,
            None => panic!("no {name} with {wanted:?}"),
        }
    }
}

/// The values of a histogram's buckets, each the middle of its bucket, with their counts in order.
pub fn buckets(point: &ExponentialHistogramDataPoint) -> Vec<(f64, u64)> {
    let base = 2_f64.powf(2_f64.powi(-point.scale));
    let positive = point.positive.as_ref().expect("buckets");
    let zeros = std::iter::once((0.0, point.zero_count));
    let middle = |at: i32| (base.powi(at) + base.powi(at + 1)) / 2.0;
    let buckets = positive.bucket_counts.iter().zip(positive.offset..).map(|(count, at)| (middle(at), *count));
    zeros.chain(buckets).collect()
}

/// The value below or at which a share of the values is.
pub fn quantile(point: &ExponentialHistogramDataPoint, share: f64) -> f64 {
    let rank = (share * point.count as f64).ceil().max(1.0) as u64;
    let mut below = 0;
    for (value, count) in buckets(point) {
        below += count;
        if below >= rank {
            return value;
        }
    }
    panic!("the buckets hold {below} of {} values", point.count)
}
