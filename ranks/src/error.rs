//! Errors of the whole folder, or of a trace. A file that cannot be read is not an error: it is left out,
//! counted and reported ([`Omission`]).

use std::path::PathBuf;

use serde::Serialize;

/// A file that is not read.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Omission {
    /// Its path in the folder.
    pub file: String,
    /// Why.
    pub why: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder itself.
    #[error("cannot read the folder `{}`: {source}; name the folder that the setting `ranks=DIR` named", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// There is no table in it.
    #[error("`{}` has no tables ({left_out} files were left out): it should contain `{table}/run=ID/win=N/*.parquet`; name the folder that the setting `ranks=DIR` named", path.display())]
    NoTables {
        /// The folder.
        path: PathBuf,
        /// The table that is missing.
        table: &'static str,
        /// Files that are there and could not be used.
        left_out: usize,
    },
    /// Ranks write to it, and none has ended a window.
    #[error(
        "`{}` has no window yet: each rank writes its tables when a window ends, after `ranks_window` (60 s by default) and at its end; until then, \
         `warpline-ranks hang {}` says what the ranks do",
        path.display(), path.display()
    )]
    NoWindow {
        /// The folder.
        path: PathBuf,
    },
    /// The folder has several runs.
    #[error("`{}` has {} runs: {}; pick one with `--run ID`", path.display(), runs.len(), runs.join(", "))]
    ManyRuns {
        /// The folder.
        path: PathBuf,
        /// Their ids, the newest first.
        runs: Vec<String>,
    },
    /// The run that was asked for.
    #[error("`{}` has no run `{run}`; its runs: {}", path.display(), runs.join(", "))]
    NoRun {
        /// The folder.
        path: PathBuf,
        /// The run that was asked for.
        run: String,
        /// The runs of the folder.
        runs: Vec<String>,
    },
    /// A query.
    #[error("the query `{name}` fails: {source}")]
    Query {
        /// The view's name, or `SQL` for what the user wrote.
        name: String,
        /// The error of DataFusion.
        source: Box<datafusion::error::DataFusionError>,
    },
    /// A query that does not only read.
    #[error("a query only reads, and this one begins with `{begin}`; write one SELECT")]
    Writes {
        /// Its first words.
        begin: String,
    },
    /// A table that is not there.
    #[error(
        "there is no table `{name}` in {of}; its tables are {tables}, and `query --list` shows the queries and views over them"
    )]
    NoTable {
        /// The table that the query names.
        name: String,
        /// The tables that there are.
        tables: String,
        /// The trace or the folder that has them.
        of: &'static str,
    },
    /// A trace.
    #[error(transparent)]
    Trace(#[from] warpline_trace::read::ReadError),
    /// A query on a cluster.
    #[error("the query `{name}` fails on the cluster of `{scheduler}`: {source}; its scheduler and executors must reach `{}` under this path, and their logs say more", path.display())]
    Cluster {
        /// The view's name, or `SQL` for what the user wrote.
        name: String,
        /// The value of `--engine`.
        scheduler: String,
        /// The folder of the tables.
        path: PathBuf,
        /// The error of Ballista.
        source: Box<datafusion::error::DataFusionError>,
    },
    /// A query to which a cluster gives no answer.
    #[error(
        "the query `{name}` fails on the cluster of `{scheduler}`: no answer in {seconds} s; if an executor died, ask again, and the others answer; for a query that takes longer, write `--timeout SECONDS`"
    )]
    NoAnswer {
        /// The view's name, or `SQL` for what the user wrote.
        name: String,
        /// The value of `--engine`.
        scheduler: String,
        /// The limit.
        seconds: u64,
    },
    /// A query that has too many parts to be planned.
    #[error(
        "the query has {parts} parts (names, operators, and values outside of lists), and at most {most} are planned; split it into several queries"
    )]
    TooManyParts {
        /// The parts of what the user wrote.
        parts: usize,
        /// The limit.
        most: usize,
    },
    /// A query that takes too long.
    #[error(
        "the query has no answer after {seconds} s, and is ended; ask for less, or give it more time with `--timeout SECONDS`"
    )]
    TooLong {
        /// The limit.
        seconds: u64,
    },
    /// A query that takes too much memory.
    #[error(
        "the query takes more than {gib} GiB of memory, and is ended; ask for fewer rows or shorter texts, or write a `LIMIT`"
    )]
    TooLarge {
        /// The limit.
        gib: u64,
    },
    /// A query that ends in a panic.
    #[error(
        "the query ends in a panic of the engine, which the lines above describe; write it in another way, and report it"
    )]
    Panicked,
    /// Tables at a URL.
    #[error("cannot read `{url}`: {source}; {remedy}")]
    Store {
        /// The URL that the user wrote.
        url: String,
        /// The error of the store, or of the connection to it.
        source: Box<dyn std::error::Error + Send + Sync>,
        /// The remedy.
        remedy: String,
    },
    /// The answer of a query has another form than the code that reads it expects.
    #[error("the query `{name}` returns no column `{column}` of the expected type; `ranks/sql/{name}.sql` was changed")]
    Column {
        /// The view's name.
        name: String,
        /// The column.
        column: String,
    },
    /// There are no progress files.
    #[error("`{}` has no progress files{}: it should contain `progress/run=ID/rank-*.json`, which ranks write each second while they run", path.display(), but(left_out))]
    NoProgress {
        /// The folder.
        path: PathBuf,
        /// Files that are there and could not be used.
        left_out: Vec<Omission>,
    },
    /// A file that is written.
    #[error("cannot write `{}`: {source}; check the folder and its free space", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system or of the Parquet writer.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file that a user named.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A request that cannot be met.
    #[error("{0}")]
    Asked(String),
}

impl Error {
    /// For a file that cannot be written.
    pub(crate) fn write(path: &std::path::Path, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Write { path: path.to_owned(), source: source.into() }
    }

    /// For a query that fails.
    pub(crate) fn query(name: &str, source: datafusion::error::DataFusionError) -> Self {
        Self::Query { name: name.to_owned(), source: Box::new(source) }
    }
}

/// The end of a message about missing data: which files were left out, and why.
fn but(left_out: &[Omission]) -> String {
    match left_out {
        [] => String::new(),
        [one] => format!(" that can be read: `{}` {}", one.file, one.why),
        [one, rest @ ..] => format!(" that can be read: `{}` {}, and {} more", one.file, one.why, rest.len()),
    }
}
