//! Any bytes as a Chrome trace that was not finished: what `warpline recover` does, without the files.

use serde_json::value::RawValue;

/// Recovers the events in the bytes: the result is JSON, and a whole trace with as many events.
pub fn recover(bytes: &[u8]) {
    let mut document = Vec::new();
    match warpline_cli::recover_chrome(bytes, &mut document) {
        Ok((events, _)) => {
            serde_json::from_slice::<&RawValue>(&document).expect("JSON");
            let again = warpline_cli::recover_chrome(&document[..], &mut std::io::sink());
            assert_eq!(again, Ok((events, events > 0)), "{}", String::from_utf8_lossy(&document));
        }
        Err(error) => assert!(!error.is_empty()),
    }
}
