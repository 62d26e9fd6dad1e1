//! The tables in an object store: `moto`, which is a server of S3's protocol in Python, on this machine. `warpline-ranks` reads them from there, and so
//! does ClickHouse with the script that reads folders, so nothing in the queries or in the layout of the files needs a file system.

use std::path::Path;

use super::process::{Running, free_port};
use super::{Engine, printed_with};
use crate::shell::{Stop, line};

/// The package on PyPI, and what the upload needs.
const PACKAGES: &str = "moto[server] boto3";

/// The bucket of the tables.
const BUCKET: &str = "warpline";

/// A server with the tables, which ends with this value.
pub struct Store {
    _server: Running,
    settings: Vec<(String, String)>,
}

impl Store {
    /// Starts it, and uploads the tables.
    ///
    /// # Errors
    /// It does not begin to listen, or does not take a file.
    pub fn start(python: &Path, folder: &Path, tables: &Path) -> Result<Self, Stop> {
        line(&format!("{} -m pip install --quiet {PACKAGES}", python.display())).run()?;
        let port = free_port()?;
        let command = format!("{} -m moto.server -H 127.0.0.1 -p {port}", python.display());
        let mut server = Running::start(folder.join("s3.log"), &command)?;
        server.wait_for(port)?;
        let settings = [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_DEFAULT_REGION", "us-east-1".to_owned()),
        ];
        let store = Self { _server: server, settings: settings.map(|(name, value)| (name.to_owned(), value)).to_vec() };
        let upload = format!("{} xtask/src/cluster/upload.py {} {BUCKET}", python.display(), tables.display());
        println!("{}", printed_with(&upload, &store.settings)?.trim_end());
        Ok(store)
    }

    /// Where the tables are.
    pub fn url(&self) -> String {
        format!("s3://{BUCKET}")
    }

    /// The environment variables that name the server and the keys.
    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// What an engine says to each view, from there.
    ///
    /// # Errors
    /// It fails.
    pub fn answers(&self, engine: &Engine, python: &Path, views: &[String]) -> Result<super::Answers, Stop> {
        engine.answers(python, &self.url(), views, &self.settings)
    }
}
