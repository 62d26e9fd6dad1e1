//! Replaces `text` in a build without the feature `build`, where nothing is recorded: a report has counts and notes.

use std::fmt;

use super::Report;
use warpline_core::plural::counted;
use warpline_core::text::printable;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { begun, recorded, dropped, .. } = self;
        write!(f, "{} begun, {recorded} recorded, {} dropped", counted(*begun, "zone"), dropped.total())?;
        self.notes.iter().try_for_each(|note| write!(f, "\nnote: {}", printable(note)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tests` has its like with the feature.
    #[test]
    fn a_report_of_nothing_is_its_notes() {
        let report = Report { notes: vec!["why".to_owned()], ..Report::default() };
        assert_eq!(report.to_string(), "0 zones begun, 0 recorded, 0 dropped\nnote: why");
    }
}
