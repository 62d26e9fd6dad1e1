//! The queries over one trace that are shipped, each a file of `ranks/queries/` whose comment begins with what it
//! answers.

/// A query.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// Its name, which SQL may use as that of a table.
    pub name: &'static str,
    /// One `SELECT`, with a comment that begins with what it answers.
    pub sql: &'static str,
}

impl Named {
    /// The query of a name.
    pub fn find(name: &str) -> Option<Self> {
        NAMED.iter().copied().find(|query| query.name == name)
    }

    /// The question that it answers: the first line of its comment.
    pub fn about(&self) -> &'static str {
        self.sql.lines().next().unwrap_or_default().trim_start_matches("--").trim()
    }
}

macro_rules! named {
    ($($name:literal),* $(,)?) => {
        &[$(Named { name: $name, sql: include_str!(concat!("../../queries/", $name, ".sql")) }),*]
    };
}

/// Every query, in the order in which they are listed.
pub const NAMED: &[Named] = named![
    "slowest_kernels",
    "kernels_by_range",
    "first_calls",
    "queue_delay",
    "launch_gaps",
    "stream_gaps",
    "streams_at_once",
    "collectives_by_bandwidth",
    "hidden_communication",
    "waits_by_thread",
    "ranges_by_step",
    "slowest_steps",
];
