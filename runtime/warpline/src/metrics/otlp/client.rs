//! The HTTP client: posts a message, and says whether the collector took it, may take it later, or refuses it.

use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use ureq::Agent;
use ureq::http::{HeaderMap, Response, StatusCode};

use super::resource::pairs;
use warpline_core::environment;
use warpline_core::text::printable;

/// The most bytes of an answer that are read.
const MOST_BYTES: u64 = 64 << 10;

/// The longest time that a collector can ask to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The headers of requests, such as for authorisation: `name=value`, with commas between them.
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];

/// Why an export failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// A later one may succeed: after this time, if the collector says one.
    Retry { why: String, after: Option<Duration> },
    /// The collector does not take such messages.
    Refused(String),
}

impl Failure {
    pub(super) fn why(&self) -> &str {
        let (Failure::Retry { why, .. } | Failure::Refused(why)) = self;
        why
    }
}

/// A client of one collector.
pub(super) struct Client {
    url: String,
    agent: Agent,
    headers: Vec<(String, String)>,
}

impl Client {
    pub(super) fn new(url: &str) -> Client {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // A collector is in the cluster, where the proxy for the internet does not lead.
            .proxy(None)
            // Exports are seconds apart: a connection that is kept may have been closed by then.
            .max_idle_connections(0)
            .user_agent(concat!("warpline/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let headers = HEADERS.iter().find_map(|name| environment::var(name).ok());
        Client { url: url.to_owned(), agent, headers: headers.map_or_else(Vec::new, |text| pairs(&text)) }
    }

    /// Posts a message. Returns the number of data points that the collector rejected.
    ///
    /// # Errors
    /// The collector did not take it.
    pub(super) fn post(&self, body: &[u8], within: Duration) -> Result<u64, Failure> {
        let mut request = self.agent.post(&self.url).header("content-type", "application/x-protobuf");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        // Each part has the limit. With one for the whole, or for the look-up of the name, ureq would start a thread
        // for each request.
        let within = Some(within);
        let request = request
            .config()
            .timeout_connect(within)
            .timeout_send_request(within)
            .timeout_send_body(within)
            .timeout_recv_response(within)
            .timeout_recv_body(within)
            .build();
        let mut response = request.send(body).map_err(|error| self.unreachable(&error))?;
        let answer = response.body_mut().with_config().limit(MOST_BYTES).read_to_vec();
        if response.status().is_success() {
            // An answer that cannot be read is no reason to send again what was taken.
            let answer = answer.ok().and_then(|answer| ExportMetricsServiceResponse::decode(&*answer).ok());
            let rejected = answer.and_then(|answer| answer.partial_success).map_or(0, |part| part.rejected_data_points);
            return Ok(u64::try_from(rejected).unwrap_or(0));
        }
        Err(refused(&response, &answer.unwrap_or_default()))
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let hint = if self.url.contains(":4317/") { "; port 4317 is for gRPC, and HTTP has 4318" } else { "" };
        let why = match error {
            ureq::Error::Io(error) => format!("the collector cannot be reached: {error}{hint}"),
            ureq::Error::Timeout(_) => format!("the collector did not answer in time{hint}"),
            ureq::Error::HostNotFound => "the collector's host is not known; check its name".to_owned(),
            ureq::Error::Protocol(error) => format!("the answer is not a valid HTTP response: {error}{hint}"),
            ureq::Error::Http(error) => {
                return Failure::Refused(format!("the request cannot be made: {error}; check `{}`", HEADERS[1]));
            }
            other => format!("the collector cannot be reached: {other}{hint}"),
        };
        Failure::Retry { why, after: None }
    }
}

/// Returns why a collector did not take a message, by its status.
fn refused<T>(response: &Response<T>, answer: &[u8]) -> Failure {
    let status = response.status();
    let remedy = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; put its credentials into `OTEL_EXPORTER_OTLP_HEADERS`",
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => "; check the path of the URL",
        status if status.is_redirection() => "; name the address to which it redirects",
        _ => "",
    };
    let text: String = String::from_utf8_lossy(answer).chars().filter(|c| !c.is_control()).take(100).collect();
    let text = if text.is_empty() { String::new() } else { format!(": {}", printable(text.trim())) };
    let why = format!("the collector answered {status}{text}{remedy}");
    // The statuses that OTLP calls retryable.
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Failure::Retry { why, after: retry_after(response.headers()) },
        _ => Failure::Refused(why),
    }
}

/// Returns the time to wait that the collector asks for: in seconds, or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).unwrap_or_default(),
    };
    Some(wait.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: u16, headers: &[(&str, &str)], answer: &[u8]) -> Failure {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        refused(&response.body(()).expect("a response"), answer)
    }

    #[test]
    fn what_otlp_calls_retryable_is_retried_and_nothing_else() {
        for status in [429, 502, 503, 504] {
            assert!(matches!(failure(status, &[], b""), Failure::Retry { after: None, .. }), "{status}");
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            assert!(matches!(failure(status, &[], b""), Failure::Refused(_)), "{status}");
        }
        let why = failure(401, &[], b"who\r\nare you").why().to_owned();
        assert_eq!(
            why,
            "the collector answered 401 Unauthorized: whoare you; put its credentials into `OTEL_EXPORTER_OTLP_HEADERS`"
        );
    }

    #[test]
    fn a_collector_says_when_to_come_back_in_seconds_or_by_date() {
        let after = |text: &str| match failure(503, &[("retry-after", text)], b"") {
            Failure::Retry { after, .. } => after,
            Failure::Refused(_) => panic!("it is retryable"),
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("86400"), Some(LONGEST_WAIT));
        assert_eq!(after("Fri, 31 Dec 1999 23:59:59 GMT"), Some(Duration::ZERO));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        assert!(after(&soon).is_some_and(|wait| wait.as_secs() <= 100 && wait.as_secs() > 60), "{soon}");
        assert_eq!((after("soon"), after("-1")), (None, None));
    }
}
