//! A Ballista cluster that runs the queries: a stock scheduler and stock executors, with nothing of ours. A query goes
//! there as a logical plan over folders of Parquet files, and rows that only this process has are such files too.
//! Called by the engine.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{DataFusionError, Result as DfResult};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::datasource::provider_as_source;
use datafusion::datasource::view::ViewTable;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::prelude::{SessionContext, col, lit};
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use warpline_judge::tables::Table;

use crate::error::Error;
use crate::folder::Folder;
use crate::generate::replace_file;
use crate::table::Schemas;

/// How the value of `--engine` begins.
const SCHEME: &str = "ballista://";

/// The port of a scheduler that is given no other.
const PORT: u16 = 50050;

/// The time within which the cluster answers a query, unless `--timeout` says otherwise. A scheduler by default notices
/// after 180 s that an executor is dead.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The scheduler of a cluster, as `--engine` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduler {
    /// HOST:PORT.
    address: String,
    timeout: Duration,
}

impl FromStr for Scheduler {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let place = text.strip_prefix(SCHEME).map(|place| place.trim_end_matches('/'));
        let address = place.filter(|place| !place.is_empty() && !place.contains(['/', '@'])).and_then(|place| {
            // An IPv6 address is in brackets, so that its colons do not begin a port.
            match place.rsplit_once(':') {
                Some((host, port)) if !port.ends_with(']') => {
                    (!host.is_empty() && port.parse::<u16>().is_ok()).then(|| place.to_owned())
                }
                _ => Some(format!("{place}:{PORT}")),
            }
        });
        let address = address.ok_or_else(|| format!("write `{SCHEME}HOST:{PORT}` with the scheduler's host"))?;
        Ok(Self { address, timeout: TIMEOUT })
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.address)
    }
}

impl Scheduler {
    /// With another limit for the answer to each query. Ballista itself has none.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// A context whose queries run there.
    #[cfg(feature = "ballista")]
    pub async fn connect(&self) -> Result<SessionContext, Error> {
        use ballista::prelude::{SessionConfigExt, SessionContextExt};
        use datafusion::execution::SessionStateBuilder;
        use datafusion::prelude::SessionConfig;

        // Ballista itself connects with the first query, and its error does not name the address.
        let there = tokio::time::timeout(Duration::from_secs(10), tokio::net::TcpStream::connect(&self.address));
        let why = match there.await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("no answer in 10 s".to_owned()),
        };
        if let Some(why) = why {
            let remedy =
                format!("start `ballista-scheduler` there, or name its host and port: `--engine {SCHEME}HOST:{PORT}`");
            return Err(Error::Asked(format!("no scheduler answers at `{self}`: {why}; {remedy}")));
        }
        // DataFusion's own variables set the rest, such as DATAFUSION_EXECUTION_TARGET_PARTITIONS to the number of the
        // cluster's cores.
        let config = SessionConfig::from_env().map_err(|error| Error::query("SQL", error))?.upgrade_for_ballista();
        // A look at the footer of each file, before the query, would take longer than the query.
        let config = config.with_information_schema(true).with_collect_statistics(false);
        let state = SessionStateBuilder::new().with_config(config).with_default_features().build();
        let context = SessionContext::remote_with_state(&self.to_string(), state).await;
        context.map_err(|error| Error::query("SQL", error))
    }

    /// There is none without the feature `ballista`.
    #[cfg(not(feature = "ballista"))]
    pub async fn connect(&self) -> Result<SessionContext, Error> {
        Err(Error::Asked(format!("this `warpline-ranks` cannot ask `{self}`: build it with `--features ballista`")))
    }
}

/// A cluster, and where its executors find the rows that only this process has.
pub struct Cluster {
    scheduler: Scheduler,
    tables: PathBuf,
    kept: PathBuf,
    next: AtomicUsize,
}

impl Cluster {
    /// Nothing is written before there are rows.
    pub fn new(scheduler: Scheduler, folder: &Folder) -> Self {
        let tables = std::path::absolute(&folder.path).unwrap_or_else(|_| folder.path.clone());
        // The name is that of one process on one machine: others may use the folder, too.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let kept = tables.join("kept").join(format!("{}-{}-{now:x}", folder.run, std::process::id()));
        Self { scheduler, tables, kept, next: AtomicUsize::new(0) }
    }

