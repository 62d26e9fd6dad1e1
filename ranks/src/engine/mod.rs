//! DataFusion over the files of one run: each table, and each file of `ranks/sql/` as a view, by name. Everything that
//! is judged starts as such a query; there is no function of ours in them, so another engine runs the same files.

mod cluster;
mod in_memory;
mod limits;
mod pages;
mod read;
mod scan;
mod sql;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

pub use self::cluster::Scheduler;
pub use self::limits::Limits;
pub use self::read::Scope;
pub(crate) use self::read::{BATCH, Wanted};
pub(crate) use self::sql::Sql;

use self::cluster::Cluster;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int32Type, Int64Type, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DfResult;
use datafusion::datasource::memory::MemTable;
use datafusion::datasource::view::ViewTable;
use datafusion::logical_expr::{Expr, LogicalPlan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use warpline_judge::tables::Table;

use self::in_memory::InMemoryRows;
use self::scan::Scan;
use crate::error::Error;
use crate::folder::Folder;
use crate::table::Schemas;
use crate::views;

/// The memory that [`Engine::hold`] may use in addition to that of the queries.
const HELD: usize = 1280 << 20;

/// Views with a row for each rank, step or collective at most, on which others build.
const KEPT: [&str; 4] = ["placed", "late", "peers", "suspect_steps"];

/// Answers queries.
pub struct Engine {
    sql: Sql,
    folder: Arc<Mutex<Folder>>,
    /// The rows that stay in memory.
    held: Arc<Mutex<HashMap<Table, Arc<InMemoryRows>>>>,
    /// The cluster that runs the queries; none for this process.
    cluster: Option<Cluster>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine over the run `run` of the folder, or the only one.
    pub fn open(path: &Path, run: Option<&str>) -> Result<Self, Error> {
        Self::open_on(None, path, run)
    }

    /// The same, where the queries run on the cluster of a scheduler. What is kept for later queries is then a file in
    /// the folder.
    pub fn open_on(scheduler: Option<Scheduler>, path: &Path, run: Option<&str>) -> Result<Self, Error> {
        let folder = Folder::open(path, run)?;
        let mut sql = Sql::new().map_err(|error| Error::query("SQL", error))?;
        if let Some(scheduler) = &scheduler {
            sql.context = sql.runtime.block_on(scheduler.connect())?;
        }
        let cluster = scheduler.map(|scheduler| Cluster::new(scheduler, &folder));
        let engine = Self { sql, folder: Arc::new(Mutex::new(folder)), held: Arc::default(), cluster };
        for table in Table::ALL {
            engine.register(table, None)?;
        }
        Ok(engine)
    }

    /// The files, and what was left out so far.
    pub fn folder(&self) -> Folder {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The answer to a `SELECT`. If a damaged file makes it fail, that file is left out, and it runs again.
    pub fn query(&self, name: &str, sql: &str) -> Result<Rows, Error> {
        loop {
            let before = self.folder().left_out().1;
            match self.run(name, sql) {
                Err(Error::Query { .. }) if self.folder().left_out().1 > before => {}
                answer => return answer,
            }
        }
    }

    /// Keeps these columns of a table in memory, for the queries to come. If they take too much, or a row may lack a
    /// value, queries read the files instead.
    pub fn hold(&self, table: Table, columns: &[&str]) {
        let schema = table_schema(table);
        let fields: Vec<Field> = columns.iter().filter_map(|name| schema.field_with_name(name).ok()).cloned().collect();
        if self.cluster.is_some() || fields.iter().any(Field::is_nullable) {
            return;
        }
        let wanted = Wanted {
            table,
            schema: Arc::new(Schema::new(fields)),
            run: self.folder().run.as_str().into(),
            scope: None,
        };
        let known: usize = self.held().values().map(|held| held.bytes()).sum();
        let threads = self.sql.context.state().config_options().execution.target_partitions;
        if let Some(held) = InMemoryRows::load(&wanted, &self.folder, threads, HELD.saturating_sub(known)) {
            self.held().insert(table, Arc::new(held));
        }
    }

    /// Drops the rows that are kept of a table.
    pub fn release(&self, table: Table) {
        self.held().remove(&table);
    }

    /// For the queries to come, skips files of a table, and groups of their rows, that have nothing of the scope; all
    /// are read again without one.
    pub fn within(&self, table: Table, scope: Option<Scope>) -> Result<(), Error> {
        self.register(table, scope.map(Arc::new))
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<Table, Arc<InMemoryRows>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer of a file of `ranks/sql/`.
    pub fn view(&self, name: &str) -> Result<Rows, Error> {
        match views::find(name) {
            Some(view) => self.query(name, view.sql),
            None => Err(Error::Asked(format!("there is no view `{name}`; `query --list` shows them"))),
        }
    }

    /// Answers a view once, and keeps the answer under its name for the views that build on it.
    pub fn keep(&self, name: &str) -> Result<Rows, Error> {
        let rows = self.view(name)?;
        self.insert(name, rows.schema.clone(), rows.batches.clone())?;
        Ok(rows)
    }

    /// The same in parts, by the remainders of `column`, of which each part answers for one: what a part needs at once
    /// is that much less.
    pub fn keep_in_parts(&self, name: &str, column: &str, parts: usize) -> Result<Rows, Error> {
        let Some(view) = views::find(name).filter(|_| parts > 1) else { return self.keep(name) };
        let mut all: Option<Rows> = None;
        for part in 0..parts {
            let sql = format!("SELECT * FROM (\n{}\n) p WHERE p.{column} % {parts} = {part}", view.sql);
            let rows = self.query(name, &sql)?;
            match &mut all {
                Some(all) => all.batches.extend(rows.batches),
                None => all = Some(rows),
            }
        }
        let Some(rows) = all else { return self.keep(name) };
        self.insert(name, rows.schema.clone(), rows.batches.clone())?;
        Ok(rows)
    }

    /// Makes a view known by name, for the views that build on it. Its answer is computed wherever they name it.
    pub fn define(&self, name: &str) -> Result<(), Error> {
        let of = |error| Error::query(name, error);
        let Some(view) = views::find(name) else {
            return Err(Error::Asked(format!("there is no view `{name}`; `query --list` shows them")));
        };
        let plan: LogicalPlan =
            self.sql.runtime.block_on(self.sql.context.state().create_logical_plan(view.sql)).map_err(of)?;
        let table = ViewTable::new(plan, Some(view.sql.to_owned()));
        self.sql.context.deregister_table(name).map_err(of)?;
        self.sql.context.register_table(name, Arc::new(table)).map_err(of)?;
        Ok(())
    }

    /// Makes a table of rows.
    pub fn insert(&self, name: &str, schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<(), Error> {
        let of = |error| Error::query(name, error);
        let table: Arc<dyn TableProvider> = match &self.cluster {
            Some(cluster) => cluster.rows(name, &schema, &batches)?,
            None => Arc::new(MemTable::try_new(schema, vec![batches]).map_err(of)?),
        };
        self.sql.context.deregister_table(name).map_err(of)?;
        self.sql.context.register_table(name, table).map_err(of)?;
        Ok(())
    }

    /// A table of the run in memory, with these columns behind `run`.
    pub fn insert_columns(&self, name: &str, columns: Vec<(&str, ArrayRef)>) -> Result<(), Error> {
        let rows = columns.first().map_or(0, |(_, column)| column.len());
        let run: ArrayRef = Arc::new(StringArray::from(vec![self.folder().run.as_str(); rows]));
        let batch = RecordBatch::try_from_iter([("run", run)].into_iter().chain(columns));
        let batch = batch.map_err(|error| Error::query(name, error.into()))?;
        self.insert(name, batch.schema(), vec![batch])
    }

    /// Makes the views known by name, for queries of users. Their answers are computed when a query names them.
    pub fn register_views(&self) -> Result<(), Error> {
        self.register_views_for("")
    }

    /// The same for one query. A cluster first answers the views below it that a report keeps too: the plan of them all
    /// is too deep for its messages.
    pub fn register_views_for(&self, sql: &str) -> Result<(), Error> {
        let needed = if self.cluster.is_some() { views::below(sql) } else { BTreeSet::new() };
        // The table that only code makes: empty until it does.
        let run = ("run", DataType::Utf8);
        let int = |name| (name, DataType::Int64);
        let float = |name| (name, DataType::Float64);
        let boot = ("boot_id", DataType::Utf8);
        let clocks = vec![run, boot, int("segment"), int("mid_ns"), float("offset_ns"), float("drift"), int("err_ns")];
        if !self.sql.context.table_exist("clocks").map_err(|error| Error::query("clocks", error))? {
            let fields: Vec<Field> = clocks.into_iter().map(|(name, kind)| Field::new(name, kind, true)).collect();
            let schema = Arc::new(Schema::new(fields));
            self.insert("clocks", schema.clone(), vec![RecordBatch::new_empty(schema)])?;
        }
        for view in views::ALL {
            let of = |error| Error::query(view.name, error);
            if self.sql.context.table_exist(view.name).map_err(of)? {
                continue;
            }
            if KEPT.contains(&view.name) && needed.contains(view.name) {
                self.keep(view.name)?;
            } else {
                self.define(view.name)?;
            }
        }
        Ok(())
    }

    /// Replaces the error of a user's query that names a missing table with one that names it.
    pub fn check(&self, sql: &str) -> Result<(), Error> {
        self.sql.tables_of(sql)?;
        let Some(name) = self.sql.unknown_table(sql) else { return Ok(()) };
        let tables = Table::ALL.map(Table::name).join(", ");
        Err(Error::NoTable { name, tables, of: "a folder of ranks" })
    }

    fn run(&self, name: &str, sql: &str) -> Result<Rows, Error> {
        let of = |error| Error::query(name, error);
        self.sql.runtime.block_on(async {
            let frame = self.sql.frame(sql).await.map_err(of)?;
            let schema = Arc::new(frame.schema().as_arrow().clone());
            let batches = match &self.cluster {
                Some(cluster) => cluster.answer(name, frame.collect()).await?,
                None => frame.collect().await.map_err(of)?,
            };
            Ok(Rows { name: name.to_owned(), schema, batches })
        })
    }

    fn register(&self, table: Table, scope: Option<Arc<Scope>>) -> Result<(), Error> {
        let of = |error| Error::query(table.name(), error);
        let files: Arc<dyn TableProvider> = match self.cluster {
            Some(_) => cluster::files(&self.folder(), table).map_err(of)?,
            None => Arc::new(Files {
                table,
                schema: table_schema(table),
                run: self.folder().run.as_str().into(),
                scope,
                folder: self.folder.clone(),
                held: self.held.clone(),
            }),
        };
        self.sql.context.deregister_table(table.name()).map_err(of)?;
        self.sql.context.register_table(table.name(), files).map_err(of)?;
        Ok(())
    }
}

/// The columns of a table, with those of the path.
fn table_schema(table: Table) -> SchemaRef {
    let of_path = [("run", DataType::Utf8View), ("win", DataType::Int64)];
    let of_path = of_path.into_iter().map(|(name, kind)| Arc::new(Field::new(name, kind, false)));
    let read = table.read();
    Arc::new(Schema::new(read.fields().iter().cloned().chain(of_path).collect::<Vec<_>>()))
}

/// The files of a table, without a look at the folder for each query; or what is kept of them.
#[derive(Debug)]
struct Files {
    table: Table,
    schema: SchemaRef,
    run: Arc<str>,
    scope: Option<Arc<Scope>>,
    folder: Arc<Mutex<Folder>>,
    held: Arc<Mutex<HashMap<Table, Arc<InMemoryRows>>>>,
}

#[async_trait]
impl TableProvider for Files {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema.clone(),
        };
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).get(&self.table).cloned();
        let wanted = Wanted { table: self.table, schema, run: self.run.clone(), scope: self.scope.clone() };
        Ok(Arc::new(match held {
            Some(held) if held.has(&wanted.schema) => Scan::of_memory(wanted, held),
            _ => Scan::of_files(wanted, &self.folder, state.config().target_partitions()),
        }))
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Rows {
    name: String,
    /// Its columns.
    pub schema: SchemaRef,
    /// Its rows.
    pub batches: Vec<RecordBatch>,
}

impl Rows {
    /// How many.
    pub fn len(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A column of integers; 0 where there is none.
    pub fn ints(&self, column: &str) -> Result<Vec<i64>, Error> {
        Ok(self.maybe_ints(column)?.into_iter().map(|value| value.unwrap_or(0)).collect())
    }

    /// A column of integers.
    pub fn maybe_ints(&self, column: &str) -> Result<Vec<Option<i64>>, Error> {
        let mut all = Vec::with_capacity(self.len());
        for batch in &self.batches {
            let array = batch.column_by_name(column).ok_or_else(|| self.lacks(column))?;
            match array.data_type() {
                DataType::Int32 => {
                    all.extend(array.as_primitive::<Int32Type>().iter().map(|value| value.map(i64::from)));
                }
                DataType::Int64 => all.extend(array.as_primitive::<Int64Type>().iter()),
                _ => return Err(self.lacks(column)),
            }
        }
        Ok(all)
    }

    /// A column of numbers; not a number where there is none.
    pub fn floats(&self, column: &str) -> Result<Vec<f64>, Error> {
        let mut all = Vec::with_capacity(self.len());
        for batch in &self.batches {
            let array = batch.column_by_name(column).ok_or_else(|| self.lacks(column))?;
            match array.data_type() {
                DataType::Float64 => {
                    all.extend(array.as_primitive::<Float64Type>().iter().map(|value| value.unwrap_or(f64::NAN)));
                }
                DataType::Int64 => all
                    .extend(array.as_primitive::<Int64Type>().iter().map(|value| value.map_or(f64::NAN, |v| v as f64))),
                _ => return Err(self.lacks(column)),
            }
        }
        Ok(all)
    }

    /// A column of texts; empty where there is none. Equal texts share their memory.
    pub fn texts(&self, column: &str) -> Result<Vec<Arc<str>>, Error> {
        let mut all = Vec::with_capacity(self.len());
        let mut known: std::collections::HashSet<Arc<str>> = std::collections::HashSet::new();
        let mut add = |text: Option<&str>| {
            let text = text.unwrap_or_default();
            match known.get(text) {
                Some(known) => all.push(known.clone()),
                None => {
                    let text: Arc<str> = text.into();
                    known.insert(text.clone());
                    all.push(text);
                }
            }
        };
        for batch in &self.batches {
            let array = batch.column_by_name(column).ok_or_else(|| self.lacks(column))?;
            match array.data_type() {
                DataType::Utf8 => array.as_string::<i32>().iter().for_each(&mut add),
                DataType::LargeUtf8 => array.as_string::<i64>().iter().for_each(&mut add),
                DataType::Utf8View => array.as_string_view().iter().for_each(&mut add),
                _ => return Err(self.lacks(column)),
            }
        }
        Ok(all)
    }

    fn lacks(&self, column: &str) -> Error {
        Error::Column { name: self.name.clone(), column: column.to_owned() }
    }
}
