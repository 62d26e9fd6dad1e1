//! The HTTP client of a store. It refuses requests to the metadata service of a cloud unless the user allows them: a
//! client without keys would ask that address for keys on any machine, and any server that answers there would learn
//! the names of the files that are read.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use url::Url;

/// With this variable, a client without keys may ask the metadata service.
pub(super) const ASK: &str = "WARPLINE_CLOUD_METADATA";

/// The names of services, in addition to link-local addresses.
const NAMES: [&str; 2] = ["metadata.google.internal", "metadata"];

/// Variables that give such a service another address.
const ADDRESSES: [&str; 8] = [
    "AWS_METADATA_ENDPOINT",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "IDENTITY_ENDPOINT",
    "MSI_ENDPOINT",
    "AZURE_MSI_ENDPOINT",
    "GCE_METADATA_HOST",
    "GCE_METADATA_ROOT",
    "GCE_METADATA_IP",
];

/// Makes the clients of a store.
#[derive(Debug, Clone)]
pub(super) struct Guarded {
    /// Addresses that are metadata services, too; none if all may be asked.
    refused: Option<Arc<[String]>>,
    /// Whether one would have been asked.
    was_asked: Arc<AtomicBool>,
}

impl Guarded {
    /// The guard for the environment of this process.
    pub(super) fn of(options: &[(String, String)]) -> Self {
        let value = |name: &str| options.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let is_allowed = value(ASK).is_some_and(|value| !matches!(value, "" | "0"));
        let address = |name: &&str| Some(authority(value(name)?).to_ascii_lowercase());
        let refused = (!is_allowed).then(|| ADDRESSES.iter().filter_map(address).collect());
        Self { refused, was_asked: Arc::default() }
    }

    /// Whether a request to a metadata service was refused: the client has no keys.
    pub(super) fn was_asked(&self) -> bool {
        self.was_asked.load(Ordering::Relaxed)
    }

    fn refuses(&self, url: &Url) -> bool {
        let Some(refused) = &self.refused else { return false };
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
        let of_link = match host.parse() {
            Ok(IpAddr::V4(address)) => address.is_link_local(),
            Ok(IpAddr::V6(address)) => {
                let is_mapped = address.to_ipv4_mapped().is_some_and(|address| address.is_link_local());
                // The last is that of one cloud.
                is_mapped || address.is_unicast_link_local() || address.segments()[..2] == [0xfd00, 0xec2]
            }
            Err(_) => NAMES.contains(&host.trim_end_matches('.')),
        };
        let authority = authority(url.as_str()).to_ascii_lowercase();
        of_link || refused.iter().any(|known| *known == authority || *known == host)
    }
}

/// The host and the port of a URL, or of an address without a scheme.
fn authority(text: &str) -> &str {
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    let text = text.split(['/', '?', '#']).next().unwrap_or_default();
    text.rsplit('@').next().unwrap_or_default()
}

impl HttpConnector for Guarded {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Client { client, guarded: self.clone() }))
    }
}

#[derive(Debug)]
struct Client {
    client: HttpClient,
    guarded: Guarded,
}

/// Why a request is not made.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("it is at no URL of a server")]
    NoUrl,
    #[error("without keys, the metadata service of the cloud would be asked")]
    Metadata,
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // The client under this one panics without a URL.
        let url = Url::parse(&request.uri().to_string()).ok().filter(Url::has_host);
        let refused = match url {
            None => Refused::NoUrl,
            Some(url) if self.guarded.refuses(&url) => {
                self.guarded.was_asked.store(true, Ordering::Relaxed);
                Refused::Metadata
            }
            Some(_) => return self.client.execute(request).await,
        };
        // It is not tried again.
        Err(HttpError::new(HttpErrorKind::Unknown, refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_of_a_metadata_service_is_asked_without_the_variable() {
        let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let guarded = Guarded::of(&[
            option("AWS_METADATA_ENDPOINT", "http://127.0.0.1:4711/"),
            option("GCE_METADATA_HOST", "here:80"),
            option(ASK, "0"),
        ]);
        let asked = |guarded: &Guarded, url: &str| guarded.refuses(&Url::parse(url).expect("a URL"));
        for url in [
            "http://169.254.169.254/latest/api/token",
            "http://169.254.170.2/role",
            "http://[fd00:ec2::254]/latest",
            "http://[fe80::1]/",
            "http://[::ffff:169.254.169.254]/",
            "http://metadata.google.internal/computeMetadata",
            "http://METADATA.google.internal./computeMetadata",
            "http://127.0.0.1:4711/latest/api/token",
        ] {
            assert!(asked(&guarded, url), "{url}");
            assert!(!asked(&Guarded::of(&[option(ASK, "1")]), url), "{url}");
        }
        for url in ["http://127.0.0.1:9000/bucket", "https://bucket.s3.amazonaws.com/x", "https://[2001:db8::1]/x"] {
            assert!(!asked(&guarded, url), "{url}");
        }
    }
}
