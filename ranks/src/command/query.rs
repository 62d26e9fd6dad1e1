//! `query`: SQL over the tables of ranks in a folder, or over one trace. Which of the two, the path says.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use warpline_judge::tables::Table;
use warpline_trace::read::files;

use super::output::{complain, print};
use super::rows::Format;
use super::{On, warn};
use crate::clocks::{Options, clocks};
use crate::engine::{Engine, Limits};
use crate::error::Error;
use crate::folder::runs;
use crate::progress::busy;
use crate::store::url;
use crate::trace::{self, NAMED, Named, TraceTable};
use crate::views;

/// The arguments.
#[derive(Args)]
pub(super) struct Query {
    /// A trace (`.pftrace`, Chrome JSON, or either with `.gz`), or the folder that the setting `ranks=DIR` named, or
    /// the URL to which it was copied: s3://BUCKET/FOLDER.
    #[arg(required_unless_present = "list", value_name = "TRACE|FOLDER|URL")]
    of: Option<PathBuf>,
    /// One SELECT.
    #[arg(required_unless_present_any = ["list", "file", "name"])]
    sql: Option<String>,
    /// Read the query from a file.
    #[arg(long, conflicts_with_all = ["sql", "name"])]
    file: Option<PathBuf>,
    /// Answer a query that `--list` shows.
    #[arg(long, conflicts_with = "sql")]
    name: Option<String>,
    /// List the queries over a trace and the views over a folder, with their descriptions and columns.
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
    /// End the query after this many seconds without an answer: 60 s by default, and 600 s on a cluster.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    #[command(flatten)]
    on: On,
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
        let text = match url(of) {
            Some(_) => self.over_folder(self.on.tables(of, self.run.as_deref())?.path(), format)?,
            None if of.is_dir() => self.over_folder(of, format)?,
            None => self.over_trace(of, format)?,
        };
        print(&text);
        Ok(())
    }

    /// The limits of the query. A cluster has limits of its own.
    fn limits(&self) -> Limits {
        match &self.on.engine {
            Some(_) => Limits::of_memory(),
            None => Limits::of_query(self.timeout.map(Duration::from_secs)),
        }
    }

    fn over_trace(&self, path: &Path, format: Format) -> Result<String, Error> {
        let path_shown = path.display();
        for (option, is_set) in [("--run", self.run.is_some()), ("--engine", self.on.engine.is_some())] {
            if is_set {
                return Err(Error::Asked(format!(
                    "`{path_shown}` is not a folder, and `{option}` is for folders of ranks' tables; leave it out"
                )));
            }
        }
        let sql = match &self.name {
            Some(name) if Named::find(name).is_none() && views::find(name).is_some() => {
                return Err(Error::Asked(format!(
                    "`{name}` is a view over a folder of ranks' tables, and `{path_shown}` is not a folder; name the folder that the setting `ranks=DIR` named"
                )));
            }
            Some(name) => Named::find(name).ok_or_else(|| no_query(name))?.sql.to_owned(),
            None => self.sql()?,
        };
        // Reading takes the time and the memory of the trace, whatever is asked of it.
        let (of, asked) = (path.to_owned(), sql.clone());
        let (engine, warnings) = busy("reading", || Limits::none().within(move || trace::open(&of, &asked)))?;
        for warning in warnings {
            complain(format!("warning: {path_shown}: {warning}"));
        }
        busy("asking", || self.limits().within(move || format.write(&engine.select(&sql)?)))
    }

    fn over_folder(&self, folder: &Path, format: Format) -> Result<String, Error> {
        if let (true, Ok(traces)) = (runs(folder, &Table::ALL.map(Table::name)).is_empty(), files(&[folder.to_owned()]))
        {
            let first = traces.first().map(|trace| trace.display().to_string()).unwrap_or_default();
            return Err(Error::Asked(format!(
                "`{}` has traces and no tables of ranks, and a query reads one trace; name it, such as `{first}`",
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
        let engine = Engine::open_on(self.on.scheduler(self.timeout), folder, self.run.as_deref())?;
        // Only for queries that name them: they read every collective.
        if views::reads_clocks(&sql) {
            clocks(&engine, Options::default())?;
        }
        let asked = Arc::new(engine);
        let its = Arc::clone(&asked);
        let answer = move || {
            its.register_views_for(&sql)?;
            its.check(&sql)?;
            format.write(&its.query("SQL", &sql)?)
        };
        let text = busy("asking", || self.limits().within(answer));
        warn(&asked.folder().warnings());
        text
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
    let mut text = "Tables of one trace:\n".to_owned();
    for table in TraceTable::ALL {
        text += &format!("  {}\n      {}\n", table.name(), columns(&format!("SELECT * FROM {}", table.name()))?);
    }
    text += "\nQueries over one trace, each of which is also a table (`--name NAME`):\n";
    for query in NAMED {
        text += &format!("  {}: {}\n      {}\n", query.name, query.about(), columns(query.sql)?);
    }
    text += "\nViews over a folder of ranks' tables:\n";
    let width = views::ALL.iter().map(|view| view.name.len()).max().unwrap_or(0);
    for view in views::ALL {
        text += &format!("  {:width$}  {}\n", view.name, view.about());
    }
    Ok(text)
}
