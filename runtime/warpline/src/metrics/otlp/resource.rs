//! The resource that metrics are of, by OpenTelemetry's semantic conventions: attributes of the process, and those of the environment.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::metrics::job::{Job, label};
use warpline_core::environment;

/// The most attributes that are taken from the environment.
const MOST: usize = 64;

/// Returns the resource of this process. The environment wins, as in OpenTelemetry's SDKs.
pub(super) fn detect(job: &Job) -> Resource {
    resource(job, |name| environment::var(name).ok())
}

fn resource(job: &Job, variable: impl Fn(&str) -> Option<String>) -> Resource {
    let mut attributes = vec![
        text("service.name", &job.process_name),
        text("service.instance.id", &format!("{}-{}", job.host, job.process_id)),
        text("host.name", &job.host),
        number("process.pid", job.process_id),
        text("process.executable.name", &job.process_name),
        number("warpline.rank", job.rank),
        text("telemetry.sdk.name", "warpline"),
        text("telemetry.sdk.language", "rust"),
        text("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ];
    let named = variable("OTEL_RESOURCE_ATTRIBUTES").map_or_else(Vec::new, |line| pairs(&line));
    let service = variable("OTEL_SERVICE_NAME").filter(|name| !name.is_empty());
    let service = service.map(|name| ("service.name".to_owned(), name));
    for (key, value) in named.into_iter().take(MOST).chain(service) {
        attributes.retain(|attribute| attribute.key != key);
        attributes.push(text(&key, &value));
    }
    Resource { attributes, ..Resource::default() }
}

/// Returns an attribute with a text, which is made fit for a label.
pub(super) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(label(value)))
}

fn number(key: &str, value: u32) -> KeyValue {
    attribute(key, Value::IntValue(i64::from(value)))
}

pub(super) fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// Returns the pairs of `key=value,key=value`, whose values are percent-encoded. Entries without a key are left out.
pub(super) fn pairs(line: &str) -> Vec<(String, String)> {
    let pairs = line.split(',').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(key, value)| (key.trim().to_owned(), decoded(value.trim())));
    pairs.filter(|(key, _)| !key.is_empty()).collect()
}

/// Decodes `%2C`. What is no such sequence stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let hex = |byte: &u8| char::from(*byte).to_digit(16);
        let code = match more {
            [high, low, ..] if *first == b'%' => hex(high).zip(hex(low)),
            _ => None,
        };
        match code {
            Some((high, low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_the_service_and_adds_attributes() {
        let job = Job {
            rank: 3,
            host: "node\n7".to_owned(),
            process_id: 77,
            process_name: "train".to_owned(),
            slurm_job: None,
        };
        let value = |resource: &Resource, key: &str| {
            let mut found = resource.attributes.iter().filter(|attribute| attribute.key == key);
            let value = found.next().and_then(|attribute| attribute.value.clone()?.value);
            assert!(found.next().is_none(), "{key} is there once");
            match value {
                Some(Value::StringValue(text)) => Some(text),
                Some(Value::IntValue(number)) => Some(number.to_string()),
                _ => None,
            }
        };
        let plain = resource(&job, |_| None);
        let of_plain = |key| value(&plain, key);
        assert_eq!(of_plain("service.name").as_deref(), Some("train"));
        assert_eq!(of_plain("host.name").as_deref(), Some("node\\n7"));
        assert_eq!(of_plain("process.pid").as_deref(), Some("77"));
        assert_eq!(of_plain("warpline.rank").as_deref(), Some("3"));
        let set = |name: &str| match name {
            "OTEL_RESOURCE_ATTRIBUTES" => Some("service.name=x, team=a%2Cb ,host.name=h,=y,bad,p=100%".to_owned()),
            "OTEL_SERVICE_NAME" => Some("llm".to_owned()),
            _ => None,
        };
        let named = resource(&job, set);
        let of_named = |key| value(&named, key);
        assert_eq!(of_named("service.name").as_deref(), Some("llm"));
        assert_eq!(of_named("team").as_deref(), Some("a,b"));
        assert_eq!((of_named("host.name").as_deref(), of_named("p").as_deref()), (Some("h"), Some("100%")));
        assert_eq!(of_named("bad"), None);
    }
}
