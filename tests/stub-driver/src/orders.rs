//! Orders for a process in which no test runs, such as a command that a test starts: `WARPLINE_STUB_DRIVER`, a list of `version=N`,
//! `devices=N`, `log=FILE`, `crash=SYMBOL` and `hang=SYMBOL`, joined by commas.

use std::fs::OpenOptions;
use std::sync::OnceLock;
use std::time::Duration;

use crate::journal::Journal;

const VARIABLE: &str = "WARPLINE_STUB_DRIVER";

fn orders() -> &'static [(String, String)] {
    static ORDERS: OnceLock<Vec<(String, String)>> = OnceLock::new();
    ORDERS.get_or_init(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let pairs = text.split(',').filter_map(|order| order.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    })
}

/// The number that the variable gives.
pub fn number(key: &str) -> Option<i32> {
    text(key)?.parse().ok()
}

fn text(key: &str) -> Option<&'static str> {
    orders().iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
}

/// A journal that writes to the file that the variable names, if it names one.
pub fn journal() -> Journal {
    let mut journal = Journal::default();
    let file = text("log").and_then(|path| OpenOptions::new().create(true).append(true).open(path).ok());
    if let Some(file) = file {
        journal.write_to(file);
    }
    journal
}

/// Crashes or hangs where the variable says so.
pub fn at(symbol: &str) {
    let is = |key: &str| orders().iter().any(|(known, value)| known == key && value == symbol);
    if is("crash") {
        std::process::abort();
    }
    while is("hang") {
        std::thread::sleep(Duration::from_secs(1));
    }
}
