//! Any bytes on the socket of a program that listens, in pieces of any size: a request, or a refusal in one line, and never more
//! memory than a frame.

use warpline_trace::control::protocol::{ControlRequest, Decoder, Kind, MAX_REQUEST_BYTES};

/// Decodes the bytes as what comes on a socket.
pub fn request(bytes: &[u8]) {
    let mut decoder = Decoder::new(MAX_REQUEST_BYTES);
    let mut rest = bytes;
    // The first byte says how the others are cut.
    let piece = usize::from(rest.first().copied().unwrap_or(1)).max(1);
    while !rest.is_empty() {
        let count = piece.min(rest.len()).min(decoder.room());
        assert!(count > 0, "what is whole, or cannot become so, is taken out or refused");
        let (now, later) = rest.split_at(count);
        rest = later;
        decoder.feed(now);
        loop {
            match decoder.take() {
                Ok(Some((Kind::Json, body))) => match ControlRequest::parse(&body) {
                    Ok(request) => assert_eq!(ControlRequest::parse(request.to_json().as_bytes()), Ok(request)),
                    Err(refusal) => {
                        let said = refusal.to_string();
                        assert!(!said.is_empty() && !said.contains(char::is_control), "{said:?}");
                        let reply: serde_json::Value = serde_json::from_str(&refusal.to_json()).expect("JSON");
                        assert_eq!(reply["text"], said);
                    }
                },
                Ok(Some((Kind::Trace, body))) => assert!(body.len() <= MAX_REQUEST_BYTES),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}
