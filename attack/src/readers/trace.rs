//! Any bytes as a trace: the whole way of `warpline stragglers`, but for the printing.

use warpline_cli::stragglers::Calls;

/// Reads the bytes as a trace.
pub fn trace(bytes: &[u8]) {
    let mut calls = Calls::default();
    match calls.read(bytes) {
        Ok(_) => assert!(calls.judge(3).to_json().len() > 2),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
