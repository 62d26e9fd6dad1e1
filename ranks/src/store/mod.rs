//! Tables in an object store: one run is copied to a temporary folder, which is read like any other. A job has many
//! small files and a report reads each of them several times, so one copy takes less time than a request for each read.
//! `metadata` keeps the client from asking a cloud for keys. Called by the command; never writes to a store.

mod metadata;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use futures::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, ObjectStoreScheme, parse_url};
use tempfile::TempDir;
use url::Url;
use warpline_judge::tables::Table;

use self::metadata::{ASK, Guarded};
use crate::error::Error;
use crate::folder::{choose, is_run};
use crate::progress::{bar, busy};

/// Files that are copied at once: the store answers each after a round trip.
const AT_ONCE: usize = 64;

/// The environment variables that a store reads, for the schemes of `object_store`.
const SETTINGS: [(&str, &str); 3] = [
    ("s3", "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL"),
    ("gs", "GOOGLE_APPLICATION_CREDENTIALS"),
    ("az", "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
];

/// The tables of one run as a folder.
#[derive(Debug)]
pub struct Tables {
    path: PathBuf,
    /// Removed with the value.
    _copy: Option<TempDir>,
}

impl Tables {
    /// The folder `place`, or a copy of the run `run`, or of the only one, of the URL `place`.
    ///
    /// # Errors
    /// The store cannot be read, the folder of temporary files cannot be written, or the run is not there.
    pub fn at(place: &Path, run: Option<&str>) -> Result<Self, Error> {
        let Some(url) = url(place) else { return Ok(Self { path: place.to_owned(), _copy: None }) };
        let copy = copy_run(url, run)?;
        Ok(Self { path: copy.path().to_owned(), _copy: Some(copy) })
    }

    /// Where the tables are.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The URL that a user wrote in place of a folder.
pub fn url(place: &Path) -> Option<&str> {
    let text = place.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then_some(text)
}

/// Says that `what` needs a folder, if a user wrote a URL.
///
/// # Errors
/// It is a URL.
pub fn only_folders(what: &str, place: &Path) -> Result<(), Error> {
    match url(place) {
        Some(url) => Err(Error::Asked(format!(
            "{what} needs a folder, and `{url}` is a URL; copy it to a folder and name that; `report`, `query` and `clocks` take URLs"
        ))),
        None => Ok(()),
    }
}

/// A place in a store.
struct Place<'a> {
    url: &'a str,
    store: Box<dyn ObjectStore>,
    prefix: Key,
    guarded: Guarded,
}

fn copy_run(url: &str, run: Option<&str>) -> Result<TempDir, Error> {
    let place = Place::parse(url)?;
    let of_system = |source| Error::Read { path: url.into(), source };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(of_system)?;
    let files = busy("listing files", || runtime.block_on(place.files(run)))?;
    runtime.block_on(place.copy(&files))
}

impl<'a> Place<'a> {
    fn parse(url: &'a str) -> Result<Self, Error> {
        let parsed = Url::parse(url).map_err(|error| Error::Asked(format!("`{url}` is not a URL: {error}")))?;
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let mut options: Vec<(String, String)> = std::env::vars_os().filter_map(text).collect();
        if let Some((name, _)) = options.iter().find(|(name, value)| is_endpoint(name) && !is_server(value)) {
            return Err(Error::Asked(format!(
                "the variable {name} is not the URL of a server; write {name}=http://HOST:PORT"
            )));
        }
        // A server without TLS, such as one of this machine, is named as such.
        let is_plain = |(name, value): &(String, String)| {
            name.to_ascii_uppercase().starts_with("AWS_ENDPOINT") && value.starts_with("http://")
        };
        if options.iter().any(is_plain) {
            options.push(("allow_http".to_owned(), "true".to_owned()));
        }
        let guarded = Guarded::of(&options);
        let (store, prefix) = connect(&parsed, options, &guarded).map_err(|error| failed(url, error.into()))?;
        Ok(Self { url, store, prefix, guarded })
    }

    fn failed(&self, error: object_store::Error) -> Error {
        if self.guarded.was_asked() {
            let why = format!("the environment has no keys, and a cloud's metadata service is asked only with {ASK}=1");
            return failed(self.url, why.into());
        }
        failed(self.url, error.into())
    }

    /// The files of the tables of the run, or of the only one.
    async fn files(&self, run: Option<&str>) -> Result<Vec<ObjectMeta>, Error> {
        let of_store = |error| self.failed(error);
        let mut runs = BTreeSet::new();
        for table in Table::ALL {
            let found = self.store.list_with_delimiter(Some(&self.prefix.clone().join(table.name()))).await;
            let names = found.map_err(of_store)?.common_prefixes;
            let id = |key: &Key| key.filename()?.strip_prefix("run=").filter(|id| is_run(id)).map(str::to_owned);
            runs.extend(names.iter().filter_map(id));
        }
        let run = choose(Path::new(self.url), run, &runs.into_iter().collect::<Vec<_>>())?;
        let list = |table: Table| {
            let key = self.prefix.clone().join(table.name()).join(format!("run={run}"));
            self.store.list(Some(&key)).try_collect::<Vec<_>>()
        };
        let found = futures::future::try_join_all(Table::ALL.map(list)).await.map_err(of_store)?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Copies files to a new temporary folder, under their names.
    async fn copy(&self, files: &[ObjectMeta]) -> Result<TempDir, Error> {
        let temporary = std::env::temp_dir();
        let folder = tempfile::Builder::new().prefix("warpline-ranks-").tempdir();
        let folder = folder.map_err(|error| Error::write(&temporary, error))?;
        let bar = bar(files.len(), "copying files");
        let one = |file: &ObjectMeta| {
            let (key, bar, folder) = (file.location.clone(), bar.clone(), folder.path());
            async move {
                let done = self.copy_one(&key, folder).await;
                bar.inc(1);
                done
            }
        };
        let copies = futures::stream::iter(files.iter().map(one)).buffer_unordered(AT_ONCE);
        let done = copies.try_collect::<Vec<()>>().await;
        bar.finish_and_clear();
        done.map(|_| folder)
    }

    async fn copy_one(&self, key: &Key, folder: &Path) -> Result<(), Error> {
        let of_store = |error| self.failed(error);
        // A key has no part `.` or `..`: `object_store` takes none.
        let parts = key.prefix_match(&self.prefix).into_iter().flatten();
        let path = parts.fold(folder.to_owned(), |path, part| path.join(part.as_ref()));
        let of_file = |error: std::io::Error| Error::write(&path, error);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(of_file)?;
        }
        let mut file = File::create(&path).map_err(of_file)?;
        let mut bytes = self.store.get(key).await.map_err(of_store)?.into_stream();
        while let Some(some) = bytes.next().await {
            file.write_all(&some.map_err(of_store)?).map_err(of_file)?;
        }
        Ok(())
    }
}

/// The store of a URL, and the place in it, as `object_store::parse_url_opts` has it, which takes no connector.
fn connect(
    url: &Url,
    options: Vec<(String, String)>,
    guarded: &Guarded,
) -> Result<(Box<dyn ObjectStore>, Key), object_store::Error> {
    // The builders have no trait in common.
    macro_rules! built {
        ($builder:ty) => {{
            let builder = <$builder>::new().with_url(url.as_str()).with_http_connector(guarded.clone());
            let builder =
                options.into_iter().fold(builder, |builder, (name, value)| match name.to_ascii_lowercase().parse() {
                    Ok(known) => builder.with_config(known, value),
                    Err(_) => builder,
                });
            Box::new(builder.build()?)
        }};
    }
    let (scheme, path) = ObjectStoreScheme::parse(url)?;
    let store: Box<dyn ObjectStore> = match scheme {
        ObjectStoreScheme::AmazonS3 => built!(AmazonS3Builder),
        ObjectStoreScheme::GoogleCloudStorage => built!(GoogleCloudStorageBuilder),
        ObjectStoreScheme::MicrosoftAzure => built!(MicrosoftAzureBuilder),
        // Folders of this machine, and what is not supported.
        _ => return parse_url(url),
    };
    Ok((store, path))
}

/// Whether a variable is the address of a store.
fn is_endpoint(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name.starts_with("AWS_ENDPOINT") || matches!(name.as_str(), "AZURE_ENDPOINT" | "GOOGLE_BASE_URL")
}

fn is_server(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

fn failed(url: &str, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let settings = SETTINGS.iter().find(|(known, _)| *known == scheme);
    let remedy = settings.map_or_else(
        || format!("write `{}`", SETTINGS.map(|(scheme, _)| format!("{scheme}://BUCKET/FOLDER")).join("`, `")),
        |(_, names)| format!("the server and the keys come from the environment: {names}"),
    );
    Error::Store { url: url.to_owned(), source, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_and_everything_else_is_a_folder() {
        for text in ["s3://bucket", "s3://bucket/folder", "gs://b/x", "https://host/bucket"] {
            assert_eq!(url(Path::new(text)), Some(text));
        }
        for text in ["tables", "/tmp/a", "a:/b", "./x://y", "://y", "9p://host"] {
            assert_eq!(url(Path::new(text)), None, "{text}");
        }
    }

    #[test]
    fn what_reads_folders_alone_says_so() {
        let error = only_folders("`compact`", Path::new("s3://bucket")).expect_err("a URL").to_string();
        assert!(error.starts_with("`compact` needs a folder, and `s3://bucket` is a URL"), "{error}");
        only_folders("`compact`", Path::new("tables")).expect("a folder");
    }
}
