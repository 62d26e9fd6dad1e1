//! The progress that a person sees while the command works: drawn only if standard error is a terminal, so never in a
//! pipe or a file.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Shows that something is being done, until it is.
pub(crate) fn busy<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
    let spinner = ProgressBar::new_spinner().with_message(what);
    spinner.enable_steady_tick(Duration::from_millis(100));
    let done = work();
    spinner.finish_and_clear();
    done
}

/// A bar over things that are counted.
pub(crate) fn bar(count: usize, what: &'static str) -> ProgressBar {
    ProgressBar::new(count as u64).with_message(what).with_style(
        ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}").unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}
