//! Runs code of the Parquet reader over a file that others wrote. The reader asserts what a damaged file may break, and
//! a panic must not end a command that has a hundred thousand other files to read. Called by whatever opens a file of a
//! table.

use std::cell::Cell;
use std::panic;

use warpline_core::panics::caught_or_text;

thread_local! {
    static READS: Cell<bool> = const { Cell::new(false) };
}

/// Returns the result of `read`, or why the file is left out, also if the reader panics.
pub(crate) fn guarded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let before = READS.replace(true);
    let read = caught_or_text(read);
    READS.set(before);
    read.unwrap_or_else(|panic| Err(format!("is damaged: the Parquet reader panics: {panic}")))
}

/// Keeps the message of a panic that [`guarded`] turns into a reason from being printed as well. For the program: the
/// hook is the whole process's.
pub(crate) fn quiet() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !READS.get() {
            hook(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_reason_and_what_is_returned_stays() {
        assert_eq!(guarded(|| Ok(7)), Ok(7));
        assert_eq!(guarded(|| Err::<(), _>("is short".to_owned())), Err("is short".to_owned()));
        let why = guarded(|| -> Result<(), _> { panic!("index {} of 3", 4) }).expect_err("a reason");
        assert_eq!(why, "is damaged: the Parquet reader panics: index 4 of 3");
        assert!(!READS.get());
    }
}
