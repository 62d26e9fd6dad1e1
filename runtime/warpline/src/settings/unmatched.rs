//! Filters that no range of the program matches.
//!
//! The session warns of them at its start and when its filters change, and the control server tells whoever asks for a recording. They
//! are no error, because one line of settings may be for several programs.

use std::collections::HashSet;

use super::filter::Filter;
use warpline_core::catalog::{RangeSpec, catalog};
use warpline_core::suggest;

/// The most filters that are named; a request from outside may have thousands.
const MOST: usize = 16;

/// The filters that no range of the catalog fits, with the range that may be meant. The catalog does not change while the program
/// runs.
pub(crate) fn unmatched(filters: &[Filter]) -> Vec<String> {
    let fits = |filter: &&Filter| catalog().into_iter().any(|range| filter.matches(range.name()));
    let text = |filter: &Filter| {
        let remedy = match nearest(filter.pattern()) {
            Some(near) => format!("did you mean `{}{near}`?", if filter.leaves_out() { "!" } else { "" }),
            None => "`warpline catalog PROGRAM` lists its ranges".to_owned(),
        };
        format!("no range matches `{filter}`; {remedy}")
    };
    filters.iter().filter(|filter| !fits(filter)).take(MOST).map(text).collect()
}

/// The range's name, or the beginning of some, that is nearly this.
fn nearest(pattern: &str) -> Option<String> {
    let names = catalog().into_iter().map(RangeSpec::name);
    match pattern.strip_suffix(".*") {
        Some(begin) => {
            let begins = names.flat_map(|name| name.match_indices('.').map(move |(at, _)| &name[..at]));
            let begins: HashSet<&str> = begins.collect();
            suggest::nearest(begin, sorted(begins)).map(|near| format!("{near}.*"))
        }
        None => suggest::nearest(pattern, names).map(str::to_owned),
    }
}

/// Of two names that are equally near, the same one is suggested every time.
fn sorted(names: HashSet<&str>) -> Vec<&str> {
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_unstable();
    names
}
