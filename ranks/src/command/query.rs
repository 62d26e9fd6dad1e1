//! `query`: SQL over the tables of ranks in a folder, or over one trace. Which of the two, the path says.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use datafusion::arrow::csv::WriterBuilder as CsvWriter;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::WriterBuilder;
use datafusion::arrow::json::writer::LineDelimited;
use datafusion::arrow::util::pretty::pretty_format_batches;
use warpline_annotate::trace::files;
use warpline_core::text::{printable_json, printable_lines};

use super::{On, print};
use crate::clocks::{Options, clocks};
use crate::engine::{Engine, Rows};
use crate::error::Error;
use crate::folder::runs;
use crate::progress::busy;
use crate::store::url;
use crate::table::Table;
use crate::trace::{self, NAMED, Named, TraceTable};
use crate::views;

/// The arguments.
#[derive(Args)]
pub(super) struct Query {
    /// A trace (`.pftrace`, Chrome JSON, or either with `.gz`), or the folder that the setting `ranks=DIR` named, or the URL to which it was
    /// copied: s3://BUCKET/FOLDER.
    #[arg(required_unless_present = "list", value_name = "TRACE|FOLDER|URL")]
    of: Option<PathBuf>,
    /// One SELECT.
    #[arg(required_unless_present_any = ["list", "file", "name"])]
    sql: Option<String>,
    /// Read the query from a file.
    #[arg(long, conflicts_with_all = ["sql", "name"])]
    file: Option<PathBuf>,
    /// Answer a query of `--list`.
    #[arg(long, conflicts_with = "sql")]
    name: Option<String>,
    /// List the queries over a trace and the views over a folder, with what they answer and their columns.
    #[arg(long)]
    list: bool,
    /// How rows are printed: as a table, as CSV, or as a JSON object in each line.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// The same as `--format json`.
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The run, if the folder has several.
    #[arg(long)]
    run: Option<String>,
    #[command(flatten)]
    on: On,
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Table,
    Csv,
    Json,
}

impl Query {
    /// Answers it.
    pub(super) fn answer(self) -> Result<(), Error> {
        if self.list {
            print(&list()?);
            return Ok(());
        }
        let format = if self.json { Format::Json } else { self.format };
        let Some(of) = &self.of else {
            return Err(Error::Asked("name a trace, or the folder that the setting `ranks=DIR` named".to_owned()));
        };
        let rows = match url(of) {
            Some(_) => self.over_folder(self.on.tables(of, self.run.as_deref())?.path())?,
            None if of.is_dir() => self.over_folder(of)?,
            None => self.over_trace(of)?,
        };
        print(&format.write(&rows)?);
        Ok(())
    }

    fn over_trace(&self, path: &Path) -> Result<Rows, Error> {
        let path_shown = path.display();
        for (option, is_set) in [("--run", self.run.is_some()), ("--engine", self.on.engine.is_some())] {
            if is_set {
                return Err(Error::Asked(format!(
                    "`{path_shown}` is no folder, and `{option}` is for folders of ranks' tables; leave it out"
                )));
            }
        }
        let sql = match &self.name {
            Some(name) if Named::find(name).is_none() && views::find(name).is_some() => {
                return Err(Error::Asked(format!(
                    "`{name}` is a view over a folder of ranks' tables, and `{path_shown}` is no folder; name the folder that the setting `ranks=DIR` named"
                )));
            }
            Some(name) => Named::find(name).ok_or_else(|| no_query(name))?.sql.to_owned(),
            None => self.sql()?,
        };
        let (rows, warnings) = busy("asking", || trace::query(path, &sql))?;
        for warning in warnings {
            eprintln!("warpline-ranks: warning: {path_shown}: {warning}");
        }
        Ok(rows)
    }

    fn over_folder(&self, folder: &Path) -> Result<Rows, Error> {
        if let (true, Ok(traces)) = (runs(folder, &Table::ALL.map(Table::name)).is_empty(), files(&[folder.to_owned()]))
        {
            let first = traces.first().map(|trace| trace.display().to_string()).unwrap_or_default();
            return Err(Error::Asked(format!(
                "`{}` has no tables of ranks, but traces, and a query is over one of them; name it, such as `{first}`",
                folder.display()
            )));
        }
        let sql = match &self.name {
            Some(name) if views::find(name).is_none() && Named::find(name).is_some() => {
                return Err(Error::Asked(format!(
                    "`{name}` is a query over one trace, and `{}` is a folder; name the trace",
                    folder.display()
                )));
            }
            Some(name) => views::find(name).ok_or_else(|| no_query(name))?.sql.to_owned(),
            None => self.sql()?,
        };
        let engine = Engine::open_on(self.on.scheduler(), folder, self.run.as_deref())?;
        // Only for those who ask: they read every collective.
        if views::reads_clocks(&sql) {
            clocks(&engine, Options::default())?;
        }
        engine.register_views_for(&sql)?;
        engine.check(&sql)?;
        busy("asking", || engine.query("SQL", &sql))
    }

    fn sql(&self) -> Result<String, Error> {
        match (&self.sql, &self.file) {
            (Some(sql), _) => Ok(sql.clone()),
            (None, Some(path)) => {
                std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.clone(), source })
            }
            (None, None) => Err(Error::Asked("write one SELECT, `--name NAME` or `--file FILE`".to_owned())),
        }
    }
}

fn no_query(name: &str) -> Error {
    Error::Asked(format!("there is no query `{name}`; `query --list` shows them"))
}

/// The tables and queries of a trace, and the views of a folder.
fn list() -> Result<String, Error> {
    let columns = |sql: &str| {
        let columns = trace::columns(sql)?;
        Ok::<_, Error>(columns.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(", "))
    };
    let mut text = "Over one trace, the tables\n".to_owned();
    for table in TraceTable::ALL {
        text += &format!("  {}\n      {}\n", table.name(), columns(&format!("SELECT * FROM {}", table.name()))?);
    }
    text += "\nand the queries, each of which is a table too (`--name NAME`)\n";
    for query in NAMED {
        text += &format!("  {}: {}\n      {}\n", query.name, query.about(), columns(query.sql)?);
    }
    text += "\nOver a folder of ranks' tables, the views\n";
    let width = views::ALL.iter().map(|view| view.name.len()).max().unwrap_or(0);
    for view in views::ALL {
        text += &format!("  {:width$}  {}\n", view.name, view.about());
    }
    Ok(text)
}

impl Format {
    /// The rows as text, without what deceives a terminal.
    pub(super) fn write(self, rows: &Rows) -> Result<String, Error> {
        let of = |error: ArrowError| Error::query("SQL", error.into());
        let mut bytes = Vec::new();
        match self {
            Self::Table => {
                let table = pretty_format_batches(&rows.batches).map_err(of)?;
                return Ok(printable_lines(&format!("{table}\n")).into_owned());
            }
            // The writer writes no head where there is no row.
            Self::Csv if rows.is_empty() => {
                let head: Vec<&str> = rows.schema.fields().iter().map(|field| field.name().as_str()).collect();
                return Ok(printable_lines(&(head.join(",") + "\n")).into_owned());
            }
            Self::Csv => {
                let mut writer = CsvWriter::new().with_header(true).build(&mut bytes);
                rows.batches.iter().try_for_each(|batch| writer.write(batch)).map_err(of)?;
            }
            Self::Json => {
                let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(&mut bytes);
                writer.write_batches(&rows.batches.iter().collect::<Vec<_>>()).map_err(of)?;
                writer.finish().map_err(of)?;
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        Ok(if self == Self::Json { printable_json(&text) } else { printable_lines(&text) }.into_owned())
    }
}
