//! One `SELECT` in this process, or on a cluster: what both engines, that of the tables of ranks and that of one trace,
//! have in common. A query only reads.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{DataFrame, SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Statement as Parsed;
use tokio::runtime::Runtime;

use super::Rows;
use super::limits::{WORKER_STACK, check_length};
use crate::error::Error;

/// The memory that the queries may hold at once, of 4 GiB for everything: beyond it they spill to the system's
/// temporary folder.
const MEMORY: usize = 1536 << 20;

/// The smaller side of a join is not dealt out to threads up to this many rows, or bytes.
const SMALL_ROWS: usize = 2 << 20;
const SMALL_BYTES: usize = 256 << 20;

/// A session of DataFusion, and the threads that it runs on.
pub(crate) struct Sql {
    pub(crate) context: SessionContext,
    pub(crate) runtime: Runtime,
}

impl Sql {
    /// In this process.
    pub(crate) fn new() -> DfResult<Self> {
        let runtime = threads()?;
        let threads = runtime.metrics().num_workers();
        let mut config = SessionConfig::new().with_target_partitions(threads).with_information_schema(true);
        let options = config.options_mut();
        options.execution.collect_statistics = false;
        options.optimizer.hash_join_single_partition_threshold = SMALL_BYTES;
        options.optimizer.hash_join_single_partition_threshold_rows = SMALL_ROWS;
        let environment = RuntimeEnvBuilder::new().with_memory_limit(MEMORY, 1.0).build_arc()?;
        Ok(Self { context: SessionContext::new_with_config_rt(config, environment), runtime })
    }

    /// Plans a `SELECT`.
    pub(crate) fn plan(&self, sql: &str) -> Result<LogicalPlan, Error> {
        let planned = self.runtime.block_on(self.context.state().create_logical_plan(sql));
        planned.map_err(|error| Error::query("SQL", error))
    }

    /// The answer to what a user wrote.
    pub(crate) fn select(&self, sql: &str) -> Result<Rows, Error> {
        let of = |error| Error::query("SQL", error);
        self.runtime.block_on(async {
            let frame = self.frame(sql).await.map_err(of)?;
            let schema = Arc::new(frame.schema().as_arrow().clone());
            Ok(Rows { name: "SQL".to_owned(), schema, batches: frame.collect().await.map_err(of)? })
        })
    }

    /// A `SELECT` that can be run. Statements that write are refused.
    pub(crate) async fn frame(&self, sql: &str) -> DfResult<DataFrame> {
        let nothing_written =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        self.context.sql_with_options(sql, nothing_written).await
    }

    /// The tables that a query names.
    ///
    /// # Errors
    /// It is no SQL, it writes, or it is too long.
    pub(crate) fn tables_of(&self, sql: &str) -> Result<BTreeSet<String>, Error> {
        check_length(sql)?;
        let of = |error| Error::query("SQL", error);
        let state = self.context.state();
        let dialect = state.config().options().sql_parser.dialect;
        let statement = state.sql_to_statement(sql, &dialect).map_err(of)?;
        if !reads(&statement) {
            let words: Vec<&str> = sql.split_whitespace().take(2).collect();
            return Err(Error::Writes { begin: words.join(" ") });
        }
        let named = state.resolve_table_references(&statement).map_err(of)?;
        // `information_schema` has tables of its own.
        Ok(named.iter().filter(|table| table.schema().is_none()).map(|table| table.table().to_owned()).collect())
    }

    /// The first table that a query names and that is not there.
    pub(crate) fn unknown_table(&self, sql: &str) -> Option<String> {
        let names = self.tables_of(sql).ok()?;
        names.into_iter().find(|name| !self.context.table_exist(name.as_str()).unwrap_or(true))
    }
}

/// Threads for queries, one for each core.
pub(crate) fn threads() -> std::io::Result<Runtime> {
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(WORKER_STACK)
        .enable_all()
        .build()
}

fn reads(statement: &Statement) -> bool {
    match statement {
        Statement::Statement(parsed) => matches!(
            **parsed,
            Parsed::Query(_)
                | Parsed::Explain { .. }
                | Parsed::ExplainTable { .. }
                | Parsed::ShowTables { .. }
                | Parsed::ShowColumns { .. }
        ),
        Statement::Explain(_) => true,
        _ => false,
    }
}