    /// Rows as a file, which ends with this value.
    pub fn rows(
        &self,
        name: &str,
        schema: &SchemaRef,
        batches: &[RecordBatch],
    ) -> Result<Arc<dyn TableProvider>, Error> {
        // Earlier plans still read the file before it.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.kept.join(format!("{name}-{number}.parquet"));
        let write = || {
            let mut writer = ArrowWriter::try_new(Vec::new(), schema.clone(), None)?;
            batches.iter().try_for_each(|batch| writer.write(batch))?;
            writer.into_inner()
        };
        replace_file(&path, &write().map_err(|error: ParquetError| Error::write(&path, error))?)?;
        listed(&path.display().to_string(), schema.clone(), Vec::new()).map_err(|error| Error::query(name, error))
    }

    /// Waits for the answer to a query that runs there.
    pub async fn answer<T>(&self, name: &str, answer: impl Future<Output = DfResult<T>>) -> Result<T, Error> {
        let timeout = self.scheduler.timeout;
        let answer = tokio::time::timeout(timeout, answer).await;
        let (name, scheduler) = (name.to_owned(), self.scheduler.to_string());
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => {
                Err(Error::Cluster { name, scheduler, path: self.tables.clone(), source: Box::new(source) })
            }
            Err(_) => Err(Error::NoAnswer { name, scheduler, seconds: timeout.as_secs() }),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.kept);
        // The folder of all clients goes with the last one.
        let _ = std::fs::remove_dir(self.tables.join("kept"));
    }
}

/// The files of a table, which executors find: a folder, with what the names of its folders say.
pub fn files(folder: &Folder, table: Table) -> DfResult<Arc<dyn TableProvider>> {
    let path = std::path::absolute(folder.path.join(table.name())).map_err(DataFusionError::from)?;
    let of_path = vec![("run".to_owned(), DataType::Utf8), ("win".to_owned(), DataType::Int64)];
    let files = listed(&format!("{}/", path.display()), table.listed(), of_path)?;
    let scan = LogicalPlanBuilder::scan(table.name(), provider_as_source(files), None)?;
    let of_run = scan.filter(col("run").eq(lit(folder.run.as_str())))?.build()?;
    Ok(Arc::new(ViewTable::new(of_run, None)))
}

fn listed(path: &str, schema: SchemaRef, of_path: Vec<(String, DataType)>) -> DfResult<Arc<dyn TableProvider>> {
    let options = ListingOptions::new(Arc::new(ParquetFormat::default()))
        .with_file_extension(".parquet")
        .with_table_partition_cols(of_path);
    let config = ListingTableConfig::new(url(path)?).with_listing_options(options);
    Ok(Arc::new(ListingTable::try_new(config.with_schema(schema))?))
}

/// An absolute path. As a URL, because in a path `*`, `?` and `[` would be a pattern.
fn url(path: &str) -> DfResult<ListingTableUrl> {
    let path = path.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    ListingTableUrl::parse(format!("file://{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_no_pattern() {
        for path in ["tmp/DIR[1]/steps", "tmp/a*b/50% of #3?", "tmp/with space/ä"] {
            let url = url(&format!("/{path}/")).expect("a path");
            assert_eq!(url.prefix().as_ref(), path);
            assert!(url.get_glob().is_none(), "{url}");
        }
    }

    #[test]
    fn a_cluster_that_does_not_answer_is_named_with_what_to_do() {
        let scheduler: Scheduler = "ballista://head".parse().expect("a scheduler");
        let scheduler = scheduler.with_timeout(Duration::from_millis(10));
        let cluster =
            Cluster { scheduler, tables: PathBuf::new(), kept: PathBuf::from("/nowhere"), next: AtomicUsize::new(0) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let error = runtime.block_on(cluster.answer::<()>("late", std::future::pending())).expect_err("no answer");
        let said = error.to_string();
        for part in ["`late` fails on the cluster of `ballista://head:50050`", "no answer in 0 s", "--timeout SECONDS"]
        {
            assert!(said.contains(part), "no “{part}” in {said}");
        }
        let answer = runtime.block_on(cluster.answer("late", std::future::ready(Ok(7))));
        assert_eq!(answer.expect("an answer"), 7);
    }

    #[test]
    fn an_engine_is_read_as_it_is_written() {
        for (text, whole) in [
            ("ballista://head", "ballista://head:50050"),
            ("ballista://10.0.0.1:6000/", "ballista://10.0.0.1:6000"),
            ("ballista://[::1]", "ballista://[::1]:50050"),
            ("ballista://[::1]:6000", "ballista://[::1]:6000"),
        ] {
            assert_eq!(text.parse::<Scheduler>().map(|scheduler| scheduler.to_string()), Ok(whole.to_owned()));
        }
        for wrong in ["", "spark", "ballista://", "ballista://:50050", "ballista://head:port", "ballista://u@h"] {
            let why = wrong.parse::<Scheduler>().expect_err(wrong);
            assert!(why.contains("ballista://HOST:50050"), "{wrong}: {why}");
        }
    }
}
