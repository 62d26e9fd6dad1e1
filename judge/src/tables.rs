//! The tables that ranks write, and their columns, as docs/ranks-tables.md states them. The writer's test compares its files
//! with this list, the generator of jobs with known truth writes by it, and the engine reads by it. A Parquet file that
//! lacks one of these columns is left out as foreign, unless the column is a count that ranks did not always write.

/// A folder of the data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// A row per rank and window.
    Windows,
    /// A row per step.
    Steps,
    /// A row per step and top-level range, in order.
    Stages,
    /// A row per window and range.
    Ranges,
    /// A row per window, range and bucket of its histogram.
    Sketches,
    /// A row per kept collective.
    Collectives,
    /// A row per window and communicator.
    Comms,
}

use Kind::{Added, I32, I64, MaybeI64, MaybeText, Text};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers of 32 bits.
    I32,
    /// Numbers of 64 bits.
    I64,
    /// Numbers of 64 bits that ranks did not always write: 0 in a file that lacks the column.
    Added,
    /// Numbers of 64 bits, of which some may be missing.
    MaybeI64,
    /// Texts.
    Text,
    /// Texts, of which some may be missing.
    MaybeText,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Windows, Self::Steps, Self::Stages, Self::Ranges, Self::Sketches, Self::Collectives, Self::Comms];

    /// The folder's name, which is also the table's name in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Windows => "windows",
            Self::Steps => "steps",
            Self::Stages => "stages",
            Self::Ranges => "ranges",
            Self::Sketches => "sketches",
            Self::Collectives => "collectives",
            Self::Comms => "comms",
        }
    }

    /// Its columns, in the order in which a file has them: rank and host first.
    pub const fn columns(self) -> &'static [(&'static str, Kind)] {
        match self {
            Self::Windows => &[
                ("rank", I32),
                ("host", Text),
                ("boot_id", Text),
                ("pid", I64),
                ("begin_ns", I64),
                ("end_ns", I64),
                ("realtime_offset_ns", I64),
                ("clock_err_ns", I64),
                ("steps", I64),
                ("steps_dropped", Added),
                ("zones_begun", I64),
                ("zones_recorded", I64),
                ("zones_captured", I64),
                ("zones_dropped", I64),
                ("collectives_begun", I64),
                ("collectives_kept", I64),
                ("collectives_left_out", I64),
                ("coarsened", Text),
                ("version", Text),
            ],
            Self::Steps => &[
                ("rank", I32),
                ("host", Text),
                ("step", I64),
                ("begin_ns", I64),
                ("wall_ns", I64),
                ("compute_ns", I64),
                ("comm_ns", I64),
                ("comm_hidden_ns", I64),
                ("wait_ns", I64),
                ("idle_ns", I64),
                ("uncertain_ns", Added),
                ("launch_ns", I64),
                ("zones", I64),
                ("dropped", I64),
                ("clock_err_ns", I64),
            ],
            Self::Stages => &[
                ("rank", I32),
                ("host", Text),
                ("step", I64),
                ("idx", I32),
                ("name", Text),
                ("dur_ns", I64),
                ("end_early_ns", Added),
            ],
            Self::Ranges => &[
                ("rank", I32),
                ("host", Text),
                ("step", MaybeI64),
                ("name", Text),
                ("n", I64),
                ("sum_ns", I64),
                ("min_ns", I64),
                ("max_ns", I64),
                ("launch_ns", I64),
                ("bounded", Added),
                ("bounded_sum_ns", Added),
                ("bounded_least_ns", Added),
            ],
            Self::Sketches => &[("rank", I32), ("host", Text), ("name", Text), ("bucket", I32), ("n", I64)],
            Self::Collectives => &[
                ("rank", I32),
                ("host", Text),
                ("comm", Text),
                ("seq", I64),
                ("kind", Text),
                ("bytes", I64),
                ("begin_ns", I64),
                ("dur_ns", I64),
                ("wait_ns", I64),
                ("err_ns", I64),
                ("end_early_ns", Added),
                ("range", Text),
                ("why", Text),
            ],
            Self::Comms => &[
                ("rank", I32),
                ("host", Text),
                ("comm", Text),
                ("members", MaybeText),
                ("size", I32),
                ("sampling", I64),
                ("last_seq", I64),
                ("signature", Text),
            ],
        }
    }

    /// Whether a file may lack the column, whose rows are 0 then.
    pub fn may_lack(self, column: &str) -> bool {
        self.columns().iter().any(|(name, kind)| *name == column && *kind == Added)
    }
}
