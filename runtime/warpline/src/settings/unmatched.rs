//! Filters that no range of the program matches.
//!
//! The session warns about them at its start and when its filters change, and the control server reports them to a
//! recording client. They are not an error, because one line of settings may serve several programs.

use std::collections::HashSet;

use super::filter::Filter;
use warpline_core::catalog::{RangeSpec, catalog};
use warpline_core::dynamic;
use warpline_core::sorting;
use warpline_core::suggest;

/// The maximum number of filters that are reported. A control request may have thousands.
const MOST: usize = 16;

/// Returns a message for each filter that matches no range of the catalog and none that was named at run time so far,
/// with a suggestion.
pub(crate) fn unmatched(filters: &[Filter]) -> Vec<String> {
    let fits = |filter: &&Filter| dynamic::all_ranges().any(|range| filter.matches(range.name()));
    let library = catalog().library();
    let text = |filter: &Filter| {
        let remedy = match nearest(filter.pattern()) {
            Some(near) => format!("did you mean `{}{near}`?", if filter.leaves_out() { "!" } else { "" }),
            None => "`warpline catalog PROGRAM` lists its ranges".to_owned(),
        };
        match &library {
            Some(library) => format!(
                "no range of the catalog matches `{filter}`; the catalog is that of `{library}`, and ranges outside of it match from their first zone on"
            ),
            None => format!("no range matches `{filter}`; {remedy}"),
        }
    };
    filters.iter().filter(|filter| !fits(filter)).take(MOST).map(text).collect()
}

/// Returns the range name, or the prefix of one, that is most similar.
fn nearest(pattern: &str) -> Option<String> {
    let names = catalog().into_iter().map(RangeSpec::name);
    match pattern.strip_suffix(".*") {
        Some(begin) => {
            let begins = names.flat_map(|name| name.match_indices('.').map(move |(at, _)| &name[..at]));
            let begins: HashSet<&str> = begins.collect();
            suggest::nearest(begin, sorted(begins)).map(|near| format!("{near}.*"))
        }
        // The name of a namespace, or of a part of it, is meant for what is in it.
        None if names.clone().any(|name| name.strip_prefix(pattern).is_some_and(|rest| rest.starts_with('.'))) => {
            Some(format!("{pattern}.*"))
        }
        None => suggest::nearest(pattern, names).map(str::to_owned),
    }
}

/// Sorts the names, so that of two equally similar ones the same is always suggested.
fn sorted(names: HashSet<&str>) -> Vec<&str> {
    let mut names: Vec<_> = names.into_iter().collect();
    sorting::sort(&mut names);
    names
}
