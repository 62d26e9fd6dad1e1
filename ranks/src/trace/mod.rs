//! SQL over one trace: its slices as tables in memory, on the engine that reads the tables of ranks. `tables` has the columns, `collect` reads
//! the trace with the reader of `warpline report`, so that both have the same figures, and `named` has the queries that are shipped. Only the
//! tables that a query names are kept. Called by the command; never changes a file.

mod collect;
mod named;
mod tables;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use datafusion::datasource::memory::MemTable;
use datafusion::datasource::view::ViewTable;
use datafusion::prelude::SessionContext;
use warpline_trace::read::{self, Names};

pub use self::named::{NAMED, Named};
pub use self::tables::TraceTable;

use self::collect::{Collected, MOST_ROWS};
use crate::engine::Sql;
use crate::error::Error;

/// The tables of the trace at `path` that a query names, to be asked by [`Sql::select`], and what of the trace is left out, in sentences.
///
/// # Errors
/// The trace cannot be read, or the query is none over a trace.
pub(crate) fn open(path: &Path, sql: &str) -> Result<(Sql, Vec<String>), Error> {
    let engine = Sql::new().map_err(|error| Error::query("SQL", error))?;
    let wanted = wanted(&engine, sql)?;
    // They take room and time, so they are read for a query that can show them.
    let wants_fields = sql.contains('*') || sql.to_ascii_lowercase().contains("fields");
    let warnings = fill(&engine.context, path, Collected::new(wanted, wants_fields))?;
    // A view keeps the rows that its tables had when it was defined.
    define_views(&engine)?;
    Ok((engine, warnings))
}

/// The columns of the answer of a query, with their types as SQL has them.
///
/// # Errors
/// The query cannot be planned.
pub fn columns(sql: &str) -> Result<Vec<(String, String)>, Error> {
    let engine = Sql::new().map_err(|error| Error::query("SQL", error))?;
    wanted(&engine, sql)?;
    let schema = engine.plan(sql)?.schema().as_arrow().clone();
    Ok(schema.fields().iter().map(|field| (field.name().clone(), field.data_type().to_string())).collect())
}

/// Makes every table and every named query known, all of them empty, and returns the tables that a query reads.
fn wanted(engine: &Sql, sql: &str) -> Result<BTreeSet<TraceTable>, Error> {
    let of = |error| Error::query("SQL", error);
    for table in TraceTable::ALL.into_iter().filter(|table| table.view().is_none()) {
        insert(&engine.context, table, Vec::new()).map_err(of)?;
    }
    define_views(engine)?;
    let mut wanted = BTreeSet::new();
    let mut asked = vec![sql];
    let mut seen = BTreeSet::new();
    while let Some(sql) = asked.pop() {
        for name in engine.tables_of(sql)? {
            if let Some((known, of_view)) = views().find(|(known, _)| *known == name) {
                if seen.insert(known) {
                    asked.push(of_view);
                }
            } else if let Some(table) = TraceTable::find(&name) {
                wanted.insert(table);
            } else if !engine.context.table_exist(name.as_str()).map_err(of)? {
                return Err(Error::NoTable {
                    name,
                    tables: TraceTable::ALL.map(TraceTable::name).join(", "),
                    of: "a trace",
                });
            }
        }
    }
    Ok(wanted)
}

fn define_views(engine: &Sql) -> Result<(), Error> {
    for (name, sql) in views() {
        let of = |error| Error::query(name, error);
        let plan = engine.plan(sql)?;
        engine.context.deregister_table(name).map_err(of)?;
        engine.context.register_table(name, Arc::new(ViewTable::new(plan, Some(sql.to_owned())))).map_err(of)?;
    }
    Ok(())
}

/// The names and the queries of what is no table: those that stand for tables first, because others build on them.
fn views() -> impl Iterator<Item = (&'static str, &'static str)> {
    let tables = TraceTable::ALL.into_iter().filter_map(|table| Some((table.name(), table.view()?)));
    tables.chain(NAMED.iter().map(|query| (query.name, query.sql)))
}

/// Reads the trace into the tables.
fn fill(context: &SessionContext, path: &Path, mut collected: Collected) -> Result<Vec<String>, Error> {
    let mut names = Names::default();
    let skipped = read::read(path, &mut names, &mut collected)?;
    if collected.is_full {
        return Err(Error::Asked(format!(
            "`{}` has more than {MOST_ROWS} slices of what the query reads; name fewer tables, ask `warpline report`, or record less of the time",
            path.display()
        )));
    }
    let of = |error: datafusion::error::DataFusionError| Error::query("SQL", error);
    for (table, batches) in collected.tables(&names).map_err(|error| of(error.into()))? {
        context.deregister_table(table.name()).map_err(of)?;
        insert(context, table, batches).map_err(of)?;
    }
    Ok(skipped.warnings())
}

fn insert(
    context: &SessionContext,
    table: TraceTable,
    batches: Vec<datafusion::arrow::array::RecordBatch>,
) -> datafusion::common::Result<()> {
    let rows = MemTable::try_new(table.schema(), vec![batches])?;
    context.register_table(table.name(), Arc::new(rows)).map(drop)
}
