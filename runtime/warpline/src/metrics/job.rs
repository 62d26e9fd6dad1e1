//! The process that metrics are of: what names it in labels and attributes.

use warpline_core::environment;
use warpline_report::sink::SessionInfo;

/// The longest text of a label, in characters.
const LONGEST: usize = 120;

/// What names the process.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// 0 without a launcher, as in the tables of ranks.
    pub(super) rank: u32,
    pub(super) host: String,
    pub(super) process_id: u32,
    pub(super) process_name: String,
    /// The job's number in Slurm, if there is one.
    pub(super) slurm_job: Option<String>,
}

impl Job {
    pub(super) fn new(info: &SessionInfo) -> Job {
        Job {
            rank: info.rank.unwrap_or(0),
            host: info.host.clone(),
            process_id: info.process_id,
            process_name: info.process_name.clone(),
            slurm_job: environment::var("SLURM_JOB_ID").ok(),
        }
    }
}

/// Returns a text that a label may have: on one line, with control characters as escapes, and not too long.
pub(super) fn label(text: &str) -> String {
    let text = warpline_core::text::printable(text);
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.into_owned(),
    }
}
